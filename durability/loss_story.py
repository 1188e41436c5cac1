"""What became of a record that is lost, as far as replicas' files and the metadata log can say.

Looks at the place that was acknowledged, in each replica: the record is still there and not served, another
one has its place since, or the log ends before it. Reads segment files with the validator's own decoder. What
the metadata log says of the partition's leaders tells by which election that came about, and a history of the
run what was done to the cluster meanwhile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from holdfast.client.core.history import parse_value
from holdfast.durability.foreign_lines import PRODUCER, number_of_value
from holdfast.durability.segments import (
    SegmentBatch,
    Undecodable,
    batch_records,
    parse_log_dirs,
    read_segment,
    replica_folders,
    segment_paths,
)

#: Faults that a story names.
_FAULTS_MAX = 5


@dataclass(frozen=True, slots=True)
class LostRecord:
    """An acknowledged record that is not served, and the place that was acknowledged."""

    topic: str
    partition: int
    offset: int
    producer: str
    pseq: int
    #: leader epoch of the acknowledgement; -1 when the ledger does not say it
    leader_epoch: int = -1
    #: monotonic time of the acknowledgement, as the ledger has it
    acked_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Election:
    """A leader epoch of a partition, as the metadata log has it."""

    leader_epoch: int
    #: None: no replica may lead
    leader: int | None
    #: the ISR when it began, and when the next one began
    first_isr: tuple[int, ...]
    last_isr: tuple[int, ...]
    #: nothing proved that the leader's log was complete
    is_unclean: bool
    #: wall time in ms since 1970
    timestamp_ms: int
    #: what led to it, in words
    cause: str


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to a cluster, from wall time to wall time in ms since 1970."""

    text: str
    since_ms: int
    #: None: it was never healed
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class RunHistory:
    """What was done to a cluster while producers on the same machine sent."""

    #: both clocks of that machine at one moment, before the first fault
    wall_ms: int
    mono_ns: int
    faults: tuple[Fault, ...]

    def wall_time(self, mono_ns: int | None) -> int | None:
        """In ms; None for no time, and for one before the run."""
        if mono_ns is None or mono_ns < self.mono_ns:
            return None
        return self.wall_ms + (mono_ns - self.mono_ns) // 1_000_000


@dataclass(frozen=True, slots=True)
class _Found:
    """What one replica has where the record should be."""

    broker: int
    #: the record itself; None where another one or none is
    place: str | None
    #: leader epoch of what is in the place
    epoch: int | None
    #: where the log ends
    end: int


def story_of(
    log_dirs: Mapping[int, str],
    lost: LostRecord,
    elections: Sequence[Election] = (),
    history: RunHistory | None = None,
) -> str:
    """Sentences about a lost record, empty when nothing is known of its partition. `elections`: all of the
    partition in the order of their epochs. Raises: OSError, ValueError for a log dir that is not there."""
    found = [
        _look(folder.broker, folder.path, lost.offset, lost.producer, lost.pseq)
        for broker, dirs in sorted(log_dirs.items())
        for folder in replica_folders(
            parse_log_dirs(",".join(f"{broker}={path}" for path in dirs.split(","))), frozenset((lost.topic,))
        )
        if folder.partition == lost.partition
    ]
    meanwhile = "" if history is None else _meanwhile(lost, elections, history)
    return "; ".join(filter(None, (_stored(found), _course(lost, found, elections), meanwhile)))


def _stored(found: Sequence[_Found]) -> str:
    """What replicas have of it."""
    kept = [f"replica {one.broker} still has it, {one.place}" for one in found if one.place is not None]
    if kept:
        return f"stored but not served: {'; '.join(kept)}"
    after = [one for one in found if one.epoch is not None]
    if after:
        by = ", ".join(f"replica {one.broker} in epoch {one.epoch}" for one in after)
        return f"its offset was given to another record: {by}; what was stored there was truncated"
    if not found:
        return ""
    ends = ", ".join(f"replica {one.broker} ends at {one.end}" for one in found)
    return f"no replica has it or anything behind it: {ends}; truncated, or never stored"


def _course(lost: LostRecord, found: Sequence[_Found], elections: Sequence[Election]) -> str:
    """Who had led, and by which election its place came to another log."""
    acked = next((one for one in elections if one.leader_epoch == lost.leader_epoch), None)
    if acked is None:
        return ""
    text = (
        f"acknowledged in epoch {acked.leader_epoch} by leader {acked.leader}, whose ISR was "
        f"{_ids(acked.first_isr)}"
    )
    if acked.last_isr != acked.first_isr:
        text += f" at first and {_ids(acked.last_isr)} at last"
    later = [one for one in elections if one.leader_epoch > acked.leader_epoch and one.leader is not None]
    if not later:
        return f"{text}; no other leader was elected since"
    unclean = _unclean_after(lost, elections)
    if unclean is None:
        chain = ", ".join(f"{one.leader} in epoch {one.leader_epoch}" for one in later)
        return f"{text}; since then only clean elections: {chain}"
    text += (
        f"; epoch {unclean.leader_epoch} began uncleanly with leader {unclean.leader} at "
        f"{_time(unclean.timestamp_ms)} ({unclean.cause})"
    )
    cut = sorted({one.broker for one in found if one.place is None} - {unclean.leader})
    if cut and unclean.leader is not None:
        text += f", to whose log {_replicas(cut)} had to be cut"
    before = [one for one in later if one.leader_epoch < unclean.leader_epoch]
    if before:
        text += (
            f"; between them led {', '.join(f'{one.leader} in epoch {one.leader_epoch}' for one in before)}"
        )
    return text


def _meanwhile(lost: LostRecord, elections: Sequence[Election], history: RunHistory) -> str:
    """What was done to the cluster from the acknowledgement to the election that gave its place away."""
    acked_ms = history.wall_time(lost.acked_ns)
    unclean = _unclean_after(lost, elections)
    since = history.wall_ms if acked_ms is None else acked_ms
    until = None if unclean is None else unclean.timestamp_ms
    near = [
        fault
        for fault in history.faults
        if (until is None or fault.since_ms <= until) and (fault.until_ms is None or fault.until_ms >= since)
    ]
    text = "" if acked_ms is None else f"acknowledged at {_time(acked_ms)}; "
    if not near:
        return f"{text}the run's history has no fault in that time" if text else ""
    shown = ", ".join(
        f"{fault.text} at {_time(fault.since_ms)}"
        + ("" if fault.until_ms is None else f" (healed at {_time(fault.until_ms)})")
        for fault in near[-_FAULTS_MAX:]
    )
    more = f", the last of {len(near)}" if len(near) > _FAULTS_MAX else ""
    return f"{text}what was done to the cluster{' meanwhile' if text else ''}{more}: {shown}"


def _unclean_after(lost: LostRecord, elections: Sequence[Election]) -> Election | None:
    """The first unclean election behind the acknowledgement."""
    if lost.leader_epoch < 0:
        return None
    later = (one for one in elections if one.leader_epoch > lost.leader_epoch and one.leader is not None)
    return next((one for one in later if one.is_unclean), None)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "empty"


def _replicas(brokers: Sequence[int]) -> str:
    return f"{'replica' if len(brokers) == 1 else 'replicas'} {_ids(brokers)}"


def _time(timestamp_ms: int) -> str:
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03}Z"


def _look(broker: int, folder: str, offset: int, producer: str, pseq: int) -> _Found:
    end = 0
    for path in segment_paths(folder):
        end = max(end, int(path.stem))
        for batch in _batches(path):
            end = max(end, batch.last_offset + 1)
            if not batch.base_offset <= offset <= batch.last_offset:
                continue
            if not batch.crc_ok:
                return _Found(broker, None, None, end)
            if _holds(batch, offset, producer, pseq):
                return _Found(broker, f"{path} at byte {batch.position}", batch.leader_epoch, end)
            return _Found(broker, None, batch.leader_epoch, end)
    return _Found(broker, None, None, end)


def _batches(path: Path) -> list[SegmentBatch]:
    # a copy: a follower that truncates a file would take the pages of a map away
    data = path.read_bytes()
    return [found for found in read_segment(data, int(path.stem)) if isinstance(found, SegmentBatch)]


def _holds(batch: SegmentBatch, offset: int, producer: str, pseq: int) -> bool:
    """The record at this offset bears this name."""
    try:
        rows = batch_records(batch)
    except Undecodable:
        return False
    for row in rows:
        if row.offset == offset and row.value is not None:
            if producer == PRODUCER and number_of_value(row.value) == pseq:
                return True
            name = parse_value(row.value)
            return name is not None and (name.producer, name.pseq) == (producer, pseq)
    return False
