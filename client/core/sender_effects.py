"""What a producer's core is given and what it asks its shell to do (`client.core.sender`)."""

from dataclasses import dataclass
from typing import TypeAlias

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.batch import Batch, Compression
from holdfast.client.core.effects import Connect, RefreshMetadata
from holdfast.client.core.partition_queue import IN_FLIGHT_MAX


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """Limits and times of a producer's core; all times in ms."""

    acks: int
    idempotent: bool
    linger_ms: int
    batch_size_bytes: int
    request_size_bytes_max: int
    compression: Compression
    delivery_timeout_ms: int
    #: a request without answer for so long makes us look whether the leader is still the leader
    stall_ms: int
    retry: Backoff
    in_flight_max: int = IN_FLIGHT_MAX


# --- effects -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendBatches:
    """Send one produce request on the connection to the broker. Answer with `request_id`."""

    request_id: int
    broker_id: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class AskIdentity:
    """Send InitProducerId to any broker; answer with `identity_given` or `identity_failed`."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Complete:
    """The batch has its outcome: tell who waits for it."""

    batch: Batch


Effect: TypeAlias = SendBatches | Connect | AskIdentity | RefreshMetadata | Complete
