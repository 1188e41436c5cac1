"""Compares the voters that wrote a metadata log with the configured voters (K12).

The set of voters cannot be changed yet. If voters were added in the configuration, the new ones could elect
each other with empty logs, and a voter that has the log would truncate it to follow them.
"""

from holdfast.protocol.record_batch import decode_records, iter_batches
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.control_records import decode_leader_change
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.storage.log import Log


def check_voters(log: Log, epoch_start_offset: int, config: RaftConfig) -> None:
    """Check the voters that the last epoch's first batch names. `epoch_start_offset` is that batch's offset.

    Raises: BadQuorumState, when the configuration has others.
    """
    for _, batch in iter_batches(log.read(epoch_start_offset, 1, log.log_end_offset)):
        for record in decode_records(batch):
            change = decode_leader_change(record)
            if change is not None and set(change.voters) != set(config.voters):
                raise BadQuorumState(
                    f"the metadata log in {log.folder} was written by the voters {sorted(change.voters)}, "
                    f"controller.quorum.voters names {sorted(config.voters)}: name those that wrote it on "
                    "all nodes; voters cannot be changed yet"
                )
        return
