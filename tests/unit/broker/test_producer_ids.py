"""Blocks of producer ids (D12)."""

from holdfast.broker.core.requests.producer_ids import (
    EPOCH_MAX,
    REFILL_BELOW,
    RETRY_MS,
    WAITING_MAX,
    ProducerIds,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.producer_ids import (
    AllocateProducerIdsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

FRESH = InitProducerIdRequest(-1, -1)


def block(start: int, length: int) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(ErrorCode.NONE, None, start, length)


def test_first_request_waits_for_a_block() -> None:
    ids = ProducerIds()
    assert not ids.wants_block(0)
    assert ids.request("a", FRESH) is None
    assert ids.wants_block(0)
    ids.is_allocating = True
    assert not ids.wants_block(0)
    assert ids.allocated(block(1000, 100)) == [("a", InitProducerIdResponse(0, None, 1000, 0))]
    assert ids.request("b", FRESH) == InitProducerIdResponse(0, None, 1001, 0)


def test_ids_are_given_once_and_in_order_of_asking() -> None:
    ids = ProducerIds()
    for name in ("a", "b", "c"):
        assert ids.request(name, FRESH) is None
    answers = ids.allocated(block(7, 2))
    assert [(name, answer.producer_id) for name, answer in answers] == [("a", 7), ("b", 8)]
    assert ids.wants_block(0)
    assert [answer.producer_id for _, answer in ids.allocated(block(100, 1))] == [100]


def test_next_block_is_asked_for_before_the_present_one_ends() -> None:
    ids = ProducerIds()
    ids.request("a", FRESH)
    ids.allocated(block(0, REFILL_BELOW + 2))
    assert not ids.wants_block(0)
    ids.request("b", FRESH)
    ids.request("c", FRESH)
    assert ids.wants_block(0)


def test_known_producer_gets_its_next_epoch_and_at_the_last_one_a_new_id() -> None:
    ids = ProducerIds()
    assert ids.request("a", InitProducerIdRequest(5, 3)) == InitProducerIdResponse(0, None, 5, 4)
    assert ids.request("a", InitProducerIdRequest(5, EPOCH_MAX)) is None


def test_without_a_block_producers_are_told_to_try_again() -> None:
    ids = ProducerIds()
    ids.request("a", FRESH)
    ((name, answer),) = ids.failed("no controller", 0)
    assert name == "a"
    assert ErrorCode(answer.error_code).is_retriable
    assert not ids.wants_block(0)


def test_after_a_refusal_a_block_is_asked_for_again_with_a_pause() -> None:
    """No client waits for the one that is asked for ahead, so nothing but the pause would hold it up."""
    ids = ProducerIds()
    ids.request("a", FRESH)
    ids.allocated(block(0, REFILL_BELOW))
    assert ids.wants_block(10)
    assert ids.failed("not the controller", 10) == []
    assert not ids.wants_block(10 + RETRY_MS - 1)
    assert ids.next_deadline_ms() == 10 + RETRY_MS
    assert ids.wants_block(10 + RETRY_MS)


def test_waiting_producers_are_bounded() -> None:
    ids = ProducerIds()
    for number in range(WAITING_MAX):
        assert ids.request(number, FRESH) is None
    refused = ids.request("one too many", FRESH)
    assert refused is not None
    assert ErrorCode(refused.error_code).is_retriable
