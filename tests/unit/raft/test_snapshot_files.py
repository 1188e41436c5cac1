"""Snapshots as files: what is read of them, and what is left behind when work is given up (K15)."""

from pathlib import Path

from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.raft.snapshot_files import SnapshotFiles
from holdfast.runtime.real.machine import real_runtime

ID = SnapshotId(120, 7)
#: the largest that a request can ask for
FAR = (1 << 63) - 1


async def test_bytes_behind_the_end_of_a_real_file_are_none(tmp_path: Path) -> None:
    """pread refuses so large a position as if the disk had failed."""
    files = SnapshotFiles(real_runtime(), str(tmp_path))
    _, size_bytes = await files.write(ID, [1], {}, iter([b"value"]))
    for position in (size_bytes, size_bytes + 1, FAR):
        assert await files.read(ID, position, 100) == (size_bytes, b"")
    assert len((await files.read(ID, size_bytes - 3, 100))[1]) == 3
    await files.close()
