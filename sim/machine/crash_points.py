"""Named points at which a machine may be crashed: right behind an effect or a call of its runtime (D2).

Owns the table and the waiting. A point is an event of the trace, so no line of production code knows of it. A
crash at a point finds what random times rarely hit: between a rename and the sync of its folder, between the
steps of a stop (A-19), between an election and its first record.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.sim.cluster.nodes import SimNode
from holdfast.sim.machine.trace import Trace

#: name -> (kind of event, what its text has in it)
POINTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "segment.created": ("create", (".log",)),
    "index.created": ("create", (".index",)),
    "log.flushed": ("flush", (".log",)),
    "index.flushed": ("flush", (".index",)),
    "timeindex.flushed": ("flush", (".timeindex",)),
    "log.cut": ("truncate", (".log",)),
    "index.cut": ("truncate", (".index",)),
    "snapshot.flushed": ("flush", (".snapshot",)),
    "snapshot.renamed": ("rename", (".snapshot",)),
    "snapshot.unlinked": ("unlink", (".snapshot",)),
    "epochs.flushed": ("flush", ("leader-epoch-checkpoint",)),
    "epochs.renamed": ("rename", ("leader-epoch-checkpoint",)),
    "hwm.flushed": ("flush", ("replication-offset-checkpoint",)),
    "hwm.renamed": ("rename", ("replication-offset-checkpoint",)),
    "recovery_point.flushed": ("flush", ("recovery-point-offset-checkpoint",)),
    "recovery_point.renamed": ("rename", ("recovery-point-offset-checkpoint",)),
    "partition.flushed": ("flush", ("partition.metadata",)),
    "partition.renamed": ("rename", ("partition.metadata",)),
    "mark.created": ("create", ("cleanshutdown",)),
    "mark.flushed": ("flush", ("cleanshutdown",)),
    "mark.renamed": ("rename", ("cleanshutdown",)),
    "mark.unlinked": ("unlink", ("cleanshutdown",)),
    "folder.synced": ("sync", ("/data",)),
    "vote.created": ("create", ("quorum-state",)),
    "vote.flushed": ("flush", ("quorum-state",)),
    "vote.renamed": ("rename", ("quorum-state",)),
    "bytes.arrived": ("net", ()),
    "registered": ("log", ("registered with broker epoch",)),
    "diverged": ("log", ("diverges from leader",)),
    "quorum.epoch": ("log", ("holdfast.raft: node", "epoch")),
    "quorum.claimed": ("log", ("active controller",)),
}


@dataclass(slots=True)
class _Armed:
    kinds: frozenset[str]
    node: SimNode
    parts: tuple[str, ...]
    passes: int
    reached: Callable[[], None]
    #: it counts in that process of the node only; None: in all
    boots: int | None = None
    #: it counts only while this is so; None: always
    counts_now: Callable[[], bool] | None = None


class Points:
    """Points that wait to be reached. Listens to a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._armed: list[_Armed] = []

    def arm(self, name: str, node: SimNode, passes: int, reached: Callable[[], None]) -> None:
        """Call `reached` when the node comes to the point once more after `passes` times."""
        kind, parts = POINTS[name]
        self._armed.append(_Armed(frozenset((kind,)), node, parts, passes, reached))
        self._trace.listener = self._hear

    def arm_within(
        self,
        node: SimNode,
        boots: int,
        kinds: frozenset[str],
        passes: int,
        reached: Callable[[], None],
        counts_now: Callable[[], bool] | None = None,
        parts: tuple[str, ...] = (),
    ) -> None:
        """As `arm`, for events of some kinds in one process of the node: that of its `boots`-th boot, which
        may be still to come."""
        self._armed.append(_Armed(kinds, node, parts, passes, reached, boots, counts_now))
        self._trace.listener = self._hear

    def disarm(self) -> None:
        """Wait for nothing any more."""
        self._armed.clear()
        self._trace.listener = None

    def _hear(self, kind: str, text: str) -> None:
        for armed in list(self._armed):
            name = armed.node.name
            if armed.boots is not None and armed.node.boots > armed.boots:
                self._armed.remove(armed)
                continue
            if kind not in armed.kinds or not (text.startswith(name) or f" {name} " in text):
                continue
            if armed.boots not in (None, armed.node.boots) or not all(part in text for part in armed.parts):
                continue
            if armed.counts_now is not None and not armed.counts_now():
                continue
            armed.passes -= 1
            if armed.passes < 0:
                self._armed.remove(armed)
                armed.reached()
                break
        if not self._armed:
            self._trace.listener = None
