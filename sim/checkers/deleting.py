"""Properties of what is deleted: by retention (D5), and with a topic (R107)."""

from collections.abc import Sequence

from metadata.image import RESOURCE_TOPIC, MetadataImage
from metadata.records import MetadataRecord, RemoveTopicRecord
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


class NothingOutlivesATopic(Property):
    """R107: with a topic go its configuration and its partitions, from every index: the next topic of its
    name begins with nothing."""

    name = "R107 NothingOutlivesATopic"

    def __init__(self) -> None:
        self._removed: list[bytes] = []

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is RemoveTopicRecord:
            self._removed.append(record.topic_id)

    def metadata_committed(self, seen: Observer) -> None:
        if not self._removed:
            return
        image, self._removed, removed = seen.image, [], frozenset(self._removed)
        left = [
            f"configuration of {name}"
            for kind, name in sorted(image.configs)
            if kind == RESOURCE_TOPIC and name not in image.topic_ids
        ]
        for broker_id, keys in sorted(image.assigned.items()):
            left += [f"{key} of broker {broker_id}" for key in keys if key[0] in removed]
        left += [f"{key} without a leader" for key in image.leaderless if key[0] in removed]
        if left:
            seen.broken(self, None, f"{', '.join(left)} outlive {len(removed)} topics")
