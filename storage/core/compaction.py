"""What compaction keeps: of each key the last record, and a tombstone for a while (R119).

Owns the decision for each batch, and the map from keys to last offsets, bounded in memory. A record stays
when no later record below the map's end has its key, and when it is no tombstone whose time is over. Offsets
stay without gaps: an emptied batch stays as a header, joined with emptied ones beside it in one leader epoch.
The headers of batches that the producer state remembers stay as they are, so that a copy of the log knows
its producers, too. Reads and writes no file.
"""

import hashlib
from collections.abc import Container
from dataclasses import dataclass

from holdfast.protocol.cleaned_batch import keyed_records, plain_records, with_records, without_records
from holdfast.protocol.record_batch import DELETE_HORIZON, BatchHeader, Buffer

#: About what an entry of the map takes in memory.
ENTRY_BYTES = 200
#: A key of fewer bytes stands for itself, a longer one's digest has as many: the two are never the same.
_DIGEST_BYTES = 16
#: Largest last offset delta of a batch.
_DELTA_MAX = (1 << 31) - 1
#: Largest timestamp.
_TIME_MAX = (1 << 63) - 1
#: Of a batch that belongs to no producer.
_NO_PRODUCER = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}


class KeyMap:
    """The last offset of each key in a part of the log."""

    __slots__ = ("_entries_max", "_offsets", "_start_offset", "end_offset", "is_full")

    def __init__(self, memory_bytes: int, start_offset: int = 0) -> None:
        """`start_offset`: batches below are left out."""
        self._start_offset = start_offset
        self._entries_max = max(1, memory_bytes // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        #: offsets from here on were not seen
        self.end_offset = 0
        #: it takes no more batches
        self.is_full = False

    def __len__(self) -> int:
        return len(self._offsets)

    def take(self, batch: Buffer, header: BatchHeader) -> bool:
        """Add the keys of the batch behind those so far; False, and nothing is added, when there is no room.
        The first one is always taken. Raises: CorruptBatch."""
        if header.next_offset <= self._start_offset:
            return True
        offsets = self._offsets
        if self.is_full or (offsets and len(offsets) + header.record_count > self._entries_max):
            self.is_full = True
            return False
        if header.record_count and not header.is_control:
            for record in keyed_records(plain_records(batch, header), header):
                if record.key is not None:
                    offsets[_place(record.key)] = record.offset
        self.end_offset = header.next_offset
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """No later record of this key was seen."""
        return self._offsets.get(_place(key), -1) <= offset


def _place(key: bytes) -> bytes:
    if len(key) < _DIGEST_BYTES:
        return key
    return hashlib.blake2b(key, digest_size=_DIGEST_BYTES).digest()


@dataclass(slots=True)
class CleaningCounts:
    """What was read, written and left out."""

    read_bytes: int = 0
    written_bytes: int = 0
    removed_records: int = 0

    def add(self, other: "CleaningCounts") -> None:
        """Count both."""
        self.read_bytes += other.read_bytes
        self.written_bytes += other.written_bytes
        self.removed_records += other.removed_records


class Compactor:
    """Takes the batches of one segment in order, and gives those that are kept."""

    __slots__ = (
        "_delete_retention_ms",
        "_keys",
        "_remembered",
        "_run",
        "_run_first",
        "_wall_ms",
        "counts",
        "has_changed",
    )

    def __init__(
        self, keys: KeyMap, remembered: Container[tuple[int, int]], wall_ms: int, delete_retention_ms: int
    ) -> None:
        """`remembered`: (producer id, last offset) of each batch that the producer state knows."""
        self._keys = keys
        self._remembered = remembered
        self._wall_ms = wall_ms
        self._delete_retention_ms = delete_retention_ms
        #: emptied batches that are joined and not given yet
        self._run: BatchHeader | None = None
        #: the only batch of them, None for several
        self._run_first: Buffer | None = None
        #: something else was given than was taken
        self.has_changed = False
        self.counts = CleaningCounts()

    def take(self, batch: Buffer, header: BatchHeader) -> list[Buffer]:
        """The next batch; what is to be written now, whole batches in order. Raises: CorruptBatch."""
        kept = self._kept(batch, header)
        self.counts.read_bytes += header.size_bytes
        if kept is None:
            return self._joined(batch, header)
        ended = self.end()
        self.has_changed |= kept is not batch
        return [*ended, *self._written(kept)]

    def end(self) -> list[Buffer]:
        """What is still to be written when the segment, or a run of emptied batches, has ended."""
        run, self._run = self._run, None
        if run is None:
            return []
        emptied = without_records(run)
        self.has_changed |= self._run_first is None or emptied != self._run_first
        return self._written(emptied)

    def _written(self, batch: Buffer) -> list[Buffer]:
        self.counts.written_bytes += len(batch)
        return [batch]

    def _joined(self, batch: Buffer, header: BatchHeader) -> list[Buffer]:
        run = self._run
        if (
            run is not None
            and run.leader_epoch == header.leader_epoch
            and header.last_offset - run.base_offset <= _DELTA_MAX
        ):
            newest_ms = max(run.max_timestamp, header.max_timestamp)
            delta = header.last_offset - run.base_offset
            self._run = run._replace(last_offset_delta=delta, max_timestamp=newest_ms)
            self._run_first = None
            return []
        ended = self.end()
        self._run_first = batch
        self._run = header._replace(attributes=0, **_NO_PRODUCER)
        return ended

    def _kept(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """The batch as it is to be written, None when it may be joined with emptied ones."""
        if header.base_offset >= self._keys.end_offset or header.is_control:
            return batch
        if header.record_count:
            found = self._of_records(batch, header)
            if found is not None:
                return found
        if (header.producer_id, header.last_offset) not in self._remembered:
            return None
        return batch if not header.record_count else without_records(header)

    def _of_records(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        plain = plain_records(batch, header)
        records = list(keyed_records(plain, header))
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        is_over = has_horizon and header.base_timestamp <= self._wall_ms
        kept = [
            record
            for record in records
            if record.key is not None
            and self._keys.is_last(record.key, record.offset)
            and not (record.is_tombstone and is_over)
        ]
        self.counts.removed_records += len(records) - len(kept)
        if not kept:
            return None
        is_first_time = not has_horizon and any(record.is_tombstone for record in kept)
        if len(kept) == len(records) and not is_first_time:
            return batch
        horizon_ms = min(self._wall_ms + self._delete_retention_ms, _TIME_MAX) if is_first_time else None
        return with_records(header, plain, kept, horizon_ms)
