"""The answer to DescribeLogDirs: what is in the log dirs of this broker. Reads and changes nothing."""

from collections.abc import Callable, Collection, Generator

from holdfast.broker.managed_log import LogDirContent, ManagedLog
from holdfast.metadata.answer_steps import AnswerSteps, Pace
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.log_dirs import (
    DescribedLogDir,
    DescribeLogDirsResponse,
    LogDirPartition,
    LogDirTopic,
)
from holdfast.storage.core.free_space import FreeSpace

_UNKNOWN = -1


def log_dirs_steps(
    dirs: Collection[LogDirContent], topics: Collection[str] | None, lag_of: Callable[[ManagedLog], int]
) -> AnswerSteps:
    """The answer, in steps. `topics`: only their replicas; None for all."""
    pace = Pace()
    rows: list[DescribedLogDir] = []
    for one in dirs:
        found = yield from _topics_in(one, None if topics is None else frozenset(topics), lag_of, pace)
        rows.append(
            DescribedLogDir(
                ErrorCode.NONE if one.failure is None else ErrorCode.KAFKA_STORAGE_ERROR,
                None if one.failure is None else str(one.failure),
                one.path,
                None if one.log_dir is None else one.log_dir.directory_id,
                *device_bytes(one),
                found,
            )
        )
    return DescribeLogDirsResponse(ErrorCode.NONE, None, tuple(rows))


def _topics_in(
    one: LogDirContent, topics: frozenset[str] | None, lag_of: Callable[[ManagedLog], int], pace: Pace
) -> Generator[None, None, tuple[LogDirTopic, ...]]:
    by_name: dict[str, list[LogDirPartition]] = {}
    for managed in sorted(one.logs, key=lambda managed: managed.partition):
        name, index = managed.partition
        if topics is None or name in topics:
            row = LogDirPartition(index, managed.log.size_bytes, lag_of(managed))
            by_name.setdefault(name, []).append(row)
        if pace.is_step_over(1):
            yield
    return tuple(LogDirTopic(name, tuple(rows)) for name, rows in by_name.items())


def device_bytes(one: LogDirContent) -> tuple[int, int]:
    """(total, left) of the device of a log dir, -1 when unknown."""
    space = FreeSpace() if one.log_dir is None else one.log_dir.space
    total, free = space.total_bytes, space.free_bytes
    return _UNKNOWN if total is None else total, _UNKNOWN if free is None else free
