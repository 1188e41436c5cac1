"""Bytes that changed on the disk after they were flushed: whose they are decides what they cost.

A derived file (index, snapshot, checkpoint) is built again and costs nothing. The log's own content is
refused when it is met, at the start or at a read, with file and byte; nothing of it is cut or deleted.
"""

import errno
import struct
from collections.abc import Callable

import pytest

from holdfast.protocol.record_batch import CorruptBatch, check_batch, iter_batches
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.memory.machine import memory_runtime
from holdfast.storage import checkpoint, snapshots
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import CorruptLog, FaultScope, scope_of
from holdfast.storage.core.producer_state import ProducerState
from holdfast.storage.log import Log
from tests.unit.storage.batches import batch, read_all

FOLDER = "/data/topic-0"
#: Three batches in a segment, an index entry for all but the first.
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=50, retention_ms=None)
WHOLE = LogConfig(index_interval_bytes=50, retention_ms=None)
COUNT = 9
SIZE = len(batch(2, size=10))
EPOCH = 3

Change = Callable[[bytes], bytes]


async def opened(
    disk: MemoryDisk, config: LogConfig = CONFIG, *, clean: bool = True, recovery_point: int = 0
) -> Log:
    runtime, _ = memory_runtime(disk=disk)
    return await Log.open(runtime, FOLDER, config, clean=clean, recovery_point=recovery_point)


async def closed(config: LogConfig = CONFIG) -> tuple[MemoryDisk, bytes]:
    """A log of COUNT batches that was closed cleanly: its disk and its bytes."""
    disk = MemoryDisk()
    log = await opened(disk, config, clean=False)
    for number in range(COUNT):
        data = batch(2, size=10, timestamp_ms=1000 + number)
        if log.needs_roll(len(data)):
            await log.roll()
        log.append_as_leader(data, EPOCH)
    content = read_all(log)
    await log.close(True)
    return disk, content


def put(at: int, data: bytes) -> Change:
    return lambda content: content[:at] + data + content[at + len(data) :]


def flip(at: int, bit: int = 0) -> Change:
    return lambda content: content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def be(data: bytes) -> Change:
    return lambda content: data


def cut(content: bytes) -> bytes:
    return content[:-1]


async def files(disk: MemoryDisk) -> dict[str, bytes | None]:
    return {name: disk.durable_bytes(f"{FOLDER}/{name}") for name in await disk.listdir(FOLDER)}


def path(segment: int, suffix: str = ".log") -> str:
    """Of the segment with that number."""
    return f"{FOLDER}/{segment * 6:020}{suffix}"


# --- whose fault it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "scope"),
    [
        (CorruptLog("/data/t-0/0.log", 61, "bad crc"), FaultScope.REPLICA),
        (DiskError("/data/t-0/0.log", "read", errno.EIO, "no"), FaultScope.LOG_DIR),
        (DiskError("/data/t-0/0.log", "flush", errno.ENOSPC, "no"), FaultScope.LOG_DIR),
    ],
)
def test_content_costs_a_replica_and_the_device_a_log_dir(error: DiskError, scope: FaultScope) -> None:
    assert scope_of(error) is scope


# --- content met at the start --------------------------------------------------------------------------

AT_THE_START: dict[str, tuple[int, Change]] = {
    "magic of a segment's first batch": (1, flip(16)),
    "length of a segment's first batch": (1, flip(9)),
    "first batch is zeros": (1, put(0, bytes(SIZE))),
    "cut by a byte": (1, cut),
    "without its last batch": (1, lambda content: content[: -2 * SIZE] + content[-SIZE:]),
    "offset of the last batch": (1, flip(2 * SIZE + 7, 1)),
    "epoch of the last batch falls behind": (1, put(2 * SIZE + 12, struct.pack(">i", EPOCH - 1))),
    "epoch of a segment's last batch is later": (0, put(2 * SIZE + 12, struct.pack(">i", EPOCH + 4))),
    "the last segment is cut": (2, cut),
}


@pytest.mark.parametrize("damage", AT_THE_START)
@pytest.mark.parametrize("clean", [True, False])
async def test_damage_of_what_was_flushed_is_refused_at_the_start_and_nothing_is_cut(
    damage: str, clean: bool
) -> None:
    disk, _ = await closed()
    segment, change = AT_THE_START[damage]
    disk.rot(path(segment), change)
    before = {name: data for name, data in (await files(disk)).items() if name.endswith(".log")}
    with pytest.raises(CorruptLog) as refused:
        await opened(disk, clean=clean, recovery_point=2 * COUNT)
    assert refused.value.path in (path(segment), path(segment + 1), FOLDER)
    after = {name: data for name, data in (await files(disk)).items() if name.endswith(".log")}
    assert after == before


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("clean", [True, False])
async def test_missing_first_or_middle_segment_is_refused(missing: int, clean: bool) -> None:
    disk, _ = await closed()
    await disk.unlink(path(missing))
    with pytest.raises(CorruptLog, match=r"missing|should begin at 6"):
        await opened(disk, clean=clean, recovery_point=2 * COUNT)
    assert len([name for name in await disk.listdir(FOLDER) if name.endswith(".log")]) == 2


async def test_first_segment_is_missed_before_any_recovery_point_was_stored() -> None:
    """A broker that was killed in its first minute served the log as one that begins later."""
    disk, _ = await closed()
    await disk.unlink(path(0))
    with pytest.raises(CorruptLog, match="begins at 6, its segment at 0 is missing"):
        await opened(disk, clean=False)


async def test_closed_log_without_segments_is_refused() -> None:
    disk, _ = await closed()
    for segment in range(3):
        await disk.unlink(path(segment))
    with pytest.raises(CorruptLog, match="all its segments are missing"):
        await opened(disk)


async def test_closed_log_that_ends_below_its_start_is_refused() -> None:
    disk, content = await closed()
    runtime, _ = memory_runtime(disk=disk)
    with pytest.raises(CorruptLog, match="ends at 18, below its start 500"):
        await Log.open(runtime, FOLDER, CONFIG, clean=True, log_start_offset=500)
    assert read_all(await opened(disk)) == content


async def test_tail_above_the_recovery_point_is_cut_as_after_any_crash() -> None:
    disk, content = await closed()
    disk.rot(path(2), cut)
    log = await opened(disk, clean=False, recovery_point=2 * COUNT - 2)
    assert read_all(log) == content[:-SIZE]


# --- content met at a read -----------------------------------------------------------------------------

AT_A_READ: dict[str, Change] = {
    "payload": flip(SIZE + 70, 3),
    "crc": flip(SIZE + 18),
    "epoch": put(SIZE + 12, struct.pack(">i", EPOCH + 4)),
    "offset": flip(SIZE + 7),
    "length": flip(SIZE + 11),
    "magic": flip(SIZE + 16),
}


@pytest.mark.parametrize("damage", AT_A_READ)
async def test_damage_in_a_closed_segment_is_never_served(damage: str) -> None:
    disk, _ = await closed()
    log = await opened(disk)
    disk.rot(path(1), AT_A_READ[damage])
    failures: list[DiskError] = []
    log.guard._on_failure = failures.append
    assert log.read(0, 1 << 20, 18), "the others are served"
    with pytest.raises(CorruptLog) as refused:
        log.read(8, 1 << 20, 18)
    assert (refused.value.path, failures) == (path(1), [refused.value])
    assert abs(refused.value.position - SIZE) <= SIZE


async def test_bytes_that_were_appended_just_now_are_checked_on_demand_only() -> None:
    """The page cache has what was appended; a follower that refused them lets the leader look."""
    log = await opened(disk := MemoryDisk(), clean=False)
    log.append_as_leader(batch(2), EPOCH)
    disk.rot(path(0), flip(SIZE - 1))
    sent = log.read(0, 1 << 20, 2)
    with pytest.raises(CorruptBatch):
        check_batch(sent)
    with pytest.raises(CorruptLog):
        log.read(0, 1 << 20, 2, verify=True)


async def test_leader_with_an_epoch_from_nowhere_in_its_log_is_refused() -> None:
    """I-18: one batch on the disk has epoch 7, among those of epoch 3; no crc covers that field."""
    disk, _ = await closed(WHOLE)
    disk.rot(path(0), put((COUNT - 1) * SIZE + 12, struct.pack(">i", 7)))
    log = await opened(disk, WHOLE)
    with pytest.raises(CorruptLog, match="epoch 7, later than the leader's 5"):
        log.start_epoch(5)
    with pytest.raises(CorruptLog):
        log.append_as_leader(batch(), 5)


# --- derived files -------------------------------------------------------------------------------------


async def lookups(log: Log) -> list[object]:
    reads = [log.read(offset, 1, 2 * COUNT) for offset in range(2 * COUNT)]
    pieces = [len(log.read(0, size, 2 * COUNT)) for size in range(1, COUNT * SIZE, 40)]
    times = [await log.times.first_since(999 + number) for number in range(COUNT + 2)]
    return [*reads, *pieces, *times]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
async def test_no_bit_of_an_index_changes_what_is_found(suffix: str) -> None:
    """Met at the start, and while the log is open."""
    disk, content = await closed(WHOLE)
    expected = await lookups(await opened(disk, WHOLE))
    sound = {kind: disk.durable_bytes(path(0, kind)) or b"" for kind in (".index", ".timeindex")}
    assert len(sound[suffix]) > 60
    for bit in range(0, 8 * len(sound[suffix]), 11):  # all of them take seconds
        log = await opened(disk, WHOLE)
        disk.rot(path(0, suffix), flip(bit // 8, bit % 8))
        assert await lookups(log) == expected, f"bit {bit}, while open"
        disk.process_kill()
        log = await opened(disk, WHOLE)
        assert await lookups(log) == expected, f"bit {bit}, at the start"
        disk.process_kill()
        for kind, data in sound.items():
            disk.rot(path(0, kind), be(data))
    assert read_all(await opened(disk, WHOLE)) == content


async def test_index_that_was_found_false_while_open_is_replaced_and_goes_on_growing() -> None:
    disk, content = await closed(WHOLE)
    log = await opened(disk, WHOLE)
    disk.rot(path(0, ".index"), put(0, b"\xff" * 8))
    assert log.read(2, 1, 2 * COUNT) == content[SIZE : 2 * SIZE]
    await log.truncate_to(8)
    for _ in range(COUNT):
        log.append_as_leader(batch(2), EPOCH)
    whole = read_all(log)
    await log.close(True)
    log = await opened(disk, WHOLE)
    assert log._segments.active.index.is_sound(len(whole))
    assert [header.base_offset for header, _ in iter_batches(read_all(log))] == list(range(0, 26, 2))


async def test_index_that_is_cut_while_open_is_built_again() -> None:
    disk, content = await closed(WHOLE)
    log = await opened(disk, WHOLE)
    disk.rot(path(0, ".index"), lambda content: content[:5])
    assert log.read(2, 1, 2 * COUNT) == content[SIZE : 2 * SIZE]


async def test_no_bit_of_the_epochs_changes_what_the_log_knows() -> None:
    disk = MemoryDisk()
    log = await opened(disk, WHOLE, clean=False)
    for number in range(COUNT):
        log.append_as_leader(batch(2), 1 + number // 3 * 3)
    await log.close(True)
    expected = log.leader_epoch_cache.entries
    name = f"{FOLDER}/leader-epoch-checkpoint"
    sound = disk.durable_bytes(name)
    assert sound is not None
    for text in (sound, sound[: sound.index(b"crc32c")]):  # an earlier build wrote no crc
        for bit in range(0, 8 * len(text), 3):
            disk.rot(name, be(flip(bit // 8, bit % 8)(text)))
            log = await opened(disk, WHOLE)
            assert log.leader_epoch_cache.entries == expected, f"bit {bit} of {text!r}"
            disk.process_kill()


@pytest.mark.parametrize("kind", ["checkpoint", "snapshot"])
def test_no_bit_of_a_checkpoint_or_snapshot_is_believed(kind: str) -> None:
    """What is read is the truth or nothing."""
    rows = [["t", "0", "190"], ["t", "1", "77"]]
    state = ProducerState()
    state.apply(check_batch(batch(2, producer_id=5, producer_epoch=1, base_sequence=0)), 0)

    def read(text: str) -> object:
        if kind == "checkpoint":
            return checkpoint.decode_rows(text, 3)
        found = snapshots.decode(text, 2)
        return None if found is None else found.rows()

    text = checkpoint.encode_rows(rows) if kind == "checkpoint" else snapshots.encode(state, 2)
    expected = read(text)
    assert expected == (rows if kind == "checkpoint" else state.rows())
    refused = 0
    for place in range(len(text)):
        for bit in range(7):
            found = read(flip(place, bit)(text.encode()).decode())
            assert found in (None, expected), f"bit {bit} of byte {place}"
            refused += found is None
    assert refused > 6 * len(text)


def test_checkpoints_of_earlier_builds_are_read() -> None:
    assert checkpoint.decode_rows("0\n1\nt 0 190\n", 3) == [["t", "0", "190"]]
    assert snapshots.decode('{"version":0,"offset":2,"producers":[]}', 2) is not None
