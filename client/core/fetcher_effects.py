"""What a consumer's core is given, what it hands out and what it asks its shell to do
(`client.core.fetcher`)."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.effects import Connect, RefreshMetadata
from holdfast.protocol.messages.fetch import FetchRequest
from holdfast.protocol.record_batch import BatchHeader
from holdfast.protocol.topic_names import TopicPartition


class ResetPolicy(Enum):
    """What to do when a position is not in the log; the values are Kafka's words."""

    EARLIEST = "earliest"
    LATEST = "latest"
    #: raise NoSuchOffset or LogTruncated
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FetcherConfig:
    """Limits of a consumer's core."""

    max_wait_ms: int
    min_bytes: int
    request_bytes_max: int
    partition_bytes_max: int
    #: bytes fetched ahead, over all partitions; a fetch starts only below it
    buffer_bytes_max: int
    #: silence beyond `max_wait_ms` after which we look whether the leader is still the leader
    stall_ms: int
    retry: Backoff
    reset: ResetPolicy
    requests_per_broker_max: int = 4


class FetchedBatch(NamedTuple):
    """One batch as it came, not decoded. Records below `start_offset` were not asked for."""

    topic: str
    partition: int
    start_offset: int
    header: BatchHeader
    data: memoryview
    #: of the same answer, -1 when the leader does not know it yet (A-6)
    high_watermark: int


# --- effects -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendFetch:
    """Send it on the connection to the broker; answer with `request_id`."""

    request_id: int
    broker_id: int
    request: FetchRequest


@dataclass(frozen=True, slots=True)
class LookupOffsets:
    """Ask the broker for offsets; answer with `found` and `not_found`, each for its part of them."""

    request_id: int
    broker_id: int
    timestamps: tuple[tuple[TopicPartition, int], ...]


Effect: TypeAlias = SendFetch | LookupOffsets | Connect | RefreshMetadata
