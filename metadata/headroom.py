"""How many more failures a partition survives: with writes, with a leader, without loss.

Owns the three formulas that tools, metrics and what-if questions show; decides nothing. They follow from
KIP-966: every ISR member has all acknowledged records, and while the ISR is below min ISR the high watermark
stands still, so that ELR members stay complete (R5).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Headroom:
    """Failures still survived, of one broker each. A negative number: so many are missing already."""

    #: replicas that may leave the ISR before acks=all writes are refused
    writes: int
    #: clean stops or lossless crashes until no replica is left that may lead
    online: int
    #: lossy crashes (power loss) until acknowledged records may be lost; more copies may exist
    lossy: int

    @property
    def is_offline(self) -> bool:
        """No replica that may lead without loss is unfenced."""
        return self.online < 0


def headroom(
    isr: Sequence[int], elr: Sequence[int], min_isr: int, is_unfenced: Callable[[int], bool]
) -> Headroom:
    """The three numbers of a partition; `elr` is empty where the feature is off, `min_isr` is effective.

    writes = |ISR| - min ISR, online = unfenced(ISR + ELR) - 1, lossy = min(min ISR, |ISR + ELR|) - 1: an
    acknowledged record was on min ISR replicas when it was acknowledged; more copies are not guaranteed.
    """
    assert min_isr >= 1 and set(isr).isdisjoint(elr)
    complete = (*isr, *elr)
    return Headroom(
        writes=len(isr) - min_isr,
        online=sum(map(is_unfenced, complete)) - 1,
        lossy=min(min_isr, len(complete)) - 1,
    )
