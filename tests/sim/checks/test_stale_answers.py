"""What a single node says: histories that break it, and those beside them that do not."""

from dataclasses import replace

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.topics import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsResponse,
)
from holdfast.sim.checks.properties.stale_answers import WhoAnswersKnows
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.load.single_node_client import Answer
from tests.sim.checks.histories import TOPIC_ID, Scene, change, image, row

SECOND_NS = 1_000_000_000


def described(partition_epoch: int | None) -> DescribeTopicPartitionsResponse:
    """Of topic t; None: there is none."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows: tuple[DescribedPartition, ...] = ()
    if partition_epoch is not None:
        one = DescribedPartition(0, 0, 1, 0, partition_epoch, (1,), (1,), (), (), -1, 1, 0, ())
        code, rows = ErrorCode.NONE, (one,)
    topic = DescribedTopic(int(code), "t", TOPIC_ID, False, (), rows)
    return DescribeTopicPartitionsResponse(0, None, (topic,), None)


@pytest.mark.parametrize(
    ("begun_s", "told", "expected"),
    [
        pytest.param(30, [None], True, id="there is no such topic"),
        pytest.param(30, [3], True, id="an image that is half read"),
        pytest.param(30, [4], False, id="what was committed"),
        pytest.param(30, [6, 5], True, id="less than it has said before"),
        pytest.param(5, [None], False, id="who told it may not have known better"),
    ],
)
def test_a_controller_that_answers_knows_what_was_committed_before_it_began(
    begun_s: int, told: list[int | None], expected: bool
) -> None:
    one = WhoAnswersKnows()
    scene = Scene(one)
    scene.set_image(image(row=replace(row(), partition_epoch=4)))
    controller = scene.world.controllers[0]
    controller.booted_ns = scene.world.loop.now_ns + begun_s * SECOND_NS

    def tell() -> None:
        one.metadata_committed(scene.seen)
        for epoch in told:
            one.node_answered(scene.seen, Answer(controller, controller.boots, described(epoch)))

    said = scene.violation(tell)
    assert (said is not None) is expected
    assert said is None or said.startswith("R113")


@pytest.mark.parametrize(("begun_s", "expected"), [(5, True), (-1, False)], ids=["behind it", "before it"])
def test_a_broker_that_answers_knows_all_that_was_committed_before_it_began(
    begun_s: int, expected: bool
) -> None:
    one = WhoAnswersKnows()
    scene = Scene(one)
    scene.set_image(image(row=replace(row(), partition_epoch=4)))
    broker = scene.world.brokers[0]
    broker.booted_ns = scene.world.loop.now_ns + begun_s * SECOND_NS

    def tell() -> None:
        one.metadata_committed(scene.seen)
        one.node_answered(scene.seen, Answer(broker, broker.boots, described(3)))

    assert (scene.violation(tell) is not None) is expected


@pytest.mark.parametrize(("is_there", "expected"), [(True, True), (False, False)])
def test_what_a_controller_says_is_done_was_committed_k20(is_there: bool, expected: bool) -> None:
    one = WhoAnswersKnows()
    scene = Scene(one)
    controller = scene.world.controllers[0]

    def tell() -> None:
        one.metadata_committed(scene.seen)
        one.node_answered(scene.seen, Answer(controller, 0, is_there=is_there))

    assert (scene.violation(tell) is not None) is expected


@pytest.mark.parametrize(
    ("told", "asks", "expected"),
    [
        ({}, True, False),
        ({"eligible_leader_replicas": ()}, True, True),
        ({"last_known_elr": (2,)}, True, True),
        ({"leader_id": 2}, True, True),
        ({"min_isr": 1}, True, True),
        ({"last_known_leader": 1}, True, True),
        ({"partition_epoch": 22, "eligible_leader_replicas": ()}, True, False),
        ({"eligible_leader_replicas": ()}, False, False),
    ],
    ids=[
        "as it is",
        "no replica is eligible",
        "another is known",
        "another leads",
        "another min ISR",
        "a last leader, though there is one",
        "no node has seen that one yet",
        "no client asks in this story",
    ],
)
def test_each_state_of_a_partition_is_told_as_it_was_committed_r114(
    told: dict[str, object], asks: bool, expected: bool
) -> None:
    one = WhoAnswersKnows()
    scene = Scene(one, ClusterSpec(asks_alone=asks))
    controller = scene.world.controllers[0]
    controller.booted_ns = scene.world.loop.now_ns
    seen_change = change(row(isr=(1, 2)), isr=(1,), elr=(2,))
    usual = DescribedPartition(0, 0, 1, 5, 21, (1, 2, 3), (1,), (2,), (), -1, 2, 0, ())
    topic = DescribedTopic(0, "t", TOPIC_ID, False, (), (replace(usual, **told),))  # type: ignore[arg-type]

    def tell() -> None:
        one.partition_changed(scene.seen, 0, seen_change)
        answer = DescribeTopicPartitionsResponse(0, None, (topic,), None)
        one.node_answered(scene.seen, Answer(controller, controller.boots, answer))

    assert (scene.violation(tell) is not None) is expected
