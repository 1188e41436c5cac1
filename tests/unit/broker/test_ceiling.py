"""How far a log may be shown before more is promised on disk."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.core.replicas.ceiling import AHEAD_MS, Ceiling, Urgency


def settled(end: int, now_ms: int = 0, ahead_min: int = 100) -> Ceiling:
    ceiling = Ceiling(ahead_min, -1)
    raise_to(ceiling, end, now_ms)
    return ceiling


def raise_to(ceiling: Ceiling, end: int, now_ms: int) -> None:
    ceiling.stored(ceiling.promise(end, now_ms, may_lower=True))


def test_nothing_may_be_shown_before_the_first_promise_is_stored() -> None:
    """R68: also of an empty log."""
    ceiling = Ceiling(100, -1)
    assert ceiling.limit == -1
    assert ceiling.urgency(0) is Urgency.NOW
    assert ceiling.promise(0, 0, may_lower=True) == 100
    assert ceiling.limit == -1
    ceiling.stored(100)
    assert ceiling.limit == 100


def test_more_is_wanted_before_the_limit_is_reached() -> None:
    ceiling = settled(40)
    assert ceiling.limit == 140
    assert ceiling.urgency(90) is Urgency.NOT_NOW
    assert ceiling.urgency(91) is Urgency.SOON
    assert ceiling.urgency(140) is Urgency.SOON
    assert ceiling.urgency(141) is Urgency.NOW


def test_one_promise_at_a_time_is_on_its_way() -> None:
    ceiling = settled(0)
    ceiling.promise(500, 10, may_lower=True)
    assert ceiling.urgency(10_000) is Urgency.NOT_NOW
    assert not ceiling.is_too_high(500, 10 * AHEAD_MS)


def test_a_lower_promise_counts_before_it_is_stored() -> None:
    """Which of the two is on disk is not known until then."""
    ceiling = settled(0, ahead_min=10)
    raise_to(ceiling, 1000, 1)
    assert ceiling.limit == 2000
    assert ceiling.is_too_high(1001, 1 + AHEAD_MS)
    lower = ceiling.promise(1001, 1 + AHEAD_MS, may_lower=True)
    assert (lower, ceiling.limit) == (1011, 1011)
    ceiling.stored(lower)
    assert ceiling.limit == 1011


def test_who_may_have_lost_records_promises_no_less_than_before() -> None:
    """R68: what a former process promised may be all that is known of them."""
    ceiling = Ceiling(10, 5000)
    assert ceiling.urgency(40) is Urgency.NOT_NOW
    assert ceiling.promise(40, 0, may_lower=False) == 5000
    ceiling.stored(5000)
    assert ceiling.is_too_high(40, AHEAD_MS)
    assert ceiling.promise(5020, AHEAD_MS, may_lower=False) >= 5030


def test_a_promise_of_a_former_process_is_lowered_as_soon_as_that_is_safe() -> None:
    ceiling = Ceiling(10, 5000)
    assert ceiling.is_too_high(40, 0)
    raise_to(ceiling, 40, 0)
    assert ceiling.limit == 50


def test_a_promise_of_a_former_replica_changes_nothing() -> None:
    """The partition was moved away and back: what was stored for the former log comes late."""
    ceiling = Ceiling(100, -1)
    ceiling.stored(100)
    ceiling.promise(50, 0, may_lower=True)
    ceiling.stored(100)
    assert ceiling.limit == -1


def test_a_steady_stream_is_promised_for_some_seconds() -> None:
    """200 records in 100 ms are 10 000 in AHEAD_MS; one burst is believed only as far as twice as much."""
    ceiling, end, now_ms = settled(0), 0, 0
    stores = 0
    while now_ms < 60_000:
        now_ms += 100
        end += 200
        if ceiling.urgency(end) is not Urgency.NOT_NOW:
            raise_to(ceiling, end, now_ms)
            stores += 1
    assert ceiling.limit - end <= 10_000
    assert stores < 40, "one every few seconds, once the traffic is known"


def test_a_quiet_partition_has_the_tightest_bound() -> None:
    ceiling = settled(0)
    raise_to(ceiling, 5000, 10)
    assert not ceiling.is_too_high(5000, 10 + AHEAD_MS - 1)
    assert ceiling.is_too_high(5000, 10 + AHEAD_MS)
    raise_to(ceiling, 5000, 10 + AHEAD_MS)
    assert ceiling.limit == 5100
    assert not ceiling.is_too_high(5000, 10 + 9 * AHEAD_MS), "there is nothing to gain"


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3000), st.booleans(), st.booleans()), max_size=30),
)
def test_what_is_on_disk_is_never_below_what_may_be_shown(
    ahead_min: int, steps: list[tuple[int, int, bool, bool]]
) -> None:
    """R68: at any moment the disk holds the last promise that was stored, or the one on its way."""
    ceiling, end, now_ms = Ceiling(ahead_min, -1), 0, 0
    on_disk, on_its_way = -1, None
    for grown, passed_ms, is_stored, may_lower in steps:
        end, now_ms = end + grown, now_ms + passed_ms
        if on_its_way is not None and is_stored:
            on_disk, on_its_way = on_its_way, None
            ceiling.stored(on_disk)
        if ceiling.urgency(end) is not Urgency.NOT_NOW or (may_lower and ceiling.is_too_high(end, now_ms)):
            on_its_way = ceiling.promise(end, now_ms, may_lower=may_lower)
            assert on_its_way >= end + ahead_min
        assert ceiling.limit <= on_disk
        assert on_its_way is None or ceiling.limit <= on_its_way
