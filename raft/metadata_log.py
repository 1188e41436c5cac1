"""Opens the metadata log of a voter, and refuses one that lacks records which were committed (K9)."""

from holdfast.raft.committed_mark import read_committed
from holdfast.raft.core.quorum import START_ANEW, BadQuorumState
from holdfast.raft.snapshot_files import SnapshotFiles
from holdfast.runtime.api import Runtime
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.log import Log


async def open_voters_log(runtime: Runtime, folder: str) -> Log:
    """The log in `folder`, checked batch by batch. A torn end, which no vote or commit relied on, is cut; so
    is a log whose replacement by the leader's snapshot was interrupted: the driver goes on with that (K14).

    Raises: BadQuorumState when it ends or is damaged below what was committed, which is left as it is;
    DiskError.
    """
    committed = await read_committed(runtime.disk, folder)
    try:
        return await _open(runtime, folder, committed)
    except CorruptLog as damage:
        files = SnapshotFiles(runtime, folder)
        await files.find(await runtime.disk.listdir(folder))
        installing = await files.check_installing()
        if installing is not None and installing.offset >= committed:
            return await _open(runtime, folder, 0)
        raise BadQuorumState(
            f"the metadata log in {folder} is damaged: {damage}. Records below offset {committed} were "
            "committed and durable here, so this voter neither votes nor leads without them: put the files "
            f"back; or, {START_ANEW}"
        ) from None


async def _open(runtime: Runtime, folder: str, durable_offset: int) -> Log:
    config = LogConfig(segment_ms=None, retention_ms=None)
    return await Log.open(
        runtime, folder, config, clean=False, durable_offset=durable_offset, may_begin_later=True
    )
