"""How often, for how long and why logs were flushed. Only counts; one object for all logs of a broker."""

from enum import Enum

from holdfast.runtime.stats import Histogram

_BOUNDS_SECONDS = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class FlushReason(Enum):
    """Why a log was flushed; values are labels of the flushes metric."""

    #: the log's own limits: records or ms
    POLICY = "policy"
    #: a segment was full
    ROLL = "roll"
    #: everything, before the clean-shutdown file is written (A-19)
    SHUTDOWN = "shutdown"


class FlushStats:
    """Flushes that wrote something since the process started."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(FlushReason, 0)
        self.seconds = Histogram(_BOUNDS_SECONDS)

    def done(self, reason: FlushReason, duration_ns: int) -> None:
        """A flush is over."""
        self.counts[reason] += 1
        self.seconds.observe(duration_ns / 1e9)
