"""Leader, ISR, ELR and LastKnownELR of one partition, written as the KIP writes them. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

#: no leader, in requests and answers
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Sets:
    """The sets at one moment, each ascending."""

    leader: int
    isr: tuple[int, ...]
    #: empty when ELR is off
    elr: tuple[int, ...] = ()
    known: tuple[int, ...] = ()

    def __str__(self) -> str:
        leader = "NoLeader" if self.leader == NO_LEADER else str(self.leader)
        return f"Leader={leader}, ISR={_ids(self.isr)}, ELR={_ids(self.elr)}, LastKnownELR={_ids(self.known)}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a drill waits for; None matches anything."""

    leader: int | None = None
    isr: Collection[int] | None = None
    elr: Collection[int] | None = None
    known: Collection[int] | None = None

    def is_met(self, seen: Sets) -> bool:
        """True when the sets match."""
        return (
            self.leader in (None, seen.leader)
            and (self.isr is None or tuple(sorted(self.isr)) == seen.isr)
            and (self.elr is None or tuple(sorted(self.elr)) == seen.elr)
            and (self.known is None or tuple(sorted(self.known)) == seen.known)
        )

    def __str__(self) -> str:
        parts = []
        if self.leader is not None:
            parts.append(f"Leader={'NoLeader' if self.leader == NO_LEADER else self.leader}")
        for name, ids in (("ISR", self.isr), ("ELR", self.elr), ("LastKnownELR", self.known)):
            if ids is not None:
                parts.append(f"{name}={_ids(sorted(ids))}")
        return ", ".join(parts)


def _ids(ids: Collection[int]) -> str:
    return f"[{', '.join(map(str, ids))}]"
