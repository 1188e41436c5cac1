"""A drill: a name, a function that runs it, and a table of what to expect under which settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.drills.settings import Axis, Expectation


@dataclass(frozen=True, slots=True)
class Drill:
    """One failure and its expectations."""

    name: str
    #: what happens, in a line
    title: str
    #: the text that describes it
    source: str
    #: runs it on a `drills.stage.Stage` (not named here: that module imports this one)
    play: Callable[[Any], None]
    #: the first row that matches the settings counts
    expectations: tuple[Expectation, ...]
    #: the setting that `--compare` switches; None: there is nothing to compare
    compares: Axis | None = None
    brokers: int = 3
    #: three where some of them fail; one is enough otherwise, with fewer processes to start
    controllers: int = 1
    min_isr: int = 2
    #: settings of every node, on top of QUICK
    properties: Mapping[str, str] = field(default_factory=dict)
    #: brokers that flush every write; the others never flush
    flushing: tuple[int, ...] = ()
    #: configuration of the topic
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    #: classes of the verdict that must occur, else the failure did not happen as described
    shows: tuple[str, ...] = ()
    #: False: processes are only killed (kill -9)
    cuts_power: bool = True


#: For every drill: silent brokers are fenced soon, and slow followers stay in the ISR, so that only the drill
#: decides which replica leaves it and when.
QUICK: Mapping[str, str] = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "250",
    "replica.lag.time.max.ms": "30000",
}
