"""Bands: the same walks with another budget or with parts of the protocol switched off (G-5).

Owns which set-up a band makes of the one that the seed drew, and which violations had to be expected there.
"""

from collections.abc import Callable
from dataclasses import replace

from holdfast.sim.model.state import AGGRESSIVE, BALANCED, Setup

#: what a lost record breaks (G-4)
LOSSES = ("A-1", "A-6", "G-4", "I-8", "I-9", "I-10", "I-12", "I-13", "I-16")


def _recovering(setup: Setup) -> Setup:
    return replace(setup, manager=True, strategy=BALANCED, flush_every_write=False)


#: name -> what it makes of a set-up; None leaves it as drawn
BANDS: dict[str, Callable[[Setup], Setup] | None] = {
    "mixed": None,
    "lossless": lambda setup: replace(_recovering(setup), budget_excess=None),
    "in-budget": lambda setup: replace(_recovering(setup), budget_excess=0),
    "flush-every-write": lambda setup: replace(_recovering(setup), flush_every_write=True, budget_excess=0),
    "edge": lambda setup: replace(_recovering(setup), budget_excess=1),
    "over-budget": lambda setup: replace(_recovering(setup), budget_excess=setup.brokers),
    "aggressive": lambda setup: replace(setup, manager=True, strategy=AGGRESSIVE, budget_excess=0),
    "elr-off": lambda setup: replace(setup, elr=False, budget_excess=0, flush_every_write=False),
    "manager-off": lambda setup: replace(setup, manager=False, budget_excess=0, flush_every_write=False),
}
#: bands in which the rules promise nothing, so that a loss is counted and is no violation
PROMISES_NOTHING = ("elr-off",)


def is_expected_loss(band: str, property_name: str | None) -> bool:
    """Records were lost where that had to be expected."""
    return band in PROMISES_NOTHING and property_name is not None and property_name.split()[0] in LOSSES
