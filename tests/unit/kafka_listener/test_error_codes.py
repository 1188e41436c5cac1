"""Each error of ours has a code of Kafka's that makes clients do the right thing."""

import pytest
from kio.schema.errors import ErrorCode as KafkaErrorCode

from holdfast.kafka_listener.core.error_codes import fetch_code, kafka_code
from holdfast.protocol.errors import ErrorCode

#: Ours that clients may simply try again. Kafka's clients may too, or they look at the metadata first.
KAFKA_RETRIES = {code for code in KafkaErrorCode if code.retriable}
#: Those of a fetched partition after which Java's consumer looks at the metadata or tries again. A few others
#: it raises as what they are; the rest end it with "Unexpected error code".
FETCHED_AGAIN = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
CHOSEN_BY_WHAT_CLIENTS_DO = (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.OPERATION_NOT_ATTEMPTED)


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_each_code_is_one_of_kafkas(code: ErrorCode) -> None:
    KafkaErrorCode(kafka_code(code))
    if code not in CHOSEN_BY_WHAT_CLIENTS_DO and code.name.lower() in KafkaErrorCode.__members__:
        assert KafkaErrorCode(kafka_code(code)).name == code.name.lower()


@pytest.mark.parametrize(
    "code", [code for code in ErrorCode if code.is_retriable], ids=lambda code: code.name
)
def test_what_may_be_tried_again_here_is_tried_again_by_kafkas_clients(code: ErrorCode) -> None:
    assert KafkaErrorCode(kafka_code(code)) in KAFKA_RETRIES


@pytest.mark.parametrize(
    "code",
    [code for code in ErrorCode if code.is_retriable and code is not ErrorCode.CORRUPT_MESSAGE],
    ids=lambda code: code.name,
)
def test_what_may_be_fetched_again_ends_no_consumer_of_javas(code: ErrorCode) -> None:
    assert fetch_code(code) in FETCHED_AGAIN
    if code in FETCHED_AGAIN:
        assert fetch_code(code) == code


def test_a_code_that_kafka_does_not_have_is_unknown_to_its_clients() -> None:
    assert kafka_code(12_345) == KafkaErrorCode.unknown_server_error
