"""A fault: something done to a cluster that can be undone.

`apply` does it, `heal` undoes it. Every step of a fault goes through the journal first, so `heal_all` heals
what a crashed process left behind, and `healing` heals at the end of a block, on Ctrl-C and on SIGTERM.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from holdfast.localcluster.endings import ended_by_sigterm, undisturbed
from holdfast.localcluster.faults.journal import FaultJournal, Step
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster

T = TypeVar("T")


class FaultRefused(ClusterError):
    """This machine or this cluster does not allow the fault. The text says why; nothing was done."""


class Fault(ABC):
    """One fault on one or several nodes."""

    #: as commands and journals spell it
    name: ClassVar[str]
    #: its nodes end by it, or may: the operator asked for that
    ends_nodes: ClassVar[bool] = False

    def __init__(self, cluster: LocalCluster, *nodes: Node) -> None:
        self.cluster = cluster
        self.nodes = nodes
        self._journal = FaultJournal(cluster)
        self._steps: list[Step] = []

    @property
    def target(self) -> str:
        """What it is done to, in words."""
        return ", ".join(node.name for node in self.nodes)

    @abstractmethod
    def apply(self) -> str:
        """Do it; a sentence that says what was done. Raises: FaultRefused, ClusterError."""

    def heal(self) -> None:
        """Undo all that `apply` did; may be repeated. Does not wait until nodes are ready.
        Raises: ClusterError."""
        self._journal.undo(self._steps)
        self._steps.clear()

    def _step(self, kind: str, action: Callable[[], T], **details: Any) -> T:
        """Do something that the registered undo `kind` can undo with these details."""
        self._steps.append(self._journal.begin(self.name, self.target, kind, details))
        return action()


def heal_all(folder: Path) -> list[str]:
    """Undo every fault that is left of earlier processes in this cluster's folder; what was undone.

    May be repeated. Raises: ClusterError, when something could not be undone or there is no cluster.
    """
    return heal_cluster(LocalCluster.load(folder))


@contextmanager
def healing(cluster: LocalCluster) -> Iterator[None]:
    """Heal every fault of the cluster when the block ends, in any way; SIGTERM and Ctrl-C end it."""
    with ended_by_sigterm():
        try:
            yield
        finally:
            with undisturbed():
                heal_cluster(cluster)


def heal_cluster(cluster: LocalCluster) -> list[str]:
    """Undo every open fault of the cluster; what was undone. May be repeated. Raises: ClusterError."""
    # The undo functions are registered when their modules are loaded.
    import holdfast.localcluster.faults.catalogue  # noqa: F401

    journal = FaultJournal(cluster)
    steps = journal.open_steps()
    journal.undo(steps)
    return [f"{step.fault} of {step.target}" if step.target else step.fault for step in steps]
