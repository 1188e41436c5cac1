"""Properties of what retention deletes (D5)."""

from collections.abc import Sequence

from sim.checkers.batches import BatchMark
from sim.checkers.observer import Observer
from sim.checkers.views import Before, Property, ReplicaView
from storage.files import SNAPSHOT_SUFFIX, offset_path


class OnlyOldIsDeleted(Property):
    """D5: the beginning of a log goes only where its topic says so, as far as the bytes stay that it asks
    for, never what is not committed yet, and not before a snapshot says who has written it. Records are young
    in every run: none goes by its time."""

    name = "D5 OnlyOldIsDeleted"
    is_about_loss = True

    def __init__(self) -> None:
        #: {(process, partition): its log start}
        self._starts: dict[tuple[str, int], int] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        log, key = view.log, (view.process.name, view.index)
        start = log.log_start_offset
        if not start:
            return
        known = self._starts.get(key, 0 if before.registration is not None else start)
        self._starts[key] = start
        if start == known or view.history.has_begun_anew or view.history.cut or view.process.is_dead:
            return
        wanted = log.config.retention_bytes
        if wanted is None or log.size_bytes < wanted:
            story = f"{view.broker.name} has deleted up to {start} and keeps {log.size_bytes} bytes"
            seen.broken(self, view.index, f"{story} of {wanted}")
        high_watermark = seen.ghosts[view.index].high_watermark
        if start > high_watermark:
            story = f"{view.broker.name} has deleted up to {start}, committed is up to {high_watermark}"
            seen.broken(self, view.index, story)
        snapshot = offset_path(log.folder, start, SNAPSHOT_SUFFIX)
        if view.broker.machine.platter.durable_bytes(snapshot) is None:
            story = f"{view.broker.name} has deleted up to {start}, who has written it is on no disk (R94)"
            seen.broken(self, view.index, story)
