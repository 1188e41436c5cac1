"""Rates of clients, and for how long the connection of one that is over its quota rests."""

import pytest

from holdfast.broker.core.byte_rate import ByteRate, RateWindows
from holdfast.broker.core.requests import client_quotas
from holdfast.broker.core.requests.client_quotas import ByteRateQuota, ClientQuotas

KAFKAS = RateWindows(11, 1_000)


def quota(
    limit: int | None = None, default: int | None = None, windows: RateWindows = KAFKAS
) -> ByteRateQuota:
    """Of a client `c`."""
    made = ByteRateQuota("producer_byte_rate", windows)
    made.configure({} if limit is None else {"c": limit}, default)
    return made


@pytest.mark.parametrize(
    ("counted", "rest_ms"),
    [
        # a client that begins is measured over ten seconds, of which nine were empty
        ([(0, 10_000)], 0),
        ([(0, 10_001)], 1),
        ([(0, 12_000)], 2_000),
        # spread over the windows, the present one counts as whole: 11 of them stand for 9.9 s
        ([(second * 1_000, 900) for second in range(30)], 0),
        ([(second * 1_000, 1_000) for second in range(30)], 1_000),
        # twice as many: after 10 seconds, 22 000 bytes of the last 11 windows stand for 22 s
        ([(second * 1_000, 2_000) for second in range(11)], 12_000),
        # what was in windows that are over counts no more
        ([(0, 12_000), (11_000, 10_000)], 0),
        ([(0, 12_000), (10_999, 10_000)], 11_001),
        # within one window all is one sum
        ([(0, 6_000), (999, 6_000)], 1_001),
    ],
)
def test_a_client_rests_until_its_rate_is_back_at_the_limit(
    counted: list[tuple[int, int]], rest_ms: int
) -> None:
    """1000 bytes a second, 11 windows of a second, as Kafka measures it."""
    rate = ByteRate()
    rests = [rate.count(size, 1_000, KAFKAS, now_ms) for now_ms, size in counted]
    assert rests[-1] == rest_ms


@pytest.mark.parametrize(
    ("windows", "size_bytes", "rest_ms"),
    [(RateWindows(1, 1_000), 1_500, 500), (RateWindows(2, 5_000), 6_000, 1_000), (KAFKAS, 11_000, 1_000)],
)
def test_the_windows_say_how_much_may_come_at_once(
    windows: RateWindows, size_bytes: int, rest_ms: int
) -> None:
    assert ByteRate().count(size_bytes, 1_000, windows, 0) == rest_ms


def test_no_rest_is_longer_than_all_windows_nor_than_a_minute() -> None:
    """Clients give up requests that rest much longer."""
    assert quota(1).count("c", 1 << 30, 0) == 11_000
    assert quota(1, windows=RateWindows(1_000, 3_600_000)).count("c", 1 << 40, 0) == 60_000


@pytest.mark.parametrize(
    ("client_id", "limit"), [("c", 5), ("other", 7), ("", 7)], ids=["own", "default", "nameless"]
)
def test_a_clients_own_limit_goes_before_the_default(client_id: str, limit: int) -> None:
    assert quota(5, default=7).limit_of(client_id) == limit


def test_a_client_without_a_limit_is_not_measured() -> None:
    one = quota(5)
    assert (one.is_on, one.limit_of("other"), one.answer_bytes_max("other")) == (True, None, None)
    assert one.count("other", 1 << 40, 0) == 0
    assert not quota().is_on


def test_clients_are_measured_apart() -> None:
    one = quota(default=1_000)
    assert one.count("a", 11_000, 0) == 1_000
    assert one.count("b", 10_000, 0) == 0


def test_rests_are_counted() -> None:
    one = quota(1_000)
    for now_ms in (0, 1):
        one.count("c", 6_000, now_ms)
    assert (one.throttled_count, one.throttled_ms) == (1, 1_999)


def test_an_answer_has_at_most_what_one_window_allows_and_a_consumer_reads_at_its_limit() -> None:
    assert quota(1_000, windows=RateWindows(1, 2_000)).answer_bytes_max("c") == 2_000
    one, now_ms = quota(1_000), 0
    size_bytes = one.answer_bytes_max("c")
    assert size_bytes == 1_000
    rests = []
    for _ in range(100):  # a consumer that fetches whenever it may
        rests.append(one.count("c", size_bytes, now_ms))
        now_ms += rests[-1] + 10
    assert now_ms >= 88_000  # 100 000 bytes, of which the first come at once
    assert 0 < max(rests) < 5_000  # at once means: in one window, which counts until it is over


def test_a_new_limit_counts_what_was_sent_before() -> None:
    one = quota(1_000)
    one.count("c", 10_000, 0)
    one.configure({"c": 500}, None)
    assert one.count("c", 1, 0) == 10_002
    one.configure({}, None)
    one.configure({"c": 500}, None)
    assert one.count("c", 1, 0) == 0


def test_what_brings_no_bytes_makes_no_rest() -> None:
    """Consumers that wait for records are answered with none."""
    one = quota(1_000)
    assert one.count("c", 12_000, 0) == 2_000
    assert one.count("c", 0, 0) == 0
    assert one.throttled_count == 1


def test_of_a_long_client_id_only_as_much_counts_as_a_quota_can_name() -> None:
    one = quota(default=1_000)
    assert one.count("x" * 30_000, 11_000, 0) == 1_000
    assert one.count("x" * 255, 1_000, 0) == 2_000
    one.configure({"x" * 255: 7}, None)
    assert (one.limit_of("x" * 300), one.answer_bytes_max("x" * 300)) == (7, 7)


def test_clients_that_went_away_leave_nothing_behind_and_too_many_share_one_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 2)
    one = quota(default=1_000)
    assert [one.count(name, 10_000, 0) for name in ("a", "b", "c")] == [0, 0, 0]
    assert one.count("d", 1_000, 0) == 1_000  # with what `c` has sent
    assert one.count("a", 1_000, 0) == 1_000
    assert [one.count(name, 10_000, 20_000) for name in ("e", "f")] == [0, 0]


def test_clients_without_an_id_are_measured_apart_from_too_many_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 2)
    one = quota(default=1_000)
    assert [one.count(name, 10_000, 0) for name in ("", "a", "b")] == [0, 0, 0]


def test_limits_are_those_of_the_image() -> None:
    both = ClientQuotas(KAFKAS)
    both.configure({"": {"consumer_byte_rate": 3}, "c": {"producer_byte_rate": 1, "consumer_byte_rate": 2}})
    found = [(one.limit_of("c"), one.limit_of("other")) for one in (both.produce, both.fetch)]
    assert found == [(1, None), (2, 3)]
    both.configure({})
    assert (both.produce.is_on, both.fetch.is_on) == (False, False)
