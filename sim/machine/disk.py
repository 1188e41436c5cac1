"""A disk with a page cache above it and power that may go: what is durable is kept apart.

Owns every host's files, their faults and their times. A kill leaves the page cache; a power cut leaves what
the host's personality says (`sim.machine.page_cache`). A failed flush drops the dirty pages and the next one
succeeds without them, as on Linux: only fail-stop survives that (A-20). Names become durable by
`sync_folder`. Draws come from one stream.
"""

import asyncio
import errno as errno_module
import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.runtime.api import NAME_BYTES_MAX, Buffer, DiskError, FileMissing, OutOfResources, Space
from holdfast.runtime.core.shortage import is_shortage
from holdfast.runtime.real.group_commit import GroupCommit
from holdfast.sim.machine.choices import Stream, one_in
from holdfast.sim.machine.loop import Process, SimLoop
from holdfast.sim.machine.page_cache import PAGE_BYTES, Node, Personality, SimFolder, SimInode, WriteBack
from holdfast.sim.machine.trace import Trace


@dataclass(slots=True)
class _Fault:
    operation: str
    path_part: str
    errno: int
    times: int


#: Log dirs of brokers, as many as a shape says; the first one is that of controllers too.
LOG_DIRS = ("/data", "/more")


class SimDisk:
    """The disk of one host, which outlives its processes; and the handles by which faults are played."""

    def __init__(self, loop: SimLoop, stream: Stream, trace: Trace, name: str) -> None:
        self.loop = loop
        self.stream = stream
        self.trace = trace
        self.name = name
        self.personality = Personality.STRICT
        #: shortest time of a flush and what is drawn on top of it; operations on names take a tenth
        self.flush_low_ns = 200_000
        self.usual_more_ns = self.flush_more_ns = 800_000
        #: one flush in so many lies (P7); 0: none
        self.lies_one_in = 0
        #: P7: folders of logs that have lost bytes which a flush had promised to keep
        self.broken: set[str] = set()
        self.root = SimFolder()
        self.locked: dict[str, Process] = {}
        #: files of which a flush has failed: the next process will not find their ends (A-20)
        self.suspects: list[SimInode] = []
        self._faults: list[_Fault] = []
        self._broken_folders: dict[str, None] = {}
        #: nothing completes before
        self._hangs_until_ns = 0
        self.flush_count = 0
        #: how often the whole disk was replaced by an empty one
        self.replacements = 0
        #: the disk as it was after a stop, for a restore (P7)
        self._copy: SimFolder | None = None
        self.copies_next_exit = False

    # --- faults ----------------------------------------------------------------------------------------

    def power_loss(self) -> None:
        """Keep what the personality leaves."""
        self.locked.clear()
        self.suspects.clear()
        if self.personality is Personality.LYING:
            self.broken.update(self._lied_about())
        for node in self.root.cached.values():
            node.lose_power(self.personality, self.stream)
        self.root.sync()

    def replace(self) -> None:
        """An empty disk takes its place, while no process runs."""
        self.trace.add("empty", self.name)
        self.replacements += 1
        self.root = SimFolder()

    def process_ended(self, process: Process) -> None:
        """Locks are free. The page cache lives, with the pages of failed flushes, which count as clean."""
        self.suspects.clear()
        if self.copies_next_exit:
            self.copies_next_exit = False
            self._copy = self.root.copied()
        self.locked = {path: owner for path, owner in self.locked.items() if owner is not process}

    @property
    def has_copy(self) -> bool:
        return self._copy is not None

    def restore(self) -> None:
        """The whole disk is what it was when it was copied, all of it durable."""
        assert self._copy is not None, "nothing was copied"
        self.trace.add("restore", self.name)
        self.broken.update(self._partition_folders())
        self.root = self._copy.copied()

    def flip_bit(self, stream: Stream) -> None:
        """Turn one bit in the last page of a log that a power cut has left."""
        logs = [
            (f"{folder}/{name}", node)
            for folder in self._partition_folders()
            for name in self.names(folder)[-8:]
            if name.endswith(".log")
            and isinstance(node := self.find(f"{folder}/{name}"), SimInode)
            and node.durable
        ]
        if not logs:
            return
        path, inode = logs[stream.draw(len(logs))]
        size = len(inode.durable)
        at = size - 1 - stream.draw(min(size, PAGE_BYTES))
        bit = 1 << stream.draw(8)
        inode.durable[at] ^= bit
        inode.cached[at] ^= bit
        self.broken.add(path.rpartition("/")[0])
        self.trace.add("flip", f"{self.name} {path} {at}")

    def _lied_about(self) -> list[str]:
        """Folders of logs of which a flush was a lie that comes to light now."""
        found = []
        for folder in self._partition_folders():
            for name in self.names(folder):
                node = self.find(f"{folder}/{name}")
                if isinstance(node, SimInode) and node.lied_size is not None:
                    found.append(folder)
        return found

    def _partition_folders(self) -> list[str]:
        return [f"{log_dir}/{name}" for log_dir in LOG_DIRS for name in self.names(log_dir)]

    def fail(self, operation: str, path_part: str, errno: int = errno_module.EIO, times: int = 1) -> None:
        """Let the next `times` calls of `operation` (append, read, flush, truncate, open, rename, unlink,
        make_folder, remove_folder, sync_folder, listdir) on paths with `path_part` in them fail."""
        self._faults.append(_Fault(operation, path_part, errno, times))

    def break_folder(self, path: str) -> None:
        """Every call on something in this folder fails, whichever process calls, until `mend_folder`; but not
        reads, which the page cache serves (and by which checkers look)."""
        self._broken_folders[path] = None
        self.trace.add("dirfault", f"{self.name} {path}")

    def mend_folder(self, path: str) -> None:
        """What is in the folder is there again as it was."""
        if path in self._broken_folders:
            del self._broken_folders[path]
            self.trace.add("dirmended", f"{self.name} {path}")

    def forget_faults(self) -> None:
        """What was not met is not met any more."""
        self._faults.clear()
        self._broken_folders.clear()
        self._hangs_until_ns = 0

    @property
    def has_faults(self) -> bool:
        """Some call is still to fail."""
        return bool(self._faults or self._broken_folders)

    def hang(self, duration_ns: int) -> None:
        """Complete nothing for so long; appends and reads of the cache go on."""
        self._hangs_until_ns = self.loop.now_ns + duration_ns
        self.trace.add("hang", f"{self.name} {duration_ns / 1e6:g} ms")

    def be_slow(self, more_ns: int | None) -> None:
        """Flushes take up to so much longer from now on; None: as long as ever."""
        if more_ns is not None or self.flush_more_ns != self.usual_more_ns:
            self.trace.add("slow", f"{self.name} {(more_ns or 0) / 1e6:g} ms")
        self.flush_more_ns = self.usual_more_ns if more_ns is None else more_ns

    # --- used by files and disks -----------------------------------------------------------------------

    def check_fault(self, operation: str, path: str) -> None:
        for folder in self._broken_folders:
            if path.startswith(folder) and operation != "read":
                raise disk_error(DiskError, path, operation, errno_module.EIO)
        if not self._faults:
            return
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                self.trace.add("diskfault", f"{self.name} {operation} {path} {fault.errno}")
                raise disk_error(DiskError, path, operation, fault.errno)

    def flush_end_ns(self) -> int:
        """When a flush that starts now is done."""
        return (
            max(self.loop.now_ns, self._hangs_until_ns)
            + self.flush_low_ns
            + self.stream.draw(self.flush_more_ns)
        )

    def names_end_ns(self) -> int:
        """When an operation on names that starts now is done."""
        took_ns = (self.flush_low_ns + self.stream.draw(self.flush_more_ns)) // 10
        return max(self.loop.now_ns, self._hangs_until_ns) + took_ns

    def lies(self, path: str) -> bool:
        """P7: this flush of a log writes nothing. Small files are spared, or no node would start again."""
        is_log = path.endswith(".log")
        return self.personality is Personality.LYING and is_log and one_in(self.stream, self.lies_one_in)

    # --- for checkers ----------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        """What the page cache holds under that name."""
        node = self.find(path)
        return bytes(node.cached) if isinstance(node, SimInode) else None

    def names(self, path: str) -> list[str]:
        """Names in a folder, sorted; none when there is no such folder."""
        node = self.find(path)
        return sorted(node.cached) if isinstance(node, SimFolder) else []

    def log_folders(self) -> list[str]:
        """Names of the folders in all log dirs."""
        return [
            path.rpartition("/")[2]
            for path in self._partition_folders()
            if isinstance(self.find(path), SimFolder)
        ]

    def durable_bytes(self, path: str) -> bytes | None:
        """What was made durable of the file under its durable name."""
        node: Node | None = self.root
        for name in names_of(path):
            node = node.durable.get(name) if isinstance(node, SimFolder) else None
        return bytes(node.durable) if isinstance(node, SimInode) else None

    def find(self, path: str) -> Node | None:
        node: Node = self.root
        for name in names_of(path):
            if isinstance(node, SimInode) or name not in node.cached:
                return None
            node = node.cached[name]
        return node

    def folder(self, operation: str, path: str) -> SimFolder:
        node = self.find(path)
        if node is None:
            raise disk_error(FileMissing, path, operation, errno_module.ENOENT)
        if isinstance(node, SimInode):
            raise disk_error(DiskError, path, operation, errno_module.ENOTDIR)
        return node

    def parent(self, operation: str, path: str) -> tuple[SimFolder, str]:
        """The folder that the name stands in, and the name."""
        names = names_of(path)
        assert names, f"{operation} of the root"
        check_name(operation, path, names[-1])
        return self.folder(operation, "/" + "/".join(names[:-1])), names[-1]

    def add(self, folder: SimFolder, name: str, node: Node) -> None:
        """A new name. Those in the root are durable at once: they stand for mount points."""
        folder.set(name, node)
        if folder is self.root:
            folder.sync()


class SimFile:
    """`runtime.api.File`."""

    def __init__(self, disk: "ProcessDisk", path: str, inode: SimInode) -> None:
        self._disk = disk
        self._sim_disk = disk.sim_disk
        self._path = path
        self._inode = inode
        self._commit = GroupCommit(self._start_flush)
        self._error: DiskError | None = None
        self._is_closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._inode.cached)

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._check("append")
        cached = self._inode.cached
        position = len(cached)
        for buffer in buffers:
            cached += buffer
        return position

    def read_at(self, position: int, size: int) -> bytes:
        assert position >= 0
        assert size >= 0
        self._check("read")
        return bytes(memoryview(self._inode.cached)[position : position + size])

    async def read_aside(self, position: int, size: int) -> bytes:
        data = self.read_at(position, size)
        await self._disk.until(self._sim_disk.names_end_ns())
        return data

    async def flush(self) -> None:
        self._check_usable()
        await self._commit.commit()

    async def drop_cache(self) -> None:
        await self.flush()
        self._inode.drop_clean()

    async def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size, f"truncate {self._path} to {size}, but it has {self.size} bytes"
        self._check("truncate")
        self._inode.truncate(size)
        self._sim_disk.trace.add("truncate", f"{self._sim_disk.name} {self._path} {size}")
        await self._disk.until(self._sim_disk.names_end_ns())

    async def rename(self, target: str) -> None:
        self._check_usable()
        await self._disk.rename(self._path, target)
        self._path = target

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._commit.idle()

    def _start_flush(self) -> "asyncio.Future[None]":
        run: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sim_disk = self._sim_disk
        begun = self._inode.start_write_back()
        # The host's kernel ends it, also when the process is gone by then.
        sim_disk.loop.at_ns(sim_disk.flush_end_ns(), sim_disk.loop.kernel, self._end_flush, run, begun)
        return run

    def _end_flush(self, run: "asyncio.Future[None]", begun: WriteBack) -> None:
        process, sim_disk, inode = self._disk.process, self._sim_disk, self._inode
        is_under_way = inode.is_under_way(begun)
        if process.is_dead:
            if is_under_way:
                inode.finish_write_back(begun, is_lie=False)
            return
        try:
            self._check("flush")
        except DiskError as error:
            if is_under_way:
                inode.drop_write_back(begun)
                sim_disk.suspects.append(inode)
            process.call(_fail, run, error)
            return
        if is_under_way:
            inode.finish_write_back(begun, is_lie=sim_disk.lies(self._path))
        sim_disk.flush_count += 1
        sim_disk.trace.add("flush", f"{sim_disk.name} {self._path} {begun.start}+{len(begun.dirty)}")
        process.call(_succeed, run)

    def _check_usable(self) -> None:
        assert not self._is_closed, f"{self._path} is closed"
        self._disk.check_alive("use", self._path)
        if self._error is not None:
            raise self._error

    def _check(self, operation: str) -> None:
        if self._error is not None:
            raise self._error
        assert not self._is_closed or operation == "flush", f"{self._path} is closed"
        self._disk.check_alive(operation, self._path)
        try:
            self._sim_disk.check_fault(operation, self._path)
        except OutOfResources:
            raise
        except DiskError as error:
            if operation != "read":
                self._error = error
            raise


def _succeed(run: "asyncio.Future[None]") -> None:
    if not run.done():
        run.set_result(None)


def _fail(run: "asyncio.Future[None]", error: DiskError) -> None:
    if not run.done():
        run.set_exception(error)


class ProcessDisk:
    """A host's disk as one process sees it. `runtime.api.Disk`."""

    def __init__(self, sim_disk: SimDisk, process: Process) -> None:
        self.sim_disk = sim_disk
        self.process = process

    async def open(self, path: str, *, create: bool) -> SimFile:
        await self._begin("open", path)
        sim_disk = self.sim_disk
        folder, name = sim_disk.parent("open", path)
        node = folder.cached.get(name)
        if node is None:
            if not create:
                raise disk_error(FileMissing, path, "open", errno_module.ENOENT)
            node = SimInode()
            sim_disk.add(folder, name, node)
            sim_disk.trace.add("create", f"{sim_disk.name} {path}")
        if isinstance(node, SimFolder):
            raise disk_error(DiskError, path, "open", errno_module.EISDIR)
        return SimFile(self, path, node)

    async def rename(self, source: str, target: str) -> None:
        await self._begin("rename", source)
        source_folder, source_name = self.sim_disk.parent("rename", source)
        target_folder, target_name = self.sim_disk.parent("rename", target)
        node = source_folder.cached.get(source_name)
        if node is None:
            raise disk_error(FileMissing, source, "rename", errno_module.ENOENT)
        replaced = target_folder.cached.get(target_name)
        if replaced is not None and isinstance(replaced, SimFolder) != isinstance(node, SimFolder):
            reason = errno_module.EISDIR if isinstance(replaced, SimFolder) else errno_module.ENOTDIR
            raise disk_error(DiskError, target, "rename", reason)
        if isinstance(replaced, SimFolder) and replaced is not node and replaced.cached:
            raise disk_error(DiskError, target, "rename", errno_module.ENOTEMPTY)
        if replaced is not node:
            target_folder.set(target_name, node)
            source_folder.set(source_name, None)
        self.sim_disk.trace.add("rename", f"{self.sim_disk.name} {source} {target}")

    async def unlink(self, path: str) -> None:
        await self._begin("unlink", path)
        folder, name = self.sim_disk.parent("unlink", path)
        node = folder.cached.get(name)
        if node is None:
            raise disk_error(FileMissing, path, "unlink", errno_module.ENOENT)
        if isinstance(node, SimFolder):
            raise disk_error(DiskError, path, "unlink", errno_module.EISDIR)
        folder.set(name, None)
        self.sim_disk.trace.add("unlink", f"{self.sim_disk.name} {path}")

    async def make_folder(self, path: str) -> None:
        await self._begin("make_folder", path)
        folder = self.sim_disk.root
        for name in names_of(path):
            check_name("make_folder", path, name)
            node = folder.cached.get(name)
            if node is None:
                node = SimFolder()
                self.sim_disk.add(folder, name, node)
            if isinstance(node, SimInode):
                raise disk_error(DiskError, path, "make_folder", errno_module.EEXIST)
            folder = node

    async def remove_folder(self, path: str) -> None:
        await self._begin("remove_folder", path)
        node = self.sim_disk.find(path)
        if node is None:
            return
        if isinstance(node, SimInode):
            raise disk_error(DiskError, path, "remove_folder", errno_module.ENOTDIR)
        folder, name = self.sim_disk.parent("remove_folder", path)
        folder.set(name, None)

    async def sync_folder(self, path: str) -> None:
        await self._begin("sync_folder", path)
        self.sim_disk.folder("sync_folder", path).sync()
        self.sim_disk.trace.add("sync", f"{self.sim_disk.name} {path}")

    async def listdir(self, path: str) -> list[str]:
        await self._begin("listdir", path)
        return sorted(self.sim_disk.folder("listdir", path).cached)

    async def exists(self, path: str) -> bool:
        await self._begin("exists", path)
        return self.sim_disk.find(path) is not None

    async def space(self, path: str) -> Space:
        """Always room: what a full disk does to a log dir is a fault of its own."""
        self.check_alive("space", path)
        self.sim_disk.folder("space", path)
        return Space(1 << 40, 1 << 40)

    async def lock_folder(self, path: str) -> None:
        await self._begin("lock_folder", path)
        folder = self.sim_disk.folder("lock_folder", path)
        where = posixpath.join("/", *names_of(path))
        if where in self.sim_disk.locked:
            reason = "another process is using this folder"
            raise DiskError(path, "lock_folder", errno_module.EWOULDBLOCK, reason)
        self.sim_disk.locked[where] = self.process
        if ".lock" not in folder.cached:
            self.sim_disk.add(folder, ".lock", SimInode())

    def check_alive(self, operation: str, path: str) -> None:
        if self.process.is_dead:
            raise DiskError(path, operation, errno_module.EIO, "this process is gone")

    async def until(self, end_ns: int) -> None:
        """Wait for the disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sim_disk.loop.at_ns(end_ns, self.process, _succeed, done)
        await done

    async def _begin(self, operation: str, path: str) -> None:
        while True:
            self.check_alive(operation, path)
            await self.until(self.sim_disk.names_end_ns())
            self.check_alive(operation, path)
            try:
                self.sim_disk.check_fault(operation, path)
            except OutOfResources:
                continue
            return


def names_of(path: str) -> list[str]:
    """The parts of a path."""
    return [name for name in posixpath.normpath(path).split("/") if name not in ("", ".")]


def check_name(operation: str, path: str, name: str) -> None:
    """Raises: DiskError when no file system takes so long a name."""
    if len(name.encode()) > NAME_BYTES_MAX:
        raise disk_error(DiskError, path, operation, errno_module.ENAMETOOLONG)


def disk_error(kind: type[DiskError], path: str, operation: str, errno: int) -> DiskError:
    """An error as the operating system words it. A flush or truncation has its handle already."""
    if operation not in ("flush", "truncate") and is_shortage(operation, errno):
        kind = OutOfResources
    return kind(path, operation, errno, os.strerror(errno))
