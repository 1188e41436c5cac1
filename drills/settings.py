"""The settings of a run and what to expect under them: plain data.

Owns the words of the options (`--manager`, `--elr`, `--strategy`) and the table rows that say which settings
lose records and by which rule. A combination without a row cannot be run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum


class ExpectedLoss(Enum):
    """What is expected of the acknowledged (acks=all) records."""

    #: none may be lost
    NONE = "none"
    #: some must be lost, else the drill shows nothing
    CERTAIN = "loss"
    #: more brokers lost their tails than the settings survive: some may be lost
    POSSIBLE = "loss possible"


class Axis(Enum):
    """The one setting that `--compare` runs off and on."""

    MANAGER = "manager"
    ELR = "elr"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run."""

    #: unclean.recovery.manager.enabled; off is what Apache Kafka ships (D8.8)
    manager: bool = True
    #: eligible.leader.replicas.version
    elr: bool = True
    #: unclean.recovery.strategy of the topic
    strategy: str = "Balanced"
    #: tracked, ext4 or auto
    power_loss: str = "auto"
    seed: int = 0
    #: what the load is sent with: holdfast, or librdkafka
    client: str = "holdfast"

    def with_axis(self, axis: Axis, is_on: bool) -> "Settings":
        """The same with one setting on or off."""
        return replace(self, manager=is_on) if axis is Axis.MANAGER else replace(self, elr=is_on)

    @property
    def text(self) -> str:
        """The settings that decide, as the options spell them."""
        return f"manager {_on(self.manager)}, elr {_on(self.elr)}, strategy {self.strategy}"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One row: what happens to the acknowledged records under these settings, and by which rule."""

    loss: ExpectedLoss
    #: rule numbers, and why in one sentence
    rule: str
    #: None: either
    manager: bool | None = None
    elr: bool | None = None
    strategies: tuple[str, ...] | None = None
    #: the elections must report at least as large a loss as there is (R68)
    is_told: bool = False

    def holds_for(self, settings: Settings) -> bool:
        """True when the row is about these settings."""
        return (
            self.manager in (None, settings.manager)
            and self.elr in (None, settings.elr)
            and (self.strategies is None or settings.strategy in self.strategies)
        )


def expectation_of(rows: Sequence[Expectation], settings: Settings) -> Expectation | None:
    """The first row about these settings; None: the drill cannot be run with them."""
    return next((row for row in rows if row.holds_for(settings)), None)


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"
