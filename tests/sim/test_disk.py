"""What a kill, a power cut and a failed flush leave of files and names."""

import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from holdfast.runtime.api import DiskError
from holdfast.sim.machine.choices import Choices
from holdfast.sim.machine.disk import ProcessDisk, SimDisk, SimFile
from holdfast.sim.machine.loop import make_loop
from holdfast.sim.machine.page_cache import PAGE_BYTES, Personality, SimInode
from holdfast.sim.machine.trace import Trace

FLUSHED = b"f" * 5000
UNFLUSHED = b"u" * 20_000
HONEST = [personality for personality in Personality if personality is not Personality.LYING]


class Machine:
    """A disk and a process that uses it."""

    def __init__(self, personality: Personality = Personality.STRICT, seed: str = "disk") -> None:
        self.loop = make_loop(Choices(seed).stream("sched"))
        trace = Trace(lambda: self.loop.now_ns)
        self.sim_disk = SimDisk(self.loop, Choices(seed).stream("disk"), trace, "m")
        self.sim_disk.personality = personality
        self.process = self.loop.process("p")
        self.disk = ProcessDisk(self.sim_disk, self.process)
        self.run(lambda: self.disk.make_folder("/data"))

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """The result of some work in the process. Raises what it raised."""
        outcome: list[Any] = []

        async def awaited() -> Any:
            return await work()

        self.process.call(lambda: outcome.append(self.loop.create_task(awaited(), name="work")))
        self.loop.run(lambda: bool(outcome) and outcome[0].done())
        return outcome[0].result()

    def open(self, name: str = "log") -> SimFile:
        file: SimFile = self.run(lambda: self.disk.open(f"/data/{name}", create=True))
        return file

    def kill(self) -> None:
        self.process.kill()
        self.sim_disk.process_ended(self.process)

    def lose_power(self) -> None:
        self.process.kill()
        self.sim_disk.power_loss()


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.loop.dispose()


def written(personality: Personality, seed: str = "disk") -> bytes:
    """What a power cut leaves of a file with a flushed part and one that was not."""
    machine = Machine(personality, seed)
    machine.sim_disk.lies_one_in = 1
    file = machine.open("0.log")
    machine.run(lambda: machine.disk.sync_folder("/data"))
    file.append([FLUSHED])
    machine.run(file.flush)
    file.append([UNFLUSHED])
    machine.lose_power()
    kept = machine.sim_disk.read("/data/0.log")
    assert kept is not None
    return kept


@pytest.mark.parametrize("personality", HONEST)
def test_what_was_flushed_survives_every_honest_disk(personality: Personality) -> None:
    for seed in range(20):
        assert written(personality, str(seed))[: len(FLUSHED)] == FLUSHED


def test_personalities_differ_in_what_they_leave_of_the_rest() -> None:
    tails = {p: {written(p, str(seed))[len(FLUSHED) :] for seed in range(20)} for p in HONEST}
    assert tails[Personality.STRICT] == tails[Personality.METADATA] == {b""}
    assert tails[Personality.JOURNALLED] == {UNFLUSHED}
    assert all(set(tail) <= {0} for tail in tails[Personality.EXT4])
    assert max(map(len, tails[Personality.EXT4])) > PAGE_BYTES
    gaps = tails[Personality.NODELALLOC]
    assert {len(tail) for tail in gaps} == {len(UNFLUSHED)}
    assert any(tail.startswith(b"u") and b"\0" in tail and tail.endswith(b"u") for tail in gaps)
    assert any(set(tail) - set(b"u\0") for tail in tails[Personality.ADVERSARIAL])


def test_a_disk_that_lies_loses_what_was_flushed() -> None:
    assert written(Personality.LYING) == b""


def in_a_log_of(machine: Machine, folder: str) -> None:
    """Flushed and found so, in the folder of a partition."""
    machine.run(lambda: machine.disk.make_folder(f"/data/{folder}"))
    machine.run(lambda: machine.disk.sync_folder("/data"))
    file = machine.open(f"{folder}/0.log")
    machine.run(lambda: machine.disk.sync_folder(f"/data/{folder}"))
    file.append([FLUSHED])
    machine.run(file.flush)


@pytest.mark.parametrize("lies_one_in", [0, 1])
def test_a_lie_is_held_against_the_log_that_it_was_about_once_it_comes_to_light_p7(lies_one_in: int) -> None:
    machine = Machine(Personality.LYING)
    in_a_log_of(machine, "t-0")
    machine.sim_disk.lies_one_in = lies_one_in
    in_a_log_of(machine, "t-1")
    assert machine.sim_disk.broken == set()
    machine.lose_power()
    assert machine.sim_disk.broken == ({"/data/t-1"} if lies_one_in else set())
    assert len(machine.sim_disk.read("/data/t-1/0.log") or b"") == (0 if lies_one_in else len(FLUSHED))


def test_a_flipped_bit_is_held_against_its_log_a_restored_copy_against_all_p7(machine: Machine) -> None:
    in_a_log_of(machine, "t-0")
    machine.sim_disk.copies_next_exit = True
    machine.kill()
    machine.process = machine.loop.process("p.2")
    machine.disk = ProcessDisk(machine.sim_disk, machine.process)
    machine.sim_disk.flip_bit(Choices("disk").stream("fault"))
    assert machine.sim_disk.broken == {"/data/t-0"}
    machine.sim_disk.broken.clear()
    in_a_log_of(machine, "t-1")
    machine.sim_disk.restore()
    assert machine.sim_disk.broken == {"/data/t-0", "/data/t-1"}
    assert machine.sim_disk.read("/data/t-1/0.log") is None


def test_pages_behind_a_write_back_under_way_are_dropped_all_the_same() -> None:
    """A process is killed while its disk hangs; the flush of the next one fails before that goes on."""
    inode = SimInode()
    inode.cached += b"one"
    hung = inode.start_write_back()
    assert not inode.has_dropped_pages
    inode.cached += b"two"
    assert not inode.has_dropped_pages
    failed = inode.start_write_back()
    assert not inode.has_dropped_pages
    inode.drop_write_back(failed)
    assert inode.has_dropped_pages
    inode.finish_write_back(hung, is_lie=False)
    assert inode.has_dropped_pages


@pytest.mark.parametrize("size", [0, 2, 3])
def test_what_was_cut_while_it_was_written_back_was_not_dropped(size: int) -> None:
    inode = SimInode()
    inode.cached += b"one"
    begun = inode.start_write_back()
    inode.truncate(size)
    inode.cached += b"more"
    assert not inode.has_dropped_pages
    later = inode.start_write_back()
    assert not inode.has_dropped_pages
    inode.finish_write_back(begun, is_lie=False)
    inode.finish_write_back(later, is_lie=False)
    assert not inode.has_dropped_pages
    assert inode.durable == inode.cached


def test_a_kill_leaves_the_page_cache_and_frees_the_locks(machine: Machine) -> None:
    machine.run(lambda: machine.disk.lock_folder("/data"))
    machine.open().append([UNFLUSHED])
    machine.kill()
    assert machine.sim_disk.read("/data/log") == UNFLUSHED
    machine.process = machine.loop.process("p.2")
    machine.disk = ProcessDisk(machine.sim_disk, machine.process)
    machine.run(lambda: machine.disk.lock_folder("/data"))


def test_a_dead_process_cannot_touch_the_disk(machine: Machine) -> None:
    file = machine.open()
    machine.kill()
    with pytest.raises(DiskError, match="gone"):
        file.append([b"late"])
    with pytest.raises(DiskError, match="gone"):
        file.read_at(0, 1)


def test_a_flush_covers_what_was_there_when_it_started_a21(machine: Machine) -> None:
    file = machine.open()
    machine.run(lambda: machine.disk.sync_folder("/data"))

    async def append_during_flush() -> None:
        file.append([b"before"])
        machine.loop.at_ns(machine.loop.now_ns + 1, machine.process, file.append, [b"after"])
        await file.flush()

    machine.run(append_during_flush)
    machine.lose_power()
    assert machine.sim_disk.read("/data/log") == b"before"


def test_a_flush_goes_on_when_its_process_is_killed(machine: Machine) -> None:
    file = machine.open()
    machine.run(lambda: machine.disk.sync_folder("/data"))
    file.append([FLUSHED])
    machine.process.call(lambda: machine.loop.create_task(file.flush(), name="flush"))
    machine.loop.run(lambda: bool(machine.process.tasks) and not machine.process.ready)
    machine.kill()
    machine.loop.run(lambda: machine.sim_disk.durable_bytes("/data/log") == FLUSHED)


def test_after_a_failed_flush_the_pages_are_gone_and_the_next_one_succeeds_a20(machine: Machine) -> None:
    file = machine.open()
    machine.run(lambda: machine.disk.sync_folder("/data"))
    file.append([b"dropped"])
    machine.sim_disk.fail("flush", "log", errno.EIO)
    with pytest.raises(DiskError):
        machine.run(file.flush)
    other = machine.open()
    machine.run(other.flush)
    machine.lose_power()
    assert set(machine.sim_disk.read("/data/log") or b"") <= {0}


def test_names_are_durable_once_their_folder_is_synced(machine: Machine) -> None:
    machine.run(machine.open("old").flush)
    machine.run(lambda: machine.disk.sync_folder("/data"))
    machine.run(machine.open("new").flush)
    machine.run(lambda: machine.disk.unlink("/data/old"))
    machine.lose_power()
    assert machine.sim_disk.names("/data") == ["old"]


def test_a_rename_that_was_journalled_before_its_data_leaves_an_empty_file_p3() -> None:
    machine = Machine(Personality.XFS)
    machine.open("temporary").append([b"content"])
    machine.run(lambda: machine.disk.rename("/data/temporary", "/data/final"))
    machine.lose_power()
    assert machine.sim_disk.names("/data") == ["final"]
    assert machine.sim_disk.read("/data/final") == b""


def test_a_truncation_is_kept_or_undone_but_never_half(machine: Machine) -> None:
    found = set()
    for seed in range(20):
        one = Machine(Personality.ADVERSARIAL, str(seed))
        file = one.open()
        one.run(lambda one=one: one.disk.sync_folder("/data"))  # type: ignore[misc]
        file.append([FLUSHED])
        one.run(file.flush)
        one.run(lambda file=file: file.truncate(100))  # type: ignore[misc]
        one.lose_power()
        found.add(one.sim_disk.read("/data/log"))
    assert found == {FLUSHED, FLUSHED[:100]}


def test_a_hanging_disk_completes_nothing_until_its_time(machine: Machine) -> None:
    file = machine.open()
    machine.sim_disk.hang(3_000_000_000)
    started_ns = machine.loop.now_ns
    file.append([b"goes on"])
    machine.run(file.flush)
    assert machine.loop.now_ns - started_ns >= 3_000_000_000
