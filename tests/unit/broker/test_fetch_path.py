"""Fetches of consumers and followers, and questions about offsets (R55, R80, F6, N-4)."""

from dataclasses import replace

import pytest

from holdfast.broker.core.events import AnswerFetch, AnswerOffsets, LogsOffline, RequestReceived, RowsOmitted
from holdfast.broker.core.requests import fetch_path
from holdfast.broker.core.requests.fetch_path import SIZES_KEPT, UNKNOWN_SIZE_BYTES, RecentSizes
from holdfast.broker.core.requests.fetch_session import (
    HIGH_WATERMARK_LINGER_MS,
    SESSION_JUMP_MAX,
    FollowerSessions,
)
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import (
    DEBUGGING_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    ForgottenPartition,
)
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from holdfast.protocol.messages.offset_for_leader_epoch import EpochPartition, OffsetForLeaderEpochRequest
from holdfast.scenario.partition import MemoryLog
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, batch, change, partition, register


def leader() -> CoreHarness:
    return CoreHarness().join(partition(1))


def replicated(harness: CoreHarness, offset: int, number: int) -> None:
    """Both followers have everything below `offset`."""
    harness.fetch(2, offset, number=number)
    harness.fetch(3, offset, number=number)


# --- followers ---------------------------------------------------------------------------------------------


def test_parked_follower_is_answered_by_the_next_append() -> None:
    harness = leader()
    name = harness.fetch(2, 0)
    assert name not in harness.answers
    harness.produce(batch(3), acks=1)
    assert harness.fetch_rows(name) == [("NONE", 0, 0, 3)]


def test_follower_behind_the_end_is_answered_at_once() -> None:
    harness = leader()
    harness.produce(batch(3), acks=1)
    assert harness.fetch_rows(harness.fetch(2, 0)) == [("NONE", 0, 0, 3)]


def test_answered_row_is_quiet_until_the_follower_lists_it_again() -> None:
    """N-4: one outstanding fetch a partition; the follower may still be appending."""
    harness = leader()
    harness.produce(batch(3), acks=1)
    harness.fetch(2, 0)
    empty = harness.fetch(2, None, number=1)
    harness.produce(batch(3), acks=1)
    assert empty not in harness.answers
    listed = harness.fetch(2, 3, number=2)
    assert harness.fetch_rows(empty) == []
    assert harness.fetch_rows(listed) == [("NONE", 0, 3, 6)]


def test_parked_follower_is_answered_empty_when_its_time_is_over() -> None:
    harness = leader()
    name = harness.fetch(2, 0)
    harness.tick(60)
    second = harness.fetch(2, None, number=1)
    assert harness.fetch_rows(name) == [("NONE", 0, -1, -1)]
    harness.tick(499)
    assert second not in harness.answers
    harness.tick(1)
    assert harness.fetch_rows(second) == []


def test_high_watermark_rides_along_or_goes_alone_after_a_moment() -> None:
    """It reaches followers without an answer of its own for each write."""
    harness = leader()
    replicated(harness, 0, 0)
    harness.produce(batch(3), acks=1)
    second, third = harness.fetch(2, 3, number=1), harness.fetch(3, 3, number=1)
    assert harness.partition.high_watermark == 3
    assert second not in harness.answers
    harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert harness.fetch_rows(second) == harness.fetch_rows(third) == [("NONE", 3, -1, -1)]
    # The row is still open: data comes without listing it again.
    parked = harness.fetch(2, None, number=2)
    harness.produce(batch(1), acks=1)
    assert harness.fetch_rows(parked) == [("NONE", 3, 3, 4)]


def test_a_row_that_is_listed_again_unanswered_is_told_the_high_watermark_again() -> None:
    """The follower may have been busy with it when it was told, and have passed it over: it flushes first
    once only durable records count (D6)."""
    harness = leader()
    replicated(harness, 0, 0)
    harness.produce(batch(3), acks=1)
    told = harness.fetch(2, 3, flushed=0, number=1)
    harness.fetch(3, 3, number=1)
    harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert harness.fetch_rows(told) == [("NONE", 3, -1, -1)]
    again = harness.fetch(2, 3, number=2)
    harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert harness.fetch_rows(again) == [("NONE", 3, -1, -1)]


def test_diverging_row_is_told_where_the_logs_part_and_gets_no_records() -> None:
    """R80, KAFKA-13141: and it is no progress."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(10, 3)
    harness.join(partition(1, leader_epoch=5))
    harness.produce(batch(3), acks=1)
    name = harness.fetch(2, 12, epoch=5, last_epoch=4)
    (row,) = harness.answers[name].rows
    assert row.diverging == (3, 10)
    assert row.max_bytes == 0
    leadership = harness.partition.leadership
    assert leadership is not None
    assert leadership.progress[2].position == -1


def test_follower_that_diverged_is_told_the_high_watermark_afterwards() -> None:
    """R82: it took none from the diverging answer."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(10, 3)
    harness.join(partition(1, (1,), leader_epoch=5, min_isr=1))
    harness.fetch(2, 12, epoch=5, last_epoch=4)
    name = harness.fetch(2, 10, epoch=5, last_epoch=3, number=1)
    harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert harness.fetch_rows(name) == [("NONE", 10, -1, -1)]


def test_follower_whose_records_were_deleted_before_they_were_read_is_told_the_high_watermark() -> None:
    """The answer became an error when it was read: the follower begins anew at the start of the log."""
    harness = leader()
    replicated(harness, 0, 0)
    harness.produce(batch(3), acks=1)
    name = harness.fetch(2, 0, number=1)
    assert harness.fetch_rows(name) == [("NONE", 0, 0, 3)]
    harness.logs[KEY].log_start_offset = 3
    again = harness.fetch(2, 3, number=2)
    harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert [row[0] for row in harness.fetch_rows(again)] == ["NONE"]


def test_sessions_are_checked_by_id_and_number() -> None:
    harness = leader()
    harness.fetch(2, 0, session=7)
    name = harness.fetch(2, 0, session=8, number=1)
    assert harness.answers[name].error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    name = harness.fetch(2, 0, session=7, number=2)
    assert harness.answers[name].error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_only_registered_brokers_get_a_session() -> None:
    """What a peer can make us keep is bounded by the brokers that there are."""
    harness = leader()
    name = harness.fetch(77, 0)
    assert harness.answers[name].error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_new_session_takes_the_place_of_the_former_one() -> None:
    harness = leader()
    old = harness.fetch(2, 0, session=7)
    new = harness.fetch(2, 0, session=8)
    assert harness.fetch_rows(old) == [("NONE", 0, -1, -1)]
    harness.produce(batch(1), acks=1)
    assert harness.fetch_rows(new) == [("NONE", 0, 0, 1)]


def test_late_request_of_a_former_session_proves_nothing() -> None:
    """A-5, N-4: the follower may have been cut since it sent that."""
    harness = leader()
    harness.produce(batch(5), acks=1)
    harness.fetch(2, 0, session=8)
    name = harness.fetch(2, 5, session=7, last_epoch=0)
    assert harness.answers[name].error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert progress_of_broker_2(harness) == 0


def test_late_request_of_a_former_incarnation_proves_nothing_for_the_new_one() -> None:
    """KAFKA-15221: sessions are numbered anew by every process, so ids and numbers meet again."""
    harness = leader()
    harness.produce(batch(5), acks=1)
    harness.fetch(2, 5, session=1, last_epoch=0)
    harness.metadata(register(2, harness.metadata_offset))
    harness.fetch(2, 0, session=1, broker_epoch=harness.metadata_offset - 1)
    assert progress_of_broker_2(harness) == 0
    name = harness.fetch(2, 5, session=1, number=1, last_epoch=0, broker_epoch=0)
    assert harness.answers[name].error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert progress_of_broker_2(harness) == 0


def progress_of_broker_2(harness: CoreHarness) -> int:
    leadership = harness.partition.leadership
    assert leadership is not None
    return leadership.progress[2].position


def test_forgotten_row_is_not_answered() -> None:
    harness = leader()
    harness.fetch(2, 0)
    name = harness.request(
        FetchRequest(None, 2, 0, 500, 1, 1 << 20, (), 1, 1, (ForgottenPartition(TOPIC, 0),))
    )
    harness.produce(batch(1), acks=1)
    assert name not in harness.answers


def test_a_request_that_names_a_partition_twice_is_refused_and_counts_for_nothing() -> None:
    harness = leader()
    harness.produce(batch(3), acks=1)
    twice = (_row(0), _row(0))
    refused = harness.request(FetchRequest(None, 2, 0, 500, 1, 1 << 20, twice, 5, 0))
    assert harness.answers[refused].error_code == ErrorCode.INVALID_REQUEST
    assert progress_of_broker_2(harness) == -1
    harness.fetch(2, 0, session=5)
    refused = harness.request(FetchRequest(None, 2, 0, 500, 1, 1 << 20, twice, 5, 1))
    assert harness.answers[refused].error_code == ErrorCode.INVALID_REQUEST
    refused = harness.request(FetchRequest(None, -1, -1, 500, 1, 1 << 20, twice))
    assert harness.answers[refused].error_code == ErrorCode.INVALID_REQUEST
    assert harness.core.fetch_path.waiting_count == 0


def test_lost_leadership_wakes_the_followers() -> None:
    harness = leader()
    name = harness.fetch(2, 0)
    harness.metadata(change(leader=3))
    assert harness.fetch_rows(name)[0][0] == "FENCED_LEADER_EPOCH"


def test_answer_is_bounded_and_the_rest_comes_with_the_next_request() -> None:
    harness = CoreHarness().join(partition(1), partition(1, index=1))
    big = batch(1, size=600_000)
    harness.produce(big, acks=1)
    harness.produce(big, acks=1, index=1)
    listed = FetchRequest(
        None,
        2,
        0,
        500,
        1,
        500_000,
        tuple(_row(index) for index in (0, 1)),
        5,
        0,
    )
    first = harness.request(listed)
    assert [row.partition_index for row in harness.answers[first].rows] == [0]
    second = harness.fetch(2, None, session=5, number=1)
    assert [row.partition_index for row in harness.answers[second].rows] == [1]


def test_an_answer_has_a_bounded_number_of_rows_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers with thousands of partitions take turns with others; each row comes to its own."""
    monkeypatch.setattr(fetch_path, "ANSWER_ROWS_MAX", 2)
    harness = CoreHarness().join(*(partition(1, index=index) for index in range(5)))
    for index in range(5):
        harness.produce(batch(), acks=1, index=index)

    def fetch(replica_id: int, number: int, *rows: FetchPartition) -> object:
        return harness.request(
            FetchRequest(None, replica_id, replica_id - 2, 500, 1, 1 << 20, rows, 5, number)
        )

    def answered(*names: object) -> list[list[int]]:
        return [[row.partition_index for row in harness.answers[name].rows] for name in names]

    for replica_id in (2, 3):
        names = [fetch(replica_id, 0, *map(_row, range(5))), fetch(replica_id, 1), fetch(replica_id, 2)]
        assert answered(*names) == [[0, 1], [2, 3], [4]]
    has_all = [replace(_row(index), fetch_offset=1, last_fetched_epoch=0) for index in range(5)]
    parked = [fetch(replica_id, 3, *has_all) for replica_id in (2, 3)]
    harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert answered(parked[0]) == [[0, 1]]
    names = [parked[0]]
    for number in (4, 5):
        names.append(fetch(2, number))
        harness.tick(HIGH_WATERMARK_LINGER_MS)
    assert answered(*names) == [[0, 1], [2, 3], [4]]


def test_rows_that_had_no_room_come_first_in_the_next_answer() -> None:
    """What a row takes is known for sure only once it is read."""
    harness = CoreHarness().join(*(partition(1, index=index) for index in range(3)))
    for index in range(3):
        harness.produce(batch(3), acks=1, index=index)
    listed = FetchRequest(None, 2, 0, 500, 1, 1 << 20, tuple(_row(index) for index in (0, 1)), 5, 0)
    answer = harness.answers[harness.request(listed)]
    assert [row.partition_index for row in answer.rows] == [0, 1]
    harness.fetch(2, None, session=5, number=1)
    listed = FetchRequest(None, 2, 0, 500, 1, 1 << 20, (_row(2),), 5, 2)
    harness.core.handle(RequestReceived("next", listed), harness.now_ms)
    harness.post(RowsOmitted(answer.session, (PartitionId(TOPIC, 1),)))
    assert [row.partition_index for row in harness.answers["next"].rows] == [1, 2]


def test_a_row_without_room_is_forgotten_with_its_session() -> None:
    harness = leader()
    harness.produce(batch(3), acks=1)
    answer = harness.answers[harness.fetch(2, 0, session=7)]
    name = harness.fetch(2, None, session=8)
    harness.post(RowsOmitted(answer.session, (KEY,)))
    assert name not in harness.answers


def _row(index: int) -> FetchPartition:
    return FetchPartition(TOPIC, index, 0, 0, -1, 0, 1 << 20)


# --- consumers ---------------------------------------------------------------------------------------------


def test_consumer_waits_for_the_high_watermark_not_for_the_log_end() -> None:
    harness = leader()
    name = harness.fetch(-1, 0, epoch=-1)
    replicated(harness, 0, 0)
    harness.produce(batch(4), acks=1)
    assert name not in harness.answers
    replicated(harness, 4, 1)
    assert harness.fetch_rows(name) == [("NONE", 4, 0, 4)]


def test_consumer_without_data_gets_its_offsets_when_the_time_is_over() -> None:
    harness = leader()
    name = harness.fetch(-1, 0, epoch=-1, wait_ms=300)
    harness.tick(300)
    assert harness.fetch_rows(name) == [("NONE", 0, -1, -1)]


def test_consumer_waits_for_its_min_bytes() -> None:
    harness = leader()
    replicated(harness, 0, 0)
    size = len(batch(1))
    name = harness.fetch(-1, 0, epoch=-1, min_bytes=size + 1)
    harness.produce(batch(1), acks=1)
    replicated(harness, 1, 1)
    assert name not in harness.answers
    harness.produce(batch(1), acks=1)
    replicated(harness, 2, 2)
    assert harness.fetch_rows(name) == [("NONE", 2, 0, 2)]


def test_new_leader_hides_its_high_watermark_but_serves_what_it_knows() -> None:
    """F6, A-6."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(20, 0)
    harness.join(partition(2))
    harness.partition.leader_answered(12, -1)
    harness.metadata(change(leader=1, isr=(1, 3)))
    assert harness.fetch_rows(harness.fetch(-1, 5, epoch=-1)) == [("NONE", -1, 5, 12)]
    assert _latest(harness) == ("OFFSET_NOT_AVAILABLE", -1)
    harness.fetch(3, 20, epoch=1, last_epoch=0)
    assert harness.fetch_rows(harness.fetch(-1, 5, epoch=-1)) == [("NONE", 20, 5, 20)]
    assert _latest(harness) == ("NONE", 20)


def test_consumer_that_read_what_is_gone_is_told_where_the_logs_part() -> None:
    """R88: after an unclean election; without records, and without waiting for any."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(10, 3)
    harness.join(partition(1, (1,), leader_epoch=5, min_isr=1))
    name = harness.fetch(-1, 12, epoch=5, last_epoch=4)
    (row,) = harness.answers[name].rows
    assert (row.error_code, row.diverging, row.max_bytes) == (0, (3, 10), 0)
    name = harness.fetch(-1, 8, epoch=5, last_epoch=3)
    assert harness.fetch_rows(name) == [("NONE", 10, 8, 10)]
    name = harness.fetch(-1, 8, last_epoch=6, epoch=-1)
    assert harness.fetch_rows(name)[0][0] == "UNKNOWN_LEADER_EPOCH"


def test_errors_of_consumers_do_not_wait() -> None:
    harness = leader()
    assert harness.fetch_rows(harness.fetch(-1, 1, epoch=-1))[0][0] == "OFFSET_OUT_OF_RANGE"
    assert harness.fetch_rows(harness.fetch(-1, 0, epoch=4))[0][0] == "UNKNOWN_LEADER_EPOCH"
    harness.metadata(change(leader=2))
    assert harness.fetch_rows(harness.fetch(-1, 0, epoch=-1))[0][0] == "NOT_LEADER_OR_FOLLOWER"


def test_waiting_consumer_hears_that_the_leader_moved() -> None:
    harness = leader()
    name = harness.fetch(-1, 0, epoch=-1)
    harness.metadata(change(leader=2))
    assert harness.fetch_rows(name)[0][0] == "NOT_LEADER_OR_FOLLOWER"


# --- questions ---------------------------------------------------------------------------------------------


def _latest(harness: CoreHarness) -> tuple[str, int]:
    harness.request(ListOffsetsRequest((ListOffsetsPartition(TOPIC, 0, -1, -1),)))
    effect = harness.others.pop()
    assert isinstance(effect, AnswerOffsets)
    return ErrorCode(effect.rows[0].error_code).name, effect.rows[0].offset


def test_first_and_timed_offsets() -> None:
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(20, 0, 5)
    harness.join(partition(1, (1,), min_isr=1))
    stamps = (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIMESTAMP, LATEST_TIERED_TIMESTAMP, -6)
    asked = tuple(ListOffsetsPartition(TOPIC, 0, -1, stamp) for stamp in (*stamps, 1234, MAX_TIMESTAMP))
    harness.request(ListOffsetsRequest(asked))
    effect = harness.others.pop()
    assert isinstance(effect, AnswerOffsets)
    rows = [(ErrorCode(row.error_code).name, row.offset, row.lookup) for row in effect.rows]
    assert rows == [
        ("NONE", 5, None),
        ("NONE", 5, None),
        ("NONE", 20, None),
        ("NONE", -1, None),
        ("INVALID_REQUEST", -1, None),
        ("NONE", -1, 1234),
        ("NONE", -1, MAX_TIMESTAMP),
    ]
    assert {row.end_offset for row in effect.rows[-2:]} == {20}, "nothing above the high watermark is found"


def test_end_of_an_epoch_is_told_by_the_leader_only() -> None:
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(20, 3)
    harness.join(partition(1, leader_epoch=5))
    question = OffsetForLeaderEpochRequest(
        -1, (EpochPartition(TOPIC, 0, 5, 4), EpochPartition(TOPIC, 0, 4, 4))
    )
    rows = harness.answers[harness.request(question)].partitions
    assert (rows[0].leader_epoch, rows[0].end_offset) == (3, 20)
    assert rows[1].error_code == ErrorCode.FENCED_LEADER_EPOCH


# --- sizes -------------------------------------------------------------------------------------------------


def test_recent_sizes_tell_what_a_reader_would_get() -> None:
    sizes = RecentSizes(100)
    sizes.appended(105, 50)
    sizes.appended(110, 70)
    assert sizes.between(100, 110) == 120
    assert sizes.between(105, 110) == 70
    assert sizes.between(110, 110) == 0
    assert sizes.between(99, 110) == UNKNOWN_SIZE_BYTES


def test_recent_sizes_are_bounded() -> None:
    sizes = RecentSizes(0)
    for end_offset in range(1, 5 * SIZES_KEPT):
        sizes.appended(end_offset, 10)
    assert sizes.between(0, 10) == UNKNOWN_SIZE_BYTES
    assert sizes.between(5 * SIZES_KEPT - 11, 5 * SIZES_KEPT - 1) == 100


@pytest.mark.parametrize("last_epoch", [1, -1], ids=["diverging", "out of range"])
def test_what_was_to_be_said_of_a_log_that_is_gone_before_there_is_room_is_void(
    last_epoch: int,
) -> None:
    """R27, R83: its log dir has failed meanwhile; no follower is told to begin anew at -1."""
    one, other = partition(1, leader_epoch=1), partition(1, index=1, leader_epoch=1)
    harness = CoreHarness().join(one, other)
    harness.produce(batch(5, size=200), index=0)
    harness.produce(batch(1), index=1)
    rows = (
        FetchPartition(TOPIC, 0, 1, 0, -1, 0, 1 << 20),
        FetchPartition(TOPIC, 1, 1, 9, last_epoch, 9, 1 << 20),
    )
    first = harness.request(FetchRequest(None, 2, 0, 500, 1, 100, rows, 1, 0))
    answer = harness.answers[first]
    assert isinstance(answer, AnswerFetch)
    assert [row.partition_index for row in answer.rows] == [0]
    harness.post(LogsOffline((PartitionId(TOPIC, 1),)))
    second = harness.request(FetchRequest(None, 2, 0, 500, 1, 100, (), 1, 1))
    answer = harness.answers[second]
    assert isinstance(answer, AnswerFetch)
    (row,) = answer.rows
    assert ErrorCode(row.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


FOLLOWERS_EPOCH = 12


@pytest.mark.parametrize("session_id", [0, -1, -(1 << 63), SESSION_JUMP_MAX + 8, (1 << 63) - 1])
def test_a_session_that_no_honest_follower_counts_is_refused_with_the_last_one(session_id: int) -> None:
    """Taken, it would void all sessions of that follower from then on."""
    sessions: FollowerSessions[str] = FollowerSessions()
    assert sessions.may_open(2, FOLLOWERS_EPOCH, 1)
    sessions.open(2, FOLLOWERS_EPOCH, 7, 0)
    assert not sessions.may_open(2, FOLLOWERS_EPOCH, session_id)
    assert not sessions.may_open(2, FOLLOWERS_EPOCH - 1, 8), "a former registration"
    assert sessions.last_session_id(2, FOLLOWERS_EPOCH) == 7
    assert sessions.may_open(2, FOLLOWERS_EPOCH, 8)
    assert sessions.may_open(2, FOLLOWERS_EPOCH + 1, 1), "numbers begin anew with a registration"
    assert sessions.last_session_id(2, FOLLOWERS_EPOCH + 1) == 0


def test_a_new_session_leaves_no_row_of_the_former_one() -> None:
    """N-4: news of a partition would wake a request that does not wait for it."""
    sessions: FollowerSessions[str] = FollowerSessions()
    sessions.list_row(sessions.open(2, FOLLOWERS_EPOCH, 7, 0), "topic-0", 5, 3, 100)
    assert len(sessions.rows_of("topic-0")) == 1
    sessions.open(2, FOLLOWERS_EPOCH, 8, 0)
    assert sessions.rows_of("topic-0") == ()


# --- any replica -------------------------------------------------------------------------------------------


def test_any_replica_shows_a_debugging_reader_what_it_has_below_its_high_watermark() -> None:
    """Consumers are sent to the leader; this reader wants this very replica."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(10, 0, log_start_offset=2)
    harness.join(partition(2))
    harness.partition.high_watermark = 6
    assert harness.fetch_rows(harness.fetch(-1, 3)) == [("NOT_LEADER_OR_FOLLOWER", -1, -1, -1)]
    name = harness.fetch(DEBUGGING_REPLICA_ID, 3, epoch=-1)
    assert harness.fetch_rows(name) == [("NONE", 6, 3, 6)]
    (row,) = harness.answers[name].rows
    assert row.verify, "damage that only this replica has is to be found"
    assert harness.fetch_rows(harness.fetch(DEBUGGING_REPLICA_ID, 6, epoch=-1)) == [("NONE", 6, -1, -1)]
    (row,) = harness.answers[harness.fetch(DEBUGGING_REPLICA_ID, 1, epoch=-1)].rows
    assert (row.error_code, row.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
