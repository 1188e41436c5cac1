"""Asking for a producer id and epoch, one question at a time (R90-R93)."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.batch import ProducerIdAndEpoch
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.producer_identity import ProducerIdentity
from holdfast.client.core.sender_effects import AskIdentity
from holdfast.protocol.errors import ErrorCode

FRESH = AskIdentity(-1, -1)


def wanted() -> ProducerIdentity:
    identity = ProducerIdentity(Backoff(20, 500))
    identity.want()
    return identity


def test_nothing_is_asked_while_no_batch_needs_it() -> None:
    identity = ProducerIdentity(Backoff(20, 500))
    assert identity.question(0) is None
    assert identity.next_deadline_ms() is None


def test_one_question_is_asked_at_a_time() -> None:
    identity = wanted()
    assert identity.question(0) == FRESH
    assert identity.question(0) is None
    assert identity.next_deadline_ms() is None


def test_who_has_an_identity_asks_for_the_next_epoch_of_it() -> None:
    identity, queue = wanted(), PartitionQueue("t", 0, idempotent=True)
    identity.question(0)
    assert identity.given(ProducerIdAndEpoch(7, 0)) == []
    identity.waiting[queue] = None
    assert identity.question(0) == AskIdentity(7, 0)
    assert identity.given(ProducerIdAndEpoch(7, 1)) == [queue]


def test_an_id_that_was_refused_for_good_is_given_up_for_a_fresh_one() -> None:
    identity = wanted()
    identity.question(0)
    identity.given(ProducerIdAndEpoch(7, 0))
    identity.fenced(ProducerIdAndEpoch(6, 3))  # of before: says nothing about the one of now
    identity.waiting[PartitionQueue("t", 0, idempotent=True)] = None
    assert identity.question(0) == AskIdentity(7, 0)
    identity.given(ProducerIdAndEpoch(7, 1))
    identity.fenced(ProducerIdAndEpoch(7, 1))
    assert identity.question(0) == FRESH


def test_after_a_failure_there_is_a_pause_and_the_reason_is_kept() -> None:
    identity = wanted()
    identity.question(0)
    identity.failed(100, ErrorCode.BROKER_NOT_AVAILABLE, "later")
    assert identity.trouble == "no producer id: later"
    assert not identity.is_refused
    again_ms = identity.next_deadline_ms()
    assert again_ms is not None
    assert again_ms > 100
    assert identity.question(again_ms - 1) is None
    assert identity.question(again_ms) == FRESH
    identity.given(ProducerIdAndEpoch(7, 0))
    assert identity.trouble == ""


def test_a_refusal_that_no_repetition_helps_is_told_apart() -> None:
    identity = wanted()
    identity.question(0)
    identity.failed(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")
    assert identity.is_refused
    assert identity.error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
