"""Metrics of the logs and their dirs."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from holdfast.broker.core.replicas.log_metrics import LogDirState, LogState, log_families
from holdfast.broker.managed_log import ManagedLog
from holdfast.runtime.stats import MetricFamily
from holdfast.storage.core.flush_stats import FlushStats
from holdfast.storage.log_dir import LogDir


def log_stats(
    managed_logs: Collection[ManagedLog],
    dirs: Iterable[LogDir],
    absent: Iterable[str],
    *,
    remaining: Mapping[str, int],
    aside: Mapping[str, int],
    found_damaged: int,
    flush_stats: FlushStats,
) -> list[MetricFamily]:
    """`absent`: dirs that could not be opened; `remaining`: {path of a dir: logs still to be opened};
    `aside`: {path: damaged logs that were put aside}."""
    counts = Counter(managed.log_dir.path for managed in managed_logs)
    logs = (
        LogState(
            managed.partition.topic,
            managed.log.size_bytes,
            managed.log.unflushed_bytes,
            managed.log.log_end_offset - managed.log.flushed_offset,
        )
        for managed in managed_logs
    )
    states = [LogDirState(path, False, 0, 0, None, 0) for path in absent]
    states += [
        LogDirState(d.path, d.is_online, counts[d.path], remaining.get(d.path, 0), d.space, aside[d.path])
        for d in dirs
    ]
    return log_families(logs, states, flush_stats, found_damaged)
