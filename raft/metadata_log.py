"""Opens the metadata log of a voter, and refuses one that lacks records which were committed (K9)."""

from holdfast.raft.committed_mark import read_committed
from holdfast.raft.core.quorum import START_ANEW, BadQuorumState
from holdfast.runtime.api import Runtime
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.faults import CorruptLog
from holdfast.storage.log import Log


async def open_voters_log(runtime: Runtime, folder: str) -> Log:
    """The log in `folder`, checked batch by batch. A torn end, which no vote or commit relied on, is cut.

    Raises: BadQuorumState when it ends or is damaged below what was committed, which is left as it is;
    DiskError.
    """
    committed = await read_committed(runtime.disk, folder)
    config = LogConfig(segment_ms=None, retention_ms=None)
    try:
        return await Log.open(
            runtime, folder, config, clean=False, durable_offset=committed, may_begin_later=True
        )
    except CorruptLog as damage:
        raise BadQuorumState(
            f"the metadata log in {folder} is damaged: {damage}. Records below offset {committed} were "
            "committed and durable here, so this voter neither votes nor leads without them: put the files "
            f"back; or, {START_ANEW}"
        ) from None
