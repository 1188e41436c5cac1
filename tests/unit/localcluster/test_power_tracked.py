"""What a tracked power loss takes, compared with the disk in memory, which knows itself what is durable."""

import os
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.localcluster.power.tracked import Fate, TrackedDisks, fate_of
from holdfast.runtime.api import Disk, DiskError, File
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.runtime.power.power_loss import TrackedDisk

#: where `MemoryDisk` has what is in the node's `data`
MEMORY_BASE = "/data"
FOLDERS = ("", "a", "b", "a/c")
NAMES = ("x", "y", "z")


def seed_with(fate: Fate, node: str = "node", beyond: int = 0) -> int:
    return next(seed for seed in range(beyond, beyond + 1000) if fate_of(seed, node) is fate)


class Twins:
    """The same random steps on a tracked disk and on one in memory; one handle a file."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self.home = home
        self.chance = chance
        self.base = str(home / "data")
        (home / "data").mkdir(parents=True)
        self.memory = MemoryDisk()
        self.tracked = TrackedDisk(str(home / "unsynced"))
        #: by path below the base: (tracked, in memory)
        self.files: dict[str, tuple[File, File]] = {}
        self.log: list[str] = []

    async def start(self) -> None:
        await self.memory.make_folder(MEMORY_BASE)

    def restart(self) -> None:
        """The process is killed; the page cache lives."""
        self.memory.process_kill()
        for tracked, _ in self.files.values():
            os.close(tracked._descriptor)  # type: ignore[attr-defined]
        self.files.clear()
        self.tracked = TrackedDisk(str(self.home / "unsynced"))

    async def step(self) -> None:
        step = self.chance.choices(
            ("open", "append", "flush", "truncate", "rename", "unlink", "folder", "move", "remove", "sync",
             "close", "restart"),
            (8, 14, 7, 5, 5, 4, 3, 2, 1, 8, 3, 1),
        )[0]  # fmt: skip
        folder = self.chance.choice(FOLDERS)
        path = os.path.join(folder, self.chance.choice(NAMES))
        if step == "restart":
            self.restart()
        elif step in ("append", "flush", "truncate", "close"):
            await self.file_step(step)
        elif step == "rename":
            target = os.path.join(folder, self.chance.choice(NAMES))
            if target != path and await self.both(lambda disk, base: disk.rename(base + path, base + target)):
                await self.close(target)
                if path in self.files:
                    self.files[target] = self.files.pop(path)
        elif step == "move":  # a folder, as logs that are deleted are
            source, target = self.chance.choice((("a/c", "a/d"), ("b", "e"), ("e", "b"), ("a/d", "a/c")))
            if not await self.memory.exists(f"{MEMORY_BASE}/{target}"):
                await self.close_below(source)
                await self.both(lambda disk, base: disk.rename(base + source, base + target))
        else:
            await self.name_step(step, folder, path)
        self.log.append(f"{step} {path}")

    async def file_step(self, step: str) -> None:
        if not self.files:
            return
        path = self.chance.choice(sorted(self.files))
        size = self.chance.randint(0, self.files[path][1].size)
        data = self.chance.randbytes(self.chance.randint(1, 3000))
        if step == "close":
            await self.close(path)
            return
        for file in self.files[path]:
            if step == "append":
                file.append([data])
            elif step == "flush":
                await file.flush()
            else:
                await file.truncate(size)

    async def name_step(self, step: str, folder: str, path: str) -> None:
        if step == "open" and path not in self.files:
            opened: list[File] = []

            async def opens(disk: Disk, base: str) -> None:
                opened.append(await disk.open(base + path, create=True))

            if await self.both(opens):
                self.files[path] = (opened[0], opened[1])
        elif step == "unlink":
            if await self.both(lambda disk, base: disk.unlink(base + path)):
                await self.close(path)
        elif step == "folder":
            await self.both(lambda disk, base: disk.make_folder(base + folder))
        elif step == "remove" and folder:
            await self.close_below(folder)
            await self.both(lambda disk, base: disk.remove_folder(base + folder))
        elif step == "sync":
            await self.sync(folder)

    async def sync(self, folder: str) -> None:
        await self.both(lambda disk, base: disk.sync_folder(base + folder))

    async def both(self, act: Callable[[Disk, str], Awaitable[None]]) -> bool:
        """Do it on both; they must agree on whether it can be done."""
        outcomes: list[type[DiskError] | None] = []
        for disk, base in ((self.tracked, self.base), (self.memory, MEMORY_BASE)):
            try:
                await act(disk, base + "/")
            except DiskError as error:
                outcomes.append(type(error))
            else:
                outcomes.append(None)
        assert outcomes[0] is outcomes[1], (outcomes, self.log[-10:])
        return outcomes[0] is None

    async def close(self, path: str) -> None:
        for file in self.files.pop(path, ()):
            await file.close()

    async def close_below(self, folder: str) -> None:
        for path in [path for path in self.files if path.startswith(folder + "/")]:
            await self.close(path)

    async def in_memory(self, folder: str = "") -> dict[str, bytes | None]:
        """Every file with its bytes, every folder with None."""
        found: dict[str, bytes | None] = {}
        for name in await self.memory.listdir(f"{MEMORY_BASE}/{folder}"):
            path = os.path.join(folder, name)
            try:
                file = await self.memory.open(f"{MEMORY_BASE}/{path}", create=False)
                found[path] = file.read_at(0, file.size)
            except DiskError:
                found[path] = None
                found.update(await self.in_memory(path))
        return found


def on_disk(home: Path) -> dict[str, bytes | None]:
    data = home / "data"
    return {str(p.relative_to(data)): p.read_bytes() if p.is_file() else None for p in data.rglob("*")}


@pytest.mark.parametrize("number", range(16))
async def test_the_strictest_loss_leaves_what_the_disk_in_memory_calls_durable(
    number: int, tmp_path: Path
) -> None:
    chance = random.Random(number)
    twins = Twins(tmp_path / "node", chance)
    await twins.start()
    for _ in range(3):  # losses of power, one after the other
        for _ in range(chance.randint(5, 120)):
            await twins.step()
        twins.restart()
        twins.memory.power_loss()
        TrackedDisks().restore(twins.home, seed_with(Fate.NOTHING, beyond=chance.randrange(1000)))
        assert on_disk(twins.home) == await twins.in_memory(), twins.log[-20:]
        twins.tracked = TrackedDisk(str(twins.home / "unsynced"))
        assert twins.tracked._journal.files() == []


@pytest.mark.parametrize("number", range(16))
async def test_what_was_synced_survives_under_every_fate(number: int, tmp_path: Path) -> None:
    chance = random.Random(f"fates {number}")
    twins = Twins(tmp_path / "node", chance)
    await twins.start()
    for _ in range(chance.randint(20, 150)):
        await twins.step()
    for path in sorted(twins.files):
        for file in twins.files[path]:
            await file.flush()
    for folder in (*FOLDERS, "a/d", "e"):
        await twins.sync(folder)
    synced = on_disk(twins.home)
    # closed files that were never flushed may lose bytes, no others
    unknown = {path for path, content in synced.items() if content and path not in twins.files}
    sizes = {path: file.size for path, (file, _) in twins.files.items()}
    for file, _ in twins.files.values():
        file.append([bytes(range(1, 256)) * 9])
    seed = number
    loss = TrackedDisks().restore(twins.home, seed)
    after = on_disk(twins.home)
    assert after.keys() == synced.keys()
    for path, size in sizes.items():
        content = after[path]
        assert content is not None
        assert content[:size] == synced[path]
        assert content != (synced[path] or b"") + bytes(range(1, 256)) * 9, (
            "every unflushed tail loses something"
        )
    assert {path for path in after if path not in sizes and after[path] != synced[path]} <= unknown
    assert {f"data/{path}" for path in sizes} <= {file.path for file in loss.files}
    for lost in loss.files:
        assert 0 <= lost.good_until < lost.size_before
        path = lost.path.removeprefix("data/")
        content, old = after[path] or b"", synced[path] or b""
        assert content[: min(lost.good_until, len(old))] == old[: lost.good_until]


async def make_file(disk: Disk, path: str, content: bytes, *, synced: bool = True) -> File:
    file = await disk.open(path, create=True)
    file.append([content])
    if synced:
        await file.flush()
        await disk.sync_folder(os.path.dirname(path))
    return file


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "node" / "data").mkdir(parents=True)
    return tmp_path / "node"


def disk_of(home: Path) -> TrackedDisk:
    return TrackedDisk(str(home / "unsynced"))


async def test_each_fate_is_drawn_and_loses_in_its_own_way(home: Path) -> None:
    kept = b"k" * 1000
    lost = bytes(range(1, 251)) * 100
    for fate in Fate:
        disk = disk_of(home)
        file = await make_file(disk, str(home / "data" / fate.value), kept)
        file.append([lost])
        loss = TrackedDisks().restore(home, seed_with(fate))
        content = (home / "data" / fate.value).read_bytes()
        tail = content[1000:]
        assert content[:1000] == kept
        (told,) = loss.files
        assert (told.path, told.size_before, told.size_after) == (f"data/{fate.value}", 26_000, len(content))
        good = told.good_until - 1000
        assert tail[:good] == lost[:good]
        if fate in (Fate.NOTHING, Fate.NAMES):
            assert tail == b""
        elif fate is Fate.ZEROS:
            assert tail[good:] == bytes(len(tail) - good)
        elif fate is Fate.GAP:
            assert len(tail) == len(lost)
            assert tail[good : good + 4096] == bytes(len(tail[good : good + 4096]))
            assert tail.rstrip(b"\0")[-1:] == lost[-1:] or tail.endswith(b"\0")
        else:
            assert len(tail) < len(lost)


async def test_names_whose_folder_was_not_synced_are_lost_or_kept_by_the_fate(home: Path) -> None:
    for fate, names in ((Fate.NAMES, ["new"]), (Fate.NOTHING, ["durable", "old"])):
        shutil.rmtree(home)
        (home / "data").mkdir(parents=True)
        disk = disk_of(home)
        await make_file(disk, str(home / "data" / "durable"), b"content")
        await make_file(disk, str(home / "data" / "old"), b"gone")
        await disk.rename(str(home / "data" / "durable"), str(home / "data" / "new"))
        await disk.unlink(str(home / "data" / "old"))
        loss = TrackedDisks().restore(home, seed_with(fate))
        assert sorted(path.name for path in (home / "data").iterdir()) == names
        if fate is Fate.NOTHING:
            assert loss.names_back == ("data/durable", "data/old")
            assert [(file.path, file.size_after) for file in loss.files] == [("data/new", -1)]


async def test_the_seed_alone_says_what_is_lost(tmp_path: Path) -> None:
    outcomes = []
    for number in range(2):
        home = tmp_path / str(number) / "node"
        (home / "data").mkdir(parents=True)
        disk = disk_of(home)
        for name in "abcdef":
            await make_file(disk, str(home / "data" / name), name.encode() * 9000, synced=name < "d")
        outcomes.append([(TrackedDisks().restore(home, seed), on_disk(home)) for seed in (11,)])
    assert outcomes[0] == outcomes[1]


async def test_what_is_durable_costs_no_space_in_the_journal(home: Path) -> None:
    disk = disk_of(home)
    data = str(home / "data")
    await disk.make_folder(f"{data}/log")
    await disk.sync_folder(data)
    for name in ("a", "b"):
        file = await make_file(disk, f"{data}/log/{name}", b"x" * 100)
        await file.truncate(40)
        assert len(list((home / "unsynced" / "cuts").iterdir())) == 1
        await file.flush()
        await file.close()
    await disk.rename(f"{data}/log/a", f"{data}/log/b")
    open_file = await make_file(disk, f"{data}/log/c", b"never flushed", synced=False)
    await (await make_file(disk, f"{data}/log/d", b"never flushed", synced=False)).close()
    await (await make_file(disk, f"{data}/e", b"never flushed", synced=False)).close()
    assert len(disk._journal.files()) == 3
    await disk.remove_folder(f"{data}/log")
    await disk.unlink(f"{data}/e")
    assert len(list((home / "unsynced" / "grave").iterdir())) == 3
    await disk.sync_folder(data)
    assert list((home / "unsynced" / "cuts").iterdir()) == []
    assert list((home / "unsynced" / "grave").iterdir()) == []
    assert disk._journal.changes() == []
    assert len(disk._journal.files()) == 1, "one of the lost files is still open"
    await open_file.close()
    assert disk._journal.files() == []


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(call: str, skipped: int) -> Iterator[None]:
    """The process is killed instead of making this system call, once it has made some."""
    real = getattr(os, call)
    left = skipped

    def count(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        patch.setattr(os, call, count)
        yield


@pytest.mark.parametrize("call", ["rename", "unlink", "link", "mkdir", "ftruncate", "fdatasync", "fsync"])
async def test_a_process_that_dies_inside_a_step_leaves_a_true_journal(call: str, home: Path) -> None:
    """Each system call in turn is the one that is never made; then the power goes."""
    data = str(home / "data")
    for skipped in range(6):
        shutil.rmtree(home)
        (home / "data").mkdir(parents=True)
        disk = disk_of(home)
        await make_file(disk, f"{data}/a", b"a" * 100)
        await make_file(disk, f"{data}/b", b"b" * 100)
        await make_file(disk, f"{data}/c", b"c" * 100)
        with killed_at(call, skipped):
            await live(disk, data)
        TrackedDisks().restore(home, seed_with(Fate.NOTHING))
        found = on_disk(home)
        # each of its changes in turn may be the last one that the disk has seen
        assert found.pop("a") in (b"a" * 100, b"a" * 60, b"a" * 30 + b"A" * 50)
        assert found.pop("b", b"b" * 100) == b"b" * 100
        assert found.pop("c", b"c" * 100) in (b"c" * 100, b"b" * 100)
        assert set(found) <= {"d", "new"}, f"{call} {skipped}"


async def live(disk: TrackedDisk, data: str) -> None:
    """A bit of everything."""
    file = await disk.open(f"{data}/a", create=False)
    await file.truncate(60)
    await file.truncate(30)
    file.append([b"A" * 50])
    await disk.make_folder(f"{data}/d")
    await make_file(disk, f"{data}/new", b"n")
    await file.flush()
    await disk.rename(f"{data}/b", f"{data}/c")
    await disk.unlink(f"{data}/new")
    await disk.remove_folder(f"{data}/d")
    await disk.sync_folder(data)


@pytest.mark.parametrize("number", range(8))
async def test_an_interrupted_loss_can_be_repeated(number: int, tmp_path: Path) -> None:
    chance = random.Random(f"again {number}")
    twins = Twins(tmp_path / "node", chance)
    await twins.start()
    for _ in range(80):
        await twins.step()
    twins.restart()
    twins.memory.power_loss()
    seed = seed_with(Fate.NOTHING)
    for call, skipped in (("rename", 1), ("rename", 2), ("unlink", 1), ("open", 9)):
        with killed_at(call, skipped):
            TrackedDisks().restore(twins.home, seed)
            break
    TrackedDisks().restore(twins.home, seed)
    assert on_disk(twins.home) == await twins.in_memory()
