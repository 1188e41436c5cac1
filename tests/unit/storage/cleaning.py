"""Logs of keyed records, a cleaner for them, and what readers must still find."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.protocol.record_batch import Record, decode_records, encode_batch, iter_batches
from holdfast.runtime.api import Runtime
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.storage.core.compaction import CleaningCounts
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from holdfast.storage.log_cleaning import CleanerTools
from tests.unit.storage.batches import read_all

FOLDER = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=90, retention_ms=None, compacts=True)
#: records of one batch: (key, value)
Pairs = list[tuple[str, str | None]]


def keyed(
    pairs: Pairs, *, producer_id: int = -1, sequence: int = 0, time_ms: int = 1000, base_offset: int = 0
) -> bytes:
    """One batch."""
    records = [
        Record(base_offset + n, time_ms + n, k.encode(), None if v is None else v.encode())
        for n, (k, v) in enumerate(pairs)
    ]
    is_ours = producer_id >= 0
    return encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=producer_id,
        producer_epoch=0 if is_ours else -1,
        base_sequence=sequence if is_ours else -1,
    )


async def open_log(disk: Any, config: LogConfig = CONFIG, **given: Any) -> Log:
    runtime, _ = memory_runtime()
    on_disk = Runtime(runtime.clock, runtime.random, runtime.network, disk, runtime.tasks)
    return await Log.open(on_disk, FOLDER, config, **{"clean": False, **given})


async def append(log: Log, batches: list[bytes], epoch: int = 0) -> None:
    """As a leader, rolled as the broker does."""
    for batch in batches:
        if log.needs_roll(len(batch)):
            await log.roll()
        log.append_as_leader(batch, epoch)
    await log.flush()
    await settle()


def updates(start: int, count: int, keys: int = 5) -> list[bytes]:
    """Batches of two records, some of a producer; keys come again and again."""
    return [
        keyed(
            [(f"k{2 * n % keys}", f"v{n}"), (f"k{(2 * n + 1) % keys}", f"w{n}")],
            producer_id=n % 3 - 1,
            sequence=2 * (n // 3),
        )
        for n in range(start, start + count)
    ]


async def run(work: Callable[[], Any]) -> Any:
    return work()


async def at_once(change: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await change()


async def goes_on(size_bytes: int) -> bool:
    return True


async def clean(
    log: Log,
    *,
    wall_ms: int = 1_000_000,
    memory_bytes: int = 1 << 20,
    kept_offset: int | None = None,
    pause: Callable[[int], Awaitable[bool]] = goes_on,
    in_turn: Callable[[Callable[[], Coroutine[Any, Any, None]]], Awaitable[None]] = at_once,
) -> CleaningCounts:
    kept = log.flushed_offset if kept_offset is None else kept_offset
    dirt = log.cleaning.dirt(log.config, kept, wall_ms)
    tools = CleanerTools(run, pause, in_turn, memory_bytes, wall_ms)
    return await log.cleaning.clean(dirt, log.config, log.producer_state, tools)


async def clean_while(log: Log, act: Callable[[Log], Awaitable[None]], place: str, step: int) -> bool:
    """Clean, and act on the log at this `step` of a `place` ("between slices", "before a swap"); False when
    the cleaning was over before."""
    left = step

    async def interfere() -> None:
        nonlocal left
        left -= 1
        if not left:
            await act(log)

    async def pause(size_bytes: int) -> bool:
        if place == "between slices":
            await interfere()
        return True

    async def in_turn(change: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if place == "before a swap":
            await interfere()
        await change()

    await clean(log, pause=pause, in_turn=in_turn)
    return left <= 0


def records(log: Log) -> list[Record]:
    """All that a reader gets from the log start on."""
    found = [one for _, data in iter_batches(read_all(log)) for one in decode_records(data)]
    return [one for one in found if one.offset >= log.log_start_offset]


def latest(found: list[Record]) -> dict[bytes | None, Record]:
    """{key: its last record}."""
    return {one.key: one for one in found}


def check_reads(log: Log) -> None:
    """From every offset on, reads go on to the end without a gap, and give what is there."""
    everything = records(log)
    for start in range(log.log_start_offset, log.log_end_offset):
        at, found = start, list[Record]()
        while at < log.log_end_offset:
            data = log.read(at, 1, log.log_end_offset, verify=True)
            for header, one in iter_batches(data):
                assert header.base_offset <= at < header.next_offset
                at = header.next_offset
                found += decode_records(one)
        assert [one for one in found if one.offset >= start] == [
            one for one in everything if one.offset >= start
        ]


async def made(count: int = 24, epochs: int = 1) -> tuple[MemoryDisk, Log]:
    disk = MemoryDisk()
    log = await open_log(disk)
    for epoch in range(epochs):
        await append(log, updates(epoch * count // epochs, count // epochs), epoch)
    return disk, log
