"""What a metadata log says of the voters: who wrote it (K12), their directories (K8), and who they are from
where on (K30).

A log that names no set goes with the configuration, which must not change then. If voters were added there,
the new ones could elect each other with empty logs, and a voter that has the log would truncate it to follow
them.
"""

from collections.abc import Collection

from holdfast.protocol.record_batch import decode_records, iter_batches
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.control_records import decode_leader_change, voter_news_in
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.storage.log import Log
from holdfast.storage.turn import next_turn

#: Bytes of log that are read at once; the event loop gets a turn after each.
_CHUNK_BYTES = 1 << 20


def check_voters(log: Log, epoch_start_offset: int, config: RaftConfig) -> None:
    """Check the voters that the last epoch's first batch names. `epoch_start_offset` is that batch's offset.

    Raises: BadQuorumState, when the configuration has others.
    """
    for _, batch in iter_batches(log.read(epoch_start_offset, 1, log.log_end_offset)):
        for record in decode_records(batch):
            change = decode_leader_change(record)
            if change is not None and set(change.voters) != set(config.voters):
                raise _other_voters(log.folder, change.voters, config)
        return


def check_snapshots_voters(folder: str, voters: Collection[int], config: RaftConfig) -> None:
    """Check the voters that a snapshot names. Raises: BadQuorumState, when the configuration has others."""
    if set(voters) != set(config.voters):
        raise _other_voters(folder, voters, config)


def _other_voters(folder: str, voters: Collection[int], config: RaftConfig) -> BadQuorumState:
    return BadQuorumState(
        f"the metadata log in {folder} was written by the voters {sorted(voters)}, controller.quorum.voters "
        f"names {sorted(config.voters)}: name those that wrote it on all nodes; to "
        "change them, let the log name them first (`holdfast metadata-quorum upgrade`)"
    )


async def load_voters(log: Log, directories: VoterDirectories, sets: VoterSets, offset: int) -> None:
    """Add to both, which have what lies below `offset`, what the rest of the log names. Raises: DiskError,
    CorruptBatch."""
    while offset < log.log_end_offset:
        for header, batch in iter_batches(log.read(offset, _CHUNK_BYTES, log.log_end_offset)):
            if header.is_control:
                news = voter_news_in(batch)
                if news.directories:
                    directories.append(header.base_offset, news.directories)
                if news.voters:
                    sets.append(header.base_offset, news.voters)
            offset = header.next_offset
        await next_turn()
