"""The commands of the scenario files: one table, an example above each command.

Each command plays brokers and operators against the real controller core of `scenario.controller` and prints
what became of the partitions. Nothing is decided here.
"""

from dataclasses import replace
from typing import Any

from holdfast.controller.core.events import LogInfoArrived, RecoveryCancelled, RecoveryElected
from holdfast.controller.core.operators.operations import (
    AlterConfig,
    ElectionType,
    ElectLeader,
    Reassign,
    UnregisterBroker,
    UpdateFeature,
)
from holdfast.controller.core.partitions.partition_change import InvariantBroken
from holdfast.metadata.broker import SUPPORTED_FEATURES
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    METADATA_VERSION,
    RECOVERED,
    RECOVERING,
    ConfigRecord,
    MetadataRecord,
    TopicRecord,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import FeatureRange, OfflineTopic
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from holdfast.scenario.controller import HEARTBEAT_MS, Quorum, make_config
from holdfast.scenario.grammar import Command, CommandTable, ParseError, parse_id, run_command

#: leader epochs that a reply may have, from the current one
_EPOCH_STEPS = {"current": 0, "stale": -1, "ahead": 1}

#: how a file names features
_FEATURES = {"elr": ELR_FEATURE, METADATA_VERSION: METADATA_VERSION}
#: what brokers of this build register, and those of builds that know of no metadata.version
_LEVELS: dict[str, tuple[FeatureRange, ...]] = {
    "present": SUPPORTED_FEATURES,
    "earlier": tuple(one for one in SUPPORTED_FEATURES if one.name != METADATA_VERSION),
}


class Scenario:
    """The commands of the scenario files on a `Quorum`."""

    def __init__(self) -> None:
        #: leaders are not given back unless asked for: only recovery timers fire in the public files
        self._properties: dict[str, str] = {"auto_leader_rebalance_enable": "false"}
        #: dynamic values of the cluster from the start
        self._cluster_configs: dict[str, str] = {}
        #: what unregistered brokers have on their disks, by id
        self._stored_epochs: dict[int, int] = {}
        self._is_manager_on = True
        self._started: Quorum | None = None
        #: example above each command
        self.commands: CommandTable = {
            # cluster elr=off manager=off unclean=true rebalance=on
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
            # register 2 clean levels=earlier
            "register": self._register,
            # offline 2 t-0
            "offline": self._offline,
            # renew 2 t-0
            "renew": self._renew,
            # unregister 2
            "unregister": self._unregister,
            # alter t-0 isr=(1,2) from=1 stale=(2) recovered
            "alter": self._alter,
            # elect designated t-0 leader=3
            "elect": self._elect,
            # config topic t min.insync.replicas=1
            "config": self._config,
            # reassign t-0 replicas=(4,5,6)
            "reassign": self._reassign,
            # log_info 2 t-0 last_epoch=3 end_offset=15 leader_epoch=stale
            "log_info": self._log_info,
            # feature metadata.version=0
            "feature": self._feature,
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
            config = replace(make_config(**self._properties), recovery_manager_enabled=self._is_manager_on)
            self._started = Quorum(config, now_ms=0)
            records = [
                ConfigRecord(*CLUSTER_RESOURCE, name, value) for name, value in self._cluster_configs.items()
            ]
            if records:
                self._started.inject(*records)
        return self._started

    def execute(self, command: Command) -> list[str]:
        """Run one command; returns what it prints."""
        if command.name == "cluster":
            return run_command(self.commands, command)
        before = self.quorum.image
        self.quorum.stated.clear()
        errors = run_command(self.commands, command)
        if command.name == "show":
            return errors
        after = self.quorum.image
        put = command.word() if command.name == "partition" else None
        lines = [
            f"{topic.name}-{index} {registration}"
            for topic in after.sorted_topics()
            for index, registration in topic.sorted_partitions()
            if before.partition(topic.topic_id, index) != registration or f"{topic.name}-{index}" == put
        ]
        assert after == self.quorum.replayed()
        assert after == self.quorum.core.latest
        return lines + errors + self._recovery_lines() or ["ok"]

    def _recovery_lines(self) -> list[str]:
        """What is true when the command has ended, and what has ended on the way."""
        stated = self.quorum.stated
        last = {(one.topic_name, one.partition_index): at for at, one in enumerate(stated)}
        told = [
            one
            for at, one in enumerate(stated)
            if at == last[one.topic_name, one.partition_index]
            or isinstance(one.statement, RecoveryElected | RecoveryCancelled)
        ]
        told.sort(key=lambda one: (one.topic_name, one.partition_index))
        return [str(one) for one in told]

    def _cluster(self, command: Command) -> list[str]:
        if self._started is not None:
            raise ParseError(f"{command.where}: cluster comes first")
        self._properties["eligible_leader_replicas_enabled"] = _switch(command, "elr", "on")
        self._properties["broker_session_timeout_ms"] = command.text("session_timeout_ms", "9000")
        self._is_manager_on = _switch(command, "manager", "on") == "true"
        self._properties["auto_leader_rebalance_enable"] = _switch(command, "rebalance", "off")
        self._properties["unclean_recovery_timeout_ms"] = command.text("recovery_timeout_ms", "300000")
        for word, name in (
            ("strategy", "unclean.recovery.strategy"),
            ("unclean", "unclean.leader.election.enable"),
        ):
            if word in command.arguments:
                self._cluster_configs[name] = command.text(word)
        return ["ok"]

    def _broker(self, command: Command) -> list[str]:
        rack = command.text("rack", "") or None
        broker_ids = command.numbers()
        known = [broker_id for broker_id in broker_ids if broker_id in self.quorum.image.brokers]
        if known or len(set(broker_ids)) < len(broker_ids):
            raise ParseError(f"{command.where}: register and unfence bring a known broker back")
        self.quorum.start_brokers(*broker_ids, rack=rack)
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
            leader=None if leader == "none" else parse_id(leader, command.where),
            leader_epoch=command.integer("leader_epoch", 0),
            partition_epoch=command.integer("partition_epoch", 0),
            min_isr=min(min_isr, len(replicas)),
            elr=tuple(sorted(command.ids("elr", ()))),
            last_known_elr=tuple(sorted(command.ids("last_known_elr", ()))),
            last_known_leader=None if known == "none" else parse_id(known, command.where),
            leader_recovery_state=RECOVERING if command.flag("recovering") else RECOVERED,
        )
        records: list[MetadataRecord] = []
        topic = self.quorum.image.topic(name)
        topic_id = self.quorum.random.uuid() if topic is None else topic.topic_id
        if topic is None:
            records.append(TopicRecord(name, topic_id))
        records.append(ConfigRecord(RESOURCE_TOPIC, name, "min.insync.replicas", str(min_isr)))
        records.append(registration.to_record(topic_id, index))
        try:
            self.quorum.put(*records)
        except InvariantBroken as broken:
            raise ParseError(f"{command.where}: no partition can be in this state: {broken}") from None
        return []

    def _fence(self, command: Command) -> list[str]:
        for broker_id in command.numbers():
            self._heartbeat(broker_id)
            self.quorum.vanish(broker_id)
        return []

    def _expire(self, command: Command) -> list[str]:
        quorum = self.quorum
        silent = command.numbers()
        # last contacts that lie back: the clock itself stands still
        contact_ms = quorum.now_ms - quorum.config.session_timeout_ms - len(silent)
        for at_ms, broker_id in enumerate(silent, contact_ms):
            self._heartbeat(broker_id, at_ms=at_ms)
        self._heartbeat(*(broker_id for broker_id in quorum.unfenced() if broker_id not in silent))
        quorum.fire_timer(quorum.now_ms)
        return []

    def _unfence(self, command: Command) -> list[str]:
        answers = [self.quorum.heartbeat(broker_id) for broker_id in command.numbers()]
        return [line for answer in answers for line in _error("", answer.error_code)]

    def _stop(self, command: Command) -> list[str]:
        answer = self.quorum.heartbeat(command.number(), want_shutdown=True)
        return _error("", answer.error_code)

    def _register(self, command: Command) -> list[str]:
        broker_id, how = command.number(), command.word_of(("clean", "unclean", "first"), 1)
        known = self.quorum.image.brokers.get(broker_id)
        if known is not None and how == "first":
            raise ParseError(f"{command.where}: broker {broker_id} is registered already")
        epoch = -1
        if how == "clean":
            epoch = self._stored_epochs.get(broker_id, -1) if known is None else known.broker_epoch
        levels = _LEVELS[command.choice("levels", _LEVELS, "present")]
        answer = self.quorum.register(broker_id, epoch, features=levels)
        return _error("", answer.error_code)

    def _offline(self, command: Command) -> list[str]:
        answer = self.quorum.heartbeat(command.number(), offline=self._row(command))
        return _error("", answer.error_code)

    def _renew(self, command: Command) -> list[str]:
        answer = self.quorum.heartbeat(command.number(), online=self._row(command))
        return _error("", answer.error_code)

    def _row(self, command: Command) -> tuple[OfflineTopic, ...]:
        name, index = _name(command, 1)
        topic = self.quorum.image.topic(name)
        if topic is None:
            raise ParseError(f"{command.where}: there is no topic {name}")
        return (OfflineTopic(topic.topic_id, (index,)),)

    def _unregister(self, command: Command) -> list[str]:
        broker_id = command.number()
        known = self.quorum.image.brokers.get(broker_id)
        if known is not None:
            self._stored_epochs[broker_id] = known.broker_epoch
        outcome = self.quorum.request(UnregisterBroker(broker_id))
        return _error("", outcome.error_code)

    def _alter(self, command: Command) -> list[str]:
        name, index = _name(command)
        quorum = self.quorum
        changes: dict[str, Any] = {
            key: command.integer(key)
            for key in ("leader_epoch", "partition_epoch")
            if key in command.arguments
        }
        command.flag("recovered")
        if command.flag("recovering"):
            changes["leader_recovery_state"] = RECOVERING
        changes["stale"] = command.ids("stale", ())
        topic = quorum.image.topic(name)
        partition = None if topic is None else topic.partitions.get(index)
        leader = None if partition is None else partition.leader
        # no replica leads: the request is refused for that, if its own epoch is right
        anybody = min(quorum.image.brokers, default=0)
        sender = command.integer("from", anybody if leader is None else leader)
        if command.choice("broker_epoch", ("current", "stale"), "current") == "stale":
            known = quorum.image.brokers.get(sender)
            changes["broker_epoch"] = -1 if known is None else known.broker_epoch - 1
        answer = quorum.alter(name, command.ids("isr"), index, sender=sender, **changes)
        if answer.error_code != ErrorCode.NONE:
            return _error("", answer.error_code)
        return _error(f"{name}-{index} ", answer.partitions[0].error_code)

    def _elect(self, command: Command) -> list[str]:
        kinds = {kind.value: kind for kind in ElectionType}
        kind = kinds[command.word_of(kinds)]
        name, index = _name(command, 1)
        leader = command.integer("leader") if "leader" in command.arguments else None
        outcome = self.quorum.request(ElectLeader(kind, name, index, leader))
        return _error(f"{name}-{index} ", outcome.error_code)

    def _config(self, command: Command) -> list[str]:
        resource = CLUSTER_RESOURCE
        if command.word_of(("topic", "cluster")) == "topic":
            resource = (RESOURCE_TOPIC, command.word(1))
        if len(command.arguments) != 1:
            raise ParseError(f"{command.where}: config needs one KEY=VALUE")
        name = next(iter(command.arguments))
        outcome = self.quorum.request(AlterConfig(resource, name, command.text(name) or None))
        return _error("", outcome.error_code)

    def _reassign(self, command: Command) -> list[str]:
        name, index = _name(command)
        is_cancelled = command.flag("cancel")
        replicas = None if is_cancelled else command.ids("replicas")
        outcome = self.quorum.request(Reassign(name, index, replicas))
        return _error(f"{name}-{index} ", outcome.error_code)

    def _log_info(self, command: Command) -> list[str]:
        broker_id = command.number()
        name, index = _name(command, 1)
        image = self.quorum.image
        topic = image.topic(name)
        partition = None if topic is None else topic.partitions.get(index)
        broker = image.brokers.get(broker_id)
        leader_epoch = 0 if partition is None else partition.leader_epoch
        leader_epoch += _EPOCH_STEPS[command.choice("leader_epoch", _EPOCH_STEPS, "current")]
        is_stale = command.choice("broker_epoch", ("current", "stale"), "current") == "stale"
        event = LogInfoArrived(
            broker_id=broker_id,
            broker_epoch=(0 if broker is None else broker.broker_epoch) - is_stale,
            topic_id=bytes(16) if topic is None else topic.topic_id,
            partition_index=index,
            leader_epoch=leader_epoch,
            last_epoch=command.integer("last_epoch", -1),
            end_offset=command.integer("end_offset", 0),
            error_code=ErrorCode[command.choice("error", ErrorCode.__members__, "NONE")],
        )
        self.quorum.handle(event)
        return []

    def _feature(self, command: Command) -> list[str]:
        if len(command.arguments) != 1:
            raise ParseError(f"{command.where}: feature needs one of {', '.join(_FEATURES)}, with its level")
        name = next(iter(command.arguments))
        outcome = self.quorum.request(UpdateFeature(_FEATURES.get(name, name), command.integer(name)))
        return _error("", outcome.error_code)

    def _advance(self, command: Command) -> list[str]:
        quorum = self.quorum
        target_ms = quorum.now_ms + command.number()
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
        name = command.word()
        answer = self.quorum.request(DeleteTopicsRequest(0, (name,)))
        return _error("", answer.topics[0].error_code) or [f"{name} deleted"]

    def _show(self, command: Command) -> list[str]:
        name, index = _name(command)
        topic = self.quorum.image.topic(name)
        if topic is None or index not in topic.partitions:
            return _error(f"{name}-{index} ", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [f"{name}-{index} {topic.partitions[index]}"]

    def _heartbeat(self, *broker_ids: int, at_ms: int | None = None) -> None:
        for broker_id in broker_ids:
            broker = self.quorum.image.brokers.get(broker_id)
            if broker is not None and not broker.is_fenced:
                self.quorum.heartbeat(broker_id, want_shutdown=broker.in_controlled_shutdown, at_ms=at_ms)


def _name(command: Command, position: int = 0) -> tuple[str, int]:
    name, _, index = command.word(position).rpartition("-")
    if not name:
        raise ParseError(f"{command.where}: expected a partition as t-0, got {command.word(position)}")
    return name, parse_id(index, command.where)


def _error(prefix: str, code: int) -> list[str]:
    return [] if code == ErrorCode.NONE else [f"{prefix}error={ErrorCode(code).name}"]


def _switch(command: Command, key: str, default: str) -> str:
    return "true" if command.choice(key, ("on", "off"), default) == "on" else "false"
