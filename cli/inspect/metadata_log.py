"""Reads the metadata log for `holdfast explain`: from the quorum's leader, or from a folder.

Owns the way there. A node that stopped left its log in a folder; a live cluster is asked for what is
committed, as an observer would ask, but its progress is not counted.
"""

from collections.abc import Iterator
from pathlib import Path

from holdfast.cli.inspect.partition_story import LoggedRecord
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.client.core.metadata_cache import parse_addresses
from holdfast.metadata.records import decode_record
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
from holdfast.protocol.record_batch import Buffer, CorruptBatch, decode_records, iter_batches
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


def read_folder(folder: Path) -> tuple[list[LoggedRecord], str]:
    """The log in the folder, or in its metadata folder, and a warning or "". Raises: UnreadableLog."""
    inner = folder / files.METADATA_FOLDER
    place = inner if inner.is_dir() else folder
    segments = sorted(
        path for path in place.iterdir() if files.parse_offset_name(path.name, files.LOG_SUFFIX) is not None
    )
    if not segments:
        raise UnreadableLog(f"{place} holds no metadata log; give the metadata.log.dir of a node")
    found: list[LoggedRecord] = []
    for number, segment in enumerate(segments):
        try:
            for record in logged_records(segment.read_bytes()):
                found.append(record)  # noqa: PERF402  what is before a torn end counts
        except CorruptBatch as error:
            if number < len(segments) - 1:
                raise UnreadableLog(f"{segment}: {error}; look at it with dump-log") from error
            return found, f"{segment} ends in a torn batch: {error}"
    return found, ""


# --- a live cluster ------------------------------------------------------------------------------------


async def fetch_log(runtime: Runtime, servers: str, timeout_ms: int) -> list[LoggedRecord]:
    """All committed records, asked of any of the nodes. Raises: ClientError, TimedOut."""
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
        self._next_offset = 0
        #: of the batch before `_next_offset`
        self._last_epoch = -1
        self._problem = "no node was asked yet"

    def close(self) -> None:
        self._pool.close()

    async def read(self) -> list[LoggedRecord]:
        """Go on with another node, from where the last one stopped, until the end is reached."""
        attempt = 0
        while True:
            address = self._addresses[attempt % len(self._addresses)]
            try:
                if await self._read_from(*address):
                    return self._found
            except (NetworkError, CallRefused) as error:
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
            self._take(answer)
            if self._next_offset >= answer.high_watermark:
                return True

    def _take(self, answer: FetchPartitionResponse) -> None:
        for header, batch in iter_batches(answer.records):
            if header.base_offset < self._next_offset or header.next_offset > answer.high_watermark:
                continue
            self._found += logged_records(batch)
            self._next_offset, self._last_epoch = header.next_offset, header.leader_epoch
