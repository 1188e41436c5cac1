"""What a broker may still do whose disk has failed (A-20): histories that break that, and those beside it."""

from typing import Any

import pytest

from runtime.api import DiskError
from sim.checkers.disks import FailStop
from sim.checkers.views import ReplicaView
from tests.sim.checkers.histories import Scene, before, grow, leads, mark, view_of

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
