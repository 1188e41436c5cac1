"""Metrics of a broker's log dirs, and of the unflushed data that a power loss would take.

Owns names, labels and sums by topic; the log manager gives the values. `broker.core.telemetry` has the series
of single partitions. Each scrape walks the logs once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from holdfast.runtime.stats import MetricFamily, MetricKind, Sample
from holdfast.storage.core.cleaner_plan import CleanerCounts
from holdfast.storage.core.flush_stats import FlushStats
from holdfast.storage.core.free_space import FreeSpace
from holdfast.storage.core.scrub_plan import ScrubCounts


class LogState(NamedTuple):
    """One log."""

    topic: str
    size_bytes: int
    unflushed_bytes: int
    unflushed_records: int


class LogDirState(NamedTuple):
    """One of `log.dirs`."""

    path: str
    is_online: bool
    log_count: int
    #: logs not yet opened and recovered since the start
    remaining_count: int
    #: None when it could not be opened
    space: FreeSpace | None
    #: folders of damaged logs that were put aside
    quarantined_count: int


def log_families(
    logs: Iterable[LogState], dirs: Iterable[LogDirState], flushes: FlushStats, damaged_count: int
) -> list[MetricFamily]:
    """Everything, as of now."""
    sums: dict[str, list[int]] = {}
    for topic, size_bytes, unflushed_bytes, unflushed_records in logs:
        known = sums.setdefault(topic, [0, 0, 0])
        known[0] += size_bytes
        known[1] += unflushed_bytes
        known[2] += unflushed_records
    seen = list(dirs)
    spaces = [log_dir.space or FreeSpace() for log_dir in seen]

    def by_topic(name: str, help: str, column: int) -> MetricFamily:
        samples = tuple(Sample(values[column], (("topic", topic),)) for topic, values in sorted(sums.items()))
        return MetricFamily(f"kafka_log_{name}", MetricKind.GAUGE, help, samples)

    def by_dir(name: str, help: str, values: Iterable[int | None]) -> MetricFamily:
        samples = tuple(
            Sample(value, (("dir", log_dir.path),))
            for log_dir, value in zip(seen, values, strict=True)
            if value is not None
        )
        return MetricFamily(f"kafka_log_{name}", MetricKind.GAUGE, help, samples)

    return [
        by_topic("size_bytes", "Bytes of logs on this broker.", 0),
        by_topic("unflushed_bytes", "Bytes that a power loss of this broker would take.", 1),
        by_topic("unflushed_records", "Records that a power loss of this broker would take.", 2),
        MetricFamily(
            "kafka_log_flush_seconds",
            MetricKind.HISTOGRAM,
            "Duration of flushes in seconds.",
            (Sample(flushes.seconds.value()),),
        ),
        MetricFamily(
            "kafka_log_flushes_total",
            MetricKind.COUNTER,
            "Flushes, by reason.",
            tuple(Sample(count, (("reason", reason.value),)) for reason, count in flushes.counts.items()),
        ),
        by_dir("directory_offline", "1 for a log dir that failed.", (not d.is_online for d in seen)),
        by_dir("directory_logs", "Logs in the dir.", (d.log_count for d in seen)),
        by_dir(
            "recovery_remaining_logs",
            "Logs not yet opened after the start.",
            (d.remaining_count for d in seen),
        ),
        by_dir(
            "directory_free_bytes",
            "Bytes left on the device of the dir.",
            (space.free_bytes for space in spaces),
        ),
        by_dir(
            "directory_total_bytes",
            "Size of the device of the dir.",
            (space.total_bytes for space in spaces),
        ),
        by_dir(
            "directory_refuses_records",
            "1 while too little is left to take records of clients.",
            (space.is_low for space in spaces),
        ),
        by_dir(
            "quarantined_replicas",
            "Folders of damaged logs that were put aside.",
            (d.quarantined_count for d in seen),
        ),
        MetricFamily(
            "kafka_log_damaged_total",
            MetricKind.COUNTER,
            "Logs that were found damaged.",
            (Sample(damaged_count),),
        ),
    ]


def scrub_families(counts: Mapping[str, ScrubCounts]) -> list[MetricFamily]:
    """What the scrub has read and found, by path of the log dir."""

    def by_dir(
        name: str, kind: MetricKind, help: str, value_of: Callable[[ScrubCounts], float]
    ) -> MetricFamily:
        samples = tuple(Sample(value_of(count), (("dir", path),)) for path, count in counts.items())
        return MetricFamily(f"kafka_log_{name}", kind, help, samples)

    return [
        by_dir(
            "scrubbed_bytes_total",
            MetricKind.COUNTER,
            "Bytes of closed segments that were read again and checked.",
            lambda count: count.read_bytes,
        ),
        by_dir(
            "scrub_damaged_total",
            MetricKind.COUNTER,
            "Logs that the scrub has found damaged.",
            lambda count: count.damaged_count,
        ),
        by_dir(
            "scrub_completed_time_seconds",
            MetricKind.GAUGE,
            "When the last complete scrub ended, in seconds since the epoch; 0 before the first.",
            lambda count: max(0, count.completed_ms) / 1000,
        ),
    ]


#: (name, kind, help, field of CleanerCounts)
_CLEANER = (
    ("cleaner_runs_total", MetricKind.COUNTER, "Compactions of a log that have ended.", "run_count"),
    ("cleaner_read_bytes_total", MetricKind.COUNTER, "Bytes that compaction has read.", "read_bytes"),
    (
        "cleaner_removed_bytes_total",
        MetricKind.COUNTER,
        "Bytes that compaction has removed.",
        "removed_bytes",
    ),
    (
        "cleaner_removed_records_total",
        MetricKind.COUNTER,
        "Records that compaction has removed.",
        "removed_records",
    ),
    (
        "cleaner_failures_total",
        MetricKind.COUNTER,
        "Compactions that were given up, because the disk was full or records could not be read.",
        "failed_count",
    ),
    (
        "cleaner_uncleanable_logs",
        MetricKind.GAUGE,
        "Logs that are not compacted because their records could not be read.",
        "uncleanable_count",
    ),
    (
        "cleaner_max_dirty_ratio",
        MetricKind.GAUGE,
        "Share of bytes that came since the last compaction, in the dirtiest log.",
        "dirty_ratio",
    ),
)


def cleaner_families(counts: Mapping[str, CleanerCounts]) -> list[MetricFamily]:
    """What compaction has done, by path of the log dir; none without compacted topics."""
    return [
        MetricFamily(
            f"kafka_log_{name}",
            kind,
            help,
            tuple(Sample(getattr(count, field), (("dir", path),)) for path, count in counts.items()),
        )
        for name, kind, help, field in (_CLEANER if counts else ())
    ]
