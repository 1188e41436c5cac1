"""Fetch (1): read batches. One path for consumers, follower brokers and the metadata quorum (R80, K10)."""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    boolean,
    field,
    int16,
    int32,
    int64,
    message,
    nullable,
    records,
    sentence,
    string,
    struct,
    uuid,
)

#: `replica_id` of a consumer.
CONSUMER_REPLICA_ID = -1
#: `replica_id` of a reader that asks any replica, not the leader alone, for what that one has below the high
#: watermark that it knows; answered at once, and verified. As in Kafka, for tools.
DEBUGGING_REPLICA_ID = -2
#: `session_id` of a request that is complete in itself.
NO_SESSION = -1
#: Topic id of the metadata log, as in Kafka.
METADATA_TOPIC_ID = bytes(15) + b"\x01"


@message
class FetchPartition:
    """Where one partition is read. For a follower the position proves what it holds (D6)."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    current_leader_epoch: int = field(int32, "Leader epoch that the reader believes in, -1 for none (R55).")
    fetch_offset: int = field(int64, "Next offset wanted; a follower's log end offset.")
    last_fetched_epoch: int = field(
        int32, "Epoch of the follower's last batch, -1 for none: divergence check (R80)."
    )
    flushed_offset: int = field(int64, "A follower's durable log end, -1 for consumers.")
    max_bytes: int = field(int32, "Most bytes for this partition; the first batch is sent whole at any size.")
    has_refused: bool = field(
        boolean,
        "The follower refused what it was sent from here: the leader verifies its log before it sends again.",
        since=1,
        default=False,
    )
    log_start_offset: int = field(
        int64,
        "Where a follower's log begins, durably; -1 for consumers.",
        since=2,
        default=-1,
    )


@message
class ForgottenPartition:
    """A partition that the follower no longer fetches here."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")


@message
class FetchRequest:
    """Answered at once when there is data, an error or news for the reader, else after `max_wait_ms`."""

    cluster_id: str | None = field(nullable(string), "Set by quorum members: refuses strangers.")
    replica_id: int = field(
        int32,
        "Broker id of a follower, node id of a quorum member, -1 for a consumer, -2 for one of any replica.",
    )
    broker_epoch: int = field(int64, "The follower's broker epoch, -1 when it has none.")
    max_wait_ms: int = field(int32, "Longest wait for data.")
    min_bytes: int = field(int32, "Answer once so many bytes are there.")
    max_bytes: int = field(int32, "Most bytes in the answer; the first batch is sent whole at any size.")
    partitions: tuple[FetchPartition, ...] = field(
        array_of(FetchPartition), "Partitions, in order of preference, each once."
    )
    session_id: int = field(
        int64,
        "A follower's number for its present connection to this leader, counted from 1; -1 for no session.",
        default=NO_SESSION,
    )
    session_epoch: int = field(
        int32,
        "0: `partitions` is complete. n: request n of the session, `partitions` are the rows that changed.",
        default=0,
    )
    forgotten: tuple[ForgottenPartition, ...] = field(
        array_of(ForgottenPartition), "Rows that leave the session.", default=()
    )
    voter_ids: tuple[int, ...] | None = field(
        nullable(array(int32)),
        "Set by quorum members: the voters in their configuration, ascending; refused by another quorum.",
        default=None,
    )
    voter_directory_id: bytes | None = field(
        nullable(uuid),
        "Set by voters: INVALID_VOTER_KEY when the metadata log names another directory (K8).",
        since=1,
        default=None,
    )
    is_admitted: bool = field(
        boolean,
        "Set by voters: the directory counts; false until it has seen its admission.",
        since=1,
        default=True,
    )
    kraft_version: int = field(
        int16,
        "Set by quorum members: 1 when the sender has durably noted that the log may name the voters, 0 when "
        "not yet (K30); -1 from others.",
        since=3,
        default=-1,
    )


@message
class EpochEndOffset:
    """Where logs part: the largest known epoch not above the one asked for, and its end (exclusive)."""

    epoch: int = field(int32, "Leader epoch.")
    end_offset: int = field(int64, "First offset after it.")


@message
class FetchPartitionResponse:
    """Data of one partition, or why there is none."""

    topic_id: bytes = field(uuid, "Topic.")
    partition_index: int = field(int32, "Partition.")
    error_code: int = field(int16, "NONE, or what is wrong with this row.")
    high_watermark: int = field(int64, "End of the committed part, exclusive; -1 when not known yet (A-6).")
    log_start_offset: int = field(int64, "First offset still kept, -1 on error.")
    log_end_offset: int = field(int64, "The leader's log end, for followers; -1 for consumers.")
    diverging_epoch: EpochEndOffset | None = field(
        nullable(struct(EpochEndOffset)), "Truncate to here first (R81)."
    )
    leader_id: int = field(int32, "Leader as this node knows it, -1 when unknown.")
    leader_epoch: int = field(int32, "Epoch of that leader.")
    records: memoryview = field(
        records, "Whole record batches; the first may begin below the offset asked for."
    )
    snapshot_id: EpochEndOffset | None = field(
        nullable(struct(EpochEndOffset)),
        "Of the metadata log: fetch this snapshot first, with FetchSnapshot (K14).",
        since=2,
        default=None,
    )


@message
class FetchResponse:
    """One row for each partition of the request that has news; a request-level error has no rows."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    partitions: tuple[FetchPartitionResponse, ...] = field(array_of(FetchPartitionResponse), "Rows.")
    last_session_id: int = field(
        int64,
        "With FETCH_SESSION_ID_NOT_FOUND the last `session_id` of this follower, 0 for none: go on with the "
        "next one; else -1.",
        since=1,
        default=-1,
    )
    leader_endpoint: str | None = field(
        nullable(string),
        "Of the metadata log, when that names the voters: host:port of the leader in its row (K30).",
        since=3,
        default=None,
    )
