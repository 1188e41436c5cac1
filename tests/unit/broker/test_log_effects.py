"""What the core orders for a log happens in that order, also with other work under way on it (D2, A-21)."""

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest

from holdfast.broker.core.events import (
    Append,
    Appended,
    AppendFetched,
    AppendResult,
    BatchToAppend,
    CeilingRow,
    CeilingsStored,
    EpochStarted,
    Event,
    FetchedAppended,
    FetchedRecords,
    Flush,
    Flushed,
    LogsOffline,
    OpenLog,
    StartEpoch,
    StoreCeilings,
    Truncate,
    Truncated,
)
from holdfast.broker.log_effects import LogEffects
from holdfast.broker.log_manager import LogManager, LogManagerConfig
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.batch_validation import TURN_RECORDS_MAX
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import check_batch
from holdfast.runtime.api import DiskError, Space
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from holdfast.storage.checkpoint import read_offsets
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.files import CEILING_CHECKPOINT
from holdfast.storage.log import Log
from tests.unit.protocol.test_batch_validation import changed
from tests.unit.storage.batches import batch, offsets

TOPIC = b"t" * 16
KEY = PartitionId(TOPIC, 0)


class Place:
    """One log, its effects, and the events that came of them."""

    def __init__(self, log: Log, manager: LogManager, world: MemoryWorld, effects: LogEffects) -> None:
        self.log = log
        self.manager = manager
        self.world = world
        self.effects = effects
        self.events: list[Event] = []
        #: the epoch that this broker leads in
        self.leader_epoch = 0

    def append(self, count: int, epoch: int = 0) -> None:
        self.append_batch(batch(count), epoch)

    def append_batch(self, produced: bytes, epoch: int = 0) -> None:
        data = memoryview(produced)
        self.effects.append(Append("client", (BatchToAppend(KEY, epoch, check_batch(data), data),)))

    def codes(self) -> list[str]:
        return [result.error_code.name for result in self.results()]

    def results(self) -> list[AppendResult]:
        return [result for event in self.events if isinstance(event, Appended) for result in event.results]

    def kinds(self) -> list[type]:
        return [type(event) for event in self.events]


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    runtime, world = memory_runtime()
    manager = LogManager(runtime, LogManagerConfig(("/data",)), "cluster", 1)
    await manager.open_dirs()
    await manager.take_clean_shutdown()
    await manager.load(lambda topic: LogConfig())
    log = await manager.create("topic", TOPIC, 0, LogConfig())
    made: Place
    effects = LogEffects(
        runtime,
        manager,
        lambda event: made.events.append(event),
        lambda key, epoch: epoch == made.leader_epoch,
    )
    made = Place(log, manager, world, effects)
    yield made
    await world.tasks.cancel_all()


async def test_an_append_to_an_idle_log_is_done_at_once(place: Place) -> None:
    place.append(2)
    (result,) = place.results()
    assert (result.base_offset, result.end_offset, place.log.log_end_offset) == (0, 2, 2)


async def test_an_append_without_a_file_handle_is_refused_and_the_log_goes_on(place: Place) -> None:
    """Running out of something is no failed dir."""
    place.world.disk.fail("append", ".log", errno.EMFILE)
    place.append(2)
    place.append(2)
    refused, taken = place.results()
    assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert refused.error_message is not None
    assert "run out" in refused.error_message
    assert (taken.base_offset, taken.end_offset) == (0, 2)
    assert place.log.failure is None
    assert place.manager.is_whole


async def test_a_nearly_full_disk_refuses_records_until_there_is_room(place: Place) -> None:
    """A full disk would take the log dir offline."""
    (log_dir,) = {place.manager.managed(KEY).log_dir}  # type: ignore[union-attr]
    log_dir.space.min_free_bytes = 1000
    heard: list[frozenset[PartitionId]] = []
    place.manager.on_space(heard.append)
    place.world.disk.free_space = Space(999, 5000)
    await place.manager.measure_space()
    await place.manager.measure_space()
    place.append(2)
    (refused,) = place.results()
    assert refused.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "999 bytes left" in (refused.error_message or "")
    place.world.disk.free_space = Space(5000, 5000)
    await place.manager.measure_space()
    place.append(2)
    assert place.results()[-1].error_code is ErrorCode.NONE
    assert place.log.log_end_offset == 2
    assert heard == [{KEY}, frozenset()], "once each, not with each measure"
    assert place.manager.is_whole


async def test_what_was_appended_since_the_disk_was_asked_counts(place: Place) -> None:
    (log_dir,) = {place.manager.managed(KEY).log_dir}  # type: ignore[union-attr]
    log_dir.space.min_free_bytes = 1000
    place.world.disk.free_space = Space(1000 + len(batch(2)), 5000)
    await place.manager.measure_space()
    place.append(2)
    place.append(2)
    assert [result.error_code for result in place.results()] == [
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]


async def test_a_follower_takes_what_its_leader_took_into_half_of_the_reserve(place: Place) -> None:
    (log_dir,) = {place.manager.managed(KEY).log_dir}  # type: ignore[union-attr]
    log_dir.space.min_free_bytes = 1000
    for free_bytes in (700, 500):
        place.world.disk.free_space = Space(free_bytes, 5000)
        await place.manager.measure_space()
        records = memoryview(batch(1, base_offset=place.log.log_end_offset))
        place.effects.append_fetched(AppendFetched((FetchedRecords(KEY, records, 0),)))
    taken, refused = [event.results[0] for event in place.events if isinstance(event, FetchedAppended)]
    assert taken[1] is None
    assert "500 bytes left" in (refused[1] or "")
    assert place.log.log_end_offset == 1


GARBAGE = changed(batch(3), b"\xff" * 40)
LONG_AHEAD = batch(timestamp_ms=1 << 60)
LONG_GARBAGE = changed(batch(TURN_RECORDS_MAX + 1, size=0), bytes(16 * TURN_RECORDS_MAX))


async def test_records_are_read_before_they_are_appended(place: Place) -> None:
    for produced in (GARBAGE, LONG_AHEAD, batch(3)):
        place.append_batch(produced)
    assert place.codes() == ["INVALID_RECORD", "INVALID_TIMESTAMP", "NONE"]
    assert offsets(place.log) == [(0, 0)]


async def test_a_broker_may_look_at_headers_alone(place: Place) -> None:
    place.log.config = LogConfig(validate_records=False)
    for produced in (GARBAGE, LONG_AHEAD):
        place.append_batch(produced)
    assert place.codes() == ["NONE", "INVALID_TIMESTAMP"]


async def test_a_topic_says_which_timestamps_it_takes(place: Place) -> None:
    now_ms = place.world.clock.wall_ms()
    place.log.config = LogConfig(message_timestamp_after_max_ms=1 << 62, message_timestamp_before_max_ms=10)
    for produced in (LONG_AHEAD, batch(timestamp_ms=now_ms - 10), batch(timestamp_ms=now_ms - 11)):
        place.append_batch(produced)
    assert place.codes() == ["NONE", "NONE", "INVALID_TIMESTAMP"]


async def test_a_long_batch_is_read_beside_the_event_loop_and_keeps_its_place(place: Place) -> None:
    place.append_batch(batch(TURN_RECORDS_MAX + 1, size=0))
    place.append_batch(LONG_GARBAGE)
    place.append(1)
    assert place.results() == []
    await settle()
    assert place.codes() == ["NONE", "INVALID_RECORD", "NONE"]
    assert offsets(place.log) == [(0, 0), (TURN_RECORDS_MAX + 1, 0)]


async def test_a_leader_deposed_while_it_reads_a_long_batch_appends_nothing(place: Place) -> None:
    """A-15."""
    place.append_batch(batch(TURN_RECORDS_MAX + 1, size=0))
    place.leader_epoch = 1
    await settle()
    assert place.codes() == ["NOT_LEADER_OR_FOLLOWER"]
    assert place.log.log_end_offset == 0


async def test_a_repeated_batch_is_a_duplicate_though_its_time_is_over(place: Place) -> None:
    """R91: it is in the log, and is not judged again."""
    produced = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    place.append_batch(produced)
    place.log.config = LogConfig(message_timestamp_before_max_ms=0)
    place.append_batch(produced)
    assert [result.base_offset for result in place.results()] == [0, 0]


async def test_an_append_behind_a_cut_comes_after_it(place: Place) -> None:
    """The cut has not even begun when the append is ordered."""
    for _ in range(2):
        place.append(4)
    place.effects.truncate(Truncate(KEY, 4))
    place.append(1)
    place.effects.append_fetched(
        AppendFetched((FetchedRecords(KEY, memoryview(batch(1, base_offset=5)), 0),))
    )
    place.effects.start_epoch(StartEpoch(KEY, 7))
    assert place.log.log_end_offset == 8
    await settle()
    assert place.kinds()[2:] == [Truncated, Appended, FetchedAppended, EpochStarted]
    assert offsets(place.log) == [(0, 0), (4, 0), (5, 0)]
    assert place.events[-1] == EpochStarted(KEY, 7, 6)


async def test_a_log_whose_cut_was_ordered_is_not_settled(place: Place) -> None:
    """R62: its end may not be told, also while the cut has not begun, or waits behind other work."""
    managed = place.manager.managed(KEY)
    assert managed is not None
    for _ in range(2):
        place.append(4)
    assert place.effects.is_settled(KEY, managed)
    rolled = place.manager.serial(KEY).run(place.log.roll)
    place.effects.truncate(Truncate(KEY, 4))
    told = []
    while not place.events[-1:] == [Truncated(KEY)]:
        told.append(place.effects.is_settled(KEY, managed))
        await asyncio.sleep(0)
    assert not any(told), told
    await rolled
    await settle()
    assert place.effects.is_settled(KEY, managed)


async def test_an_append_waits_for_housekeeping_of_its_log(place: Place) -> None:
    """Retention and rolls of the log manager change the files too."""
    place.append(2)
    rolled = place.manager.serial(KEY).run(place.log.roll)
    place.append(1)
    assert place.log.log_end_offset == 2
    await rolled
    await settle()
    assert (len(place.log.segments), place.log.log_end_offset) == (2, 3)


async def test_what_waits_when_the_leader_is_deposed_is_refused(place: Place) -> None:
    """A-15; found by the simulator: the batch would have come behind what the new leader's epoch brings."""
    place.append(2)
    rolled = place.manager.serial(KEY).run(place.log.roll)
    place.append(1)
    place.leader_epoch = 1
    await rolled
    await settle()
    assert place.results()[1].error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert place.log.log_end_offset == 2


async def test_what_waits_when_the_log_is_deleted_is_refused(place: Place) -> None:
    place.append(4)
    place.effects.truncate(Truncate(KEY, 4))
    place.append(1)
    place.effects.append_fetched(
        AppendFetched((FetchedRecords(KEY, memoryview(batch(1, base_offset=4)), 0),))
    )
    await place.manager.delete(*KEY)
    await settle()
    assert place.results()[1].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    fetched = place.events[-1]
    assert isinstance(fetched, FetchedAppended)
    assert fetched.results[0][1] is not None


async def test_what_waits_when_the_logs_are_closed_is_refused(place: Place) -> None:
    """A clean stop: what has not been written by then has not been acknowledged either."""
    place.append(4)
    place.append(4)
    place.effects.truncate(Truncate(KEY, 4))
    place.append(1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await place.manager.close(5)
    await settle()
    assert place.results()[-1].error_code is ErrorCode.KAFKA_STORAGE_ERROR


async def make_room_then_fail(place: Place) -> None:
    """Another log of its dir fails while the files of the next segment are made."""
    managed = place.manager.managed(KEY)
    assert managed is not None
    while place.log.guard.changing != "roll":
        await asyncio.sleep(0)
    place.manager.failed(managed, DiskError("/data/other-0", "flush", 5, "Input/output error"))
    await settle()
    assert place.log.failure is None


@pytest.mark.usefixtures("failures_logged")
async def test_what_waits_for_room_when_the_log_dir_fails_is_refused(place: Place) -> None:
    """R27; found by the simulator: the next process would find what no client was told of."""
    place.append(2)
    place.log.config = LogConfig(segment_bytes=1)
    place.append(1)
    await make_room_then_fail(place)
    assert place.results()[1].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert place.log.log_end_offset == 2


@pytest.mark.usefixtures("failures_logged")
async def test_what_was_fetched_and_waits_for_room_when_the_log_dir_fails_is_refused(place: Place) -> None:
    place.append(2)
    place.log.config = LogConfig(segment_bytes=1)
    place.effects.append_fetched(
        AppendFetched((FetchedRecords(KEY, memoryview(batch(1, base_offset=2)), 0),))
    )
    await make_room_then_fail(place)
    fetched = place.events[-1]
    assert isinstance(fetched, FetchedAppended)
    assert fetched.results[0][1] is not None
    assert place.log.log_end_offset == 2


@pytest.mark.usefixtures("failures_logged")
async def test_a_log_whose_folder_is_there_already_is_offline_and_the_node_goes_on(place: Place) -> None:
    """An operator put it there while the broker ran: one replica is no reason to end, again at each start."""
    await place.world.disk.make_folder("/data/other-0")
    other = PartitionId(b"o" * 16, 0)
    place.effects.open(OpenLog(other, "other", LogConfig()))
    await settle()
    assert place.events == [LogsOffline((other,))]
    assert place.manager.is_whole
    place.append(2)
    assert place.results()[0].error_code is ErrorCode.NONE


async def test_a_flush_that_is_wanted_while_one_runs_is_made_after_it(place: Place) -> None:
    """A-21: the one that runs covers only what was there when it began."""
    place.append(1)
    place.world.disk.hold_flushes()
    place.effects.flush(Flush(KEY))
    await settle()
    place.append(1)
    place.effects.flush(Flush(KEY))
    place.world.disk.release_flushes()
    await settle()
    assert place.log.flushed_offset == 2
    assert place.kinds().count(Flushed) == 2


async def test_a_flush_is_told_also_when_its_log_is_gone(place: Place) -> None:
    """Else a replica that is added again would wait for it and never fetch."""
    place.append(1)
    deleting = place.manager.delete(*KEY)
    place.effects.flush(Flush(KEY))
    await deleting
    place.effects.flush(Flush(KEY))
    await settle()
    assert place.kinds().count(Flushed) == 2


# --- ceilings (R68) ----------------------------------------------------------------------------------------


def ceilings(offset: int) -> StoreCeilings:
    return StoreCeilings((CeilingRow(KEY, offset),))


async def test_a_ceiling_is_on_disk_when_it_counts(place: Place) -> None:
    path = f"/data/{CEILING_CHECKPOINT}"
    place.effects.store_ceilings(ceilings(100))
    assert place.events == []
    await settle()
    assert place.events == [CeilingsStored((CeilingRow(KEY, 100),))]
    place.world.disk.power_loss()
    assert await read_offsets(place.world.disk, path) == {("topic", 0): 100}


async def test_ceilings_that_come_during_a_write_share_the_next(place: Place) -> None:
    for offset in (100, 200, 300):
        place.effects.store_ceilings(ceilings(offset))
        await asyncio.sleep(0)
    await settle()
    stored = [row.offset for event in place.events if isinstance(event, CeilingsStored) for row in event.rows]
    assert stored == [100, 200, 300]
    assert len(place.events) < 3
    managed = place.manager.managed(KEY)
    assert managed is not None
    assert managed.ceiling == 300


@pytest.mark.usefixtures("failures_logged")
async def test_a_ceiling_on_a_disk_that_fails_never_counts(place: Place) -> None:
    place.world.disk.fail("sync_folder", "/data")
    place.effects.store_ceilings(ceilings(100))
    await settle()
    assert place.events == []
