"""Properties of writes that wait in a broker for what has happened.

Owns what no loss and no later moment shows: a client that is not answered asks again, and only time is lost.
"""

from holdfast.broker.core.broker import Broker
from holdfast.metadata.ids import PartitionId
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Late, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimBroker, State

#: looks at a broker are so far apart at most, else it may have stood still between them; ms
_LOOKED_AWAY_MS = 1_200
#: looks at the same write are so far apart at least, ms
_LOOK_MS = 150


class CommittedIsNotLate(Property):
    """A-18: no write is told to be late that its leader has committed by then, also when others of the same
    request are late."""

    name = "A-18 CommittedIsNotLate"

    def told_late(self, seen: Observer, view: ReplicaView, late: Late) -> None:
        result = late.result
        if 0 < result.end_offset <= late.high_watermark:
            story = f"{view.broker.name} tells that what ends at {result.end_offset} is late"
            seen.broken(self, view.index, f"{story}, and has committed up to {late.high_watermark}")


class DurableWritesAreAcknowledged(Property):
    """D6: who has sent with acks=1, where every write is flushed, hears of it once its batch is on the
    leader's disk, and waits for no flush of a former leadership."""

    name = "D6 DurableWritesAreAcknowledged"

    def __init__(self) -> None:
        #: {process: (when it was looked at last, rows that were still undecided then, and ought not to be)}
        self._late: dict[str, tuple[int, list[object]]] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        core = broker.node.core
        queues = core.produce_path._flushing._queues
        if not queues:
            return
        now_ms, name = broker.clock_ms, broker.process.name
        looked_ms, late = self._late.get(name, (now_ms - _LOOK_MS, []))
        if now_ms < looked_ms + _LOOK_MS:
            return
        found = [
            row
            for key, rows in queues.items()
            for row in rows
            if not row.is_decided and _is_due(core, key, row.leader_epoch, row.required_offset)
        ]
        self._late[name] = now_ms, list(found)
        # the word of the flush may be on its way to the core at one look, not at two
        again = [row for row in found if any(row is one for one in late)]
        if again and now_ms - looked_ms <= _LOOKED_AWAY_MS and broker.state is State.RUNNING:
            story = f"{broker.name} lets a write of epoch {again[0].leader_epoch} wait for"
            seen.broken(self, seen.place(*again[0].key), f"{story} {again[0].required_offset}, on its disk")


def _is_due(core: Broker, key: PartitionId, leader_epoch: int, required_offset: int) -> bool:
    """Nothing is waited for any more."""
    replica = core.partitions.get(key)
    leadership = None if replica is None else replica.leadership
    if replica is None or leadership is None or leadership.leader_epoch != leader_epoch:
        return True
    return required_offset <= replica.position
