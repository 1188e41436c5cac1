"""What controllers leave out: histories in which something is missing, and those beside them."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    FeatureLevelRecord,
    PartitionRecord,
    ReplicasOfflineRecord,
    TopicRecord,
)
from holdfast.sim.checks.properties import missing_decisions
from holdfast.sim.load.operators import Act, elr_level_name, set_elr_level
from tests.sim.checks.histories import TOPIC_ID, Scene, broker, image, row

SECOND_NS = 1_000_000_000


def broken(scene: Scene, tell: Any) -> bool:
    """Whether the property speaks up, under its own name."""
    said = scene.violation(tell)
    assert said is None or said.startswith(scene.property.name), said
    return said is not None


@pytest.mark.parametrize(
    ("committed", "elr", "expected"),
    [
        (row(isr=(1,), elr=(2,)), True, False),
        (row(isr=(1,), elr=(3,)), True, True),
        (row(isr=(1, 3)), True, True),
        (row(isr=(3,), leader=None), True, True),
        (row(isr=(3,), leader=None), False, False),
        (row(isr=(3,), leader=3), False, True),
    ],
    ids=[
        "it is out",
        "it is eligible",
        "it is in sync",
        "the last one",
        "the last one, without ELR",
        "it leads",
    ],
)
def test_who_has_lost_its_log_dir_is_out_r27(
    committed: PartitionRegistration, elr: bool, expected: bool
) -> None:
    """Broker 3 has."""
    scene = Scene(missing_decisions.OfflineReplicasAreOut())
    record = ReplicasOfflineRecord(3, 3, TOPIC_ID, (0, 7))
    scene.property.record_committed(scene.seen, 9, record, scene.seen.image)
    scene.set_image(image(elr=elr, row=committed))
    assert broken(scene, lambda: scene.property.metadata_committed(scene.seen)) is expected
    assert not broken(scene, lambda: scene.property.metadata_committed(scene.seen))


@pytest.mark.parametrize(
    ("level", "asked", "passed_s", "expected"),
    [
        (1, "under way", 0, False),
        (1, "answered", 5, False),
        (1, "answered", 11, True),
        (1, "the other", 0, True),
        (1, "not at all", 0, True),
        (0, "under way", 0, False),
    ],
)
def test_elr_is_switched_when_operators_ask_for_it_r108(
    level: int, asked: str, passed_s: int, expected: bool
) -> None:
    scene = Scene(missing_decisions.LevelsAreAskedFor())
    operator_queue, loop = scene.world.operator_queue, scene.world.loop
    act: Act = set_elr_level(level)
    if asked == "under way":
        operator_queue.under_way = elr_level_name(level), act
    elif asked == "answered":
        operator_queue.answered_ns[elr_level_name(level)] = loop.now_ns
    elif asked == "the other":
        operator_queue.under_way = elr_level_name(1 - level), act
    loop.now_ns += passed_s * SECOND_NS
    record = FeatureLevelRecord(ELR_FEATURE, level)
    told = image(elr=not level, row=row())
    assert broken(scene, lambda: scene.property.record_committed(scene.seen, 9, record, told)) is expected


def test_the_first_controller_says_whether_there_is_elr_r108() -> None:
    scene = Scene(missing_decisions.LevelsAreAskedFor())
    record, first = FeatureLevelRecord(ELR_FEATURE, 1), replace(image(), features=Map())
    assert not broken(scene, lambda: scene.property.record_committed(scene.seen, 9, record, first))


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        (row(isr=(1,), elr=(2,)), row(isr=(1,)), False),
        (row(isr=(1,), elr=(2,)), row(isr=(1,), elr=(2,)), True),
        (row(isr=(1,), elr=(2,)), row(isr=(1,), last_known_elr=(2,)), True),
        (row(isr=(1,), leader=None), row(isr=(1,), leader=None, last_known_leader=1), True),
        (row(isr=(), elr=(2,), leader=None), row(isr=(), leader=None), True),
    ],
    ids=["nothing is left", "who was eligible", "who was known", "who has led", "no replica was in sync"],
)
def test_elr_goes_off_without_a_trace_and_not_while_it_is_needed_b8(
    was: PartitionRegistration, becomes: PartitionRegistration, expected: bool
) -> None:
    scene = Scene(missing_decisions.LevelsAreAskedFor())
    scene.world.operator_queue.under_way = elr_level_name(0), set_elr_level(0)

    def tell() -> None:
        record = FeatureLevelRecord(ELR_FEATURE, 0)
        scene.property.record_committed(scene.seen, 9, record, image(row=was))
        scene.set_image(image(elr=False, row=becomes))
        scene.property.metadata_committed(scene.seen)

    assert broken(scene, tell) is expected


@pytest.mark.parametrize(
    ("first", "replicas", "expected"),
    [
        (row(), (1, 2, 3), False),
        (row(), (1, 2), True),
        (row(replicas=(1, 2, 3, 4), adding_replicas=(4,), removing_replicas=(3,)), (1, 2, 3), False),
        (row(replicas=(1, 2, 3, 4), adding_replicas=(4,), removing_replicas=(3,)), (1, 2, 3, 4), True),
    ],
)
def test_an_added_partition_has_as_many_replicas_as_the_first_will_have_r106(
    first: PartitionRegistration, replicas: tuple[int, ...], expected: bool
) -> None:
    scene = Scene(missing_decisions.AddedPartitionsAreAlike())
    record = PartitionRecord(
        TOPIC_ID, 1, replicas, replicas, (), (), (), (), -1, replicas[0], 0, 0, 0, 1, None
    )
    told = image(row=first)
    assert broken(scene, lambda: scene.property.record_committed(scene.seen, 9, record, told)) is expected


def test_the_partitions_of_a_new_topic_are_as_they_were_asked_for_r106() -> None:
    scene = Scene(missing_decisions.AddedPartitionsAreAlike())
    record = PartitionRecord(bytes(16), 0, (1, 2), (1, 2), (), (), (), (), -1, 1, 0, 0, 0, 1, None)
    told = image(row=row())
    assert not broken(scene, lambda: scene.property.record_committed(scene.seen, 9, record, told))


@pytest.mark.parametrize(
    ("placed", "away", "expected"),
    [
        pytest.param([(1, 2), (3, 4), (2, 3)], (), False, id="one each, or none"),
        pytest.param([(1, 2), (1, 4)], (), True, id="1 leads two, and 2 none"),
        pytest.param([(1, 2, 3, 4)] * 2, (2, 3, 4), False, id="no other broker is ready"),
        pytest.param([(1, 3)], (), True, id="both in rack a"),
        pytest.param([(1, 3)], (2, 4), False, id="no broker of rack b is ready"),
        pytest.param([(1, 2, 3)], (), False, id="two in rack a, and one in b"),
        pytest.param([(1, 2)], (2,), True, id="2 is not ready, and 4 is"),
        pytest.param([(1, 3, 2, 4)], (2,), False, id="4 are needed"),
    ],
)
@pytest.mark.parametrize("how", ["is_fenced", "in_controlled_shutdown"])
def test_the_replicas_of_a_new_topic_are_spread_r106(
    placed: list[tuple[int, ...]], away: tuple[int, ...], how: str, expected: bool
) -> None:
    """Over brokers 1 and 3 in rack a, 2 and 4 in rack b."""
    scene = Scene(missing_decisions.NewTopicsAreSpread())
    brokers: Map[int, Any] = Map(
        {n: replace(broker(n), rack="ba"[n % 2], **{how: n in away}) for n in (1, 2, 3, 4)}
    )
    told = replace(image(), brokers=brokers)

    def tell() -> None:
        scene.property.record_committed(scene.seen, 8, TopicRecord("u", bytes(16)), told)
        for index, replicas in enumerate(placed):
            record = PartitionRecord(
                bytes(16), index, replicas, replicas, (), (), (), (), -1, replicas[0], 0, 0, 0, 1, None
            )
            scene.property.record_committed(scene.seen, 9 + index, record, told)
        scene.property.metadata_committed(scene.seen)

    assert broken(scene, tell) is expected
    assert not broken(scene, lambda: scene.property.metadata_committed(scene.seen))
