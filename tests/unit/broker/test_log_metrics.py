"""What a broker shows of its log dirs and of what a power loss would take."""

import errno

import pytest

from holdfast.broker.core.replicas.log_metrics import LogDirState, LogState, log_families
from holdfast.broker.log_manager import LogManager
from holdfast.metadata.ids import PartitionId
from holdfast.runtime.api import DiskError
from holdfast.runtime.stats import HistogramValue, MetricFamily
from holdfast.storage.core.flush_stats import FlushReason, FlushStats
from holdfast.storage.core.free_space import FreeSpace
from tests.unit.broker.test_log_manager import SMALL, TOPIC, Process, broker_with_two_logs, write


def values(families: list[MetricFamily]) -> dict[tuple[str, str], float]:
    """{(name without prefix, value of the label): value}."""
    found: dict[tuple[str, str], float] = {}
    for family in families:
        for sample in family.samples:
            value = sample.value
            if isinstance(value, HistogramValue):
                value = sum(count for _, count in value.buckets)
            label = sample.labels[0][1] if sample.labels else ""
            found[family.name.removeprefix("kafka_log_"), label] = value
    return found


def seen(manager: LogManager) -> dict[tuple[str, str], float]:
    return values(manager.stats())


def test_logs_are_summed_by_topic_and_dirs_told_apart() -> None:
    flushes = FlushStats()
    flushes.done(FlushReason.ROLL, 3_000_000)
    logs = [LogState("t", 100, 40, 4), LogState("u", 7, 0, 0), LogState("t", 10, 10, 1)]
    space = FreeSpace(100)
    space.measured(99, 1000)
    dirs = [LogDirState("/a", True, 2, 0, space, 3), LogDirState("/b", False, 0, 5, None, 0)]
    assert values(log_families(logs, dirs, flushes, 4)) == {
        ("size_bytes", "t"): 110,
        ("size_bytes", "u"): 7,
        ("unflushed_bytes", "t"): 50,
        ("unflushed_bytes", "u"): 0,
        ("unflushed_records", "t"): 5,
        ("unflushed_records", "u"): 0,
        ("flush_seconds", ""): 1,
        ("flushes_total", "policy"): 0,
        ("flushes_total", "roll"): 1,
        ("flushes_total", "shutdown"): 0,
        ("directory_offline", "/a"): 0,
        ("directory_offline", "/b"): 1,
        ("directory_logs", "/a"): 2,
        ("directory_logs", "/b"): 0,
        ("recovery_remaining_logs", "/a"): 0,
        ("recovery_remaining_logs", "/b"): 5,
        ("directory_free_bytes", "/a"): 99,
        ("directory_total_bytes", "/a"): 1000,
        ("directory_refuses_records", "/a"): 1,
        ("directory_refuses_records", "/b"): 0,
        ("quarantined_replicas", "/a"): 3,
        ("quarantined_replicas", "/b"): 0,
        ("damaged_total", ""): 4,
    }


async def test_what_is_not_durable_is_gone_from_the_sums_once_it_is_flushed() -> None:
    """A-21: a flush covers what was there when it began."""
    process, _ = await broker_with_two_logs()
    before = seen(process.manager)
    assert before["unflushed_records", "topic"] == 14
    assert before["unflushed_bytes", "topic"] == before["size_bytes", "topic"]
    await process.manager.logs[PartitionId(TOPIC, 0)].flush()
    after = seen(process.manager)
    assert after["unflushed_records", "topic"] == 8
    assert 0 < after["unflushed_bytes", "topic"] < before["unflushed_bytes", "topic"]
    assert (after["flushes_total", "policy"], after["flush_seconds", ""]) == (1, 1)
    assert await process.manager.close(7)
    assert seen(process.manager)["flushes_total", "shutdown"] == 2


async def test_a_full_segment_is_flushed_for_that_reason() -> None:
    process, _ = await broker_with_two_logs()
    await process.manager.logs[PartitionId(TOPIC, 0)].roll()
    write(process, PartitionId(TOPIC, 0), 1)
    await process.manager.close(7)  # waits for what is flushed in the background
    assert seen(process.manager)["flushes_total", "roll"] == 1


async def test_logs_that_are_still_to_be_opened_are_counted_down_by_dir() -> None:
    process, disk = await broker_with_two_logs()
    await process.kill(disk)
    process = Process(disk)
    await process.manager.open_dirs()
    await process.manager.take_clean_shutdown()
    left: list[float] = []

    def look(done: int, of: int) -> None:
        found = seen(process.manager)
        left.append(found["recovery_remaining_logs", "/a"] + found["recovery_remaining_logs", "/b"])

    await process.manager.load(lambda topic: SMALL, look)
    assert left == [1, 0]


async def test_a_dir_that_failed_is_offline_and_has_no_logs() -> None:
    process, disk = await broker_with_two_logs()
    disk.fail("flush", "/a/topic-0/00000000000000000000.log", errno.EIO)
    with pytest.raises(DiskError):
        await process.manager.logs[PartitionId(TOPIC, 0)].flush()
    found = seen(process.manager)
    assert [found["directory_offline", path] for path in ("/a", "/b")] == [1, 0]
    assert [found["directory_logs", path] for path in ("/a", "/b")] == [0, 1]
