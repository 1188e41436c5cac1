"""The indexes of the image say what the partitions say, after any records (B3)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metadata.delta import MetadataDelta, local_view
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    NO_LEADER,
    MetadataRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import parse_file

FILES = sorted((Path(__file__).parents[2] / "scenarios" / "controller").glob("*.txt"))
BROKERS = range(1, 5)


def check_indexes(image: MetadataImage) -> None:
    """Compare each index with a walk over all partitions."""
    rows = [
        (topic, index, partition)
        for topic in image.sorted_topics()
        for index, partition in topic.sorted_partitions()
    ]
    assigned = {broker_id for _, _, partition in rows for broker_id in partition.replicas}
    assert set(image.assigned) == assigned
    for broker_id in assigned.union(BROKERS):
        assert list(image.partitions_of(broker_id)) == [row for row in rows if broker_id in row[2].replicas]
        assert image.leads_anything(broker_id) == any(row[2].leader == broker_id for row in rows)
    assert list(image.leaderless_partitions()) == [row for row in rows if row[2].leader is None]


replicas = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True).map(tuple)
names = st.sampled_from(["a", "b"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("topic"), names),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("partition"), names, st.integers(0, 2), replicas, st.booleans()),
        st.tuples(st.just("change"), names, st.integers(0, 2), st.none() | replicas, st.booleans()),
    ),
    max_size=25,
)


@given(steps)
def test_indexes_follow_every_record_that_fits_or_not(given_: list[tuple[object, ...]]) -> None:
    image = MetadataImage()
    for offset, step in enumerate(given_):
        delta = MetadataDelta(image)
        delta.replay(_record(*step), offset, 1)
        image = delta.apply()
        check_indexes(image)


def _record(kind: object, name: object, *rest: object) -> MetadataRecord:
    topic_id = str(name).encode() * 16
    if kind == "topic":
        return TopicRecord(str(name), topic_id)
    if kind == "remove":
        return RemoveTopicRecord(topic_id)
    index, ids, is_led = rest
    assert isinstance(index, int)
    if kind == "partition":
        assert isinstance(ids, tuple)
        leader = ids[0] if is_led else None
        return PartitionRegistration(ids, tuple(sorted(ids)), leader, 0, 0, 1).to_record(topic_id, index)
    assert ids is None or isinstance(ids, tuple)
    new_leader = NO_LEADER if ids is None or not is_led else ids[0]
    return PartitionChangeRecord(topic_id, index, None, new_leader, ids, *[None] * 8)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_indexes_hold_in_every_scenario(path: Path) -> None:
    scenario = Scenario()
    for block in parse_file(path):
        for command in block.commands:
            scenario.execute(command)
            if command.name != "cluster":
                check_indexes(scenario.quorum.image)


def test_an_old_image_keeps_its_indexes() -> None:
    delta = MetadataDelta(MetadataImage())
    delta.replay(TopicRecord("a", b"a" * 16), 0, 1)
    delta.replay(PartitionRegistration((1, 2), (1, 2), 1, 0, 0, 1).to_record(b"a" * 16, 0), 1, 1)
    old = delta.apply()
    later = MetadataDelta(old)
    later.replay(RemoveTopicRecord(b"a" * 16), 2, 1)
    check_indexes(later.apply())
    check_indexes(old)
    assert [local.partition_index for local in local_view(old, 1).leaders] == [0]
    assert local_view(later.apply(), 1).leaders == ()
