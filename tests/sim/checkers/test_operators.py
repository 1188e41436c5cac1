"""What operators are told: a history that breaks it, and those beside it that do not."""

from dataclasses import replace

import pytest
from immutables import Map

from client.admin_configs import Resource
from metadata.image import RESOURCE_TOPIC
from sim.admin import set_config
from sim.checkers.operators import DoneIsCommitted
from tests.sim.checkers.histories import Scene, image

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
    scene.world.desk.under_way = "flush", act

    def tell() -> None:
        one.metadata_committed(scene.seen)
        for value in values:
            scene.set_image(replace(image(), configs=configured(value)))
            one.metadata_committed(scene.seen)
        one.act_succeeded(scene.seen, "flush", act)

    said = scene.violation(tell)
    assert (said is not None) is expected
    assert said is None or said.startswith("K20")
