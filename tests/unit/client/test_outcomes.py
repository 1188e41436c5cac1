"""The classes of outcomes: `fail` only when the batch cannot have been appended."""

import pytest

from holdfast.client.core.outcomes import (
    DeliveryOutcome,
    Reaction,
    outcome_without_ack,
    reaction_to,
    refused_before_append,
)
from holdfast.protocol.errors import ErrorCode


def test_without_acknowledgement_any_attempt_that_is_not_disproved_makes_it_unknown() -> None:
    assert outcome_without_ack(0) is DeliveryOutcome.FAIL
    assert outcome_without_ack(1) is DeliveryOutcome.INFO


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # also said to a batch that waited for the high watermark
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.STALE_BROKER_EPOCH,  # produce has no rule for it
    ],
)
def test_answers_that_leave_the_append_open_are_no_refusals(code: ErrorCode) -> None:
    assert not refused_before_append(reaction_to(code))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_answers_given_before_the_append_are_refusals(code: ErrorCode) -> None:
    assert refused_before_append(reaction_to(code))


def test_success_is_the_only_acknowledgement() -> None:
    assert [code for code in ErrorCode if reaction_to(code) is Reaction.APPENDED] == [ErrorCode.NONE]
