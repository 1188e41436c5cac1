"""What brokers do to their disks (A-8, A-20): histories that break a property, and those beside them."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.metadata.records import RegisterBrokerRecord
from holdfast.runtime.api import DiskError
from holdfast.sim.checks.observe.views import ReplicaView
from holdfast.sim.checks.properties.disks import CleanIsTruth, FailStop
from tests.sim.checks.histories import Scene, before, grow, image, leads, mark, view_of

STEP_NS = 1000


def failed(scene: Scene) -> ReplicaView:
    """A leader with four batches, three of them committed, whose log has failed in the step before."""
    view = leads(view_of(scene, 1, map(mark, range(4)), high_watermark=3))
    log: Any = view.log
    log.failure = DiskError("/data/t-0/0.log", "flush", 5, "Input/output error")
    scene.property.replica_changed(scene.seen, view, before(view), [])
    scene.world.loop.now_ns += STEP_NS
    return view


@pytest.mark.parametrize(("offset", "expected"), [(2, False), (3, True)])
def test_only_what_had_committed_when_the_disk_failed_is_acknowledged_later(
    offset: int, expected: bool
) -> None:
    """A request of several partitions is answered with the last of them."""
    scene = Scene(FailStop())
    view = failed(scene)
    view.high_watermark = 4
    said = scene.violation(lambda: scene.property.acknowledged(scene.seen, view, offset, 5))
    assert (said is not None) is expected


def test_nothing_is_appended_after_the_disk_has_failed() -> None:
    scene = Scene(FailStop())
    view = failed(scene)
    batches = grow(view, [mark(4)])
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), batches))
    assert said is not None
    assert said.startswith(FailStop.name)


@pytest.mark.parametrize(
    ("exit_code", "is_registered", "log_bytes", "expected"),
    [
        (0, True, 0, None),
        (1, True, 0, "did not end cleanly"),
        (0, False, 0, "did not end cleanly"),
        (0, True, 100, "did not end cleanly"),
    ],
    ids=["ended in order", "killed", "never registered", "its log is not on the disk"],
)
def test_who_registered_and_ended_in_order_speaks_for_logs_that_were_not_looked_at_a8(
    exit_code: int, is_registered: bool, log_bytes: int, expected: str | None
) -> None:
    """The process before it was killed; this one had no time to take its roles."""
    scene = Scene(CleanIsTruth())
    view_of(scene, 1, [mark(0)], survives=0)
    broker = scene.world.brokers[0]
    broker.process, broker.exit_code = scene.world.loop.process("b1.2"), exit_code
    log = SimpleNamespace(folder="/data/t-0", size_bytes=log_bytes)
    broker.node = SimpleNamespace(  # type: ignore[assignment]
        core=SimpleNamespace(lifecycle=SimpleNamespace(is_registered=is_registered)),
        log_manager=SimpleNamespace(is_whole=True, logs={"t-0": log}),
    )
    scene.property.broker_ends(scene.seen, broker)
    record = RegisterBrokerRecord(1, b"3" * 16, 20, (), None, (), (), True)
    said = scene.violation(lambda: scene.property.record_committed(scene.seen, 20, record, image()))
    assert (said is None) is (expected is None)
    assert expected is None or expected in str(said)
