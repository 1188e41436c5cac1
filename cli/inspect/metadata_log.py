"""Reads the metadata log for `holdfast explain`: from the quorum's leader, or from a folder.

Owns the way there. A node that stopped left its log in a folder; a live cluster is asked for what is
committed, as an observer would ask, but its progress is not counted. A log that was trimmed begins with a
snapshot (K15).
"""

from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.inspect.partition_story import LoggedRecord, ReadLog
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.client.core.metadata_cache import parse_addresses
from holdfast.metadata.records import decode_record
from holdfast.metadata.snapshot import MetadataState, SnapshotReader
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    CONSUMER_REPLICA_ID,
    METADATA_TOPIC_ID,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from holdfast.protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from holdfast.protocol.record_batch import Buffer, CorruptBatch, decode_records, iter_batches
from holdfast.protocol.schema.fields import SchemaError
from holdfast.raft.core.snapshot_format import CorruptSnapshot, SnapshotDecoder, SnapshotId, parse_name
from holdfast.rpc.channel import CallRefused, Pool
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.storage.core import files

#: Most bytes of one answer of the quorum's leader.
FETCH_BYTES = 1 << 20
ATTEMPT_MS = 3_000
_BACKOFF = Backoff(first_ms=20, max_ms=500)


class UnreadableLog(Exception):
    """There is no metadata log, or it cannot be read. The text says what to do."""


def logged_records(batches: Buffer, end_offset: int | None = None) -> Iterator[LoggedRecord]:
    """The records of whole batches below `end_offset`. Raises: CorruptBatch, SchemaError."""
    for header, batch in iter_batches(batches):
        if end_offset is not None and header.next_offset > end_offset:
            return
        if header.is_control:
            continue
        for record in decode_records(batch):
            assert record.value is not None, "a metadata record has a value"
            yield LoggedRecord(record.offset, record.timestamp_ms, decode_record(record.value))


# --- a folder ------------------------------------------------------------------------------------------


def read_folder(folder: Path) -> tuple[ReadLog, str]:
    """The log in the folder, or in its metadata folder, and a warning or "". Raises: UnreadableLog."""
    inner = folder / files.METADATA_FOLDER
    place = inner if inner.is_dir() else folder
    segments = sorted(
        path for path in place.iterdir() if files.parse_offset_name(path.name, files.LOG_SUFFIX) is not None
    )
    if not segments:
        raise UnreadableLog(f"{place} holds no metadata log; give the metadata.log.dir of a node")
    first_offset = files.parse_offset_name(segments[0].name, files.LOG_SUFFIX) or 0
    base = _newest_snapshot(place, first_offset) if first_offset else None
    start = 0 if base is None else base.image.offset
    log = ReadLog([], base)
    for number, segment in enumerate(segments):
        try:
            for record in logged_records(segment.read_bytes()):
                if record.offset >= start:
                    log.records.append(record)  # what is before a torn end counts
        except CorruptBatch as error:
            if number < len(segments) - 1:
                raise UnreadableLog(f"{segment}: {error}; look at it with dump-log") from error
            return log, f"{segment} ends in a torn batch: {error}"
    return log, ""


def _newest_snapshot(place: Path, first_offset: int) -> MetadataState:
    """The newest one that is whole, and does not end below the log. Raises: UnreadableLog."""
    ids = sorted((id for path in place.iterdir() if (id := parse_name(path.name)) is not None), reverse=True)
    problem = "there is no snapshot"
    for id in ids:
        if id.offset < first_offset:
            break
        try:
            return _state_of(id, (place / id.file_name).read_bytes())
        except CorruptSnapshot as error:
            problem = f"{id.file_name}: {error}"
    raise UnreadableLog(f"{place}: the log begins at offset {first_offset}, and {problem}")


def _state_of(id: SnapshotId, content: bytes) -> MetadataState:
    """The state in a snapshot's file. Raises: CorruptSnapshot."""
    decoder, reader = SnapshotDecoder(id), SnapshotReader()
    values = decoder.feed(content)
    decoder.finish()
    try:
        reader.take(values)
        return reader.state(id.offset)
    except SchemaError as error:
        raise CorruptSnapshot(str(error)) from error


# --- a live cluster ------------------------------------------------------------------------------------


async def fetch_log(runtime: Runtime, servers: str, timeout_ms: int) -> ReadLog:
    """All committed records that there still are, asked of any of the nodes. Raises: ClientError,
    TimedOut."""
    reader = _Reader(runtime, servers, timeout_ms)
    try:
        return await reader.read()
    finally:
        reader.close()


class _Reader:
    """One pass through the log of a live cluster."""

    def __init__(self, runtime: Runtime, servers: str, timeout_ms: int) -> None:
        self._clock = runtime.clock
        self._pool = Pool(runtime, "explain")
        self._addresses = parse_addresses(servers)
        self._deadline_ms = runtime.clock.now_ms() + timeout_ms
        self._found: list[LoggedRecord] = []
        self._base: MetadataState | None = None
        self._next_offset = 0
        #: of the batch before `_next_offset`
        self._last_epoch = -1
        self._problem = "no node was asked yet"

    def close(self) -> None:
        self._pool.close()

    async def read(self) -> ReadLog:
        """Go on with another node, from where the last one stopped, until the end is reached."""
        attempt = 0
        while True:
            address = self._addresses[attempt % len(self._addresses)]
            try:
                if await self._read_from(*address):
                    return ReadLog(self._found, self._base)
            except (NetworkError, CallRefused, CorruptSnapshot) as error:
                self._problem = str(error)
            left_ms = self._deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise TimedOut(f"the metadata log could not be read within the time given: {self._problem}")
            await self._clock.sleep(min(left_ms, _BACKOFF.pause_ms(attempt)))
            attempt += 1

    async def _read_from(self, host: str, port: int) -> bool:
        """Read on; False when another node must be asked."""
        cluster: DescribeClusterResponse = await self._pool.call(
            host, port, DescribeClusterRequest(), ATTEMPT_MS
        )
        while True:
            row = FetchPartition(
                METADATA_TOPIC_ID,
                0,
                cluster.controller_epoch,
                self._next_offset,
                self._last_epoch,
                -1,
                FETCH_BYTES,
            )
            request = FetchRequest(cluster.cluster_id, CONSUMER_REPLICA_ID, -1, 0, 1, FETCH_BYTES, (row,))
            response: FetchResponse = await self._pool.call(host, port, request, ATTEMPT_MS)
            if response.error_code != ErrorCode.NONE:
                raise ClientError(response.error_message or "refused", ErrorCode(response.error_code))
            answer = response.partitions[0]
            if answer.error_code != ErrorCode.NONE or answer.diverging_epoch is not None:
                code = ErrorCode(answer.error_code).name
                self._problem = f"{host}:{port} answers {code}; the leader is node {answer.leader_id}"
                return False
            if answer.snapshot_id is not None:
                id = SnapshotId(answer.snapshot_id.end_offset, answer.snapshot_id.epoch)
                if not await self._read_snapshot(host, port, cluster, id):
                    return False
                continue
            self._take(answer)
            if self._next_offset >= answer.high_watermark:
                return True

    async def _read_snapshot(
        self, host: str, port: int, cluster: DescribeClusterResponse, id: SnapshotId
    ) -> bool:
        """Begin at a snapshot of the leader; False when another node must be asked."""
        content, size = b"", 1
        while len(content) < size:
            request = FetchSnapshotRequest(
                cluster.cluster_id,
                CONSUMER_REPLICA_ID,
                cluster.controller_epoch,
                id.epoch,
                id.offset,
                len(content),
                FETCH_BYTES,
                None,
            )
            answer: FetchSnapshotResponse = await self._pool.call(host, port, request, ATTEMPT_MS)
            if answer.error_code != ErrorCode.NONE or not answer.data:
                self._problem = f"{host}:{port} sends no snapshot: {answer.error_message}"
                return False
            content += answer.data
            size = answer.size
        self._base, self._found = _state_of(id, content), []
        self._next_offset, self._last_epoch = id.offset, id.epoch
        return True

    def _take(self, answer: FetchPartitionResponse) -> None:
        for header, batch in iter_batches(answer.records):
            if header.base_offset < self._next_offset or header.next_offset > answer.high_watermark:
                continue
            self._found += logged_records(batch)
            self._next_offset, self._last_epoch = header.next_offset, header.leader_epoch
