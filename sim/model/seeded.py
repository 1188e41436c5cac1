"""Chance for the walks: one generator a seed. The only part of the model that is not pure."""

from random import Random

from sim.model.rules import Rules
from sim.model.state import Setup
from sim.model.walk import Verdict, walk


def walk_seed(seed: int, steps: int, rules: Rules, setup: Setup | None = None) -> Verdict:
    """The walk of this seed; the same for ever, on every machine."""
    return walk(Random(f"model:{seed}").getrandbits, steps, rules, setup)
