"""Eligible leader replicas (ELR) and last known ELR: how both sets change when the ISR changes.

Owns R5 and R6 (KIP-966, "ELR update" and "Unclean recovery"); knows nothing of leaders, brokers or records.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class EligibleSets:
    """Both sets; each is ascending, and they are disjoint."""

    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class SetsRule(Enum):
    """Which rule made both sets. The numbers are in the metadata log and are never reused."""

    #: the feature is off
    ELR_OFF = 0
    #: the ISR has reached min ISR: no replica outside it is eligible (R5)
    CLEARED_AT_MIN_ISR = 1
    #: below min ISR every complete replica stays eligible (R5, R6)
    KEPT_BELOW_MIN_ISR = 2
    #: an unclean election clears both, as in Kafka (R10)
    FORGOTTEN_BY_UNCLEAN_ELECTION = 3
    #: an unclean election moves all members to the last known ELR (D8.1, D8.4)
    SEATS_AFTER_UNCLEAN_ELECTION = 4


def next_eligible(
    before: EligibleSets,
    *,
    old_isr: Collection[int],
    new_isr: Collection[int],
    min_isr: int,
    replicas: Collection[int],
    unclean: Collection[int] = (),
    forgotten: Collection[int] = (),
) -> EligibleSets:
    """The sets that go with `new_isr`.

    An ISR of `min_isr` members lets the high watermark advance, so no replica outside it is eligible any more
    (R5). Below that, ISR and ELR members stay complete, except after an `unclean` shutdown: those go to the
    last known ELR (R6). `forgotten` replicas leave all sets, because their brokers were unregistered (B10).
    Only assigned replicas are kept (B4, B28).
    """
    if len(new_isr) >= min_isr:
        return EligibleSets()
    complete = set(before.elr).union(old_isr).difference(new_isr, forgotten).intersection(replicas)
    elr = complete.difference(unclean)
    seats = complete.union(before.last_known_elr).difference(new_isr, forgotten).intersection(replicas)
    return EligibleSets(tuple(sorted(elr)), tuple(sorted(seats - elr)))
