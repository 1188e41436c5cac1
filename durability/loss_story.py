"""What became of a record that is lost, as far as the replicas' files can say.

Looks at the place that was acknowledged, in each replica: the record is still there and not served, another
one has its place since, or the log ends before it. Reads segment files with the validator's own decoder.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
    log_dirs: Mapping[int, str], topic: str, partition: int, offset: int, producer: str, pseq: int
) -> str:
    """A sentence about a lost record; empty without replicas of its partition. Raises: OSError,
    ValueError for a log dir that is not there."""
    found = [
        _look(folder.broker, folder.path, offset, producer, pseq)
        for broker, dirs in sorted(log_dirs.items())
        for folder in replica_folders(
            parse_log_dirs(",".join(f"{broker}={path}" for path in dirs.split(","))), frozenset((topic,))
        )
        if folder.partition == partition
    ]
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
