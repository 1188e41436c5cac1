"""The controller core alone: a quorum of one that commits at once, brokers played by hand, a manual clock.

`Quorum` drives the real `QuorumController`, for scenario files and for tests. No rule of the controller is
repeated here.
"""

from dataclasses import dataclass
from typing import Any

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.events import (
    AppendRecords,
    AskBroker,
    CannotLead,
    ConnectionClosed,
    Effect,
    EntriesCommitted,
    Event,
    LeaderChanged,
    Probe,
    Probed,
    RecoveryStated,
    RequestReceived,
    Resign,
    Respond,
    Tick,
)
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.broker import SUPPORTED_FEATURES
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    RECOVERED,
    MetadataRecord,
    decode_versioned,
    encode_record,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
)
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ListenerEndpoint,
    OfflineTopic,
)
from holdfast.runtime.stats import LogLine

NODE_ID = 101
CLUSTER_ID = "test"
HEARTBEAT_MS = 2000


class CountingRandom:
    """Ids that count up; no decision depends on their values."""

    def __init__(self) -> None:
        self._uuids = 1 << 64

    def randint(self, low: int, high: int) -> int:
        return low

    def random(self) -> float:
        return 0.0

    def uuid(self) -> bytes:
        self._uuids += 1
        return self._uuids.to_bytes(16, "big")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One committed record of the log; control records have no value."""

    offset: int
    raft_epoch: int
    value: bytes
    timestamp_ms: int = -1


def make_config(**properties: str) -> ControllerConfig:
    """A controller's configuration; `min_insync_replicas="2"` sets min.insync.replicas."""
    given = {
        "node.id": str(NODE_ID),
        "process.roles": "controller",
        "listeners": "CONTROLLER://h:9093",
        "controller.quorum.voters": f"{NODE_ID}@h:9093",
        "metadata.log.dir": "/metadata",
        "holdfast.cluster.id": CLUSTER_ID,
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    config, warnings = ControllerConfig.from_properties(given, {})
    assert warnings == []
    return config


class Quorum:
    """One voter whose appends commit at once, unless `is_held` says to wait for `commit`."""

    def __init__(self, config: ControllerConfig, now_ms: int = 1_000) -> None:
        self.config = config
        self.random = CountingRandom()
        self.now_ms = now_ms
        self.entries: list[LogEntry] = []
        #: end of the log, control records included
        self.end_offset = 0
        self.committed_offset = 0
        self.raft_epoch = 0
        self.is_held = False
        self.notes: list[LogLine] = []
        self.probes: list[Probe] = []
        #: statements about recoveries, in order
        self.stated: list[RecoveryStated] = []
        #: questions to brokers for their logs
        self.asked: list[AskBroker] = []
        self.appends: list[AppendRecords] = []
        self.resignations: list[Resign] = []
        #: why it cannot lead, as it told the quorum last
        self.cannot_lead: str | None = None
        self.answers: dict[int, Any] = {}
        self._requests = 0
        #: as the metadata log names them (K30)
        self.voter_ids: tuple[int, ...] = ()
        #: those of them that are of an earlier build
        self.earlier_voters: tuple[int, ...] = ()
        self.core = QuorumController(config, self.random)
        self.elect()

    def handle(self, event: Event, at_ms: int | None = None) -> None:
        """Handle an event and carry its effects out; `at_ms` is when it happened, by default now."""
        self._carry_out(self.core.handle(event, self.now_ms if at_ms is None else at_ms))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AppendRecords():
                    assert (effect.base_offset, effect.raft_epoch) == (self.end_offset, self.raft_epoch)
                    self.appends.append(effect)
                    self._extend(effect.values)
                case Respond():
                    assert effect.request_id not in self.answers
                    self.answers[effect.request_id] = effect.message
                case Probe():
                    self.probes.append(effect)
                case Resign():
                    self.resignations.append(effect)
                case CannotLead():
                    self.cannot_lead = effect.reason
                case RecoveryStated():
                    self.stated.append(effect)
                case AskBroker():
                    self.asked.append(effect)
                case LogLine():
                    self.notes.append(effect)
        if not self.is_held:
            self.commit()

    def _extend(self, values: tuple[bytes, ...]) -> None:
        for value in values:
            self.entries.append(LogEntry(self.end_offset, self.raft_epoch, value))
            self.end_offset += 1

    def commit(self, end_offset: int | None = None) -> None:
        """Commit the log up to `end_offset`, or all of it."""
        end = self.end_offset if end_offset is None else end_offset
        if end > self.committed_offset:
            entries = [entry for entry in self.entries if self.committed_offset <= entry.offset < end]
            self.committed_offset = end
            self.handle(EntriesCommitted(entries, end))

    def elect(self) -> None:
        """The controller becomes the leader of a new epoch; the leader change takes an offset."""
        self.raft_epoch += 1
        self.end_offset += 1
        self.handle(LeaderChanged(NODE_ID, self.raft_epoch, self.end_offset))

    def lose(self, leader_id: int | None = None) -> None:
        """Another controller becomes active, or none; what was not committed is lost."""
        self.raft_epoch += 1
        self.entries = [entry for entry in self.entries if entry.offset < self.committed_offset]
        self.end_offset = self.committed_offset
        self.handle(LeaderChanged(leader_id, self.raft_epoch, self.end_offset))

    def fail_over(self) -> None:
        """Replace the controller: hard state comes from the log, soft state is lost."""
        self.core = QuorumController(self.config, self.random)
        self.handle(EntriesCommitted(tuple(self.entries), self.committed_offset))
        self.elect()

    def inject(self, *records: MetadataRecord) -> None:
        """Put records into the log as if an earlier controller had written them."""
        self.lose(NODE_ID + 1)
        self._extend(tuple(map(encode_record, records)))
        self.commit()
        self.elect()

    def put(self, *records: MetadataRecord) -> None:
        """Let the active controller write records that it did not decide; its soft state stays.

        Raises: InvariantBroken when replay would complain about them; then nothing was written.
        """

        def decide(draft: Draft) -> None:
            for record in records:
                draft.write(record)

        decide(Draft(self.core.latest, self.end_offset, self.raft_epoch))
        self._carry_out(self.core._write(decide, self.now_ms))  # no event says so, and none should
        self.fire_timer(self.now_ms)  # an event, for what follows from the new state

    def start_request(self, message: Any, connection_id: int = 0, at_ms: int | None = None) -> int:
        """Send a request; its answer will be in `answers` under the number returned."""
        self._requests += 1
        event = RequestReceived(
            self._requests, connection_id, "CONTROLLER", message, self.voter_ids, self.earlier_voters
        )
        self.handle(event, at_ms)
        return self._requests

    def request(self, message: Any, connection_id: int = 0, at_ms: int | None = None) -> Any:
        """Send a request whose answer comes at once."""
        return self.answers[self.start_request(message, connection_id, at_ms)]

    def fire_timer(self, at_ms: int) -> None:
        """Move the clock and let the timer fire."""
        self.now_ms = at_ms
        self.handle(Tick())

    @property
    def image(self) -> MetadataImage:
        return self.core.committed

    def replayed(self) -> MetadataImage:
        """The image that a new node would build from the log."""
        delta = MetadataDelta(MetadataImage())
        for entry in self.entries:
            record, version = decode_versioned(entry.value)
            delta.replay(record, entry.offset, entry.raft_epoch, version)
        assert delta.violations == []
        return delta.apply(self.committed_offset)

    # --- brokers -----------------------------------------------------------------------------------------

    def register(
        self,
        broker_id: int,
        previous_broker_epoch: int = -1,
        incarnation: int | None = None,
        rack: str | None = None,
        **changes: Any,
    ) -> BrokerRegistrationResponse:
        """A process registers; a new incarnation unless one is given."""
        fields: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": self.random.uuid() if incarnation is None else incarnation.to_bytes(16, "big"),
            "listeners": (ListenerEndpoint("PLAINTEXT", f"b{broker_id}", 9092),),
            "rack": rack,
            "features": SUPPORTED_FEATURES,
            "log_dirs": ((1_000_000 + broker_id).to_bytes(16, "big"),),
            "previous_broker_epoch": previous_broker_epoch,
            **changes,
        }
        answer: BrokerRegistrationResponse = self.request(BrokerRegistrationRequest(**fields))
        return answer

    def heartbeat(
        self,
        broker_id: int,
        *,
        want_fence: bool = False,
        want_shutdown: bool = False,
        metadata_offset: int | None = None,
        broker_epoch: int | None = None,
        at_ms: int | None = None,
        offline: tuple[OfflineTopic, ...] = (),
        unreachable: tuple[int, ...] = (),
        online: tuple[OfflineTopic, ...] = (),
        low_on_space: tuple[OfflineTopic, ...] = (),
    ) -> BrokerHeartbeatResponse:
        """A heartbeat of the registered incarnation, on the connection that has the broker's number."""
        registered = self.image.brokers.get(broker_id)
        epoch = registered.broker_epoch if registered and broker_epoch is None else broker_epoch or 0
        offset = self.committed_offset if metadata_offset is None else metadata_offset
        message = BrokerHeartbeatRequest(
            broker_id,
            epoch,
            offset,
            want_fence,
            want_shutdown,
            offline,
            unreachable,
            online,
            low_on_space,
        )
        answer: BrokerHeartbeatResponse = self.request(message, broker_id, at_ms)
        return answer

    def start_brokers(self, *broker_ids: int, rack: str | None = None) -> None:
        """Register and unfence."""
        for broker_id in broker_ids:
            assert self.register(broker_id, rack=rack).error_code == ErrorCode.NONE
            assert not self.heartbeat(broker_id).is_fenced

    def vanish(self, broker_id: int, is_refused: bool = True) -> None:
        """Close the broker's connection; the probe of its listener is refused, or times out."""
        self.probes.clear()
        self.handle(ConnectionClosed(broker_id))
        for probe in self.probes:  # grows while it is walked: further probes follow those without evidence
            self.handle(Probed(probe.broker_id, probe.broker_epoch, probe.attempt, is_refused))

    def unfenced(self) -> list[int]:
        return [broker.broker_id for broker in self.image.sorted_brokers() if not broker.is_fenced]

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, name: str, index: int = 0) -> PartitionRegistration:
        return self.topic(name).partitions[index]

    def alter(
        self, name: str, isr: tuple[int, ...], index: int = 0, **changes: Any
    ) -> AlterPartitionResponse:
        """AlterPartition from the leader with current epochs; `changes` replace request or row fields."""
        topic = self.image.topic(name)
        partition = None if topic is None else topic.partitions.get(index)
        sender = changes.pop("sender", partition.leader if partition else None)
        assert isinstance(sender, int), "without a leader the sender must be given"
        brokers = self.image.brokers
        stale = changes.pop("stale", ())
        members = tuple(
            IsrMember(r, (brokers[r].broker_epoch if r in brokers else 0) - (r in stale)) for r in isr
        )
        known = brokers.get(sender)
        broker_epoch = changes.pop("broker_epoch", -1 if known is None else known.broker_epoch)
        row: dict[str, Any] = {
            "topic_id": self.random.uuid() if topic is None else topic.topic_id,
            "partition_index": index,
            "leader_epoch": partition.leader_epoch if partition else 0,
            "partition_epoch": partition.partition_epoch if partition else 0,
            "new_isr": members,
            "leader_recovery_state": RECOVERED,
            **changes,
        }
        answer: AlterPartitionResponse = self.request(
            AlterPartitionRequest(sender, broker_epoch, (AlterPartitionPartition(**row),))
        )
        return answer
