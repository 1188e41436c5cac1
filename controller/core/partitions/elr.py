"""Eligible leader replicas and the last known ones: what becomes of both when the ISR changes.

Owns R5 and R6 (KIP-966, "ELR update" and "Unclean recovery"); knows nothing of leaders, brokers or records.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class EligibleSets:
    """Both sets, ascending and disjoint."""

    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class SetsRule(Enum):
    """Why both sets are what they are; the numbers stand in the metadata log and are never reused."""

    #: the feature is off
    ELR_OFF = 0
    #: the ISR has reached min ISR: nobody else can be eligible (R5)
    CLEARED_AT_MIN_ISR = 1
    #: below min ISR everybody who was complete stays eligible (R5, R6)
    KEPT_BELOW_MIN_ISR = 2
    #: an unclean election forgets them, as in Kafka (R10)
    FORGOTTEN_BY_UNCLEAN_ELECTION = 3
    #: an unclean election makes seats of all members (D8.1, D8.4)
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

    An ISR of `min_isr` members lets the high watermark move, so nobody outside it can be eligible any more
    (R5). Below that everybody who was in the ISR or the ELR stays complete, except those with an `unclean`
    shutdown, whose seat is remembered (R6), and those `forgotten` because they are no brokers any more (B10).
    Only assigned replicas are kept (B4, B28).
    """
    if len(new_isr) >= min_isr:
        return EligibleSets()
    complete = set(before.elr).union(old_isr).difference(new_isr, forgotten).intersection(replicas)
    elr = complete.difference(unclean)
    seats = complete.union(before.last_known_elr).difference(new_isr, forgotten).intersection(replicas)
    return EligibleSets(tuple(sorted(elr)), tuple(sorted(seats - elr)))
