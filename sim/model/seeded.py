"""Chance for the walks: one generator a seed. The only part of the model that is not pure."""

from random import Random

from holdfast.sim.model.bands import BANDS
from holdfast.sim.model.walk import WalkResult, walk


def walk_seed(seed: int, steps: int, band: str = "mixed") -> WalkResult:
    """The walk of this seed in a band; the same for ever, on every machine."""
    return walk(Random(f"model:{seed}").getrandbits, steps, BANDS[band])
