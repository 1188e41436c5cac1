"""Replay determinism, at every step of every scenario: the log alone makes the state (D7, K20, K22, K25).

After each command four controllers must hold the same image: the active one, a standby that was fed entry by
entry, one that reads the whole log at once, and one that does so and then becomes active.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from holdfast.controller.core.events import AppendRecords, EntriesCommitted, LeaderChanged
from holdfast.controller.core.operators.operations import (
    AlterConfig,
    ElectionType,
    ElectLeader,
    Reassign,
    UnregisterBroker,
    UpdateFeature,
)
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    METADATA_VERSION,
    PartitionChangeRecord,
    decode_record,
    decode_versioned,
    encode_record,
)
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest
from holdfast.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import parse_file
from tests.unit.controller.harness import NODE_ID, LogEntry, Quorum, make_config

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "controller").glob("*.txt"))


class Standby:
    """A controller of the same quorum that never leads; it gets each entry by itself."""

    def __init__(self, quorum: Quorum) -> None:
        self.core = QuorumController(quorum.config, quorum.random)
        self._seen = 0

    def catch_up(self, quorum: Quorum) -> MetadataImage:
        for entry in quorum.entries[self._seen :]:
            assert self.core.handle(EntriesCommitted((entry,), entry.offset + 1), quorum.now_ms) == []
        self._seen = len(quorum.entries)
        self.core.handle(EntriesCommitted((), quorum.committed_offset), quorum.now_ms)
        return self.core.committed


def successor(quorum: Quorum, left: frozenset[PartitionId] = frozenset()) -> QuorumController:
    """Another process that has the log and leads from now on; it may elect for the partitions in `left`."""
    core = QuorumController(quorum.config, quorum.random)
    core.handle(EntriesCommitted(tuple(quorum.entries), quorum.committed_offset), quorum.now_ms)
    assert core.committed == quorum.image
    end = quorum.end_offset + 1
    effects = core.handle(LeaderChanged(NODE_ID, quorum.raft_epoch + 1, end), quorum.now_ms)
    effects += core.handle(EntriesCommitted((), end), quorum.now_ms)
    assert core.is_active
    written = [
        decode_record(value)
        for effect in effects
        if isinstance(effect, AppendRecords)
        for value in effect.values
    ]
    changed = [record for record in written if isinstance(record, PartitionChangeRecord)]
    assert len(changed) == len(written)
    keys = [(record.topic_id, record.partition_index) for record in changed]
    assert left.issuperset(keys), "nothing else is left to be written"
    assert len(set(keys)) == len(keys)
    assert None not in {core.latest.topics[topic].partitions[index].leader for topic, index in keys}
    return core


def contents(image: MetadataImage) -> tuple[object, ...]:
    """Everything but how far the log was read."""
    return (
        image.brokers,
        image.topics,
        image.topic_ids,
        image.assigned,
        image.leaderless,
        image.configs,
        image.features,
        image.next_producer_id,
    )


def check_indexes(image: MetadataImage) -> None:
    """What is derived from the topics is what the topics say (B3)."""
    rows = [
        ((topic.topic_id, index), partition)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    ]
    assert set(image.leaderless) == {key for key, partition in rows if partition.leader is None}
    assigned = {(broker, key) for key, partition in rows for broker in partition.replicas}
    assert {(broker, key) for broker, keys in image.assigned.items() for key in keys} == assigned
    assert dict(image.topic_ids) == {topic.name: topic.topic_id for topic in image.topics.values()}
    assert all(topic_id == topic.topic_id for topic_id, topic in image.topics.items())
    assert [topic.name for topic in image.sorted_topics()] == sorted(image.topic_ids)
    assert all(broker_id == broker.broker_id for broker_id, broker in image.brokers.items())


def check_bytes(entry: LogEntry) -> None:
    """A record read and written again is the same bytes, and says the same."""
    record, version = decode_versioned(entry.value)
    assert encode_record(record, version) == entry.value
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_log_alone_makes_the_state(path: Path) -> None:
    scenario = Scenario()
    standby: Standby | None = None
    checked = 0
    #: as they were put: no event has looked yet whether a replica could lead them
    put: dict[PartitionId, PartitionRegistration] = {}
    for block in parse_file(path):
        for command in block.commands:
            scenario.execute(command)
            if command.name == "cluster":
                continue
            quorum = scenario.quorum
            standby = standby or Standby(quorum)
            for entry in quorum.entries[checked:]:
                check_bytes(entry)
            checked = len(quorum.entries)
            image = quorum.image
            assert quorum.core.latest == image
            assert quorum.replayed() == image
            assert standby.catch_up(quorum) == image
            if command.name == "partition":
                topic_name, _, index = command.word().rpartition("-")
                key = PartitionId(image.topic_ids[topic_name], int(index))
                put[key] = image.topics[key[0]].partitions[key[1]]
            left = frozenset(key for key in image.leaderless if image.partition(*key) == put.get(key))
            assert contents(successor(quorum, left).committed) == contents(image)
            check_indexes(image)
    assert checked, "a scenario writes something"


def some_request(quorum: Quorum, random: Random) -> Any:
    """Something that a broker or an operator may ask for, seen what is appended but not committed yet."""
    latest = quorum.core.latest
    broker = random.randint(1, 4)
    topic = random.choice("tu")
    known = latest.brokers.get(broker)
    choices: list[Any] = [
        AlterConfig(CLUSTER_RESOURCE, "min.insync.replicas", random.choice(["1", "2", "3"])),
        ElectLeader(random.choice(list(ElectionType)), topic, 0, broker),
        Reassign(topic, 0, random.choice([None, (1, 2), (2, 3, 4), (4, 1, 3)])),
        UpdateFeature(ELR_FEATURE, random.choice([0, 1, 1])),
        UpdateFeature(METADATA_VERSION, random.choice([0, 1])),
        UnregisterBroker(broker) if random.random() < 0.1 else UnregisterBroker(9),
        CreateTopicsRequest(0, False, (CreatableTopic(topic, 1, 3, (), ()),)),
        DeleteTopicsRequest(0, (topic,)) if random.random() < 0.3 else DeleteTopicsRequest(0, ("x",)),
    ]
    if known is not None:
        beat = BrokerHeartbeatRequest(broker, known.broker_epoch, latest.offset, False, random.random() < 0.3)
        choices += [beat] * 6
    return random.choice(choices)


@pytest.mark.parametrize("seed", range(max(6, settings().max_examples // 20)))
def test_what_was_not_committed_has_never_been(seed: int) -> None:
    """K20, K22, K23: appends, commits and losses of leadership in any order; every request is answered."""
    random = Random(seed)
    quorum = Quorum(make_config())
    quorum.start_brokers(1, 2, 3, 4)
    quorum.is_held = True
    asked: list[int] = []
    for _ in range(200):
        match random.choice(["ask"] * 6 + ["register", "commit", "commit", "lose"]):
            case "ask":
                asked.append(quorum.start_request(some_request(quorum, random)))
            case "register":
                broker = random.randint(1, 4)
                quorum.is_held = False
                quorum.commit()
                known = quorum.image.brokers.get(broker)
                quorum.register(broker, -1 if known is None else known.broker_epoch)
                quorum.is_held = True
            case "commit":
                quorum.commit(random.randint(quorum.committed_offset, quorum.end_offset))
            case "lose":
                quorum.lose(random.choice([None, NODE_ID + 1]))
                assert quorum.core.latest is quorum.core.committed
                quorum.elect()
        check_committed(quorum)
    quorum.commit()
    check_committed(quorum)
    assert quorum.core.latest == quorum.image == quorum.replayed()
    assert contents(successor(quorum).latest) == contents(quorum.image)
    assert set(asked) <= quorum.answers.keys()
    assert quorum.resignations == []


def check_committed(quorum: Quorum) -> None:
    """Readers see what the committed part of the log says, up to the end of some batch."""
    image = quorum.core.committed
    assert image.offset <= quorum.committed_offset
    delta = MetadataDelta(MetadataImage())
    for entry in quorum.entries:
        if entry.offset < image.offset:
            delta.replay(decode_record(entry.value), entry.offset, entry.raft_epoch)
    assert delta.violations == []
    assert contents(delta.apply(image.offset)) == contents(image)
    check_indexes(image)
