"""Bands: the same walks with another budget or with parts of the protocol switched off (B-5).

Owns which set-up a band makes of the one that the seed drew, and which violations are losses to be expected.
"""

from collections.abc import Callable
from dataclasses import replace

from sim.model.state import BALANCED, Setup

#: what a lost record breaks (B-4): beyond the budget these are counted, not mourned
LOSSES = ("A-1", "I-8", "I-9", "I-10", "I-12", "I-13", "I-16", "A-6")


def _recovering(setup: Setup) -> Setup:
    return replace(setup, manager=True, strategy=BALANCED, flush_every_write=False)


#: name -> what it makes of a set-up; None leaves it as drawn
BANDS: dict[str, Callable[[Setup], Setup] | None] = {
    "mixed": None,
    "lossless": lambda setup: replace(setup, budget_excess=None, flush_every_write=False),
    "in-budget": lambda setup: replace(_recovering(setup), budget_excess=0),
    "flush-every-write": lambda setup: replace(setup, budget_excess=0, flush_every_write=True),
    "edge": lambda setup: replace(_recovering(setup), budget_excess=1),
    "over-budget": lambda setup: replace(_recovering(setup), budget_excess=setup.brokers),
    "elr-off": lambda setup: replace(setup, elr=False, budget_excess=0, flush_every_write=False),
    "manager-off": lambda setup: replace(setup, manager=False, budget_excess=0, flush_every_write=False),
}
#: bands in which everything must hold, so that a loss is a violation like others
SAFE = ("mixed", "lossless", "in-budget", "flush-every-write", "edge", "over-budget", "manager-off")


def is_expected_loss(band: str, property_name: str | None) -> bool:
    """Records were lost where the rules promise nothing: with ELR off."""
    return band not in SAFE and property_name is not None and property_name.split()[0] in (*LOSSES, "B-4")
