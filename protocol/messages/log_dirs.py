"""DescribeLogDirs (35): the log dirs of one broker, what is in them and how full their devices are."""

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
    string,
    uuid,
)


@message
class DescribeLogDirsRequest:
    """Ask each broker for its own; also a fenced one answers."""

    topics: tuple[str, ...] | None = field(nullable(array(string)), "Only replicas of these; null: of all.")


@message
class LogDirPartition:
    """One replica."""

    partition_index: int = field(int32, "Index.")
    size_bytes: int = field(int64, "Bytes of its segments.")
    offset_lag: int = field(int64, "Records below the high watermark that it knows and does not have.")


@message
class LogDirTopic:
    """The replicas of one topic in a log dir."""

    name: str = field(string, "Topic.")
    partitions: tuple[LogDirPartition, ...] = field(array_of(LogDirPartition), "By index.")


@message
class DescribedLogDir:
    """One of `log.dirs`."""

    error_code: int = field(int16, "NONE, or KAFKA_STORAGE_ERROR: offline until the broker starts again.")
    error_message: str | None = field(nullable(sentence), "Why it is offline.")
    path: str = field(string, "As in log.dirs.")
    directory_id: bytes | None = field(nullable(uuid), "Its id; null when it could not be opened.")
    total_bytes: int = field(int64, "Size of its device, -1 when unknown.")
    usable_bytes: int = field(int64, "Bytes left there, -1 when unknown.")
    topics: tuple[LogDirTopic, ...] = field(array_of(LogDirTopic), "What is in it, by name.")


@message
class DescribeLogDirsResponse:
    """The log dirs as configured, offline ones first that could not be opened."""

    error_code: int = field(int16, "NONE, BROKER_NOT_AVAILABLE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    log_dirs: tuple[DescribedLogDir, ...] = field(array_of(DescribedLogDir), "Rows.")
