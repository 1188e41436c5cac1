"""What the cores of producer and consumer have in common: what an event is, and some effects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

Effect = TypeVar("Effect")

#: An event: a call of the core that is made in its turn, with `now_ms`.
Call: TypeAlias = Callable[[int], Sequence[Effect]]


def take(call: Call[Effect], now_ms: int) -> Sequence[Effect]:
    """Make the call; what is to be done about it, in order."""
    return call(now_ms)


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the broker; answer with `connected` or `connect_failed`."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Ask for metadata soon; answer with `metadata_changed`, also when nothing changed."""
