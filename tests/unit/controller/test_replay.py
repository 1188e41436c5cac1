"""Replay determinism, at every step of every scenario: the log alone makes the state (D7, K20, K22, K25).

After each command four controllers must hold the same image: the active one, a standby that was fed entry by
entry, one that reads the whole log at once, and one that does so and then becomes active.
"""

from pathlib import Path

import pytest

from cli.datadriven import parse_file
from cli.scenario_commands import Scenario
from controller.events import AppendRecords, EntriesCommitted, LeaderChanged
from controller.quorum_controller import QuorumController
from metadata.image import MetadataImage
from metadata.records import decode_record, encode_record
from tests.unit.controller.harness import NODE_ID, LogEntry, Quorum

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


def successor(quorum: Quorum) -> QuorumController:
    """Another process that has the log and leads from now on."""
    core = QuorumController(quorum.config, quorum.random)
    core.handle(EntriesCommitted(tuple(quorum.entries), quorum.committed_offset), quorum.now_ms)
    assert core.committed == quorum.image
    end = quorum.end_offset + 1
    effects = core.handle(LeaderChanged(NODE_ID, quorum.raft_epoch + 1, end), quorum.now_ms)
    effects += core.handle(EntriesCommitted((), end), quorum.now_ms)
    assert core.is_active
    assert not any(isinstance(effect, AppendRecords) for effect in effects), "nothing is left to be written"
    return core


def contents(image: MetadataImage) -> tuple[object, ...]:
    """Everything but how far the log was read."""
    return (
        image.brokers,
        image.topics,
        image.topic_ids,
        image.configs,
        image.features,
        image.next_producer_id,
    )


def check_indexes(image: MetadataImage) -> None:
    """What is derived from the topics is what the topics say."""
    assert dict(image.topic_ids) == {topic.name: topic.topic_id for topic in image.topics.values()}
    assert all(topic_id == topic.topic_id for topic_id, topic in image.topics.items())
    assert [topic.name for topic in image.sorted_topics()] == sorted(image.topic_ids)
    assert all(broker_id == broker.broker_id for broker_id, broker in image.brokers.items())


def check_bytes(entry: LogEntry) -> None:
    """A record read and written again is the same bytes, and says the same."""
    record = decode_record(entry.value)
    assert encode_record(record) == entry.value
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_log_alone_makes_the_state(path: Path) -> None:
    scenario = Scenario()
    standby: Standby | None = None
    checked = 0
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
            assert contents(successor(quorum).latest) == contents(image)
            check_indexes(image)
    assert checked, "a scenario writes something"
