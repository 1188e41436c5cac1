"""What client calls raise. Every error carries a sentence that says what to do, and the code it came with."""

from dataclasses import dataclass

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition


class ClientError(Exception):
    """A request was refused or did not succeed in time. `code` is None when no node answered."""

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class TimedOut(ClientError):
    """Nothing definite was heard in the time given."""


class ProduceFailed(ClientError):
    """A record got no acknowledgement. `may_be_appended` is False only when it cannot be in any log."""

    def __init__(self, message: str, code: ErrorCode | None, *, may_be_appended: bool) -> None:
        super().__init__(message, code)
        self.may_be_appended = may_be_appended


class BufferFull(ClientError):
    """`send_nowait` met the limit of buffered bytes: wait for `Producer.room()`."""


class NoSuchOffset(ClientError):
    """A position is outside the log and the reset policy is NONE: seek."""

    def __init__(
        self, message: str, code: ErrorCode | None = None, partition: TopicPartition | None = None
    ) -> None:
        super().__init__(message, code)
        #: whose position it is
        self.partition = partition


class CommitFailed(ClientError):
    """Offsets were not committed: the group refuses them. When it has rebalanced, the partitions may belong
    to another member, which reads on from the last commit."""


class LogTruncated(ClientError):
    """Records that were read are gone: the log parted below the position (unclean election). Seek."""


class CorruptRecords(ClientError):
    """A fetched batch does not match its crc or cannot be decoded. The position stays before it: seek to
    `next_offset` to go on behind it. Other partitions go on."""

    def __init__(
        self,
        message: str,
        code: ErrorCode | None,
        partition: TopicPartition,
        offset: int,
        next_offset: int | None,
    ) -> None:
        super().__init__(message, code)
        self.partition = partition
        #: where the batch begins
        self.offset = offset
        #: behind the batch; None when not even its header can be read
        self.next_offset = next_offset


@dataclass(frozen=True, slots=True)
class RowError:
    """Why one item of a request was refused; the others may be done. The message says what to do."""

    code: ErrorCode
    message: str

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


def row_error(number: int, text: str | None) -> RowError | None:
    """The error of a row, None for success."""
    code = code_of(number)
    return None if code is ErrorCode.NONE else RowError(code, text or "no reason given")


def code_of(number: int) -> ErrorCode:
    """The code with that number; UNKNOWN_SERVER_ERROR when a newer peer sent one that we do not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
