"""A clean stop counts (R33, R36): histories that break that, and those beside them that do not."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.metadata.records import RegisterBrokerRecord
from holdfast.sim.checks.properties.disks import CleanStopsCount
from holdfast.sim.cluster.nodes import State
from tests.sim.checks.histories import Scene, image

#: the first process, registered in epoch 7, ends in order; the next one registers without that proof
USUAL: dict[str, Any] = {
    "exit_code": 0,
    "registered_in": 7,
    "was_clean": True,
    "is_ready": True,
    "known_epoch": 7,
    "is_whole": True,
    "is_disproved": False,
    "is_clean": False,
}
FIRST, NEXT = b"1" * 16, b"2" * 16


def node(incarnation_id: bytes, *, epoch: int = -1, was_clean: bool | None = None, **given: Any) -> Any:
    lifecycle = SimpleNamespace(
        identity=SimpleNamespace(
            incarnation_id=incarnation_id, previous_broker_epoch=given.get("previous", -1)
        ),
        is_registered=epoch >= 0,
        broker_epoch=epoch,
        was_clean=was_clean,
        is_ready=given.get("is_ready", True),
    )
    log_manager = SimpleNamespace(
        is_whole=given.get("is_whole", True), is_clean_shutdown_disproved=given.get("is_disproved", False)
    )
    return SimpleNamespace(core=SimpleNamespace(lifecycle=lifecycle), log_manager=log_manager)


def register(*, is_clean: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(1, NEXT, 20, (), None, (), (), is_clean)


@pytest.mark.parametrize(
    ("differs", "expected"),
    [
        ({}, True),
        ({"is_clean": True}, False),
        ({"exit_code": 1}, False),
        ({"exit_code": None}, False),
        ({"known_epoch": 6}, False),
        ({"is_whole": False}, False),
        ({"is_disproved": True}, False),
        ({"is_ready": False}, False),
        ({"registered_in": -1, "was_clean": False}, False),
    ],
    ids=str,
)
def test_who_stopped_in_order_registers_cleanly_r33(differs: dict[str, Any], expected: bool) -> None:
    story = {**USUAL, **differs}
    scene = Scene(CleanStopsCount())
    broker = scene.world.brokers[0]
    broker.state, broker.exit_code = State.DOWN, story["exit_code"]
    broker.node = node(
        FIRST,
        epoch=story["registered_in"],
        was_clean=story["was_clean"],
        is_ready=story["is_ready"],
    )
    scene.property.broker_ends(scene.seen, broker)
    broker.state, broker.exit_code = State.RUNNING, None
    broker.node = node(NEXT, is_whole=story["is_whole"], is_disproved=story["is_disproved"])
    before = image(epochs={1: story["known_epoch"]})
    record = register(is_clean=story["is_clean"])
    said = scene.violation(lambda: scene.property.record_committed(scene.seen, 20, record, before))
    assert (said is not None) is expected, said


@pytest.mark.parametrize("next_exit_code", [0, None])
def test_who_stops_before_it_registers_passes_the_proof_on_r36(next_exit_code: int | None) -> None:
    """A process that was killed passes nothing on."""
    scene = Scene(CleanStopsCount())
    broker = scene.world.brokers[0]
    broker.state, broker.exit_code, broker.node = State.DOWN, 0, node(FIRST, epoch=7, was_clean=True)
    scene.property.broker_ends(scene.seen, broker)
    broker.exit_code, broker.node = next_exit_code, node(b"3" * 16, previous=7, is_ready=False)
    scene.property.broker_ends(scene.seen, broker)
    broker.state, broker.node = State.RUNNING, node(NEXT)
    before = image(epochs={1: 7})
    said = scene.violation(lambda: scene.property.record_committed(scene.seen, 20, register(), before))
    assert (said is not None) is (next_exit_code == 0)
