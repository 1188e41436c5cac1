"""All mutants: importing the modules that define them fills the table."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.sim.mutants import (
    advancing,
    answering,
    clients,
    control,
    intruding,
    quorum,
    replication,
    shortening,
    shutdown,
    storage,
    unclean_recovery,
    upkeep,
)
from holdfast.sim.mutants.mutant import MUTANTS

__all__ = ["MUTANTS", "PARTS", "broken_by"]

_MODULES = (
    replication,
    control,
    shutdown,
    answering,
    advancing,
    storage,
    shortening,
    quorum,
    clients,
    unclean_recovery,
    upkeep,
    intruding,
)
#: {part: title}, in the order of the page
PARTS = dict(
    zip(
        (module.__name__.rpartition(".")[2] for module in _MODULES),
        (
            "Replicas: high watermark, ISR, divergence",
            "The controller: ELR, elections, AlterPartition, registrations",
            "A broker's life: clean stops, roles, answers to writes",
            "Answers: acks=1, offsets, what a reader is told",
            "Answers to acks=0 and 1, and what topics ask for",
            "Storage",
            "What is deleted: by retention, and with a topic",
            "The metadata quorum",
            "Clients",
            "Unclean recovery",
            "Upkeep: what is remembered, producer ids, members of the ISR",
            "What no correct peer asks for",
        ),
        strict=True,
    )
)

# In the order of the parts, whichever module was imported first.
for _one in sorted(MUTANTS.values(), key=lambda one: list(PARTS).index(one.part)):
    MUTANTS[_one.name] = MUTANTS.pop(_one.name)


@contextmanager
def broken_by(name: str) -> Iterator[None]:
    """Production code with this mutant in it, inside; as it is when the name is empty. Raises: KeyError."""
    if not name:
        yield
        return
    with MUTANTS[name].applied():
        yield
