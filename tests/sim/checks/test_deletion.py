"""Properties of what is deleted: a history that breaks each, and the one beside it that does not."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import RemoveTopicRecord
from holdfast.sim.checks.observe.views import ReplicaView
from holdfast.sim.checks.properties.deletion import (
    DeletedStaysDeleted,
    ExpiredLogsKnowTheirEnd,
    NothingOutlivesATopic,
    OldIsDeleted,
    OnlyOldIsDeleted,
    TimesAreOfBatches,
)
from holdfast.sim.cluster.nodes import State
from holdfast.sim.machine.page_cache import SimFolder, SimInode
from holdfast.storage.core.config import LogConfig
from tests.sim.checks.histories import TOPIC_ID, Scene, before, cut, follows, leads, mark, row, view_of

BATCHES = [mark(0), mark(1), mark(2)]


def store_snapshot(view: ReplicaView, offset: int) -> None:
    """Of who has written the log below the offset."""
    sim_disk = view.broker.machine.sim_disk
    folder = sim_disk.root
    for name in view.log.folder.strip("/").split("/"):
        sim_disk.add(folder, name, inner := SimFolder())
        folder.sync()
        folder = inner
    folder.set(f"{offset:020}.snapshot", SimInode())
    folder.sync()


def begin(view: ReplicaView, start: int, base: int | None = None) -> None:
    """The log begins there, and its first segment as well unless that begins earlier."""
    log: Any = view.log
    log.log_start_offset = start
    log.segments = SimpleNamespace(base_offsets=[start if base is None else base])


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
        "no client asked for it",
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
    begin(view, 0)
    scene.property.replica_changed(scene.seen, view, before(view), [])
    begin(view, start)
    view.log.size_bytes = kept  # type: ignore[misc]
    view.history.has_begun_anew = is_reset
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
    assert (said is not None) is expected, said


@pytest.mark.parametrize(("age_ms", "expected"), [(999, True), (1000, True), (1001, False)])
def test_what_is_young_enough_stays_d5(age_ms: int, expected: bool) -> None:
    scene = Scene(OnlyOldIsDeleted())
    scene.ghost.high_watermark = 3
    view = follows(view_of(scene, 2, [one._replace(max_timestamp=500) for one in BATCHES]))
    view.log.config = LogConfig(retention_bytes=None, retention_ms=1000)
    view.registration = row()
    store_snapshot(view, 3)
    begin(view, 0)
    scene.property.replica_changed(scene.seen, view, before(view), [])
    begin(view, 3)
    view.log.size_bytes = 0  # type: ignore[misc]
    view.history.expires_at_ms = 500 + age_ms
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
    assert (said is not None) is expected, said


@pytest.mark.parametrize("is_seen", [True, False])
@pytest.mark.parametrize(
    ("leader_start", "start", "base", "expected"),
    [(2, 2, 0, False), (2, 1, 0, False), (1, 2, 0, True), (2, 2, 2, True)],
)
def test_a_log_begins_where_another_one_of_its_partition_does_and_keeps_files_for_their_snapshot_d5(
    leader_start: int, start: int, base: int, expected: bool, is_seen: bool
) -> None:
    """Also where a follower is looked at before the log that it follows (seed 829)."""
    scene = Scene(OnlyOldIsDeleted())
    scene.ghost.high_watermark = 3
    other = view_of(scene, 1, BATCHES)
    begin(other, leader_start)  # found so when it was opened
    if is_seen:
        scene.property.replica_changed(scene.seen, other, before(other), [])
    view = follows(view_of(scene, 2, BATCHES))
    view.log.config = LogConfig(retention_bytes=None, retention_ms=None)
    view.registration = row()
    begin(view, 0)
    scene.property.replica_changed(scene.seen, view, before(view), [])
    begin(view, start, base)
    view.log.size_bytes = 300  # type: ignore[misc]
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
    assert (said is not None) is expected, said


@pytest.mark.parametrize(
    ("start", "leader", "epoch", "served_from", "expected"),
    [
        (1, 2, 5, 0, True),
        (2, 2, 5, 0, False),
        (1, 3, 5, 0, False),
        (1, 2, 6, 0, False),
        (1, 2, 5, None, False),
    ],
    ids=["shown again", "deleted", "another leads", "deposed", "serves no reader yet"],
)
def test_no_leader_shows_what_was_told_to_be_deleted_r118(
    start: int, leader: int, epoch: int, served_from: int | None, expected: bool
) -> None:
    scene = Scene(DeletedStaysDeleted())
    scene.world.told_deletions[0] = 2
    scene.ghost.row = row(leader=leader, leader_epoch=epoch)
    view = leads(view_of(scene, 2, BATCHES), start_offset=served_from)
    begin(view, start)
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
    assert (said is not None) is expected, said


def test_a_log_that_was_short_when_it_was_opened_is_none_of_this_process_d5() -> None:
    scene = Scene(OnlyOldIsDeleted())
    view = view_of(scene, 2)
    begin(view, 2)
    assert scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), [])) is None


@pytest.mark.parametrize(
    ("epoch", "start", "has_begun_anew", "was_resetting", "expected"),
    [
        (5, 3, False, False, False),
        (-1, 3, False, False, True),
        (-1, 3, True, False, False),
        (-1, 3, False, True, False),
        (-1, 4, False, False, False),
    ],
    ids=["it knows", "it has forgotten", "it begins anew", "stopped while it began anew", "another log"],
)
def test_a_log_of_which_all_has_expired_knows_its_last_epoch_r80(
    epoch: int, start: int, has_begun_anew: bool, was_resetting: bool, expected: bool
) -> None:
    scene = Scene(ExpiredLogsKnowTheirEnd())
    view = view_of(scene, 2, BATCHES)

    def tell() -> None:
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert scene.violation(tell) is None
    view.log.log_start_offset = 3  # type: ignore[misc]
    assert scene.violation(tell) is None
    view.history.is_resetting = was_resetting
    view = view_of(scene, 2)
    if epoch >= 0:
        view.log.leader_epoch_cache.assign(epoch, 2)
    view.log.log_start_offset = view.log.log_end_offset = start  # type: ignore[misc]
    view.history.has_begun_anew = has_begun_anew
    assert (scene.violation(tell) is not None) is expected


@pytest.mark.parametrize(
    ("configs", "is_assigned", "expected"),
    [((), False, False), (("t",), False, True), (("t2",), False, False), ((), True, True)],
    ids=["nothing", "its configuration", "that of another one", "its replicas"],
)
def test_nothing_outlives_a_topic_r107(configs: tuple[str, ...], is_assigned: bool, expected: bool) -> None:
    scene = Scene(NothingOutlivesATopic())
    rows = [(PartitionId(TOPIC_ID, 0), None)] if is_assigned else []
    keys: Map[PartitionId, None] = Map(rows)
    scene.property.record_committed(scene.seen, 7, RemoveTopicRecord(TOPIC_ID), MetadataImage())
    left = MetadataImage(
        topic_ids=Map({"t2": bytes(16)}),
        configs=Map({(RESOURCE_TOPIC, name): Map() for name in configs}),
        assigned=Map({1: keys}),
    )
    scene.set_image(left)
    said = scene.violation(lambda: scene.property.metadata_committed(scene.seen))
    assert (said is not None) is expected, said
    assert scene.violation(lambda: scene.property.metadata_committed(scene.seen)) is None, "told once"


@pytest.mark.parametrize(
    ("asked", "high_watermark", "snapshot", "step_s", "goes_on", "expected"),
    [
        (150, 3, 1, 1, False, True),
        (250, 3, 1, 1, False, False),
        (None, 3, 1, 1, False, False),
        (150, 0, 1, 1, False, False),
        (150, 3, 2, 1, False, False),
        (150, 3, 1, 3, False, False),
        (150, 3, 1, 1, True, False),
    ],
    ids=[
        "too much stays",
        "that much may stay",
        "no client asks for less",
        "it is not committed",
        "its writer is not known",
        "it may have been paused",
        "it is being deleted",
    ],
)
def test_what_is_too_much_goes_in_time_d5(
    asked: int | None, high_watermark: int, snapshot: int, step_s: int, goes_on: bool, expected: bool
) -> None:
    """Three segments of 100 bytes, of a record each; 12 s."""
    scene = Scene(OldIsDeleted())
    view = follows(view_of(scene, 2, BATCHES, high_watermark=high_watermark, flushed_offset=3))
    view.broker.state = State.RUNNING
    log: Any = view.log
    log.config, log.size_bytes = LogConfig(retention_bytes=asked), 300
    log.guard = SimpleNamespace(changing=None)
    store_snapshot(view, snapshot)

    def tell() -> None:
        for at_s in range(0, 13, step_s):
            first = at_s if goes_on else 0
            bases = [first, first + 1, first + 2] if goes_on else [0, 1, 2]
            log.segments = SegmentsOf(bases)
            scene.world.loop.now_ns += step_s * 1_000_000_000
            scene.property.replica_changed(scene.seen, view, before(view), [])

    assert (scene.violation(tell) is not None) is expected


@pytest.mark.parametrize(
    ("age_ms", "time", "expected"),
    [(1001, 500, True), (1000, 500, False), (1001, -1, False)],
    ids=["too old", "old enough to stay", "of no time"],
)
def test_what_is_too_old_goes_in_time_d5(age_ms: int, time: int, expected: bool) -> None:
    scene = Scene(OldIsDeleted())
    view = follows(view_of(scene, 2, BATCHES, high_watermark=3, flushed_offset=3))
    view.broker.state = State.RUNNING
    log: Any = view.log
    log.config, log.size_bytes = LogConfig(retention_bytes=None, retention_ms=1000), 300
    log.guard, log.segments = SimpleNamespace(changing=None), SegmentsOf([0, 1, 2], time)
    view.history.looked_at_ms = time + age_ms
    store_snapshot(view, 1)

    def tell() -> None:
        for _ in range(13):
            scene.world.loop.now_ns += 1_000_000_000
            scene.property.replica_changed(scene.seen, view, before(view), [])

    assert (scene.violation(tell) is not None) is expected


@pytest.mark.parametrize(
    ("newest", "is_cut", "is_moving", "expected"),
    [(7, True, False, True), (6, True, False, False), (7, False, False, False), (7, True, True, False)],
    ids=["of what is gone", "of what is left", "it was never cut", "it is being cut"],
)
def test_a_log_that_was_cut_forgets_the_time_of_its_tail_d5(
    newest: int, is_cut: bool, is_moving: bool, expected: bool
) -> None:
    scene = Scene(TimesAreOfBatches())
    view = follows(view_of(scene, 2, [mark(at)._replace(max_timestamp=5 + at) for at in range(3)]))
    if is_cut:
        cut(view, 2)
    log: Any = view.log
    log.guard = SimpleNamespace(changing="truncate" if is_moving else None)
    log.segments = SimpleNamespace(active=SimpleNamespace(base_offset=1, max_timestamp=newest))
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, before(view), []))
    assert (said is not None) is expected, said


class SegmentsOf:
    """Segments of 100 bytes that begin at these offsets."""

    def __init__(self, bases: list[int], max_timestamp: int = -1) -> None:
        self.base_offsets, self.base_offset = bases, bases[0]
        self.max_timestamp = max_timestamp

    def __iter__(self) -> Iterator[SimpleNamespace]:
        one = SimpleNamespace(size=100, max_timestamp=self.max_timestamp)
        return iter([one for _ in self.base_offsets])
