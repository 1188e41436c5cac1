"""Blocks of producer ids for brokers (D12): each id is used once in the life of the cluster."""

from holdfast.controller.core.draft import Draft
from holdfast.metadata.records import ProducerIdsRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

#: Ids in one block, as in Kafka.
BLOCK_LENGTH = 1000


def allocate(draft: Draft, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    """Allocate the next block. Errors: STALE_BROKER_EPOCH."""
    broker = draft.image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch:
        text = f"broker {request.broker_id} is not registered with epoch {request.broker_epoch}"
        return AllocateProducerIdsResponse(ErrorCode.STALE_BROKER_EPOCH, text, -1, 0)
    start = draft.image.next_producer_id
    draft.write(ProducerIdsRecord(request.broker_id, request.broker_epoch, start + BLOCK_LENGTH))
    return AllocateProducerIdsResponse(ErrorCode.NONE, None, start, BLOCK_LENGTH)
