"""The controller's core with a raft stand-in that commits at once, brokers played by hand, and our own clock.

`Quorum` drives the real `QuorumController`; `Scenario` gives it the commands of the scenario files. No rule
of the controller is repeated here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controller.config import ControllerConfig
from controller.events import (
    AppendRecords,
    ConnectionClosed,
    EntriesCommitted,
    Event,
    LeaderChanged,
    Note,
    Probe,
    Probed,
    RequestArrived,
    Resign,
    Respond,
    TimerFired,
    UnregisterBroker,
)
from controller.quorum_controller import QuorumController
from metadata.broker import SUPPORTED_FEATURES
from metadata.delta import MetadataDelta
from metadata.image import RESOURCE_TOPIC, MetadataImage, TopicImage
from metadata.partition import PartitionRegistration
from metadata.records import (
    RECOVERED,
    RECOVERING,
    ConfigRecord,
    MetadataRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
)
from protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ListenerEndpoint,
)
from protocol.messages.topics import DeleteTopicsRequest
from tests.datadriven import Command, ParseError

NODE_ID = 101
CLUSTER_ID = "test"
HEARTBEAT_MS = 2000


class CountingRandom:
    """Ids that count up: nothing under test may depend on their values."""

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
    """One committed record of the stand-in's log; control records have none."""

    offset: int
    raft_epoch: int
    value: bytes


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

    def __init__(self, config: ControllerConfig) -> None:
        self.config = config
        self.random = CountingRandom()
        self.now_ms = 1_000
        self.entries: list[LogEntry] = []
        #: end of the log, control records included
        self.end_offset = 0
        self.committed_offset = 0
        self.raft_epoch = 0
        self.is_held = False
        self.notes: list[Note] = []
        self.probes: list[Probe] = []
        self.appends: list[AppendRecords] = []
        self.resignations: list[Resign] = []
        self.answers: dict[int, Any] = {}
        self._requests = 0
        self.core = QuorumController(config, self.random)
        self.elect()

    def handle(self, event: Event) -> None:
        """Hand an event in and carry its effects out."""
        for effect in self.core.handle(event, self.now_ms):
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
                case Note():
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
        """Somebody else leads, or nobody; what was not committed is gone."""
        self.raft_epoch += 1
        self.entries = [entry for entry in self.entries if entry.offset < self.committed_offset]
        self.end_offset = self.committed_offset
        self.handle(LeaderChanged(leader_id, self.raft_epoch, self.end_offset))

    def fail_over(self) -> None:
        """Another process: hard state from the log, soft state gone."""
        self.core = QuorumController(self.config, self.random)
        self.handle(EntriesCommitted(tuple(self.entries), self.committed_offset))
        self.elect()

    def inject(self, *records: MetadataRecord) -> None:
        """Put records into the log as if an earlier controller had written them."""
        self.lose(NODE_ID + 1)
        self._extend(tuple(map(encode_record, records)))
        self.commit()
        self.elect()

    def start_request(self, message: Any, connection_id: int = 0) -> int:
        """Send a request; its answer will be in `answers` under the number returned."""
        self._requests += 1
        self.handle(RequestArrived(self._requests, connection_id, "CONTROLLER", message))
        return self._requests

    def request(self, message: Any, connection_id: int = 0) -> Any:
        """Send a request whose answer comes at once."""
        return self.answers[self.start_request(message, connection_id)]

    def fire_timer(self, at_ms: int) -> None:
        """Move the clock and let the timer fire."""
        self.now_ms = at_ms
        self.handle(TimerFired())

    @property
    def image(self) -> MetadataImage:
        return self.core.committed

    def replayed(self) -> MetadataImage:
        """The image that a newcomer would build from the log."""
        delta = MetadataDelta(MetadataImage())
        for entry in self.entries:
            delta.replay(decode_record(entry.value), entry.offset, entry.raft_epoch)
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
    ) -> BrokerHeartbeatResponse:
        """A heartbeat of the registered incarnation, on the connection that has the broker's number."""
        registered = self.image.brokers.get(broker_id)
        epoch = registered.broker_epoch if registered and broker_epoch is None else broker_epoch or 0
        offset = self.committed_offset if metadata_offset is None else metadata_offset
        message = BrokerHeartbeatRequest(broker_id, epoch, offset, want_fence, want_shutdown)
        answer: BrokerHeartbeatResponse = self.request(message, connection_id=broker_id)
        return answer

    def start_brokers(self, *broker_ids: int, rack: str | None = None) -> None:
        """Register and unfence."""
        for broker_id in broker_ids:
            assert self.register(broker_id, rack=rack).error_code == ErrorCode.NONE
            assert not self.heartbeat(broker_id).is_fenced

    def vanish(self, broker_id: int, is_refused: bool = True) -> None:
        """The broker's connection closes; the probe of its listener is refused, or says nothing."""
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
        topic = self.topic(name)
        partition = topic.partitions.get(index)
        sender = changes.pop("sender", partition.leader if partition else None)
        assert isinstance(sender, int), "without a leader somebody must be named"
        brokers = self.image.brokers
        stale = changes.pop("stale", ())
        members = tuple(
            IsrMember(r, (brokers[r].broker_epoch if r in brokers else 0) - (r in stale)) for r in isr
        )
        broker_epoch = changes.pop("broker_epoch", brokers[sender].broker_epoch)
        row: dict[str, Any] = {
            "topic_id": topic.topic_id,
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


class Scenario:
    """The commands of the scenario files on a `Quorum`."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._started: Quorum | None = None
        #: example above each command
        self._commands: dict[str, Callable[[Command], list[str]]] = {
            # cluster elr=off manager=off unclean=true
            "cluster": self._cluster,
            # broker 1 2 3 rack=a
            "broker": self._broker,
            # partition t-0 replicas=(1,2,3) min_isr=2 isr=(1) recovering
            "partition": self._partition,
            # fence 2
            "fence": self._fence,
            # expire 3 1 2
            "expire": self._expire,
            # unfence 2
            "unfence": self._unfence,
            # stop 2
            "stop": self._stop,
            # register 2 clean
            "register": self._register,
            # unregister 2
            "unregister": self._unregister,
            # alter t-0 isr=(1,2) from=1 stale=(2) recovered
            "alter": self._alter,
            # advance 5000
            "advance": self._advance,
            # failover
            "failover": self._failover,
            # delete t
            "delete": self._delete,
            # show t-0
            "show": self._show,
        }

    @property
    def quorum(self) -> Quorum:
        if self._started is None:
            self._started = Quorum(make_config(**self._properties))
        return self._started

    def execute(self, command: Command) -> list[str]:
        """Run one command; returns what it prints."""
        run = self._commands.get(command.name)
        if run is None:
            raise ParseError(f"{command.where}: unknown command {command.name}")
        if command.name == "cluster":
            return run(command)
        before = self.quorum.image
        errors = run(command)
        if command.name == "show":
            return errors
        after = self.quorum.image
        lines = [
            f"{topic.name}-{index} {registration}"
            for topic in after.sorted_topics()
            for index, registration in topic.sorted_partitions()
            if before.partition(topic.topic_id, index) != registration
        ]
        assert after == self.quorum.replayed()
        assert after == self.quorum.core.latest
        return lines + errors or ["ok"]

    def _cluster(self, command: Command) -> list[str]:
        assert self._started is None, f"{command.where}: cluster comes first"
        self._properties["eligible_leader_replicas_enabled"] = _switch(command.text("elr", "on"))
        self._properties["unclean_leader_election_enable"] = command.text("unclean", "false")
        self._properties["broker_session_timeout_ms"] = command.text("session_timeout_ms", "9000")
        if _switch(command.text("manager", "on")) == "true":
            raise ParseError(f"{command.where}: there is no recovery manager yet")
        return ["ok"]

    def _broker(self, command: Command) -> list[str]:
        rack = command.text("rack", "") or None
        self.quorum.start_brokers(*map(int, command.words), rack=rack)
        return []

    def _partition(self, command: Command) -> list[str]:
        name, index = _name(command)
        replicas = command.ids("replicas")
        leader = command.text("leader", str(replicas[0]))
        known = command.text("last_known_leader", "none")
        min_isr = command.integer("min_isr")
        registration = PartitionRegistration(
            replicas=replicas,
            isr=tuple(sorted(command.ids("isr", replicas))),
            leader=None if leader == "none" else int(leader),
            leader_epoch=command.integer("leader_epoch", 0),
            partition_epoch=command.integer("partition_epoch", 0),
            min_isr=min(min_isr, len(replicas)),
            elr=command.ids("elr", ()),
            last_known_elr=command.ids("last_known_elr", ()),
            last_known_leader=None if known == "none" else int(known),
            leader_recovery_state=RECOVERING if "recovering" in command.words else RECOVERED,
        )
        records: list[MetadataRecord] = []
        topic = self.quorum.image.topic(name)
        topic_id = self.quorum.random.uuid() if topic is None else topic.topic_id
        if topic is None:
            records.append(TopicRecord(name, topic_id))
        records.append(ConfigRecord(RESOURCE_TOPIC, name, "min.insync.replicas", str(min_isr)))
        records.append(registration.to_record(topic_id, index))
        self.quorum.inject(*records)
        return []

    def _fence(self, command: Command) -> list[str]:
        for broker_id in map(int, command.words):
            self._heartbeat(broker_id)
            self.quorum.vanish(broker_id)
        return []

    def _expire(self, command: Command) -> list[str]:
        quorum = self.quorum
        silent = list(map(int, command.words))
        for broker_id in silent:
            self._heartbeat(broker_id)
            quorum.now_ms += 1
        quorum.now_ms += quorum.config.session_timeout_ms
        self._heartbeat(*(broker_id for broker_id in quorum.unfenced() if broker_id not in silent))
        quorum.fire_timer(quorum.now_ms)
        return []

    def _unfence(self, command: Command) -> list[str]:
        for broker_id in map(int, command.words):
            self.quorum.heartbeat(broker_id)
        return []

    def _stop(self, command: Command) -> list[str]:
        self.quorum.heartbeat(int(command.words[0]), want_shutdown=True)
        return []

    def _register(self, command: Command) -> list[str]:
        broker_id, how = int(command.words[0]), command.words[1]
        known = self.quorum.image.brokers.get(broker_id)
        assert (known is None) == (how == "first"), f"{command.where}: {how} does not fit"
        epoch = known.broker_epoch if known is not None and how == "clean" else -1
        answer = self.quorum.register(broker_id, epoch)
        return _error("", answer.error_code)

    def _unregister(self, command: Command) -> list[str]:
        self.quorum.handle(UnregisterBroker(int(command.words[0])))
        return []

    def _alter(self, command: Command) -> list[str]:
        name, index = _name(command)
        quorum = self.quorum
        changes: dict[str, Any] = {
            key: command.integer(key)
            for key in ("leader_epoch", "partition_epoch")
            if key in command.arguments
        }
        if "recovering" in command.words:
            changes["leader_recovery_state"] = RECOVERING
        changes["stale"] = command.ids("stale", ())
        if "from" in command.arguments:
            changes["sender"] = command.integer("from")
        place = name
        if quorum.image.topic(name) is None:
            changes["topic_id"], place = quorum.random.uuid(), quorum.image.sorted_topics()[0].name
        if command.text("broker_epoch", "") == "stale":
            leader = changes.get("sender", quorum.partition(place, index).leader)
            assert leader is not None, f"{command.where}: from= is needed without a leader"
            changes["broker_epoch"] = quorum.image.brokers[leader].broker_epoch - 1
        answer = quorum.alter(place, command.ids("isr"), index, **changes)
        if answer.error_code != ErrorCode.NONE:
            return _error("", answer.error_code)
        return _error(f"{name}-{index} ", answer.partitions[0].error_code)

    def _advance(self, command: Command) -> list[str]:
        quorum = self.quorum
        target_ms = quorum.now_ms + int(command.words[0])
        while quorum.now_ms < target_ms:
            deadline_ms = quorum.core.next_deadline_ms()
            stops = [target_ms, quorum.now_ms + HEARTBEAT_MS]
            stops += [max(deadline_ms, quorum.now_ms)] if deadline_ms is not None else []
            quorum.now_ms = min(stops)
            self._heartbeat(*quorum.unfenced())
            quorum.fire_timer(quorum.now_ms)
        return []

    def _failover(self, command: Command) -> list[str]:
        self.quorum.fail_over()
        return []

    def _delete(self, command: Command) -> list[str]:
        name = command.words[0]
        answer = self.quorum.request(DeleteTopicsRequest(0, (name,)))
        return _error("", answer.topics[0].error_code) or [f"{name} deleted"]

    def _show(self, command: Command) -> list[str]:
        name, index = _name(command)
        return [f"{name}-{index} {self.quorum.partition(name, index)}"]

    def _heartbeat(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            broker = self.quorum.image.brokers[broker_id]
            if not broker.is_fenced:
                self.quorum.heartbeat(broker_id, want_shutdown=broker.in_controlled_shutdown)


def _name(command: Command) -> tuple[str, int]:
    name, _, index = command.words[0].rpartition("-")
    return name, int(index)


def _error(prefix: str, code: int) -> list[str]:
    return [] if code == ErrorCode.NONE else [f"{prefix}error={ErrorCode(code).name}"]


def _switch(word: str) -> str:
    assert word in ("on", "off")
    return "true" if word == "on" else "false"
