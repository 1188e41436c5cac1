"""Delivers the committed records to their owner: in order, from offset 0, each once per process (K25, Q-10).

Owns how far the owner has read. Reads the local log in chunks, so that a long log does not block the event
loop when a node starts. Control batches are not delivered, but count for the offset.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.protocol.record_batch import CorruptBatch, decode_records, iter_batches
from holdfast.runtime.api import Clock, OutOfResources
from holdfast.storage.log import Log

#: Most bytes of log that are read and delivered at once: some 500 records, 15 ms of replay.
CHUNK_BYTES = 40 << 10
#: Wait before a read that found no file handle or memory is tried again.
_SHORTAGE_PAUSE_MS = 50


class CommittedEntry(NamedTuple):
    """One committed metadata record."""

    offset: int
    raft_epoch: int
    value: bytes
    #: wall time of the leader that wrote it
    timestamp_ms: int = -1


class CommittedReader:
    """Reads the log below the high watermark."""

    def __init__(
        self,
        log: Log,
        deliver: Callable[[Sequence[CommittedEntry], int], None],
        failed: Callable[[Exception], None],
        clock: Clock,
    ) -> None:
        self._log = log
        self._clock = clock
        self._deliver = deliver
        self._failed = failed
        #: exclusive; records below may be delivered
        self._committed_offset = 0
        #: exclusive; records below have been delivered
        self.delivered_offset = 0
        #: bytes of the log that were delivered
        self.delivered_bytes = 0
        self._is_turn_due = False
        self._is_stopped = False

    def advance(self, committed_offset: int) -> None:
        """Records below `committed_offset` are committed: deliver a chunk now, the rest in later loop
        turns."""
        assert committed_offset >= self._committed_offset, "the high watermark never falls (Q-6)"
        self._committed_offset = committed_offset
        if not self._is_turn_due:
            self.read_on()

    def read_on(self) -> None:
        """Deliver the next chunk, if the log has one."""
        end_offset = min(self._committed_offset, self._log.log_end_offset)
        if self.delivered_offset >= end_offset or self._is_stopped:
            return
        try:
            chunk = self._log.read(self.delivered_offset, CHUNK_BYTES, end_offset)
        except OutOfResources:
            self._is_turn_due = True
            self._clock.call_later(_SHORTAGE_PAUSE_MS, self._turn)
            return
        entries: list[CommittedEntry] = []
        next_offset = self.delivered_offset
        for header, batch in iter_batches(chunk):
            next_offset = header.next_offset
            self.delivered_bytes += header.size_bytes
            if header.is_control:
                continue
            for record in decode_records(batch):
                if record.value is None:
                    raise CorruptBatch(f"{self._log.folder}: metadata record {record.offset} has no value")
                entries.append(
                    CommittedEntry(record.offset, header.leader_epoch, record.value, record.timestamp_ms)
                )
        if next_offset == self.delivered_offset:
            return  # a peer's offset lies inside a batch: hand it over once all of it is committed
        self.delivered_offset = next_offset
        if next_offset < end_offset:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)
        self._deliver(entries, next_offset)

    def jump_to(self, offset: int) -> None:
        """A snapshot has given the owner everything below `offset`, where the log will begin (K14)."""
        assert offset >= self.delivered_offset, "a snapshot takes nothing back"
        self.delivered_offset = offset
        self._committed_offset = max(self._committed_offset, offset)

    def stop(self) -> None:
        """Deliver nothing more."""
        self._is_stopped = True

    def _turn(self) -> None:
        self._is_turn_due = False
        try:
            self.read_on()
        except Exception as error:  # noqa: BLE001 - not swallowed: it ends the node
            self.stop()
            self._failed(error)
