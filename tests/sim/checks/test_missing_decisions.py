"""What controllers leave out: histories in which something is missing, and those beside them."""

from typing import Any

import pytest

from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ReplicasOfflineRecord,
)
from holdfast.sim.checks.properties import missing_decisions
from tests.sim.checks.histories import TOPIC_ID, Scene, image, row

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
