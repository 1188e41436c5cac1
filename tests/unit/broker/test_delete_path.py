"""A leader deletes records when all of its ISR have (DeleteRecords), and a follower begins where it does."""

import pytest

from holdfast.broker.core.events import FetchAnswered, LogStartStored, MoveLogStart, SendFetch
from holdfast.broker.core.requests.fetch_session import FollowerSessions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.scenario.partition import MemoryLog
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, change, partition

OTHER = b"o" * 16


def leader(isr: tuple[int, ...] = (1, 2), *, topic: str = "t", size: int = 12) -> CoreHarness:
    """Broker 1 leads a log of so many records; the followers of its ISR have ten of them."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(size, 0)
    harness.join(partition(1, isr, min_isr=1), topic=topic)
    for number, replica_id in enumerate(isr[1:]):
        follow(harness, replica_id, session=number + 1)
    assert harness.partition.high_watermark == (10 if isr[1:] else size)
    return harness


def follow(
    harness: CoreHarness,
    replica_id: int,
    *,
    offset: int = 10,
    start: int = 0,
    session: int = 1,
    number: int = 0,
) -> object:
    row = FetchPartition(TOPIC, 0, 0, offset, 0, offset, 1 << 20, log_start_offset=start)
    return harness.request(
        FetchRequest(None, replica_id, replica_id - 2, 500, 1, 1 << 20, (row,), session, number)
    )


def delete(harness: CoreHarness, *offsets: int, topic: bytes = TOPIC, timeout_ms: int = 1000) -> object:
    rows = tuple(DeleteRecordsPartition(topic, 0, offset) for offset in offsets)
    return harness.request(DeleteRecordsRequest(timeout_ms, rows))


def moves(harness: CoreHarness) -> list[int]:
    """Where the log was told to begin since the last look; that is stored now."""
    found = [effect for effect in harness.others if isinstance(effect, MoveLogStart)]
    harness.others = [effect for effect in harness.others if not isinstance(effect, MoveLogStart)]
    for effect in found:
        assert effect.is_stored
        log = harness.logs[effect.key]
        log.log_start_offset = max(log.log_start_offset, effect.offset)
        harness.post(LogStartStored(effect.key))
    return [effect.offset for effect in found]


def told(harness: CoreHarness, name: object) -> list[tuple[str, int]] | None:
    """(error, low watermark) of each row, None while there is no answer."""
    answer = harness.answers.get(name)
    return (
        None
        if answer is None
        else [(ErrorCode(r.error_code).name, r.low_watermark) for r in answer.partitions]
    )


@pytest.mark.parametrize(("asked", "offset", "size"), [(6, 6, 12), (10, 10, 12), (-1, 10, 10), (1, 1, 12)])
def test_records_are_deleted_when_the_leader_and_each_member_of_the_isr_begin_later(
    asked: int, offset: int, size: int
) -> None:
    harness = leader((1, 2, 3), size=size)
    request = delete(harness, asked)
    assert moves(harness) == [offset]
    follow(harness, 2, start=offset, number=1)
    assert told(harness, request) is None
    follow(harness, 3, start=offset - 1, session=2, number=1)
    assert told(harness, request) is None
    follow(harness, 3, start=offset, session=2, number=2)
    assert told(harness, request) == [("NONE", offset)]


def test_a_follower_that_begins_later_is_not_enough() -> None:
    harness = leader()
    request = delete(harness, 6)
    follow(harness, 2, start=8, number=1)
    assert told(harness, request) is None
    moves(harness)
    assert told(harness, request) == [("NONE", 6)]


@pytest.mark.parametrize(
    ("topic", "offset", "code"),
    [
        ("t", -2, "OFFSET_OUT_OF_RANGE"),
        # an earlier leader may have shown a higher one
        ("t", -1, "OFFSET_NOT_AVAILABLE"),
        ("t", 11, "OFFSET_NOT_AVAILABLE"),
        (OFFSETS_TOPIC, 3, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_what_is_not_committed_and_what_is_not_the_clients_is_refused(
    topic: str, offset: int, code: str
) -> None:
    harness = leader(topic=topic)
    assert told(harness, delete(harness, offset)) == [(code, -1)]
    assert moves(harness) == []


def test_each_row_has_its_own_answer_and_all_go_out_together() -> None:
    harness = leader()
    request = delete(harness, 4, 5)
    moves(harness)
    assert told(harness, request) is None
    follow(harness, 2, start=4, number=1)
    assert told(harness, request) == [("NONE", 4), ("INVALID_REQUEST", -1)]
    assert told(harness, delete(harness, 1, topic=OTHER)) == [("UNKNOWN_TOPIC_OR_PARTITION", -1)]


def test_what_is_deleted_already_is_answered_at_once() -> None:
    harness = leader((1,), size=8)
    request = delete(harness, 6)
    moves(harness)
    assert told(harness, request) == [("NONE", 6)]
    assert told(harness, delete(harness, 3)) == [("NONE", 6)]
    assert moves(harness) == []


def test_followers_are_asked_where_they_begin_also_when_retention_came_first() -> None:
    """Nothing is written, so followers list nothing by themselves."""
    harness = leader()
    for number in (1, 2):
        follow(harness, 2, offset=12, number=number)
        harness.tick(60)
    parked = harness.request(FetchRequest(None, 2, 0, 500, 1, 1 << 20, (), 1, 3))
    harness.logs[KEY].log_start_offset = 8
    request = delete(harness, 6)
    assert (moves(harness), told(harness, request)) == ([6], None)
    assert [row.log_start_offset for row in harness.answers[parked].rows] == [8]
    follow(harness, 2, offset=12, start=8, number=4)
    assert told(harness, request) == [("NONE", 8)]


def test_what_is_above_the_high_watermark_is_refused_for_good_once_that_is_known() -> None:
    harness = leader()
    follow(harness, 2, offset=12, number=1)
    assert harness.partition.visible_high_watermark == 12
    assert told(harness, delete(harness, 13)) == [("OFFSET_OUT_OF_RANGE", -1)]


def test_a_follower_that_never_moves_times_the_request_out() -> None:
    harness = leader()
    request = delete(harness, 6, timeout_ms=200)
    moves(harness)
    harness.tick(150)
    assert told(harness, request) is None
    harness.tick(60)
    assert told(harness, request) == [("REQUEST_TIMED_OUT", -1)]
    follow(harness, 2, start=6, number=1)  # too late, and answered only once
    assert harness.core.delete_path.waiting_count == 0


def test_a_replica_that_leaves_the_isr_is_not_waited_for() -> None:
    harness = leader((1, 2, 3))
    request = delete(harness, 6)
    moves(harness)
    follow(harness, 2, start=6, number=1)
    harness.metadata(change(isr=(1, 2)))
    assert told(harness, request) == [("NONE", 6)]


def test_below_min_isr_nothing_is_told_to_be_deleted() -> None:
    """A member of the ELR may lead next, which has heard of nothing."""
    harness = leader((1, 2))
    harness.metadata(change(isr=(1,), min_isr=2))
    request = delete(harness, 6)
    assert moves(harness) == [6]
    assert told(harness, request) is None
    follow(harness, 2, start=6, number=1)
    harness.metadata(change(isr=(1, 2)))
    assert told(harness, request) == [("NONE", 6)]


@pytest.mark.parametrize(("start", "joins"), [(0, False), (5, False), (6, True), (8, True), (-1, True)])
def test_a_replica_joins_the_isr_once_it_begins_where_the_leader_does(start: int, joins: bool) -> None:
    """Else it could lead, and show again what was deleted. An earlier build does not say where it begins."""
    harness = leader((1,), size=10)
    delete(harness, 6)
    moves(harness)
    harness.calls.clear()
    follow(harness, 2, start=start)
    leadership = harness.partition.leadership
    assert leadership is not None
    assert (2 in leadership.maximal_isr) is joins


def test_a_replica_joins_a_topic_of_offsets_wherever_it_begins() -> None:
    """Where that begins is not stored: a follower outside the ISR could not go along, nor ever join."""
    harness = leader((1,), topic=OFFSETS_TOPIC, size=10)
    harness.logs[KEY].log_start_offset = 6
    follow(harness, 2, start=0)
    leadership = harness.partition.leadership
    assert leadership is not None
    assert 2 in leadership.maximal_isr


def test_a_deposed_leader_tells_the_client_to_ask_the_next_one() -> None:
    harness = leader()
    request = delete(harness, 6)
    harness.metadata(change(leader=2))
    assert told(harness, request) == [("NOT_LEADER_OR_FOLLOWER", -1)]
    assert told(harness, delete(harness, 6)) == [("NOT_LEADER_OR_FOLLOWER", -1)]


def test_a_waiting_fetch_is_answered_as_soon_as_the_log_begins_later() -> None:
    harness = leader()
    parked = follow(harness, 2, offset=12, number=1)
    harness.tick(60)
    assert parked in harness.answers  # the high watermark
    parked = follow(harness, 2, offset=12, number=2)
    harness.tick(60)
    parked = harness.request(FetchRequest(None, 2, 0, 500, 1, 1 << 20, (), 1, 3))
    assert parked not in harness.answers
    delete(harness, 6)
    moves(harness)
    assert [row.log_start_offset for row in harness.answers[parked].rows] == [6]


# --- the follower ----------------------------------------------------------------------------------------


def following(topic: str = "t") -> CoreHarness:
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(10, 5)
    harness.join(partition(2, leader_epoch=5), topic=topic)
    harness.partition.leader_answered(8, -1)
    return harness


def take(harness: CoreHarness) -> SendFetch:
    (sent,) = harness.fetches
    harness.fetches.clear()
    return sent


def answer(harness: CoreHarness, sent: SendFetch, start: int, *, high_watermark: int = 8) -> None:
    row = FetchPartitionResponse(TOPIC, 0, 0, high_watermark, start, 10, None, 2, 5, memoryview(b""))
    request = sent.request
    harness.post(FetchAnswered(2, request.session_id, request.session_epoch, FetchResponse(0, None, (row,))))


@pytest.mark.parametrize(
    ("start", "high_watermark", "moved"), [(6, 8, [6]), (8, -1, [8]), (9, 8, []), (9, 9, [9]), (0, 8, [])]
)
def test_a_follower_begins_where_its_leader_does_as_far_as_is_committed(
    start: int, high_watermark: int, moved: list[int]
) -> None:
    harness = following()
    answer(harness, take(harness), start, high_watermark=high_watermark)
    assert moves(harness) == moved


def test_a_follower_tells_its_leader_once_the_later_start_is_stored() -> None:
    harness = following()
    first = take(harness)
    assert first.request.partitions[0].log_start_offset == 0
    answer(harness, first, 6)
    again = take(harness)
    assert again.request.partitions == ()
    answer(harness, again, 6)  # asked once
    take(harness)
    assert moves(harness) == [6]
    (listed,) = take(harness).request.partitions
    assert listed.log_start_offset == 6


def test_a_follower_that_begins_late_by_itself_tells_a_leader_that_wants_to_know() -> None:
    """Retention has moved the start of its log since it listed the row."""
    harness = following()
    first = take(harness)
    harness.logs[KEY].log_start_offset = 7
    answer(harness, first, 6)
    (listed,) = take(harness).request.partitions
    assert (listed.log_start_offset, moves(harness)) == (7, [])


@pytest.mark.parametrize(("offset", "known"), [(10, -1), (12, 10)])
def test_a_follower_that_lists_its_row_anew_from_where_it_was_has_ignored_the_last_answer(
    offset: int, known: int
) -> None:
    """It does so when its log begins later, while records may be on their way to it."""
    sessions: FollowerSessions[str] = FollowerSessions()
    session = sessions.open(2, 0, 1, 0)
    row = sessions.list_row(session, "t-0", 10, 5, 1 << 20)
    row.sent_high_watermark = 10
    sessions.close_row(row)
    assert sessions.list_row(session, "t-0", offset, 5, 1 << 20).sent_high_watermark == known
