"""What operators are told: a history that breaks it, and those beside it that do not."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from holdfast.client.admin_configs import Resource
from holdfast.metadata.image import RESOURCE_TOPIC
from holdfast.protocol.topic_names import TopicPartition
from holdfast.sim.checks.properties.operators import DoneIsCommitted
from holdfast.sim.load import operators
from holdfast.sim.load.operators import set_config
from tests.sim.checks.histories import Scene, image, row

KEY = "flush.messages"


def configured(value: str | None) -> Map[tuple[int, str], Map[str, str]]:
    """A cluster in which the topic has this value."""
    return Map({(RESOURCE_TOPIC, "t"): Map({KEY: value})}) if value else Map()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], True, id="nothing was committed"),
        pytest.param(["8"], True, id="another value was committed"),
        pytest.param(["7"], False, id="it was committed"),
        pytest.param(["7", "8"], False, id="it was committed, and then what was asked for earlier"),
    ],
)
def test_what_operators_are_told_was_committed_while_they_waited_k20(
    values: list[str], expected: bool
) -> None:
    one = DoneIsCommitted()
    scene = Scene(one)
    act = set_config(Resource.topic("t"), KEY, "7")
    scene.world.operator_queue.under_way = "flush", act

    def tell() -> None:
        one.metadata_committed(scene.seen)
        for value in values:
            scene.set_image(replace(image(), configs=configured(value)))
            one.metadata_committed(scene.seen)
        one.act_succeeded(scene.seen, "flush", act)

    said = scene.violation(tell)
    assert (said is not None) is expected
    assert said is None or said.startswith("K20")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"replicas": (3, 1, 2)}, True, id="it was moved"),
        pytest.param({"replicas": (3, 1, 2, 4), "removing_replicas": (4,)}, True, id="4 is to leave"),
        pytest.param({"replicas": (1, 2, 3)}, False, id="another one is preferred"),
        pytest.param({"replicas": (3, 1, 4)}, False, id="they are others"),
    ],
)
def test_a_move_is_done_in_the_order_that_was_asked_for_r100(given: dict[str, Any], expected: bool) -> None:
    act = operators.move(TopicPartition("t", 0), (3, 1, 2))
    assert act.is_done(image(row=row(**given))) is expected
