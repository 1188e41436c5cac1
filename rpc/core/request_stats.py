"""How many requests of each API were answered how, and where their time went.

Owns the five phases that Kafka's users know: queue (arrived, not started), local (in the handler), remote
(waiting for others), send (answer queued until it is written), total. Requests are noted one by one and
counted many at a time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.stats import Histogram, MetricFamily, MetricKind, Sample

_BOUNDS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SECOND_NS = 1e9
#: Requests that are noted before they are counted.
_NOTED_MAX = 1024


def _histogram() -> Histogram:
    return Histogram(_BOUNDS_SECONDS)


@dataclass(slots=True)
class RequestStats:
    """Of one API."""

    #: {error code of the answer as a whole: answers}; what rows of it say is not looked at
    errors: dict[int, int] = field(default_factory=lambda: {ErrorCode.NONE: 0})
    queue: Histogram = field(default_factory=_histogram)
    local: Histogram = field(default_factory=_histogram)
    remote: Histogram = field(default_factory=_histogram)
    send: Histogram = field(default_factory=_histogram)
    total: Histogram = field(default_factory=_histogram)
    #: not counted yet: when they arrived, were started, handled and answered, ns
    _answered: list[tuple[int, int, int, int]] = field(default_factory=list)
    #: not counted yet: when they arrived, were answered and sent, ns
    _sent: list[tuple[int, int, int]] = field(default_factory=list)

    def answered(
        self, error_code: int, arrived_ns: int, started_ns: int, handled_ns: int, answered_ns: int
    ) -> None:
        """The answer is there; `handled_ns` is when the handler returned, 0 while it still runs."""
        self.errors[error_code] = self.errors.get(error_code, 0) + 1
        self._answered.append((arrived_ns, started_ns, handled_ns or answered_ns, answered_ns))
        if len(self._answered) >= _NOTED_MAX:
            self.count()

    def sent(self, arrived_ns: int, answered_ns: int, sent_ns: int) -> None:
        """The answer was handed to the connection."""
        self._sent.append((arrived_ns, answered_ns, sent_ns))

    def count(self) -> None:
        """Count what was noted; before the histograms are read."""
        answered, self._answered = self._answered, []
        sent, self._sent = self._sent, []
        self.queue.observe_all([(started - arrived) / _SECOND_NS for arrived, started, _, _ in answered])
        self.local.observe_all([(handled - started) / _SECOND_NS for _, started, handled, _ in answered])
        self.remote.observe_all([(done - handled) / _SECOND_NS for _, _, handled, done in answered])
        self.send.observe_all([(left - done) / _SECOND_NS for _, done, left in sent])
        self.total.observe_all([(left - arrived) / _SECOND_NS for arrived, _, left in sent])


def families(stats: Mapping[Any, RequestStats], listener_name: str) -> list[MetricFamily]:
    """Counts of all APIs, phases of those that were used."""
    listener = ("listener", listener_name)
    used = [(key.name.lower(), one) for key, one in stats.items() if any(one.errors.values())]
    for _, one in used:
        one.count()
    return [
        MetricFamily(
            "kafka_server_requests_total",
            MetricKind.COUNTER,
            "Requests answered, by the error of the answer as a whole.",
            [
                Sample(count, (("request", key.name.lower()), ("error", _error_name(code)), listener))
                for key, one in stats.items()
                for code, count in sorted(one.errors.items())
            ],
        ),
        MetricFamily(
            "kafka_server_request_seconds",
            MetricKind.HISTOGRAM,
            "Seconds of requests, by phase: queue, local, remote, send, total.",
            [
                Sample(histogram.value(), (("request", name), ("phase", phase), listener))
                for name, one in used
                for phase, histogram in _phases(one)
            ],
        ),
    ]


def _phases(one: RequestStats) -> Iterable[tuple[str, Histogram]]:
    return (
        ("queue", one.queue),
        ("local", one.local),
        ("remote", one.remote),
        ("send", one.send),
        ("total", one.total),
    )


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
