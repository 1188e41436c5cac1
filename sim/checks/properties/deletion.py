"""Properties of what is deleted: by retention (D5), and with a topic (R107)."""

from collections.abc import Sequence

from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage
from holdfast.metadata.records import MetadataRecord, RemoveTopicRecord
from holdfast.sim.checks.observe.batches import BatchHistory, BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Property, ReplicaView
from holdfast.sim.cluster.nodes import State
from holdfast.storage.core.files import SNAPSHOT_SUFFIX, offset_path

#: a pass every 1.5 s, and a disk that hangs for 4 s
_PATIENCE_NS = 10_000_000_000
#: a broker that was not seen for so long may have been paused
_LOOKED_AWAY_NS = 2_000_000_000


class OnlyOldIsDeleted(Property):
    """D5: the beginning of a log goes only where its topic says so, by its time or as far as the bytes stay
    that it asks for, or where another replica's has gone so; never what is not committed yet. Its files go
    not before a snapshot says who has written them."""

    name = "D5 OnlyOldIsDeleted"
    is_about_loss = True

    def __init__(self) -> None:
        #: {(process, partition): its log start}, and where its first segment begins
        self._starts: dict[tuple[str, int], int] = {}
        self._bases: dict[tuple[str, int], int] = {}
        #: {partition: {broker: the latest start of its log}}
        self._latest: dict[int, dict[str, int]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        log, key = view.log, (view.process.name, view.index)
        start = log.log_start_offset
        if not start:
            return
        base = min([start, *log.segments.base_offsets[:1]])
        nothing = 0 if before.registration is not None else start
        known, known_base = self._starts.get(key, nothing), self._bases.get(key, min(nothing, base))
        self._starts[key], self._bases[key] = start, base
        latest = self._latest.setdefault(view.index, {})
        latest[view.broker.name] = max(start, latest.get(view.broker.name, 0))
        if view.history.has_begun_anew or view.history.cut or view.process.is_dead:
            return
        if base > known_base:
            self._check_snapshot(seen, view, base)
        if start == known:
            return
        young = None if self._is_followed(seen, view, start) else self._wanted(view, known, start)
        if young is not None:
            story = f"{view.broker.name} has deleted up to {start} and keeps {log.size_bytes} bytes"
            told = f"{log.config.retention_bytes} bytes and {log.config.retention_ms} ms"
            seen.broken(self, view.index, f"{story}; {young} had to stay by {told}")
        high_watermark = seen.ghosts[view.index].high_watermark
        if start > high_watermark:
            story = f"{view.broker.name} has deleted up to {start}, committed is up to {high_watermark}"
            seen.broken(self, view.index, story)

    def _is_followed(self, seen: Observer, view: ReplicaView, start: int) -> bool:
        """It was asked for, or another replica begins there. A log that only begins later is looked at with
        its replica's next change, and followers may hear of it before that."""
        latest = self._latest[view.index]
        others = [other for name, other in latest.items() if name != view.broker.name]
        others += [one.log.log_start_offset for one in seen.replicas[view.index].values() if one is not view]
        return start <= max(*others, seen.world.asked_deletions.get(view.index, 0), 0)

    def _check_snapshot(self, seen: Observer, view: ReplicaView, base: int) -> None:
        snapshot = offset_path(view.log.folder, base, SNAPSHOT_SUFFIX)
        if view.broker.machine.sim_disk.durable_bytes(snapshot) is None:
            story = f"{view.broker.name} has deleted up to {base}, who has written it is on no disk (R94)"
            seen.broken(self, view.index, story)

    def _wanted(self, view: ReplicaView, known: int, start: int) -> BatchMark | None:
        """A batch that is gone from a log between two offsets and that the topic wants to keep."""
        log, history = view.log, view.history
        bytes_max, age_max_ms = log.config.retention_bytes, log.config.retention_ms
        kept = log.size_bytes
        for batch in reversed(history.batches):
            if batch.last_offset < known:
                break
            if batch.last_offset >= start:
                continue
            is_too_much = bytes_max is not None and kept >= bytes_max
            age_ms = history.expires_at_ms - batch.max_timestamp
            if not is_too_much and (age_max_ms is None or age_ms <= age_max_ms):
                return batch
            kept += batch.size_bytes
        return None


class DeletedStaysDeleted(Property):
    """R118: records that were told to be deleted are shown by no later leader."""

    name = "R118 DeletedStaysDeleted"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership, row = view.leadership, seen.ghosts[view.index].row
        told = seen.world.told_deletions.get(view.index, 0)
        if leadership is None or leadership.start_offset is None or row is None:
            return
        leads = (row.leader, row.leader_epoch) == (view.broker.node_id, leadership.leader_epoch)
        if leads and view.log.log_start_offset < told and not view.process.is_dead:
            story = f"{view.broker.name} leads in epoch {row.leader_epoch} and begins at"
            seen.broken(self, view.index, f"{story} {view.log.log_start_offset}, deleted is up to {told}")


class OldIsDeleted(Property):
    """D5: what a log has beyond the bytes or the time that its topic asks for goes in time, once it is
    committed and flushed and a snapshot says who has written it. How old it is says the wall clock by which
    its broker looked last."""

    name = "D5 OldIsDeleted"

    def __init__(self) -> None:
        #: {(process, partition): (where the log begins, since when that is too early, when it was looked at
        #: last)}, virtual ns
        self._overdue: dict[tuple[str, int], tuple[int, int, int]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        key, now_ns = (view.process.name, view.index), seen.world.loop.now_ns
        if not self._should_go(view):
            self._overdue.pop(key, None)
            return
        base_offset = view.log.segments.base_offset
        known, since_ns, looked_ns = self._overdue.get(key, (base_offset, now_ns, now_ns))
        if known != base_offset or now_ns - looked_ns > _LOOKED_AWAY_NS:
            since_ns = now_ns
        self._overdue[key] = base_offset, since_ns, now_ns
        if now_ns - since_ns > _PATIENCE_NS:
            log, first = view.log, next(iter(view.log.segments))
            asked = f"{log.config.retention_bytes} bytes and {log.config.retention_ms} ms"
            story = f"{view.broker.name} has {log.size_bytes} bytes from {base_offset} on, the first of"
            story = f"{story} {first.max_timestamp} at {view.history.looked_at_ms}; asked for are {asked}"
            seen.broken(self, view.index, story)

    @staticmethod
    def _should_go(view: ReplicaView) -> bool:
        log = view.log
        bytes_max, age_max_ms, bases = (
            log.config.retention_bytes,
            log.config.retention_ms,
            log.segments.base_offsets,
        )
        is_at_work = view.broker.state is State.RUNNING and log.failure is None and not view.process.is_dead
        if len(bases) < 2 or not is_at_work or log.guard.changing is not None:
            return False
        first = next(iter(log.segments))
        is_too_much = bytes_max is not None and log.size_bytes - first.size >= bytes_max
        age_ms = view.history.looked_at_ms - first.max_timestamp
        is_too_old = age_max_ms is not None and first.max_timestamp >= 0 and age_ms > age_max_ms
        if not (is_too_much or is_too_old) or bases[1] > min(view.high_watermark, view.flushed_offset):
            return False
        snapshot = offset_path(log.folder, bases[1], SNAPSHOT_SUFFIX)
        return view.broker.machine.sim_disk.durable_bytes(snapshot) is not None


class TimesAreOfBatches(Property):
    """D5, F6: behind a cut the newest time of a log's last segment is that of one of its batches: by it the
    segment ages, and who asks for a time is told where it is."""

    name = "D5 TimesAreOfBatches"

    def __init__(self) -> None:
        #: (process, partition) of logs that were cut and not looked at since
        self._cut: set[tuple[str, int]] = set()

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        log, history, key = view.log, view.history, (view.process.name, view.index)
        if history.cut:
            self._cut.add(key)
        if key not in self._cut or log.guard.changing is not None or history.is_behind:
            return
        self._cut.discard(key)
        active = log.segments.active
        if history.start_offset or log.failure is not None or view.process.is_dead:
            return
        times = [one.max_timestamp for one in history.batches if one.base_offset >= active.base_offset]
        if active.max_timestamp != max(times, default=-1):
            story = f"{view.broker.name} takes {active.max_timestamp} for the newest time from"
            seen.broken(self, view.index, f"{story} {active.base_offset} on, it is {max(times, default=-1)}")


class ExpiredLogsKnowTheirEnd(Property):
    """R80, R62: a log of which retention has left nothing still knows the epoch of its last record, over
    starts and power losses: by that it is compared with others. Who begins anew (R83) has forgotten it."""

    name = "R80 ExpiredLogsKnowTheirEnd"
    is_about_loss = True

    def __init__(self) -> None:
        #: {(broker, topic's incarnation, partition): (log start, last epoch, history) when all had gone}
        self._expired: dict[tuple[str, bytes, int], tuple[int, int, BatchHistory]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        log = view.log
        start = log.log_start_offset
        if not start or view.process.is_dead:
            return
        key = view.broker.name, view.replica.key.topic_id, view.index
        if start < log.log_end_offset or view.history.has_begun_anew:
            self._expired.pop(key, None)
            return
        known = self._expired.get(key)
        if log.last_epoch >= 0:
            self._expired[key] = start, log.last_epoch, view.history
        elif known is not None and known[0] == start and not known[2].is_resetting:
            story = f"{view.broker.name} knows no last epoch at {start}, where all has expired"
            seen.broken(self, view.index, f"{story}; it was {known[1]}")


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
