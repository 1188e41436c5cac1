"""Produce requests: checks, acks, waiting, duplicates (F5, R90-R92, A-18, D12)."""

import struct
from dataclasses import replace

import google_crc32c
import pytest

from holdfast.metadata.records import FenceBrokerRecord, TopicRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.produce import ProducePartition, ProduceRequest
from holdfast.protocol.record_batch import (
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    RECORD_SIZE_MIN,
    ZSTD,
    Record,
    encode_batch,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.broker.core_harness import TOPIC, CoreHarness, batch, change, partition

LEADER = partition(1)


def caught_up_leader() -> CoreHarness:
    """Broker 1 leads; both followers have fetched in this epoch and wait at offset 0."""
    harness = CoreHarness().join(LEADER)
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    return harness


def test_acks_all_waits_for_every_follower_in_the_isr() -> None:
    harness = caught_up_leader()
    name = harness.produce(batch(5))
    assert name not in harness.answers
    harness.fetch(2, 5, number=1)
    assert name not in harness.answers
    harness.fetch(3, 5, number=1)
    assert harness.row(name) == ("NONE", 0)


def test_acks_one_is_answered_when_the_leader_has_it() -> None:
    harness = caught_up_leader()
    assert harness.row(harness.produce(batch(2), acks=1)) == ("NONE", 0)
    assert harness.row(harness.produce(batch(2), acks=1)) == ("NONE", 2)


def flushing_leader() -> CoreHarness:
    """Broker 1 leads alone below min ISR, and every write is flushed."""
    return CoreHarness(log_flush_interval_messages="1").join(partition(1, (1,)))


def test_acks_one_is_answered_when_it_is_durable_where_every_write_is_flushed() -> None:
    """D6: durable before an ack, at acks=1 too; the size of the ISR does not matter then (F4)."""
    harness = flushing_leader()
    name = harness.produce(batch(2), acks=1)
    assert name not in harness.answers
    assert harness.core.produce_path.waiting_count == 1
    harness.finish_flushes()
    assert harness.row(name) == ("NONE", 0)
    assert harness.core.produce_path.waiting_count == 0


def test_acks_one_duplicate_waits_for_the_flush_of_the_first_time() -> None:
    """R91, D6."""
    harness = flushing_leader()
    harness.produce(batch(2, producer=(7, 0, 0)), acks=1)
    again = harness.produce(batch(2, producer=(7, 0, 0)), acks=1)
    assert again not in harness.answers
    harness.finish_flushes()
    assert harness.row(again) == ("NONE", 0)


def test_acks_one_that_waits_for_a_flush_hears_of_a_lost_leadership_and_of_the_time() -> None:
    """A-18."""
    harness = flushing_leader()
    late = harness.produce(batch(2), acks=1, timeout_ms=100)
    harness.tick(200)
    assert harness.row(late) == ("REQUEST_TIMED_OUT", -1)
    moved = harness.produce(batch(2), acks=1)
    harness.metadata(change(leader=2, isr=(2,)))
    assert harness.row(moved) == ("NOT_LEADER_OR_FOLLOWER", -1)
    harness.finish_flushes()


def cut_off_leader(**changes: str) -> CoreHarness:
    """Broker 1 leads, and its session of 9 s is over since its last heartbeat was sent."""
    harness = CoreHarness(**changes).join(LEADER)
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    harness.tick(2000)
    harness.answer_heartbeats(session_timeout_ms=9000)
    harness.tick(8999)
    assert harness.row(harness.produce(batch(1), acks=1)) == ("NONE", 0)
    harness.tick(1)
    return harness


def test_leader_that_may_have_been_replaced_acknowledges_nothing_alone_until_a_controller_answers() -> None:
    """A zombie: paused, or cut off from the controllers, it would go on taking what the next leader cuts."""
    harness = cut_off_leader()
    refused = harness.produce(batch(1), acks=1)
    assert harness.row(refused) == ("NOT_LEADER_OR_FOLLOWER", -1)
    unanswered = harness.produce(batch(1), acks=0)
    assert "NOT_LEADER_OR_FOLLOWER" in harness.refusals[unanswered]
    assert harness.partition.log.log_end_offset == 1, "nothing was appended"
    harness.answer_heartbeats(session_timeout_ms=9000)  # on its way since before
    harness.tick(2000)
    harness.answer_heartbeats(session_timeout_ms=9000)
    assert harness.row(harness.produce(batch(1), acks=1)) == ("NONE", 1)


def test_writes_that_followers_confirm_need_no_session() -> None:
    """Followers of another leader fetch from this one no more, so what they confirm counts."""
    harness = cut_off_leader()
    name = harness.produce(batch(1), acks=-1)
    harness.fetch(2, 2, number=1)
    harness.fetch(3, 2, number=1)
    assert harness.row(name) == ("NONE", 1)


def test_an_operator_may_prefer_writes_over_the_fence() -> None:
    harness = cut_off_leader(holdfast_fence_self="false")
    assert harness.row(harness.produce(batch(1), acks=1)) == ("NONE", 1)


def test_flush_that_ends_behind_the_session_acknowledges_nothing() -> None:
    harness = CoreHarness(log_flush_interval_messages="1").join(partition(1, (1,)))
    harness.tick(2000)
    harness.answer_heartbeats(session_timeout_ms=9000)
    name = harness.produce(batch(2), acks=1, timeout_ms=60_000)
    harness.tick(9000)
    harness.finish_flushes()
    assert harness.row(name) == ("NOT_LEADER_OR_FOLLOWER", -1)


def test_acks_zero_is_never_answered_but_appended() -> None:
    harness = caught_up_leader()
    name = harness.produce(batch(3), acks=0)
    assert harness.dropped == [name]
    assert name not in harness.answers
    assert harness.partition.log.log_end_offset == 3


def test_who_waits_for_no_answer_hears_of_a_refusal_by_the_end_of_the_connection() -> None:
    """Else it would send to a leader that has moved on for as long as its metadata may be old."""
    harness = caught_up_leader()
    harness.metadata(change(leader=2, isr=(2,)))
    name = harness.produce(batch(3), acks=0)
    assert harness.dropped == [name]
    assert "NOT_LEADER_OR_FOLLOWER" in harness.refusals[name]


def test_who_waits_for_no_answer_hears_of_a_refusal_behind_the_wait_for_the_log_too() -> None:
    """A-15: it led when the batch came, and not any more when the log had room for it."""
    harness = caught_up_leader()
    harness.appends_slowly = True
    late = harness.produce(batch(3), acks=0)
    assert harness.dropped == []
    harness.metadata(change(leader=2, isr=(2,)))
    harness.finish_appends()
    assert harness.dropped == [late]
    assert "NOT_LEADER_OR_FOLLOWER: deposed" in harness.refusals[late]


def test_who_waits_for_no_answer_hears_of_what_the_log_refuses() -> None:
    """R92: a sequence that is not the next one."""
    harness = caught_up_leader()
    harness.produce(batch(1, producer=(7, 0, 0)), acks=0)
    gap = harness.produce(batch(1, producer=(7, 0, 5)), acks=0)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in harness.refusals[gap]
    assert len(harness.dropped) == 2


def test_without_an_answer_a_request_ends_once_when_all_of_it_is_decided() -> None:
    harness = caught_up_leader()
    harness.appends_slowly = True
    records = batch(1)
    two = harness.produce(records, records, acks=0)  # the second one is one too many
    good = harness.produce(batch(1), acks=0)
    assert harness.dropped == []
    harness.finish_appends()
    assert harness.dropped == [two, good]
    assert list(harness.refusals) == [two]
    assert "INVALID_REQUEST" in harness.refusals[two]
    assert harness.partition.log.log_end_offset == 2


@pytest.mark.parametrize("acks", [2, -2])
def test_unknown_acks_are_refused(acks: int) -> None:
    harness = caught_up_leader()
    assert harness.row(harness.produce(batch(), acks=acks)) == ("INVALID_REQUIRED_ACKS", -1)


def test_writes_are_refused_before_the_append_while_the_isr_is_too_small() -> None:
    """F5; acks=1 goes on and stays invisible (F4)."""
    harness = CoreHarness().join(partition(1, (1,)))
    assert harness.row(harness.produce(batch())) == ("NOT_ENOUGH_REPLICAS", -1)
    assert harness.partition.log.log_end_offset == 0
    assert harness.row(harness.produce(batch(), acks=1)) == ("NONE", 0)
    assert harness.partition.high_watermark == 0


def test_waiting_write_is_answered_negatively_when_the_isr_falls_below_min_isr() -> None:
    """A-18, KAFKA-15021."""
    harness = caught_up_leader()
    name = harness.produce(batch())
    harness.metadata(change(isr=(1, 2)))
    assert name not in harness.answers
    harness.metadata(change(isr=(1,)))
    assert harness.row(name) == ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", -1)


def test_waiting_write_is_answered_negatively_when_leadership_is_lost() -> None:
    """A-18. The answer names the new leader."""
    harness = caught_up_leader()
    name = harness.produce(batch())
    harness.metadata(change(leader=2))
    assert harness.row(name) == ("NOT_LEADER_OR_FOLLOWER", -1)
    row = harness.answers[name].partitions[0]
    assert (row.leader_id, row.leader_epoch) == (2, 1)


@pytest.mark.parametrize("acks", [-1, 1])
def test_waiting_write_is_answered_negatively_when_the_broker_leads_again_at_once(acks: int) -> None:
    """A-18: in another leader epoch nothing of the former one is acknowledged, so it need not wait."""
    harness = caught_up_leader() if acks == -1 else flushing_leader()
    name = harness.produce(batch(), acks=acks)
    harness.metadata(change(leader=2), change(leader=1))
    assert harness.row(name) == ("NOT_LEADER_OR_FOLLOWER", -1)
    if acks == -1:
        again = harness.produce(batch())
        assert again not in harness.answers


def test_a_shrink_to_min_isr_releases_what_only_the_lost_follower_held_up() -> None:
    harness = caught_up_leader()
    name = harness.produce(batch())
    harness.fetch(2, 1, number=1)
    harness.metadata(change(isr=(1, 2)), FenceBrokerRecord(3, 1))
    assert harness.row(name) == ("NONE", 0)


def test_write_times_out_and_says_that_it_may_still_commit() -> None:
    harness = caught_up_leader()
    name = harness.produce(batch(), timeout_ms=300)
    harness.tick(299)
    assert name not in harness.answers
    harness.tick(11)
    assert harness.row(name) == ("REQUEST_TIMED_OUT", -1)
    harness.fetch(2, 1, number=1)
    harness.fetch(3, 1, number=1)
    assert harness.partition.high_watermark == 1


def test_duplicate_answers_the_first_offset_and_still_waits_for_the_high_watermark() -> None:
    """R91."""
    harness = caught_up_leader()
    first = harness.produce(batch(2, producer=(9, 0, 0)))
    again = harness.produce(batch(2, producer=(9, 0, 0)))
    assert harness.partition.log.log_end_offset == 2
    assert again not in harness.answers
    harness.fetch(2, 2, number=1)
    harness.fetch(3, 2, number=1)
    assert harness.row(first) == harness.row(again) == ("NONE", 0)


def test_duplicate_of_an_earlier_leader_epoch_names_that_epoch() -> None:
    """R91: the answer says what is in the log."""
    harness = CoreHarness().join(partition(1, (1,), min_isr=1))
    data = batch(2, producer=(9, 0, 0))
    harness.produce(data)
    harness.metadata(change(leader=1))
    name = harness.produce(data)
    assert harness.row(name) == ("NONE", 0)
    assert harness.answers[name].partitions[0].leader_epoch == 0


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_sequences_are_checked_at_every_acks_level(acks: int) -> None:
    """R92, D12."""
    harness = caught_up_leader()
    harness.produce(batch(2, producer=(9, 0, 0)), acks=acks)
    name = harness.produce(batch(2, producer=(9, 0, 5)), acks=acks)
    assert harness.partition.log.log_end_offset == 2
    if acks != 0:
        assert harness.row(name) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)


def test_damaged_and_strange_batches_are_refused() -> None:
    harness = caught_up_leader()
    damaged = bytearray(batch(3))
    damaged[-1] ^= 1
    assert harness.row(harness.produce(memoryview(damaged)))[0] == "CORRUPT_MESSAGE"
    assert harness.row(harness.produce(memoryview(b"short")))[0] == "CORRUPT_MESSAGE"
    two = memoryview(bytes(batch()) + bytes(batch()))
    assert harness.row(harness.produce(two))[0] == "INVALID_RECORD"
    assert harness.partition.log.log_end_offset == 0


def test_a_batch_cannot_claim_more_records_than_its_bytes_could_hold() -> None:
    """Each takes an offset and a sequence: two batches of nothing would use up a partition's."""
    harness = caught_up_leader()
    smallest = encode_batch([Record(n, 1, None, None) for n in range(64)], base_offset=0, leader_epoch=-1)
    assert len(smallest) == HEADER_SIZE + 64 * RECORD_SIZE_MIN
    assert harness.row(harness.produce(memoryview(smallest), acks=1)) == ("NONE", 0)
    for honest, count in ((smallest, 65), (smallest[:HEADER_SIZE], (1 << 31) - 1)):
        assert harness.row(harness.produce(claiming(honest, count), acks=1))[0] == "INVALID_RECORD"
    assert harness.partition.log.log_end_offset == 64
    assert harness.row(harness.produce(claiming(smallest, 65, compression=ZSTD), acks=1)) == ("NONE", 64)


def claiming(batch: bytes, count: int, *, compression: int = 0) -> memoryview:
    """The batch with this count of records, and a true crc."""
    changed = bytearray(batch)
    struct.pack_into(">i", changed, 8, len(batch) - LENGTH_PREFIX_SIZE)
    struct.pack_into(">hi", changed, 21, compression, count - 1)
    struct.pack_into(">i", changed, 57, count)
    struct.pack_into(">I", changed, 17, google_crc32c.value(bytes(changed[21:])))
    return memoryview(changed)


def test_batch_above_the_topics_limit_is_too_large() -> None:
    harness = CoreHarness().join(LEADER)
    harness.metadata(harness.topic_config("max.message.bytes", "200"))
    assert harness.row(harness.produce(batch(size=300), acks=1))[0] == "MESSAGE_TOO_LARGE"
    assert harness.row(harness.produce(batch(size=100), acks=1))[0] == "NONE"


def test_one_batch_a_partition_and_request() -> None:
    harness = caught_up_leader()
    name = harness.produce(batch(), batch(), acks=1)
    codes = [ErrorCode(row.error_code).name for row in harness.answers[name].partitions]
    assert codes == ["NONE", "INVALID_REQUEST"]


def test_rows_are_answered_together_and_in_order() -> None:
    harness = CoreHarness().join(LEADER, partition(2, index=1))
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    name = harness.request(
        ProduceRequest(
            -1,
            1000,
            (
                ProducePartition(TOPIC, 1, batch()),
                ProducePartition(TOPIC, 0, batch()),
                ProducePartition(b"?" * 16, 0, batch()),
            ),
        )
    )
    assert name not in harness.answers
    harness.fetch(2, 1, number=1)
    harness.fetch(3, 1, number=1)
    codes = [ErrorCode(row.error_code).name for row in harness.answers[name].partitions]
    assert codes == ["NOT_LEADER_OR_FOLLOWER", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]


def test_what_is_committed_is_acknowledged_though_another_row_of_the_request_is_late() -> None:
    """A-18, F5."""
    harness = CoreHarness().join(LEADER, partition(1, index=1))
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    rows = ProducePartition(TOPIC, 0, batch()), ProducePartition(TOPIC, 1, batch())
    name = harness.request(ProduceRequest(-1, 1000, rows))
    harness.fetch(2, 1, number=1)
    harness.fetch(3, 1, number=1)
    assert name not in harness.answers
    harness.tick(1000)
    codes = [ErrorCode(row.error_code).name for row in harness.answers[name].partitions]
    assert codes == ["NONE", "REQUEST_TIMED_OUT"]


def test_request_without_rows_is_answered() -> None:
    harness = caught_up_leader()
    name = harness.request(ProduceRequest(-1, 1000, ()))
    assert harness.answers[name].partitions == ()


def test_only_coordinators_write_to_the_topic_of_the_offsets() -> None:
    other = b"o" * 16
    records = TopicRecord(OFFSETS_TOPIC, other), replace(LEADER, topic_id=other)
    harness = CoreHarness().join(LEADER, *records)
    name = harness.request(ProduceRequest(-1, 1000, (ProducePartition(other, 0, batch()),)))
    assert harness.row(name) == ("INVALID_TOPIC_EXCEPTION", -1)
