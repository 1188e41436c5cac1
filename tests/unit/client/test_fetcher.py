"""The consumer's decisions without sockets: positions, epochs, bounds (R55, R81, A-6, D9)."""

import pytest

from holdfast.client.core import fetcher
from holdfast.client.core.backoff import Backoff
from holdfast.client.core.effects import Connect, RefreshMetadata
from holdfast.client.core.errors import ClientError, CorruptRecords, LogTruncated, NoSuchOffset
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import Effect, FetcherConfig, LookupOffsets, ResetPolicy, SendFetch
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import EpochEndOffset, FetchPartitionResponse, FetchResponse
from holdfast.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.protocol.topic_names import TopicPartition

ID = b"\x01" * 16
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(
    base_offset: int, count: int = 1, epoch: int = 1, *, is_control: bool = False, size: int = 1
) -> bytes:
    records = [Record(base_offset + i, 5, None, bytes(size)) for i in range(count)]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch, is_control=is_control)


class Bench:
    """A fetcher of partitions 0 and 1, both led by broker 1 in epoch 1, connected."""

    def __init__(self, reset: ResetPolicy = ResetPolicy.NONE, buffer_bytes_max: int = 1_000) -> None:
        self.cache = MetadataCache()
        self.leaders = [(1, 1), (1, 1)]
        self.topic_id = ID
        self.offset = 1
        self.now_ms = 0
        config = FetcherConfig(
            max_wait_ms=500,
            min_bytes=1,
            request_bytes_max=10_000,
            partition_bytes_max=400,
            buffer_bytes_max=buffer_bytes_max,
            stall_ms=300,
            retry=Backoff(20, 500),
            reset=reset,
        )
        self.fetcher = Fetcher(config, self.cache)
        self.tell()
        self.fetcher.connected(1)
        self.fetcher.connected(2)

    def tell(self) -> None:
        rows = tuple(MetadataPartition(0, i, *at, (1, 2), (1, 2), ()) for i, at in enumerate(self.leaders))
        brokers = tuple(MetadataBroker(n, "h", n, None) for n in (1, 2))
        topic = MetadataTopic(0, "t", self.topic_id, rows)
        self.cache.update(MetadataResponse("c", 101, self.offset, brokers, (topic,)))
        self.offset += 1

    def at(self, **offsets: int) -> "Bench":
        """Assign and seek: `at(p0=5)`."""
        partitions = [TopicPartition("t", int(name[1:])) for name in offsets]
        self.fetcher.assign(partitions)
        for partition, offset in zip(partitions, offsets.values(), strict=True):
            self.fetcher.seek(partition, offset)
        return self

    def make_topic_again(self, partitions: int = 2) -> None:
        self.topic_id, self.leaders = b"\x02" * 16, [(1, 0)] * partitions
        self.tell()
        self.fetcher.metadata_changed()

    def plan(self, advance_ms: int = 0) -> list[Effect]:
        self.now_ms += advance_ms
        return self.fetcher.plan(self.now_ms)

    def fetch(self, advance_ms: int = 0) -> SendFetch:
        (effect,) = (e for e in self.plan(advance_ms) if isinstance(e, SendFetch))
        return effect

    def lookups(self, advance_ms: int = 0) -> list[LookupOffsets]:
        return [effect for effect in self.plan(advance_ms) if isinstance(effect, LookupOffsets)]

    def answer(
        self,
        fetch: SendFetch,
        *records: bytes,
        partition: int = 0,
        code: ErrorCode = ErrorCode.NONE,
        watermark: int = 100,
        diverging: EpochEndOffset | None = None,
        leader: tuple[int, int] = (1, 1),
        log_start: int = 0,
    ) -> list[Effect]:
        data = memoryview(b"".join(records))
        row = FetchPartitionResponse(
            self.topic_id, partition, code, watermark, log_start, -1, diverging, *leader, data
        )
        return self.fetcher.answered(fetch.request_id, FetchResponse(0, None, (row,)), self.now_ms)

    def errors(self) -> list[ClientError]:
        """What polls raise until all partitions had their turn."""
        found = []
        for _ in range(len(self.fetcher.parts)):
            try:
                self.fetcher.take()
            except ClientError as error:
                found.append(error)
        return found

    def taken(self) -> list[tuple[int, int]]:
        """(start offset, next offset) of all that is there."""
        found = []
        while (fetched := self.fetcher.take()) is not None:
            found.append((fetched.start_offset, fetched.header.next_offset))
        return found


def offsets(fetch: SendFetch) -> list[tuple[int, int]]:
    return [(row.partition_index, row.fetch_offset) for row in fetch.request.partitions]


# --- going on ------------------------------------------------------------------------------------------


def test_fetching_goes_on_behind_what_was_fetched_and_the_position_behind_what_was_taken() -> None:
    bench = Bench().at(p0=5)
    bench.answer(bench.fetch(), batch(5, 3), batch(8, 2))
    assert bench.fetcher.parts[T0].position == 5
    assert offsets(bench.fetch()) == [(0, 10)]
    assert bench.taken() == [(5, 8), (8, 10)]
    assert bench.fetcher.parts[T0].position == 10


def test_a_batch_that_begins_below_the_position_is_marked_so() -> None:
    bench = Bench().at(p0=6)
    bench.answer(bench.fetch(), batch(4, 2), batch(6, 1), batch(7, 3))
    assert bench.taken() == [(6, 7), (7, 10)]
    bench = Bench().at(p0=6)
    bench.answer(bench.fetch(), batch(4, 5))
    assert bench.taken() == [(6, 9)]


def test_control_batches_are_passed_over() -> None:
    bench = Bench().at(p0=0)
    bench.answer(bench.fetch(), batch(0, 1, is_control=True), batch(1))
    assert bench.taken() == [(1, 2)]


def test_a_request_names_the_leader_epoch_and_the_epoch_last_read() -> None:
    bench = Bench().at(p0=0)
    first = bench.fetch()
    assert (
        first.request.partitions[0].current_leader_epoch,
        first.request.partitions[0].last_fetched_epoch,
    ) == (
        1,
        -1,
    )
    bench.answer(first, batch(0, 1, epoch=1))
    assert bench.fetch().request.partitions[0].last_fetched_epoch == 1


def test_one_request_a_partition_and_a_parked_one_does_not_hold_back_the_other() -> None:
    bench = Bench().at(p0=0, p1=0)
    both = bench.fetch()
    assert offsets(both) == [(0, 0), (1, 0)]
    assert bench.plan() == []
    bench.answer(both, batch(0, 1, size=500))
    assert offsets(bench.fetch()) == [(1, 0)]  # partition 0 has its fill
    assert bench.taken() == [(0, 1)]
    assert offsets(bench.fetch()) == [(0, 1)]


def test_more_partitions_than_a_request_may_list_are_asked_for_by_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "ROWS_MAX", 1)
    sent = [effect for effect in Bench().at(p0=0, p1=0).plan() if isinstance(effect, SendFetch)]
    assert [[row.partition_index for row in fetch.request.partitions] for fetch in sent] == [[0], [1]]


def test_nothing_is_fetched_while_the_buffer_is_full() -> None:
    bench = Bench(buffer_bytes_max=100).at(p0=0, p1=0)
    bench.answer(bench.fetch(), batch(0, 1, size=100))
    assert bench.fetcher.buffered_bytes > 100
    assert bench.plan() == []
    bench.taken()
    assert bench.fetcher.buffered_bytes == 0
    assert offsets(bench.fetch()) == [(1, 0), (0, 1)]


def test_partitions_are_asked_for_and_handed_out_in_turn() -> None:
    bench = Bench().at(p0=0, p1=0)
    fetch = bench.fetch()
    rows = [
        FetchPartitionResponse(ID, p, 0, 9, 0, -1, None, 1, 1, memoryview(batch(0) + batch(1)))
        for p in (0, 1)
    ]
    bench.fetcher.answered(fetch.request_id, FetchResponse(0, None, tuple(rows)), 0)
    order = []
    while (fetched := bench.fetcher.take()) is not None:
        order.append(fetched.partition)
    assert order == [0, 0, 1, 1]
    assert offsets(bench.fetch()) == [(0, 2), (1, 2)]


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    bench = Bench().at(p0=0)
    fetch = bench.fetch()
    bench.fetcher.seek(T0, 50)
    bench.answer(fetch, batch(0))
    assert bench.taken() == []
    assert offsets(bench.fetch()) == [(0, 50)]


def test_assigning_again_keeps_positions_and_drops_what_is_no_longer_wanted() -> None:
    bench = Bench().at(p0=0, p1=7)
    fetch = bench.fetch()
    bench.fetcher.assign([T1])
    bench.answer(fetch, batch(0))
    assert list(bench.fetcher.parts) == [T1]
    assert bench.fetcher.parts[T1].position == 7
    assert bench.taken() == []


# --- watermarks ----------------------------------------------------------------------------------------


def test_an_unknown_or_lagging_high_watermark_never_moves_the_known_one_back() -> None:
    bench = Bench().at(p0=0)
    bench.answer(bench.fetch(), watermark=10)
    bench.answer(bench.fetch(), watermark=-1)
    assert bench.fetcher.parts[T0].high_watermark == 10
    bench.answer(bench.fetch(), watermark=8)
    assert bench.fetcher.parts[T0].high_watermark == 10


# --- leaders -------------------------------------------------------------------------------------------


def test_a_fenced_epoch_asks_for_metadata_at_once_and_goes_on_with_the_new_leader() -> None:
    bench = Bench().at(p0=3)
    effects = bench.answer(bench.fetch(), code=ErrorCode.FENCED_LEADER_EPOCH)
    assert effects == [RefreshMetadata()]
    assert bench.plan() == []
    bench.leaders[0] = (2, 2)
    bench.tell()
    assert bench.fetcher.metadata_changed() == []
    again = bench.fetch()
    assert (again.broker_id, offsets(again)) == (2, [(0, 3)])
    assert again.request.partitions[0].current_leader_epoch == 2


def test_a_leader_named_in_the_refusal_is_followed_without_asking() -> None:
    bench = Bench().at(p0=3)
    assert bench.answer(bench.fetch(), code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(2, 2)) == []
    assert bench.fetch().broker_id == 2


def test_a_leader_that_lags_behind_our_epoch_is_asked_again_after_pauses() -> None:
    bench = Bench().at(p0=3)
    bench.answer(bench.fetch(), code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert bench.plan(19) == []
    assert bench.fetch(1).broker_id == 1


def test_a_reset_connection_is_made_again_and_metadata_asked_for() -> None:
    bench = Bench().at(p0=3)
    fetch = bench.fetch()
    bench.fetcher.disconnected(1)
    assert bench.fetcher.failed(fetch.request_id, 0) == [RefreshMetadata()]
    assert bench.plan(20) == [Connect(1)]
    assert bench.fetcher.connect_failed(1, 20) == [RefreshMetadata()]
    bench.leaders[0] = (2, 2)
    bench.tell()
    bench.fetcher.metadata_changed()
    assert bench.fetch().broker_id == 2


def test_a_silent_leader_is_left_once_metadata_names_another() -> None:
    bench = Bench().at(p0=3)
    silent = bench.fetch()
    assert bench.plan(799) == []
    assert bench.plan(1) == [RefreshMetadata()]
    bench.leaders[0] = (2, 2)
    bench.tell()
    bench.fetcher.metadata_changed()
    again = bench.fetch()
    assert again.broker_id == 2
    bench.answer(silent, batch(3))
    assert bench.taken() == []


def test_a_partition_without_leader_waits_for_metadata() -> None:
    bench = Bench()
    bench.leaders[0] = (-1, 2)
    bench.tell()
    bench.at(p0=0)
    assert bench.plan() == [RefreshMetadata()]
    assert bench.fetcher.metadata_changed() == [RefreshMetadata()]
    bench.leaders[0] = (2, 3)
    bench.tell()
    bench.fetcher.metadata_changed()
    assert bench.fetch().broker_id == 2


# --- positions that are not in the log -----------------------------------------------------------------


def test_without_reset_policy_a_position_out_of_range_is_an_error_until_a_seek() -> None:
    bench = Bench().at(p0=500)
    bench.answer(bench.fetch(), code=ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(NoSuchOffset, match="seek"):
        bench.fetcher.take()
    bench.fetcher.seek(T0, 3)
    assert offsets(bench.fetch()) == [(0, 3)]


@pytest.mark.parametrize(("policy", "timestamp"), [(ResetPolicy.EARLIEST, -2), (ResetPolicy.LATEST, -1)])
def test_with_a_reset_policy_the_position_is_looked_up(policy: ResetPolicy, timestamp: int) -> None:
    bench = Bench(policy).at(p0=500)
    bench.answer(bench.fetch(), code=ErrorCode.OFFSET_OUT_OF_RANGE)
    (lookup,) = bench.plan()
    assert isinstance(lookup, LookupOffsets)
    assert lookup.timestamps == ((T0, timestamp),)
    assert bench.fetcher.parts[T0].position is None
    bench.fetcher.found(lookup.request_id, {T0: 42})
    assert offsets(bench.fetch()) == [(0, 42)]


@pytest.mark.parametrize(
    ("found", "goes_on_at", "knows_epoch"),
    [(3, 6, 1), (6, 6, 1), (8, 8, -1)],
    ids=["it starts earlier", "it starts there", "it starts later"],
)
def test_who_reads_on_behind_what_was_deleted_is_not_led_back_by_a_leader_whose_log_starts_earlier(
    found: int, goes_on_at: int, knows_epoch: int
) -> None:
    bench = Bench(ResetPolicy.EARLIEST).at(p0=0)
    bench.answer(bench.fetch(), batch(0, count=6))
    assert bench.taken() == [(0, 6)]
    bench.answer(bench.fetch(), code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=8)
    (lookup,) = bench.lookups()
    bench.fetcher.found(lookup.request_id, {T0: found})
    (row,) = bench.fetch().request.partitions
    assert (row.fetch_offset, row.last_fetched_epoch) == (goes_on_at, knows_epoch)


def test_who_stands_behind_the_end_of_the_log_goes_back_to_its_start() -> None:
    bench = Bench(ResetPolicy.EARLIEST).at(p0=500)
    bench.answer(bench.fetch(), code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=8)
    (lookup,) = bench.lookups()
    bench.fetcher.found(lookup.request_id, {T0: 8})
    assert offsets(bench.fetch()) == [(0, 8)]


def test_a_seek_to_the_start_leads_there_also_for_who_has_lost_what_it_wanted() -> None:
    bench = Bench(ResetPolicy.EARLIEST).at(p0=6)
    bench.answer(bench.fetch(), code=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=8)
    bench.fetcher.seek_to(T0, ResetPolicy.EARLIEST)
    (lookup,) = bench.lookups()
    bench.fetcher.found(lookup.request_id, {T0: 3})
    assert offsets(bench.fetch()) == [(0, 3)]


def test_what_was_fetched_before_a_reset_is_read_first() -> None:
    bench = Bench(ResetPolicy.EARLIEST).at(p0=0)
    bench.answer(bench.fetch(), batch(0))
    bench.answer(bench.fetch(), code=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert bench.taken() == [(0, 1)]


def test_a_lookup_from_before_a_seek_is_dropped_and_a_failed_one_repeated() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.assign([T0, T1])
    (lookup,) = bench.plan()
    assert isinstance(lookup, LookupOffsets)
    bench.fetcher.seek(T0, 9)
    bench.fetcher.found(lookup.request_id, {T0: 1})
    assert bench.fetcher.parts[T0].position == 9
    error = ClientError("no leader", ErrorCode.LEADER_NOT_AVAILABLE)
    assert bench.fetcher.not_found(lookup.request_id, {T0: error, T1: error}, 0) == [RefreshMetadata()]
    assert bench.lookups(19) == []
    effects = bench.plan(1)
    assert [e.timestamps for e in effects if isinstance(e, LookupOffsets)] == [((T1, -2),)]


def test_each_leader_is_asked_for_its_own_offsets_so_that_a_dead_one_holds_back_no_other() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.leaders = [(1, 2), (2, 2)]
    bench.tell()
    bench.fetcher.assign([T0, T1])
    first, second = bench.lookups()
    assert (first.broker_id, first.timestamps) == (1, ((T0, -2),))
    assert (second.broker_id, second.timestamps) == (2, ((T1, -2),))
    bench.fetcher.found(second.request_id, {T1: 7})
    assert offsets(bench.fetch()) == [(1, 7)]


def test_a_partition_without_leader_or_topic_is_not_looked_up_before_metadata_names_a_leader() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.leaders[0] = (-1, 2)
    bench.tell()
    bench.fetcher.assign([T0, T1, TopicPartition("gone", 0)])
    effects = bench.plan()
    assert RefreshMetadata() in effects
    assert [e.timestamps for e in effects if isinstance(e, LookupOffsets)] == [((T1, -2),)]
    bench.leaders[0] = (2, 3)
    bench.tell()
    bench.fetcher.metadata_changed()
    (lookup,) = bench.lookups()
    assert (lookup.broker_id, lookup.timestamps) == (2, ((T0, -2),))


def test_a_leader_that_does_not_know_its_mark_yet_is_asked_again_without_looking_for_another() -> None:
    bench = Bench(ResetPolicy.LATEST)
    bench.fetcher.assign([T0])
    (lookup,) = bench.lookups()
    error = ClientError("wait", ErrorCode.OFFSET_NOT_AVAILABLE)
    assert bench.fetcher.not_found(lookup.request_id, {T0: error}, 0) == []
    assert bench.lookups() == []
    (again,) = bench.lookups(20)
    assert again.timestamps == ((T0, -1),)


def test_a_topic_that_may_not_be_read_is_an_error() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    secret = MetadataTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "secret", bytes(16), ())
    bench.cache.update(MetadataResponse("c", 101, bench.offset, (), (secret,)))
    bench.fetcher.assign([TopicPartition("secret", 0), T0])
    assert [lookup.timestamps for lookup in bench.lookups()] == [((T0, -2),)]
    for pause_ms in (20, 40):
        with pytest.raises(ClientError, match="secret: TOPIC_AUTHORIZATION_FAILED"):
            bench.fetcher.take()
        bench.plan()
        assert not bench.fetcher.has_data, "who polls in a loop must not hear of it without a pause"
        bench.plan(pause_ms)


def test_a_lookup_that_was_refused_is_raised_once_and_then_asked_again() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.assign([T0])
    (lookup,) = bench.lookups()
    error = ClientError("forbidden", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    bench.fetcher.not_found(lookup.request_id, {T0: error}, 0)
    assert bench.lookups(1_000) == [], "the application has not heard of it yet"
    with pytest.raises(ClientError, match="forbidden"):
        bench.fetcher.take()
    assert bench.fetcher.take() is None
    (again,) = bench.lookups()
    assert again.timestamps == ((T0, -2),)


def test_a_partition_that_raises_every_time_lets_the_others_have_their_turn() -> None:
    bench = Bench()
    bench.fetcher.assign([T0, T1])
    bench.fetcher.seek(T1, 0)
    bench.answer(bench.fetch(), batch(0), partition=1)
    with pytest.raises(NoSuchOffset):
        bench.fetcher.take()
    taken = bench.fetcher.take()
    assert taken is not None
    assert taken.partition == 1
    with pytest.raises(NoSuchOffset):
        bench.fetcher.take()


def test_a_truncated_log_is_told_to_who_read_beyond_it() -> None:
    bench = Bench().at(p0=0)
    bench.answer(bench.fetch(), batch(0, 10), watermark=10)
    bench.taken()
    bench.answer(bench.fetch(), diverging=EpochEndOffset(1, 6))
    assert bench.fetcher.parts[T0].high_watermark == 6
    with pytest.raises(LogTruncated, match="truncated to 6"):
        bench.fetcher.take()
    assert offsets(bench.fetch()) == [(0, 6)]


def test_what_was_only_fetched_ahead_of_a_truncation_is_dropped_silently() -> None:
    bench = Bench().at(p0=0)
    bench.answer(bench.fetch(), batch(0, 10))
    bench.answer(bench.fetch(), diverging=EpochEndOffset(1, 6))
    assert bench.taken() == []
    assert offsets(bench.fetch()) == [(0, 0)]


# --- a topic that is made again ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [ResetPolicy.EARLIEST, ResetPolicy.LATEST])
def test_in_a_topic_made_again_reading_begins_at_the_first_record(policy: ResetPolicy) -> None:
    """All its records are younger than the position was. And no epoch of the old topic is sent, which the new
    leader would refuse for ever: it is later than all of its own."""
    bench = Bench(policy).at(p0=5)
    bench.answer(bench.fetch(), batch(5, 3), watermark=8)
    parked = bench.fetch()
    bench.make_topic_again()
    assert bench.plan() == [], "what was read of the old topic is handed out first"
    assert bench.taken() == [(5, 8)]
    (lookup,) = (e for e in bench.plan() if isinstance(e, LookupOffsets))
    assert lookup.timestamps == ((T0, -2),)
    bench.fetcher.failed(parked.request_id, bench.now_ms)  # too late to matter
    bench.fetcher.found(lookup.request_id, {T0: 0})
    fetch = bench.fetch()
    (row,) = fetch.request.partitions
    assert (row.topic_id, row.fetch_offset, row.last_fetched_epoch) == (bench.topic_id, 0, -1)
    bench.answer(fetch, batch(0, 2, epoch=0), watermark=2)
    assert bench.taken() == [(0, 2)]
    assert bench.fetcher.parts[T0].high_watermark == 2


def test_a_damaged_batch_of_the_old_topic_leads_to_no_offset_in_the_new_one() -> None:
    """It is put back after the topic was made again: its offset is one of a log that is gone."""
    bench = Bench(ResetPolicy.EARLIEST).at(p0=5)
    bench.answer(bench.fetch(), batch(5, 3))
    bench.make_topic_again()
    damaged = bench.fetcher.take()
    assert damaged is not None
    bench.fetcher.put_back(damaged)
    assert bench.fetcher.parts[T0].position == 5
    (lookup,) = (e for e in bench.plan() if isinstance(e, LookupOffsets))
    assert lookup.timestamps == ((T0, -2),)


def test_without_a_policy_a_topic_made_again_is_an_error_until_a_seek() -> None:
    bench = Bench().at(p0=5)
    bench.fetch()
    bench.make_topic_again()
    for _ in range(2):
        bench.plan()
        with pytest.raises(NoSuchOffset, match="made again"):
            bench.fetcher.take()
    bench.fetcher.seek(T0, 0)
    assert offsets(bench.fetch()) == [(0, 0)]


@pytest.mark.parametrize("policy", [ResetPolicy.EARLIEST, ResetPolicy.NONE])
def test_a_partition_that_the_topic_made_again_does_not_have_is_an_error(policy: ResetPolicy) -> None:
    bench = Bench(policy).at(p0=5, p1=5)
    both = bench.fetch()
    bench.answer(both, batch(5), partition=1)
    bench.make_topic_again(partitions=1)
    bench.plan()
    taken = bench.fetcher.take(may_raise=False)
    assert taken is not None, "what was read of the old topic is handed out first"
    for pause_ms in (0, 20, 40):
        bench.plan(pause_ms)
        (error,) = (e for e in bench.errors() if e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert str(error) == "t was made again without partition 1: assign others"
        bench.plan(pause_ms)
        assert not any(e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for e in bench.errors())
    bench.leaders.append((1, 0))
    bench.tell()
    bench.plan(80)
    assert not any(e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for e in bench.errors()), "it is there now"
    bench.fetcher.seek(T1, 0)
    assert (1, 0) in offsets(bench.fetch())


def test_a_subscription_lets_go_of_a_partition_that_the_topic_made_again_does_not_have() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.subscribe(["t"], bench.now_ms)
    bench.fetcher.seek(T0, 5)
    bench.fetcher.seek(T1, 5)
    bench.answer(bench.fetch(), batch(5), partition=1)
    bench.make_topic_again(partitions=1)
    bench.plan()
    assert list(bench.fetcher.parts) == [T0, T1], "what was read of the old topic is handed out first"
    assert bench.fetcher.take() is not None
    bench.plan()
    assert list(bench.fetcher.parts) == [T0]
    assert bench.errors() == []


def test_partitions_that_are_added_to_a_subscribed_topic_begin_at_their_first_record() -> None:
    bench = Bench(ResetPolicy.LATEST)
    bench.fetcher.subscribe(["t"], bench.now_ms)
    (lookup,) = bench.lookups()
    assert lookup.timestamps == ((T0, -1), (T1, -1))
    bench.leaders.append((1, 0))
    bench.tell()
    bench.fetcher.metadata_changed()
    (late,) = bench.lookups()
    assert late.timestamps == ((TopicPartition("t", 2), -2),)


def test_an_assignment_ends_a_subscription() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.subscribe(["t", "missing"], bench.now_ms)
    assert bench.fetcher.topics == {"t", "missing"}
    bench.fetcher.assign([T1])
    bench.leaders.append((1, 0))
    bench.tell()
    bench.fetcher.metadata_changed()
    assert list(bench.fetcher.parts) == [T1]
    assert bench.fetcher.topics == {"t"}


def test_a_subscription_keeps_the_positions_of_what_was_read_before() -> None:
    bench = Bench(ResetPolicy.EARLIEST).at(p1=7)
    bench.fetcher.subscribe(["t"], bench.now_ms)
    assert set(bench.fetcher.parts) == {T0, T1}
    assert bench.fetcher.parts[T1].position == 7


def test_a_partition_that_metadata_does_not_name_yet_is_waited_for() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.assign([TopicPartition("t", 2)])
    assert bench.plan() == [RefreshMetadata()]
    assert bench.errors() == []
    bench.leaders.append((1, 0))
    bench.tell()
    bench.fetcher.metadata_changed()
    assert [lookup.timestamps for lookup in bench.lookups()] == [((TopicPartition("t", 2), -2),)]


def test_an_offset_looked_up_in_the_old_topic_is_looked_up_again() -> None:
    bench = Bench(ResetPolicy.LATEST)
    bench.fetcher.assign([T0])
    (lookup,) = bench.plan()
    assert isinstance(lookup, LookupOffsets)
    bench.make_topic_again()
    bench.fetcher.found(lookup.request_id, {T0: 700})
    (again,) = bench.plan()
    assert isinstance(again, LookupOffsets)


def test_bytes_that_are_no_batches_are_an_error_and_the_position_stays() -> None:
    bench = Bench().at(p0=0)
    bench.answer(
        bench.fetch(), batch(0), b"rubbish that is long enough to be taken for a header, or so it seems"
    )
    assert bench.fetcher.take() is not None
    with pytest.raises(CorruptRecords) as caught:
        bench.fetcher.take()
    assert (caught.value.partition, caught.value.offset, caught.value.next_offset) == (T0, 1, None)
    assert offsets(bench.fetch()) == [(0, 1)]


def test_an_error_that_no_repetition_can_heal_is_raised() -> None:
    bench = Bench().at(p0=0)
    bench.answer(bench.fetch(), code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        bench.fetcher.take()


def test_an_error_is_passed_over_while_it_must_wait_for_what_others_have_read() -> None:
    bench = Bench().at(p0=0, p1=0)
    both = bench.fetch()
    rows = (
        FetchPartitionResponse(
            ID, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0, -1, None, 1, 1, memoryview(b"")
        ),
        FetchPartitionResponse(ID, 1, 0, 9, 0, -1, None, 1, 1, memoryview(batch(0))),
    )
    bench.fetcher.answered(both.request_id, FetchResponse(0, None, rows), 0)
    taken = bench.fetcher.take(may_raise=False)
    assert taken is not None
    assert taken.partition == 1
    assert bench.fetcher.take(may_raise=False) is None
    with pytest.raises(ClientError, match="TOPIC_AUTHORIZATION_FAILED"):
        bench.fetcher.take()


@pytest.mark.parametrize("policy", list(ResetPolicy))
def test_what_was_read_in_an_epoch_that_the_log_does_not_have_is_gone(policy: ResetPolicy) -> None:
    """Broker 2 led epoch 4, with a tail [40, 100) of its own; epoch 5 began at 40 elsewhere and is lost."""
    bench = Bench(policy).at(p0=30)
    bench.answer(bench.fetch(), batch(30, 10, epoch=4), batch(40, 10, epoch=5), watermark=50)
    assert bench.taken() == [(30, 40), (40, 50)]
    bench.leaders[0] = (2, 6)
    bench.tell()
    bench.fetcher.metadata_changed()
    fetch = bench.fetch()
    assert [(r.fetch_offset, r.last_fetched_epoch) for r in fetch.request.partitions] == [(50, 5)]
    bench.answer(fetch, diverging=EpochEndOffset(4, 100), leader=(2, 6))
    if policy is ResetPolicy.NONE:
        with pytest.raises(LogTruncated):
            bench.fetcher.take()
    again = bench.fetch()
    assert [(r.fetch_offset, r.last_fetched_epoch) for r in again.request.partitions] == [(40, 4)]


def test_behind_a_truncation_the_next_one_is_noticed_too() -> None:
    bench = Bench(ResetPolicy.EARLIEST).at(p0=0)
    bench.answer(bench.fetch(), batch(0, 10, epoch=1), watermark=10)
    bench.taken()
    bench.answer(bench.fetch(), diverging=EpochEndOffset(1, 6))
    (row,) = bench.fetch().request.partitions
    assert (row.fetch_offset, row.last_fetched_epoch) == (6, 1)


def test_where_a_group_has_come_to_is_asked_for_with_the_epoch_of_the_record_before() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.assign([T0, T1], by_group=True)
    bench.fetcher.place(T0, 7, 1)
    bench.fetcher.place(T1, 0, -1)
    fetch = bench.fetch()
    rows = {
        row.partition_index: (row.fetch_offset, row.last_fetched_epoch) for row in fetch.request.partitions
    }
    assert rows == {0: (7, 1), 1: (0, -1)}
    assert bench.fetcher.parts[T0].epoch_before(7) == 1
    # an unclean election: the new leader has that epoch up to offset 4 only
    bench.answer(fetch, diverging=EpochEndOffset(0, 4))
    assert bench.fetcher.parts[T0].position == 4


def test_a_group_shares_anew_what_the_topic_made_again_does_not_have() -> None:
    bench = Bench(ResetPolicy.EARLIEST)
    bench.fetcher.assign([T0, T1], by_group=True)
    bench.fetcher.place(T0, 3, -1)
    bench.fetcher.place(T1, 3, -1)
    bench.make_topic_again(partitions=1)
    bench.plan()
    assert list(bench.fetcher.parts) == [T0]
    assert bench.errors() == []
