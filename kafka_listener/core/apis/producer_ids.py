"""InitProducerId."""

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

#: Kafka's code that clients do not try again: they raise at once what they were refused.
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
#: Kafka's, a retriable one: the producer asks again.
_COORDINATOR_LOAD_IN_PROGRESS = 14


def init_producer_id(request: Request, cluster: ClusterView) -> Outcome:
    """An id for an idempotent producer. Transactions are refused with a code that no client tries again."""
    message = request.message
    if message.transactional_id is not None:
        return _no_id(_TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    ours = InitProducerIdRequest(getattr(message, "producer_id", -1), getattr(message, "producer_epoch", -1))

    def answer(response: InitProducerIdResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, "")
        return {
            "error_code": 0,
            "producer_id": response.producer_id,
            "producer_epoch": response.producer_epoch,
        }

    def refused(code: int, text: str) -> Outcome:
        if code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_LIMIT_REACHED):
            return _no_id(_COORDINATOR_LOAD_IN_PROGRESS)
        return _no_id(kafka_code(code))

    return Ask(ours, answer, refused)


def _no_id(code: int) -> Fields:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
