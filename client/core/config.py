"""The settings of producers and consumers, checked.

Owns what is refused; the defaults are those of the classes that applications make.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.batch import Compression
from holdfast.client.core.fetcher_effects import FetcherConfig, ResetPolicy
from holdfast.client.core.partition_queue import IN_FLIGHT_MAX
from holdfast.client.core.sender_effects import SenderConfig
from holdfast.protocol.frames import ATTACHMENT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The settings of a producer. `Producer` tells what they mean and what they are by default."""

    bootstrap_servers: str | Sequence[str]
    #: as in requests: -1 for all, 1, 0
    acks: int
    idempotent: bool
    linger_ms: int
    batch_size_bytes: int
    compression: str
    buffer_memory_bytes: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_block_ms: int
    record_size_bytes_max: int
    request_size_bytes_max: int
    in_flight_max: int
    stall_ms: int
    retry_first_ms: int
    retry_max_ms: int
    metadata_max_age_ms: int
    client_id: str

    def __post_init__(self) -> None:
        if self.compression.upper() not in Compression.__members__:
            names = ", ".join(name.lower() for name in Compression.__members__)
            raise ValueError(f"compression {self.compression}: expected one of {names}")
        if self.idempotent and not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            raise ValueError(f"in_flight_max {self.in_flight_max}: idempotent producers have 1 to 5 (R90)")
        if not 0 < self.batch_size_bytes <= self.request_size_bytes_max:
            raise ValueError("batch_size_bytes must be above 0 and not above request_size_bytes_max")
        if self.request_size_bytes_max > ATTACHMENT_MAX_BYTES:
            limit = ATTACHMENT_MAX_BYTES
            raise ValueError(f"request_size_bytes_max must not be above {limit}: no frame has room for more")
        if self.linger_ms < 0 or self.delivery_timeout_ms <= self.linger_ms:
            raise ValueError("linger_ms must not be negative, and delivery_timeout_ms must be above it")

    def for_sender(self) -> SenderConfig:
        """What the core of a producer goes by."""
        return SenderConfig(
            acks=self.acks,
            idempotent=self.idempotent and self.acks != 0,
            linger_ms=self.linger_ms,
            batch_size_bytes=self.batch_size_bytes,
            request_size_bytes_max=self.request_size_bytes_max,
            compression=Compression[self.compression.upper()],
            delivery_timeout_ms=self.delivery_timeout_ms,
            stall_ms=self.stall_ms,
            retry=Backoff(self.retry_first_ms, self.retry_max_ms),
            in_flight_max=self.in_flight_max,
        )


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """The settings of a consumer. `Consumer` tells what they mean and what they are by default."""

    bootstrap_servers: str | Sequence[str]
    auto_offset_reset: str
    max_wait_ms: int
    min_bytes: int
    request_bytes_max: int
    partition_bytes_max: int
    buffer_bytes_max: int
    unpacked_bytes_max: int
    check_crcs: bool
    request_timeout_ms: int
    stall_ms: int
    retry_first_ms: int
    retry_max_ms: int
    metadata_max_age_ms: int
    client_id: str

    def __post_init__(self) -> None:
        if self.auto_offset_reset not in [policy.value for policy in ResetPolicy]:
            raise ValueError(f"auto_offset_reset {self.auto_offset_reset}: expected earliest, latest or none")
        if self.request_timeout_ms <= self.max_wait_ms:
            raise ValueError("request_timeout_ms must be above max_wait_ms")

    def for_fetcher(self) -> FetcherConfig:
        """What the core of a consumer goes by."""
        return FetcherConfig(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            request_bytes_max=self.request_bytes_max,
            partition_bytes_max=self.partition_bytes_max,
            buffer_bytes_max=self.buffer_bytes_max,
            stall_ms=self.stall_ms,
            retry=Backoff(self.retry_first_ms, self.retry_max_ms),
            reset=ResetPolicy(self.auto_offset_reset),
        )
