"""What a drill is: a name, a story to play, and the table of what is expected under which settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.drills.settings import Axis, Expectation


@dataclass(frozen=True, slots=True)
class Drill:
    """One story and its expectations."""

    name: str
    #: what happens, in a line
    title: str
    #: which text tells it
    source: str
    #: plays it on a `drills.stage.Stage`, which is not named here, for it knows drills
    play: Callable[[Any], None]
    #: the first row that speaks of the settings counts
    expectations: tuple[Expectation, ...]
    #: what `--compare` plays both ways; None: there is nothing to compare
    compares: Axis | None = None
    brokers: int = 3
    #: three where some of them fail; one is enough for the others, and three processes less to start
    controllers: int = 1
    min_isr: int = 2
    #: over QUICK, for every node
    properties: Mapping[str, str] = field(default_factory=dict)
    #: brokers that flush every write, when the others never do
    flushing: tuple[int, ...] = ()
    #: configuration of the topic
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    #: classes of the verdict of which there must be some, else the story did not take place
    shows: tuple[str, ...] = ()
    #: False: nothing but kill -9
    cuts_power: bool = True


#: For every drill: silent brokers are fenced soon, and followers that are only slow stay in the ISR, so that
#: it is the story that decides who leaves it and when.
QUICK: Mapping[str, str] = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "250",
    "replica.lag.time.max.ms": "30000",
}
