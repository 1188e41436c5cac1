"""The follower's side (R80-R84, N-4, D6)."""

import pytest

from holdfast.broker.core.events import (
    CloseSource,
    FetchAnswered,
    FetchFailed,
    Flushed,
    MoveLogStart,
    Reset,
    SendFetch,
    Truncate,
)
from holdfast.broker.core.replicas import fetcher
from holdfast.broker.core.replicas.ceilings import CEILINGS_WAIT_MS
from holdfast.broker.core.replicas.fetcher import PAUSE_MS_MIN
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import EpochEndOffset, FetchPartitionResponse, FetchResponse
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.rpc.core.failures import CallFailure
from holdfast.scenario.partition import MemoryLog
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, batch, change, fetched_batch, partition

NO_RECORDS = memoryview(b"")


def follower(
    log: MemoryLog | None = None,
    *,
    leader_epoch: int = 5,
    high_watermark: int = 0,
    topic: str = "t",
    isr: tuple[int, ...] = (1, 2, 3),
) -> CoreHarness:
    """Broker 1 follows broker 2 in epoch 5 and has sent its first fetch."""
    harness = CoreHarness()
    if log is not None:
        harness.logs[KEY] = log
    harness.join(partition(2, isr, leader_epoch=leader_epoch), topic=topic)
    harness.partition.leader_answered(high_watermark, -1)
    return harness


def take(harness: CoreHarness) -> SendFetch:
    """The one fetch that was sent since the last look."""
    (sent,) = harness.fetches
    harness.fetches.clear()
    return sent


def row(
    records: memoryview = NO_RECORDS,
    *,
    high_watermark: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] | None = None,
    start: int = 0,
    end: int = 0,
    index: int = 0,
) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        TOPIC,
        index,
        error,
        high_watermark,
        start,
        end,
        None if diverging is None else EpochEndOffset(*diverging),
        2,
        5,
        records,
    )


def reported(harness: CoreHarness) -> tuple[int, ...]:
    """The unreachable leaders of the next heartbeat; all calls are answered."""
    harness.tick(2000)
    (unreachable,) = {call.request.unreachable for call in harness.calls}
    harness.answer_heartbeats()
    return tuple(unreachable)


def test_leader_that_answers_over_no_connection_is_reported_until_it_answers() -> None:
    harness = follower()
    fail(harness, take(harness))
    harness.now_ms += 5999
    fail(harness, take(harness))
    assert reported(harness) == (), "silent for less than twice holdfast.leader.silence.max.ms"
    fail(harness, take(harness))
    assert reported(harness) == (2,)
    answer(harness, take(harness))
    assert reported(harness) == ()


def test_pause_of_the_follower_alone_reports_no_leader() -> None:
    harness = follower()
    harness.now_ms += 60_000
    fail(harness, take(harness))
    assert reported(harness) == (), "the first try of a new connection may succeed"


def test_leader_that_refuses_is_not_silent() -> None:
    harness = follower()
    for _ in range(3):
        harness.now_ms += 6000
        answer(harness, take(harness), error=ErrorCode.BROKER_ID_NOT_REGISTERED)
        harness.tick(1000)
    assert reported(harness) == ()


def test_leader_that_was_replaced_is_reported_no_more() -> None:
    harness = follower()
    for _ in range(2):
        harness.now_ms += 6000
        harness.answer_heartbeats()
        fail(harness, take(harness))
    assert reported(harness) == (2,)
    harness.metadata(change(leader=3))
    assert reported(harness) == ()


def answer(harness: CoreHarness, sent: SendFetch, *rows: FetchPartitionResponse, error: int = 0) -> None:
    request = sent.request
    response = FetchResponse(error, None, rows)
    harness.post(FetchAnswered(sent.source_id, request.session_id, request.session_epoch, response))


def fail(harness: CoreHarness, sent: SendFetch) -> None:
    request = sent.request
    harness.post(
        FetchFailed(
            sent.source_id, request.session_id, request.session_epoch, CallFailure.DISCONNECTED, "gone"
        )
    )


def test_first_fetch_lists_what_the_follower_has() -> None:
    sent = take(follower(MemoryLog(10, 3)))
    assert (sent.source_id, sent.host, sent.port) == (2, "127.0.0.1", 9002)
    request = sent.request
    assert (request.replica_id, request.session_epoch) == (1, 0)
    (listed,) = request.partitions
    assert (listed.current_leader_epoch, listed.fetch_offset, listed.last_fetched_epoch) == (5, 10, 3)
    assert listed.flushed_offset == 10


def test_fetched_records_are_appended_and_the_next_fetch_proves_it() -> None:
    harness = follower()
    answer(harness, take(harness), row(fetched_batch(0, 4, 5), high_watermark=2))
    assert harness.partition.log.log_end_offset == 4
    assert harness.partition.high_watermark == 2
    sent = take(harness)
    assert sent.request.session_epoch == 1
    assert [listed.fetch_offset for listed in sent.request.partitions] == [4]


def test_high_watermark_is_never_above_the_own_log() -> None:
    """R52: min(leader's, own end)."""
    harness = follower()
    answer(harness, take(harness), row(fetched_batch(0, 4, 5), high_watermark=9))
    assert harness.partition.high_watermark == 4


def test_answer_without_records_leaves_the_row_listed() -> None:
    harness = follower(MemoryLog(10, 5))
    answer(harness, take(harness), row(high_watermark=7))
    assert harness.partition.high_watermark == 7
    assert take(harness).request.partitions == ()


def test_answers_of_other_requests_count_for_nothing() -> None:
    """N-4, A-15: matched by identity, each once."""
    harness = follower()
    sent = take(harness)
    late = fetched_batch(0, 4, 5)
    harness.post(FetchAnswered(2, sent.request.session_id + 1, 0, FetchResponse(0, None, (row(late),))))
    harness.post(FetchAnswered(3, sent.request.session_id, 0, FetchResponse(0, None, (row(late),))))
    harness.post(FetchAnswered(2, sent.request.session_id, 1, FetchResponse(0, None, (row(late),))))
    assert harness.partition.log.log_end_offset == 0
    answer(harness, sent, row(late))
    answer(harness, sent, row(late))
    assert harness.partition.log.log_end_offset == 4


def test_after_a_failure_the_connection_is_closed_before_the_next_fetch() -> None:
    """N-4: a late answer of the old connection must not be heard. D9: the first retry is at once."""
    harness = follower(MemoryLog(10, 5))
    first = take(harness)
    fail(harness, first)
    assert CloseSource(2) in harness.others
    second = take(harness)
    assert second.request.session_id != first.request.session_id
    assert second.request.session_epoch == 0
    assert [listed.fetch_offset for listed in second.request.partitions] == [10]
    answer(harness, first, row(fetched_batch(10, 4, 5)))
    assert harness.partition.log.log_end_offset == 10


def test_repeated_failures_wait_ever_longer() -> None:
    harness = follower()
    fail(harness, take(harness))
    fail(harness, take(harness))
    assert harness.fetches == []
    harness.tick(PAUSE_MS_MIN)
    fail(harness, take(harness))
    harness.tick(PAUSE_MS_MIN)
    assert harness.fetches == []
    harness.tick(PAUSE_MS_MIN)
    take(harness)


def test_unknown_session_begins_a_new_one() -> None:
    harness = follower()
    first = take(harness)
    answer(harness, first, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    second = take(harness)
    assert second.request.session_epoch == 0
    assert len(second.request.partitions) == 1


def test_diverging_log_is_truncated_before_the_high_watermark_is_looked_at() -> None:
    """R81, R82, KAFKA-14704."""
    log = MemoryLog(10, 3)
    log.append(5, 4)
    harness = follower(log, high_watermark=8)
    answer(harness, take(harness), row(diverging=(3, 12), high_watermark=14))
    assert harness.cuts == [Truncate(KEY, 10)]
    assert harness.partition.high_watermark == 8
    assert harness.fetches == []
    harness.finish_cuts()
    (listed,) = take(harness).request.partitions
    assert (listed.fetch_offset, listed.last_fetched_epoch) == (10, 3)
    assert harness.core.fetchers.truncated == {("t", 0): [5, 0]}


def test_truncation_below_the_high_watermark_is_counted() -> None:
    """R84: committed data of this replica is gone; an operator must hear of it."""
    harness = follower(MemoryLog(10, 3), high_watermark=8)
    answer(harness, take(harness), row(diverging=(3, 6)))
    harness.finish_cuts()
    assert harness.partition.high_watermark == 6
    assert harness.core.fetchers.truncated == {("t", 0): [2, 2]}


def test_out_of_range_log_is_dropped_and_begins_at_the_leaders_start() -> None:
    """R83 as D8 decides it."""
    harness = follower(MemoryLog(10, 3))
    answer(harness, take(harness), row(error=ErrorCode.OFFSET_OUT_OF_RANGE, start=50, end=90))
    assert harness.cuts == [Reset(KEY, 50)]
    harness.finish_cuts()
    (listed,) = take(harness).request.partitions
    assert (listed.fetch_offset, listed.last_fetched_epoch) == (50, -1)


@pytest.mark.parametrize(
    ("topic", "records", "high_watermark", "start", "moved"),
    [
        (OFFSETS_TOPIC, 5, 15, 6, [MoveLogStart(KEY, 6)]),
        (OFFSETS_TOPIC, 5, 14, 6, [MoveLogStart(KEY, 6)]),
        (OFFSETS_TOPIC, 0, 10, 6, [MoveLogStart(KEY, 6)]),
        (OFFSETS_TOPIC, 5, 16, 6, []),
        (OFFSETS_TOPIC, 0, 11, 6, []),
        (OFFSETS_TOPIC, 5, -1, 6, []),
        (OFFSETS_TOPIC, 5, 15, 0, []),
    ],
)
def test_a_follower_of_the_offsets_begins_where_the_leader_does_once_it_has_all_that_is_committed(
    topic: str, records: int, high_watermark: int, start: int, moved: list[MoveLogStart]
) -> None:
    """The leader's log begins at a snapshot that is committed: before, the follower may have half of it."""
    harness = follower(MemoryLog(10, 3), high_watermark=10, topic=topic)
    data = fetched_batch(10, records, 5) if records else NO_RECORDS
    answer(harness, take(harness), row(data, high_watermark=high_watermark, start=start, end=30))
    assert harness.partition.log.log_end_offset == 10 + records
    assert [one for one in harness.others if isinstance(one, MoveLogStart)] == moved


@pytest.mark.parametrize(
    ("topic", "isr", "diverging", "start", "cut"),
    [
        (OFFSETS_TOPIC, (2,), (3, 15), 0, Reset(KEY, 0)),
        (OFFSETS_TOPIC, (2,), (3, 5), 0, Reset(KEY, 0)),
        (OFFSETS_TOPIC, (2,), (3, 15), 10, Truncate(KEY, 15)),
        (OFFSETS_TOPIC, (2,), (3, 15), 12, Truncate(KEY, 15)),
        (OFFSETS_TOPIC, (1, 2), (3, 15), 0, Truncate(KEY, 15)),
        ("t", (2,), (3, 15), 0, Truncate(KEY, 15)),
        ("t", (2,), (3, 5), 0, Truncate(KEY, 5)),
    ],
)
def test_a_log_of_offsets_that_begins_later_than_the_leaders_is_not_cut_but_copied_anew(
    topic: str, isr: tuple[int, ...], diverging: tuple[int, int], start: int, cut: Truncate | Reset
) -> None:
    """It begins at a snapshot, which the cut may leave half of. In the ISR it had all that is committed: no
    cut goes below that, and the snapshot was committed before the log began there."""
    harness = follower(MemoryLog(20, 3, 10), topic=topic, isr=isr)
    answer(harness, take(harness), row(diverging=diverging, start=start))
    assert harness.cuts == [cut]


def test_records_that_do_not_fit_are_refused_and_fetched_again() -> None:
    """R84, KAFKA-18723: a batch of a later epoch than the fetch was made in."""
    harness = follower()
    answer(harness, take(harness), row(fetched_batch(0, 4, 6), high_watermark=4))
    assert harness.partition.log.log_end_offset == 0
    assert harness.partition.high_watermark == 0
    assert harness.fetches == []
    harness.tick(PAUSE_MS_MIN)
    (listed,) = take(harness).request.partitions
    assert listed.fetch_offset == 0


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH],
)
def test_row_with_an_error_pauses_alone(code: ErrorCode) -> None:
    harness = CoreHarness().join(partition(2), partition(2, index=1))
    sent = take(harness)
    answer(harness, sent, row(error=code), row(fetched_batch(0, 1, 0), index=1))
    assert [listed.partition_index for listed in take(harness).request.partitions] == [1]
    harness.tick(PAUSE_MS_MIN)
    assert [listed.partition_index for listed in take(harness).request.partitions] == [0]


def test_new_leader_epoch_is_fetched_in_and_the_old_answer_forgotten() -> None:
    harness = follower()
    old = take(harness)
    harness.metadata(change(leader=2))
    new = take(harness)
    assert [listed.current_leader_epoch for listed in new.request.partitions] == [6]
    answer(harness, old, row(fetched_batch(0, 4, 5)))
    assert harness.partition.log.log_end_offset == 0
    harness.fetches.clear()
    answer(harness, new, row(fetched_batch(0, 4, 6)))
    assert harness.partition.log.log_end_offset == 4


def test_follower_moves_to_the_new_leader() -> None:
    harness = CoreHarness().join(partition(2), partition(2, index=1))
    take(harness)
    harness.metadata(change(leader=3))
    by_source = {sent.source_id: sent for sent in harness.fetches}
    assert [gone.partition_index for gone in by_source[2].request.forgotten] == [0]
    assert [listed.partition_index for listed in by_source[3].request.partitions] == [0]


def test_what_does_not_fit_a_request_follows_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "ROWS_MAX", 2)
    harness = CoreHarness().join(*(partition(2, index=index) for index in range(5)))
    listed: list[int] = []
    gone: list[int] = []

    def ask() -> None:
        sent = next(sent for sent in harness.fetches if sent.source_id == 2)
        harness.fetches.remove(sent)
        listed.extend(row.partition_index for row in sent.request.partitions)
        gone.extend(row.partition_index for row in sent.request.forgotten)
        assert max(len(sent.request.partitions), len(sent.request.forgotten)) <= 2
        answer(harness, sent)

    for _ in range(3):
        ask()
    assert listed == [0, 1, 2, 3, 4]
    harness.metadata(*(change(leader=3, index=index) for index in range(4)))
    for _ in range(4):
        ask()
    assert gone == [0, 1, 2, 3]


def test_source_without_partitions_is_closed() -> None:
    harness = follower()
    take(harness)
    harness.metadata(change(leader=3))
    assert CloseSource(2) in harness.others
    assert take(harness).source_id == 3


def test_leader_does_not_fetch() -> None:
    """I-4."""
    harness = follower()
    sent = take(harness)
    harness.metadata(change(leader=1))
    answer(harness, sent, row(fetched_batch(0, 4, 5)))
    assert harness.partition.log.log_end_offset == 0
    assert harness.fetches == []
    assert harness.core.fetchers.partition_count == 0


def test_row_waits_for_a_cut_of_an_earlier_role() -> None:
    """The log that a fetch would tell of is being truncated."""
    log = MemoryLog(10, 3)
    harness = follower(log)
    answer(harness, take(harness), row(diverging=(3, 4)))
    harness.metadata(change(leader=3))
    assert harness.fetches == []
    harness.finish_cuts()
    (listed,) = take(harness).request.partitions
    assert listed.fetch_offset == 4


def test_with_every_write_flushed_only_durable_records_are_shown() -> None:
    """D6: the row is listed when the flush that covers the append is done, A-21."""
    harness = follower()
    harness.metadata(harness.topic_config("flush.messages", "1"))
    answer(harness, take(harness), row(fetched_batch(0, 4, 5), high_watermark=4))
    assert harness.fetches == []
    harness.finish_flushes()
    (listed,) = take(harness).request.partitions
    assert (listed.fetch_offset, listed.flushed_offset) == (4, 4)


def test_flush_that_began_before_the_append_does_not_count() -> None:
    """A-21: the row waits for the flush that covers it."""
    harness = follower()
    harness.metadata(harness.topic_config("flush.messages", "1"))
    answer(harness, take(harness), row(fetched_batch(0, 4, 5)))
    harness.logs[KEY].flushed_offset = 2
    harness.post(Flushed(KEY))
    assert harness.fetches == []
    harness.finish_flushes()
    (listed,) = take(harness).request.partitions
    assert listed.flushed_offset == 4


def test_what_was_not_durable_when_it_was_shown_is_shown_again_once_only_durable_records_count() -> None:
    """D6: a caught-up follower lists nothing until there are new records, which below min ISR never come."""
    harness = follower()
    answer(harness, take(harness), row(fetched_batch(0, 4, 5)))
    (listed,) = take(harness).request.partitions
    assert (listed.fetch_offset, listed.flushed_offset) == (4, 0)
    harness.metadata(harness.topic_config("flush.messages", "1"))
    harness.finish_flushes()
    (listed,) = take(harness).request.partitions
    assert (listed.fetch_offset, listed.flushed_offset) == (4, 4)


def test_follower_that_led_flushes_before_it_shows_its_log() -> None:
    """D6: shown before, its flushed offset would stay behind at the leader until there are new records."""
    harness = CoreHarness(log_flush_interval_messages="1").join(partition(1))
    harness.produce(batch(4), acks=1)
    assert harness.partition.log.flushed_offset == 0
    harness.metadata(change(leader=2))
    assert harness.fetches == []
    harness.finish_flushes()
    (listed,) = take(harness).request.partitions
    assert (listed.fetch_offset, listed.flushed_offset) == (4, 4)


def test_rows_that_are_ready_do_not_wait_for_a_parked_request() -> None:
    """A partition whose flush is done must not wait for the long poll of another one (N-4 is per
    partition)."""
    harness = CoreHarness().join(partition(2), partition(2, index=1))
    take(harness)
    harness.metadata(change(leader=2))
    second = take(harness)
    assert second.request.session_epoch == 1
    assert [listed.partition_index for listed in second.request.partitions] == [0]


# --- ceilings (R68) ----------------------------------------------------------------------------------------


def promising() -> CoreHarness:
    """A follower that has fetched 1200 records, more than it has promised, on a disk that takes its time."""
    harness = follower()
    sent = take(harness)
    harness.stores_slowly = True
    answer(harness, sent, row(fetched_batch(0, 1200, 5), end=1200))
    assert harness.logs[KEY].log_end_offset == 1200
    return harness


def test_a_log_is_shown_as_far_as_it_is_promised() -> None:
    harness = promising()
    assert harness.fetches == []
    assert [tuple(effect.rows) for effect in harness.ceilings] == [((KEY, 1200 + 2 * 1000),)]
    harness.finish_ceilings()
    assert [listed.fetch_offset for listed in take(harness).request.partitions] == [1200]


def test_a_replica_out_of_sync_promises_before_it_may_be_let_in() -> None:
    """Also when its leader does not know its high watermark yet (F6)."""
    harness = CoreHarness()
    harness.join(partition(2, (2, 3), leader_epoch=5))
    harness.ceilings.clear()
    sent = take(harness)
    harness.stores_slowly = True
    answer(harness, sent, row(fetched_batch(0, 4, 5), high_watermark=-1, end=9))
    assert harness.fetches == []
    assert [tuple(effect.rows) for effect in harness.ceilings] == [((KEY, 9 + 1000),)]
    harness.finish_ceilings()
    assert [listed.fetch_offset for listed in take(harness).request.partitions] == [4]


def test_another_leader_is_not_shown_it_either() -> None:
    harness = promising()
    harness.metadata(change(leader=3))
    assert [listed for fetch in harness.fetches for listed in fetch.request.partitions] == []
    harness.fetches.clear()
    harness.finish_ceilings()
    sent = take(harness)
    assert (sent.source_id, [listed.fetch_offset for listed in sent.request.partitions]) == (3, [1200])


def test_a_replica_that_goes_while_it_promises_and_comes_back_begins_anew() -> None:
    harness = promising()
    harness.metadata(change(replicas=(2, 3), isr=(2, 3)))
    harness.finish_ceilings()
    harness.fetches.clear()
    harness.stores_slowly = False
    harness.metadata(change(replicas=(1, 2, 3), adding=(1,), original=(2, 3)))
    assert [listed.fetch_offset for listed in take(harness).request.partitions] == [0]


def test_a_steady_follower_waits_for_no_ceiling() -> None:
    """It is raised when half of it is used."""
    harness = follower()
    for offset in range(0, 6000, 300):
        harness.stores_slowly = offset >= 300
        answer(harness, take(harness), row(fetched_batch(offset, 300, 5), end=offset + 300))
        harness.tick(CEILINGS_WAIT_MS)
        harness.finish_ceilings()
        assert harness.fetches, "the next fetch is sent before the ceiling is stored"
