"""Properties of retention: a history that breaks each, and the one beside it that does not."""

import pytest

from sim.checkers.deleting import OnlyOldIsDeleted
from sim.checkers.views import ReplicaView
from sim.page_cache import Folder, Inode
from storage.config import LogConfig
from tests.sim.checkers.histories import Scene, before, follows, mark, row, view_of

BATCHES = [mark(0), mark(1), mark(2)]


def store_snapshot(view: ReplicaView, offset: int) -> None:
    """Of who has written the log below the offset."""
    platter = view.broker.machine.platter
    folder = platter.root
    for name in view.log.folder.strip("/").split("/"):
        platter.add(folder, name, inner := Folder())
        folder.sync()
        folder = inner
    folder.set(f"{offset:020}.snapshot", Inode())
    folder.sync()


@pytest.mark.parametrize(
    ("asked", "kept", "start", "snapshot", "is_reset", "expected"),
    [
        (150, 200, 1, 1, False, False),
        (150, 100, 1, 1, False, True),
        (None, 200, 1, 1, False, True),
        (150, 200, 2, 2, False, True),
        (150, 200, 1, 2, False, True),
        (None, 0, 3, 0, True, False),
        (None, 300, 0, 0, False, False),
    ],
    ids=[
        "as far as may be",
        "too much",
        "nobody asked for it",
        "what is not committed",
        "before the snapshot is there",
        "begins where its leader does",
        "nothing",
    ],
)
def test_no_more_is_deleted_than_a_topic_asks_for_d5(
    asked: int | None, kept: int, start: int, snapshot: int, is_reset: bool, expected: bool
) -> None:
    scene = Scene(OnlyOldIsDeleted())
    scene.ghost.high_watermark = 1
    view = follows(view_of(scene, 2, BATCHES))
    view.log.config = LogConfig(retention_bytes=asked)
    view.registration = row()
    store_snapshot(view, snapshot)
    scene.property.replica_changed(scene.seen, view, before(view), [])
    view.log.log_start_offset, view.log.size_bytes = start, kept  # type: ignore[misc]
    view.history.has_begun_anew = is_reset
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
    assert (said is not None) is expected, said


def test_a_log_that_was_short_when_it_was_opened_is_none_of_this_process_d5() -> None:
    scene = Scene(OnlyOldIsDeleted())
    view = view_of(scene, 2)
    view.log.log_start_offset = 2  # type: ignore[misc]
    assert scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), [])) is None
