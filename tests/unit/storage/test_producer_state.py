"""Retries are stored once, gaps and zombies are refused (R90-R94)."""

import json

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import SEQUENCE_MODULUS, BatchHeader, parse_header
from holdfast.storage import snapshots
from holdfast.storage.core.producer_state import PRODUCERS_MAX, Duplicate, ProducerState, Rejected
from tests.unit.storage.batches import batch


def header(
    sequence: int, count: int = 1, *, producer_id: int = 9, epoch: int = 0, timestamp_ms: int = 1000
) -> BatchHeader:
    return parse_header(
        batch(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            timestamp_ms=timestamp_ms,
        )
    )


def state_after(*headers: BatchHeader) -> ProducerState:
    return _after(ProducerState(), *headers)


def forgetful_after(*headers: BatchHeader) -> ProducerState:
    return _after(ProducerState(is_whole=False), *headers)


def _after(state: ProducerState, *headers: BatchHeader) -> ProducerState:
    offset = 100
    for found in headers:
        assert state.check(found) is None
        state.apply(found, offset)
        offset += found.record_count
    return state


def refused(state: ProducerState, found: BatchHeader) -> ErrorCode:
    answer = state.check(found)
    assert isinstance(answer, Rejected)
    assert answer.text
    return answer.error_code


def test_a_retry_gets_the_original_offsets() -> None:
    state = state_after(header(0, 3), header(3, 2))
    assert state.check(header(0, 3)) == Duplicate(100, 102, 1000)
    assert state.check(header(3, 2)) == Duplicate(103, 104, 1000)


def test_only_the_last_five_batches_are_remembered() -> None:
    state = state_after(*(header(number) for number in range(6)))
    assert state.check(header(1)) == Duplicate(101, 101, 1000)
    assert refused(state, header(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_and_a_batch_cut_differently_are_out_of_order() -> None:
    state = state_after(header(0, 3))
    assert refused(state, header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(state, header(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(3)) is None


def test_sequences_go_on_at_zero_after_the_largest() -> None:
    state = forgetful_after(header(SEQUENCE_MODULUS - 2, 2))
    assert state.check(header(0)) is None
    crossing = forgetful_after(header(SEQUENCE_MODULUS - 1, 3))
    assert crossing.check(header(2)) is None
    assert crossing.check(header(SEQUENCE_MODULUS - 1, 3)) == Duplicate(100, 102, 1000)


def test_a_new_producer_epoch_starts_at_zero_and_ends_the_old_one() -> None:
    state = state_after(header(0), header(1))
    assert refused(state, header(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, epoch=1)) is None
    state.apply(header(0, epoch=1), 200)
    assert refused(state, header(2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert state.check(header(0, epoch=1)) == Duplicate(200, 200, 1000)


def test_a_producer_that_never_wrote_starts_at_zero() -> None:
    """KAFKA-15591: 5 was taken when 0 to 4 were refused for want of replicas, and 0 to 4 never again."""
    state = state_after(header(0, producer_id=8))
    for sequence in (1, 5, SEQUENCE_MODULUS - 1):
        assert refused(state, header(sequence)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check(header(0, 5)) is None


def forgetful() -> list[tuple[str, ProducerState]]:
    expired = state_after(header(0, producer_id=8))
    expired.expire(0, 10)
    expired.expire(11, 10)
    crowded = ProducerState()
    for producer_id in range(PRODUCERS_MAX + 1):
        crowded.apply(header(0, producer_id=1000 + producer_id), producer_id)
    reopened = snapshots.decode(snapshots.encode(expired, 1), 1)
    assert reopened is not None
    older = snapshots.decode('{"version":0,"offset":1,"producers":[]}', 1)
    assert older is not None
    return [
        ("one has expired", expired),
        ("one made room", crowded),
        ("after a restart", reopened),
        ("a snapshot of an earlier build", older),
        ("a log that begins behind others' batches", ProducerState(is_whole=False)),
    ]


@pytest.mark.parametrize(("why", "state"), forgetful())
def test_a_producer_that_may_have_been_forgotten_goes_on_anywhere(why: str, state: ProducerState) -> None:
    assert not state.is_whole, why
    assert state.check(header(77)) is None


def test_who_forgot_nothing_still_knows_that_after_a_restart() -> None:
    again = snapshots.decode(snapshots.encode(state_after(header(0)), 1), 1)
    assert again is not None
    assert again.is_whole


def test_batches_without_producer_id_are_none_of_its_business() -> None:
    state = ProducerState()
    plain = parse_header(batch())
    assert state.check(plain) is None
    state.apply(plain, 0)
    assert state.producer_count == 0


def test_a_producer_id_without_sequence_is_invalid() -> None:
    assert refused(ProducerState(), header(-1)) == ErrorCode.INVALID_RECORD


def test_silent_producers_are_forgotten_after_their_time() -> None:
    state = state_after(header(0), header(0, producer_id=8))
    assert state.expire(1000, 4000) == 0
    state.apply(header(1, producer_id=8), 200)
    assert state.expire(5000, 4000) == 0
    assert state.expire(5001, 4000) == 1
    assert state.check(header(0)) is None
    assert isinstance(state.check(header(1, producer_id=8)), Duplicate)
    assert state.expire(9001, 4000) == 1


def test_a_producer_that_writes_about_the_past_is_not_silent() -> None:
    """R91, D12: else each retention pass would let a repetition through, as with old data that is loaded."""
    state = state_after(header(0, timestamp_ms=1000))
    assert state.expire(100_000, 4000) == 0
    assert isinstance(state.check(header(0, timestamp_ms=1000)), Duplicate)


def test_the_producer_that_was_silent_longest_makes_room() -> None:
    state = ProducerState()
    for producer_id in range(PRODUCERS_MAX):
        state.apply(header(0, producer_id=producer_id), producer_id)
    state.apply(header(1, producer_id=0), PRODUCERS_MAX)
    state.apply(header(0, producer_id=PRODUCERS_MAX), PRODUCERS_MAX + 1)
    assert state.producer_count == PRODUCERS_MAX
    assert isinstance(state.check(header(0, producer_id=0)), Duplicate)
    assert state.check(header(5, producer_id=1)) is None


def test_a_snapshot_gives_back_the_same_state() -> None:
    state = state_after(header(0, 2), header(2), header(0, producer_id=8), header(0, epoch=3))
    again = snapshots.decode(snapshots.encode(state, 104), 104)
    assert again is not None
    assert again.rows() == state.rows()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{}",
        "\0\0",
        json.dumps({"version": 0, "offset": 5, "producers": []}),
        json.dumps({"version": 9, "offset": 4, "producers": []}),
        json.dumps({"version": 0, "offset": 4, "producers": [[1, 2]]}),
        json.dumps({"version": 0, "offset": 4, "producers": [[1, 2, [[1, 2, 3]]]]}),
        json.dumps({"version": 0, "offset": 4, "producers": [[1, 2, []]]}),
    ],
)
def test_an_unreadable_snapshot_counts_as_none(text: str | None) -> None:
    assert snapshots.decode(text, 4) is None
