"""Where the time of requests went, and how they were answered."""

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.rpc.core.request_stats import RequestStats, families
from holdfast.runtime.stats import HistogramValue

MS = 1_000_000


def phases(stats: RequestStats) -> dict[str, tuple[int, float]]:
    """{phase: (how often, ms in all)}."""
    _, seconds = families({ApiKey.FETCH: stats}, "PLAINTEXT")
    found = {}
    for sample in seconds.samples:
        assert isinstance(sample.value, HistogramValue)
        count = sum(count for _, count in sample.value.buckets)
        found[dict(sample.labels)["phase"]] = (count, round(sample.value.sum * 1000, 6))
    return found


def test_a_parked_request_spends_its_time_with_others() -> None:
    stats = RequestStats()
    stats.answered(ErrorCode.NONE, 1 * MS, 3 * MS, 4 * MS, 504 * MS)
    stats.sent(1 * MS, 504 * MS, 506 * MS)
    assert phases(stats) == {
        "queue": (1, 2.0),
        "local": (1, 1.0),
        "remote": (1, 500.0),
        "send": (1, 2.0),
        "total": (1, 505.0),
    }


def test_a_request_that_its_handler_answers_waits_for_no_other() -> None:
    stats = RequestStats()
    stats.answered(ErrorCode.NONE, 0, 1 * MS, 0, 5 * MS)
    assert phases(stats)["local"] == (1, 4.0)
    assert phases(stats)["remote"] == (1, 0.0)
    assert phases(stats)["total"] == (0, 0.0), "nothing was sent: acks 0, or the peer has gone"


def test_requests_are_counted_by_their_error_and_unused_apis_from_zero_on() -> None:
    stats = RequestStats()
    stats.answered(ErrorCode.NOT_CONTROLLER, 0, 0, 0, 0)
    stats.answered(32_000, 0, 0, 0, 0)
    counted, seconds = families({ApiKey.FETCH: stats, ApiKey.PRODUCE: RequestStats()}, "L")
    assert [(sample.value, *(value for _, value in sample.labels)) for sample in counted.samples] == [
        (0, "fetch", "NONE", "L"),
        (1, "fetch", "NOT_CONTROLLER", "L"),
        (1, "fetch", "32000", "L"),
        (0, "produce", "NONE", "L"),
    ]
    assert {dict(sample.labels)["request"] for sample in seconds.samples} == {"fetch"}
