"""Logs whose beginning retention has taken: where they part from their leader, who goes on (R81, R83, D8)."""

from holdfast.broker.core.registration.known_brokers import KnownBrokers
from holdfast.broker.core.replicas.ceiling import Ceiling
from holdfast.broker.core.replicas.partition import Partition
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch, offsets

KEY = PartitionId(b"t" * 16, 0)
#: the leader was elected uncleanly: its log ended at 60
LED = PartitionRegistration((1, 2), (1,), 1, 7, 9, 1)


async def make_log(*epochs: tuple[int, int], segment_bytes: int = 1 << 20) -> Log:
    """Batches of ten records; (epoch, end offset) each."""
    runtime, _ = memory_runtime()
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=1000)
    log = await Log.open(runtime, "/data/topic-0", config, clean=False)
    for epoch, end in epochs:
        while log.log_end_offset < end:
            data = batch(10)
            if log.needs_roll(len(data)):
                await log.roll()
            log.append_as_leader(data, epoch)
    await log.flush()
    await settle()
    return log


def replica(broker_id: int, log: Log) -> Partition:
    made = Partition(
        broker_id,
        KEY,
        "topic",
        log,
        high_watermark=log.log_end_offset,
        brokers=KnownBrokers(),
        lag_ms_max=1000,
        ceiling=Ceiling(1000, 1 << 40),
        counts_flushed=False,
    )
    made.apply_registration(LED, 0)
    return made


async def fetch(leader: Partition, follower: Partition) -> bool:
    """One fetch as `broker.core.replicas.fetcher` makes it; False when there was nothing more to do."""
    log = follower.log
    assert isinstance(log, Log)
    assert isinstance(leader.log, Log)
    refusal = leader.check_follower(2, -1, 7, log.log_end_offset, log.last_epoch)
    if refusal is None:
        data = leader.log.read(log.log_end_offset, 1 << 20, leader.log.log_end_offset)
        return log.append_as_follower(data, leader_epoch=7) is not None
    assert refusal.diverging is not None or refusal.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    end_offset = follower.truncation_offset(*refusal.diverging) if refusal.diverging else None
    if end_offset is None:
        await log.reset_to(leader.log.log_start_offset)
    else:
        await log.truncate_to(end_offset)
    follower.log_was_cut()
    return True


async def catch_up(leader_log: Log, follower_log: Log) -> None:
    leader, follower = replica(1, leader_log), replica(2, follower_log)
    assert leader.epoch_started(7, 60)
    rounds = 0
    while await fetch(leader, follower):
        rounds += 1
        assert rounds < 20, "it goes round in circles"


async def test_a_follower_that_parts_below_its_log_start_has_all_that_its_leader_wrote() -> None:
    """Its beginning was deleted by retention. What the new leader has written since is acknowledged, and must
    not be missing where this replica leads next."""
    follower = await make_log((5, 100), segment_bytes=100)
    follower.config = LogConfig(segment_bytes=100, retention_bytes=100, retention_ms=None)
    await follower.delete_old_segments(0, high_watermark=100)
    assert 60 < follower.log_start_offset < 100
    leader = await make_log((5, 60), (7, 120))
    await catch_up(leader, follower)
    assert follower.log_end_offset == 120
    new = [row for row in offsets(leader) if row[1] == 7]
    assert [row for row in offsets(follower) if row[1] == 7] == new


async def test_a_follower_without_records_that_parts_below_its_log_start_catches_up() -> None:
    """All its records have expired."""
    follower = await make_log((5, 100))
    for _ in range(2):
        await follower.delete_old_segments(1 << 50, high_watermark=100)
        await settle()
    assert follower.log_start_offset == 100
    leader = await make_log((5, 60), (7, 120))
    await catch_up(leader, follower)
    assert follower.log_end_offset == 120


async def test_who_is_in_sync_is_not_out_of_range_when_all_has_expired_at_the_leader() -> None:
    log = await make_log((5, 100))
    for _ in range(2):
        await log.delete_old_segments(1 << 50, high_watermark=100)
        await settle()
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    leader = replica(1, log)
    leader.apply_registration(PartitionRegistration((1, 2), (1, 2), 1, 8, 10, 2), 0)
    log.start_epoch(8)
    assert leader.epoch_started(8, 100)
    follower = await make_log((5, 100))  # its retention pass comes minutes later
    assert follower.log_start_offset == 0
    refusal = leader.check_follower(2, -1, 8, follower.log_end_offset, follower.last_epoch)
    assert refusal is None, refusal


async def expired(*epochs: tuple[int, int]) -> Log:
    """A log of which nothing is left, opened again."""
    log = await make_log(*epochs)
    for _ in range(2):
        await log.delete_old_segments(1 << 50, high_watermark=log.log_end_offset)
        await settle()
    assert log.log_start_offset == log.log_end_offset == epochs[-1][1]
    await log.close(flush=True)
    return await Log.open(log._runtime, log.folder, log.config, clean=True)


async def test_a_follower_without_records_parts_from_a_leader_of_a_lower_epoch_that_reaches_farther() -> None:
    """I-9: what it has deleted was of an epoch that the leader has never seen. In the leader's log other
    records are there, and the next leader must have them."""
    follower = await expired((5, 100))
    leader = await make_log((4, 60), (7, 120))
    await catch_up(leader, follower)
    assert offsets(follower) == offsets(leader)


async def test_who_loses_all_behind_its_log_start_goes_on_behind_what_it_has_deleted() -> None:
    """A power loss has taken the records that were left, and epoch 6 began below it somewhere else. What it
    has deleted of epoch 5 up to there was the same."""
    follower = await expired((5, 100))
    leader = await make_log((5, 60), (6, 130))
    await catch_up(leader, follower)
    assert offsets(follower) == offsets(leader)[6:]


async def test_an_expired_log_goes_on_where_it_ended() -> None:
    follower = await expired((5, 100))
    leader = await make_log((5, 100), (7, 120))
    await catch_up(leader, follower)
    assert (follower.log_start_offset, follower.log_end_offset) == (100, 120)
    assert offsets(follower) == offsets(leader)[10:]


async def test_who_is_in_sync_does_not_begin_anew_below_its_log_start() -> None:
    """It has had all that is committed, and retention has taken it. Which epoch wrote the last of that it
    does not know: it began anew at a former leader's start, or its checkpoint is of an older version. Who is
    in the ISR and ends below the high watermark may lead the next moment, and write other records there."""
    follower = await make_log()
    await follower.reset_to(100)
    for _ in range(2):
        follower.append_as_leader(batch(10), 6)  # of the leader before this one, never committed
    leader = await make_log((5, 100))
    leading, following = replica(1, leader), replica(2, follower)
    for one in (leading, following):
        one.apply_registration(PartitionRegistration((1, 2), (1, 2), 1, 7, 10, 2), 0)
    leader.start_epoch(7)
    assert leading.epoch_started(7, 100)
    assert await fetch(leading, following)
    assert (follower.log_start_offset, follower.log_end_offset) == (100, 100)
    assert not await fetch(leading, following)
