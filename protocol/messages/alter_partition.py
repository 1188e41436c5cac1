"""AlterPartition (56): a leader proposes a new ISR; the controller checks and commits (R40-R45)."""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    sentence,
    uuid,
)


@message
class IsrMember:
    """A proposed in-sync replica and the registration it was seen in."""

    broker_id: int = field(int32, "Replica.")
    broker_epoch: int = field(
        int64, "Its broker epoch as the leader saw it in fetches, -1 for the leader itself."
    )


@message
class AlterPartitionPartition:
    """One proposal."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    leader_epoch: int = field(int32, "The leader's epoch.")
    partition_epoch: int = field(int32, "Epoch of the registration that the proposal starts from.")
    new_isr: tuple[IsrMember, ...] = field(array_of(IsrMember), "Proposed ISR.")
    leader_recovery_state: int = field(int16, "0 RECOVERED, 1 RECOVERING.")


@message
class AlterPartitionRequest:
    """One in flight a broker (R45)."""

    broker_id: int = field(int32, "The leader.")
    broker_epoch: int = field(int64, "Its registration: STALE_BROKER_EPOCH when it is another.")
    partitions: tuple[AlterPartitionPartition, ...] = field(array_of(AlterPartitionPartition), "Proposals.")
    controller_epoch: int = field(
        int32, "Raft epoch of the controller that it is meant for, -1 for any.", since=1, default=-1
    )
    request_number: int = field(
        int64,
        "Rises from 1 with every request of a broker to a controller epoch: one behind a higher one is "
        "void; -1 for no number.",
        since=1,
        default=-1,
    )


@message
class AlterPartitionPartitionResponse:
    """The state after the commit, with the effective min ISR that goes with it (N-5)."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "R41 lists them in order.")
    leader_id: int = field(int32, "Leader, -1 for none or on error.")
    leader_epoch: int = field(int32, "Its epoch.")
    isr: tuple[int, ...] = field(array(int32), "ISR, ascending.")
    leader_recovery_state: int = field(int16, "0 RECOVERED, 1 RECOVERING.")
    partition_epoch: int = field(int32, "Orders this answer with metadata records.")
    min_isr: int = field(int32, "Effective min ISR at that partition epoch.")


@message
class AlterPartitionResponse:
    """Rows in the order of the request, or a request-level error without rows."""

    error_code: int = field(
        int16, "NONE, NOT_CONTROLLER, STALE_BROKER_EPOCH, OPERATION_NOT_ATTEMPTED: it came too late."
    )
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[AlterPartitionPartitionResponse, ...] = field(
        array_of(AlterPartitionPartitionResponse), "Rows."
    )
    last_request_number: int = field(
        int64,
        "With OPERATION_NOT_ATTEMPTED the highest number heard of this broker: go on above it; else -1.",
        since=2,
        default=-1,
    )
