"""How many more failures a partition survives: with writes, with a leader, with what was acknowledged.

Owns the three formulas that tools, metrics and what-if questions show; decides nothing. They follow from
KIP-966's promise: acknowledged records are on every member of the ISR, and while the ISR is below min ISR the
high watermark stands still, so that members of the ELR stay complete (R5).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Headroom:
    """Failures still survived, one broker each. Below 0: it is too late already, by so many."""

    #: replicas that may leave the ISR before acks=all writes are refused
    writes: int
    #: clean stops or lossless crashes before nobody is left who may lead
    online: int
    #: lossy crashes (power loss) before acknowledged records may be gone; guaranteed, more copies may exist
    lossy: int

    @property
    def is_offline(self) -> bool:
        """Nobody who may lead without loss is there."""
        return self.online < 0


def headroom(
    isr: Sequence[int], elr: Sequence[int], min_isr: int, is_unfenced: Callable[[int], bool]
) -> Headroom:
    """The three numbers of a partition; `elr` is empty where the feature is off, `min_isr` is effective.

    writes = |ISR| - min ISR, online = unfenced(ISR + ELR) - 1, lossy = min(min ISR, |ISR + ELR|) - 1: an
    acknowledged record was on min ISR replicas when it was acknowledged, further copies are not promised.
    """
    assert min_isr >= 1 and set(isr).isdisjoint(elr)
    complete = (*isr, *elr)
    return Headroom(
        writes=len(isr) - min_isr,
        online=sum(map(is_unfenced, complete)) - 1,
        lossy=min(min_isr, len(complete)) - 1,
    )
