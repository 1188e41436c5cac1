"""Properties of a broker's life with the controllers: when it counts as there, and how it leaves."""

from collections.abc import Sequence

from holdfast.broker.core.registration.lifecycle import SILENCE_MS_MAX, BrokerState
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, UnfenceBrokerRecord
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.nodes import SimBroker, State

_NS_PER_MS = 1_000_000
#: a stop that no controller answers waits so long, by clocks that run up to a tenth fast
_STOP_NS = SILENCE_MS_MAX * _NS_PER_MS * 9 // 10


class UnfencedIsReady(Property):
    """R23, N-2: a broker is unfenced only once it has replayed its own registration and has its roles."""

    name = "R23 UnfencedIsReady"

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is not UnfenceBrokerRecord:
            return
        broker = next(broker for broker in seen.world.brokers if broker.node_id == record.broker_id)
        node = broker.node
        if broker.state not in (State.RUNNING, State.PAUSED) or node is None or not hasattr(node, "core"):
            return
        lifecycle = node.core.lifecycle
        if lifecycle.broker_epoch == record.broker_epoch and not node.core.has_roles:
            seen.broken(self, None, f"{broker.name} of epoch {record.broker_epoch} has no roles yet")


class FailedDirsAreTold(Property):
    """R27: each heartbeat names the replicas in failed log dirs, and the damaged ones, that metadata does not
    know of yet, and no others when no dir has failed."""

    name = "R27 FailedDirsAreTold"

    def heartbeat_sent(
        self,
        seen: Observer,
        broker: SimBroker,
        request: BrokerHeartbeatRequest,
        offline: Sequence[PartitionId],
    ) -> None:
        assert broker.node is not None
        core = broker.node.core
        told = {(row.topic_id, index) for row in request.offline for index in row.partitions}
        if told - core.damaged_replicas.keys() and broker.node.log_manager.is_whole:
            seen.broken(
                self, None, f"{broker.name} has all its log dirs, and tells of failed ones: {request}"
            )
        own = core.image.brokers.get(broker.node_id)
        if own is None or own.broker_epoch != request.broker_epoch:
            return  # no metadata of this registration yet
        for key in offline:
            row = core.image.partition(*key)
            is_ours = row is not None and broker.node_id in row.replicas
            if is_ours and key not in own.offline_replicas and key not in told:
                place = seen.place(*key)
                seen.broken(
                    self, place, f"{broker.name} does not tell that its log dir has failed: {request}"
                )


class RunningIsUnfenced(Property):
    """R29: a broker runs once the quorum has unfenced this registration, and not because of any answer."""

    name = "R29 RunningIsUnfenced"

    def __init__(self) -> None:
        #: broker epochs that were unfenced
        self._unfenced: set[int] = set()

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is UnfenceBrokerRecord:
            self._unfenced.add(record.broker_epoch)

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        lifecycle = broker.node.core.lifecycle
        if lifecycle.state is BrokerState.RUNNING and lifecycle.broker_epoch not in self._unfenced:
            seen.broken(self, None, f"{broker.name} of epoch {lifecycle.broker_epoch} was never unfenced")


class StopsAreAskedFor(Property):
    """R22, R23: a registered broker that stops in time has asked to leave, and was fenced before it ended:
    others lead what it has led."""

    name = "R22 StopsAreAskedFor"

    def __init__(self) -> None:
        #: {process: when it was first seen to stop}, virtual ns
        self._began: dict[str, int] = {}
        #: processes that were fenced while they stopped; a heartbeat from before may have unfenced them again
        self._fenced: set[str] = set()

    def broker_stepped(self, seen: Observer, broker: SimBroker) -> None:
        self._began.setdefault(broker.process.name, seen.world.loop.now_ns)
        row = _own_row(seen, broker)
        if row is not None and row.is_fenced:
            self._fenced.add(broker.process.name)

    def broker_ends(self, seen: Observer, broker: SimBroker) -> None:
        began_ns = self._began.pop(broker.process.name, None)
        if began_ns is None or broker.exit_code != 0 or broker.process.name in self._fenced:
            return
        row, took_ns = _own_row(seen, broker), seen.world.loop.now_ns - began_ns
        if row is not None and not row.is_fenced and took_ns < _STOP_NS:
            seen.broken(self, None, f"{broker.name} ends {took_ns // _NS_PER_MS} ms after SIGTERM: {row}")


def _own_row(seen: Observer, broker: SimBroker) -> BrokerRegistration | None:
    """What is committed of this registration; None before and after it."""
    if broker.node is None or not hasattr(broker.node, "core"):
        return None
    lifecycle, row = broker.node.core.lifecycle, seen.image.brokers.get(broker.node_id)
    is_ours = row is not None and row.broker_epoch == lifecycle.broker_epoch and lifecycle.is_registered
    return row if is_ours else None
