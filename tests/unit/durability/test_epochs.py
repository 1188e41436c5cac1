"""Leader epochs of a log, found out with questions, and how far two logs agree."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.durability.core.epochs import DivergenceCheck, Epochs, EpochWalk, epoch_at

#: the leader epoch of each record
Log = list[int]


def answer(log: Log, question: int) -> tuple[int, int]:
    """What a leader with this log says."""
    below = [epoch for epoch in log if epoch <= question]
    return (below[-1], len(below)) if below else (-1, -1)


def epochs_of(log: Log, begin: int = 0) -> Epochs:
    """The same by looking at each record."""
    found: dict[int, int] = {}
    for offset in range(begin, len(log)):
        found.setdefault(log[offset], offset)
    return tuple(found.items())


def put(asking: EpochWalk | DivergenceCheck, log: Log) -> None:
    """Until there is no question left."""
    for _ in range(len(log) + 10):
        if asking.question is None:
            return
        asking.heard(*answer(log, asking.question))
    raise AssertionError("it asks and asks")


logs = st.lists(st.integers(0, 6), max_size=12).map(sorted)


@given(logs, st.integers(0, 12), st.integers(0, 2))
def test_a_walk_finds_the_epoch_of_every_record_from_its_beginning_on(
    log: Log, begin: int, younger: int
) -> None:
    begin = min(begin, len(log))
    walk = EpochWalk(begin, max(log, default=0) + younger)
    put(walk, log)
    assert walk.epochs == epochs_of(log, begin)
    assert [epoch_at(walk.epochs, offset) for offset in range(begin, len(log))] == log[begin:]


@given(
    logs,
    st.sets(st.integers(1, 9)),
    st.lists(st.integers(1, 9), max_size=8),
    st.lists(st.integers(1, 9), max_size=8),
)
def test_two_logs_agree_exactly_as_far_as_their_records_do(
    common: Log, of_leader: set[int], mine: list[int], its: list[int]
) -> None:
    # an epoch has one leader, so what both wrote after they parted is of different epochs
    last = max(common, default=0)
    read = common + sorted(last + epoch for epoch in mine if epoch not in of_leader)
    log = common + sorted(last + epoch for epoch in its if epoch in of_leader)
    check = DivergenceCheck(epochs_of(read), len(read))
    put(check, log)
    assert check.agreed == len(common) + min(0, len(read) - len(common))
    assert DivergenceCheck((), 5).question is None
