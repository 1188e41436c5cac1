"""InitProducerId (22) for clients, AllocateProducerIds (67) from brokers to the active controller (D12)."""

from holdfast.protocol.schema.fields import field, int16, int32, int64, message, nullable, sentence


@message
class InitProducerIdRequest:
    """A fresh id (producer_id -1), or a new epoch for a known one."""

    producer_id: int = field(int64, "-1, or the id that wants a new epoch.")
    producer_epoch: int = field(int16, "-1, or its present epoch.")


@message
class InitProducerIdResponse:
    """The identity to write with."""

    error_code: int = field(int16, "NONE, or retriable when no block of ids could be had.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    producer_id: int = field(int64, "Id, -1 on error.")
    producer_epoch: int = field(int16, "Epoch, -1 on error.")


@message
class AllocateProducerIdsRequest:
    """A broker wants a block."""

    broker_id: int = field(int32, "Who asks.")
    broker_epoch: int = field(int64, "Its registration epoch.")


@message
class AllocateProducerIdsResponse:
    """Ids [producer_id_start, producer_id_start + producer_id_length)."""

    error_code: int = field(int16, "NONE, NOT_CONTROLLER, STALE_BROKER_EPOCH.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    producer_id_start: int = field(int64, "First id.")
    producer_id_length: int = field(int32, "How many.")
