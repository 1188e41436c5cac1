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
    masked = [name for name, one in MUTANTS.items() if one.masked]
    alive = [name for name, one in MUTANTS.items() if not one.masked and one.killing_seed is None]
    lines = [_HEAD]
    lines.append(
        f"{len(MUTANTS)} mutants: {len(tried)} killed, after {median(tried or [0]):g} seeds in the median "
        f"and {max(tried or [0])} at most; {len(masked)} masked or harmless; {len(alive)} not killed.\n"
    )
    for part, title in PARTS.items():
        lines += [
            f"## {title}\n",
            "| mutant | breaks | what it does | killed at seed | by |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(one) for one in MUTANTS.values() if one.part == part] + [""]
    if alive:
        lines += ["## Not killed: defects of the simulator\n"]
        lines += [f"- `{name}`: {MUTANTS[name].gap or 'not explained yet'}" for name in alive] + [""]
    lines += ["## Masked or harmless, and why\n"]
    lines += [f"- `{name}`: {MUTANTS[name].masked}" for name in masked]
    return "\n".join(lines) + "\n"


def _row(one: Mutant) -> str:
    seed = one.killing_seed or ("masked" if one.masked else "")
    setting = one.setting.told()
    told = one.description + (f" ({setting})" if setting else "")
    return f"| `{one.name}` | {one.breaks} | {told} | {seed} | {one.killer} |"
