"""The surroundings of one raft node: configurations, log shapes, requests and answers of its peers.

For scenario files and for tests; no rule of raft is repeated here.
"""

from collections.abc import Iterator

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    METADATA_TOPIC_ID,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.log_shape import LogShape

CLUSTER_ID = "test"


class LowRandom:
    """`runtime.api.Random` whose draws are always the lowest: delays become predictable."""

    def randint(self, low: int, high: int) -> int:
        return low

    def random(self) -> float:
        return 0.0

    def uuid(self) -> bytes:
        return bytes(16)


def make_config(node_id: int, voter_ids: tuple[int, ...], *, is_voter: bool = True) -> RaftConfig:
    """A member with the default timeouts."""
    return RaftConfig(node_id, CLUSTER_ID, {id: ("voter", 9000 + id) for id in voter_ids}, "m", is_voter)


def shape_of(log: str) -> LogShape:
    """The shape of a log given as `epoch:records,epoch:records`."""
    starts: list[tuple[int, int]] = []
    end_offset = 0
    for epoch, count in runs(log):
        starts.append((epoch, end_offset))
        end_offset += count
    return LogShape(starts, end_offset)


def runs(log: str) -> Iterator[tuple[int, int]]:
    """(epoch, number of records) of each run in `1:3,2:2`."""
    for part in log.split(",") if log else ():
        epoch, _, count = part.partition(":")
        yield int(epoch), int(count)


def batches(base_offset: int, log: str) -> bytes:
    """Batches of one record each, from `base_offset` on."""
    encoded = b""
    for epoch, count in runs(log):
        for _ in range(count):
            record = Record(base_offset, 0, None, b"value")
            encoded += encode_batch([record], base_offset=base_offset, leader_epoch=epoch)
            base_offset += 1
    return encoded


def fetch_request(from_id: int, epoch: int, offset: int, last_epoch: int, wait_ms: int = 500) -> FetchRequest:
    """The fetch of a quorum member."""
    row = FetchPartition(METADATA_TOPIC_ID, 0, epoch, offset, last_epoch, offset, 1 << 20)
    return FetchRequest(CLUSTER_ID, from_id, -1, wait_ms, 1, 1 << 20, (row,))


def fetch_response(
    leader_id: int,
    epoch: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 0,
    diverging: tuple[int, int] | None = None,
    records: bytes = b"",
) -> FetchResponse:
    """An answer to a fetch."""
    row = FetchPartitionResponse(
        METADATA_TOPIC_ID,
        0,
        error,
        high_watermark,
        0,
        -1,
        EpochEndOffset(*diverging) if diverging else None,
        leader_id,
        epoch,
        memoryview(records),
    )
    return FetchResponse(ErrorCode.NONE, None, (row,))
