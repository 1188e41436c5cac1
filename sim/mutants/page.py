"""docs/mutants.md: the table of all mutants and what kills them, out of their declarations.

Owns the text and nothing else.
"""

from statistics import median

from holdfast.sim.mutants.mutant import Mutant
from holdfast.sim.mutants.table import MUTANTS, PARTS

_HEAD = """# Mutants of the simulator

Generated from the declarations in `sim/mutants/` by `make docs`; do not edit. Each mutant is production code
with one rule broken for the time of a run ([simulation.md](simulation.md) says how to add one). Seeds count
from 1. A mutant is killed by the first seed at which a property is violated with it and holds without it.
`holdfast sim run --mutant NAME` shows the page about that seed;
`holdfast sim mutants --recorded --write sim-out/mutants` plays all of them again and keeps each violation.
"""


def page() -> str:
    """The whole page."""
    tried = [int(one.killing_seed) for one in MUTANTS.values() if one.killing_seed is not None]
    counts = f"{median(tried):g} seeds in the median and {max(tried)} at most"
    lines = [_HEAD, f"{len(MUTANTS)} mutants, killed after {counts}.\n"]
    for part, title in PARTS.items():
        lines += [
            f"## {title}\n",
            "| mutant | breaks | what it does | killed at seed | by |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(one) for one in MUTANTS.values() if one.part == part] + [""]
    return "\n".join(lines)


def _row(one: Mutant) -> str:
    setting = one.setting.told()
    told = one.description + (f" ({setting})" if setting else "")
    return f"| `{one.name}` | {one.breaks} | {told} | {one.killing_seed} | {one.killer} |"
