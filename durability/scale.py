"""How tables are kept and put together, for much data and for little. For some thousand sends Spark's ways
with much are a hundred jobs of tasks that are each dearer than their rows.

Little data is read by this process and is one partition, so that no query moves rows, and queries are run as
they are instead of being compiled. The queries are the same. Knows no rule.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from holdfast.durability.digest_jobs import SMALL_BYTES
from holdfast.durability.read_options import OffsetRange
from holdfast.durability.segment_source import arrow_schema
from holdfast.durability.segments import parse_log_dirs, replica_folders, segment_bytes
from holdfast.durability.spark_errors import SPARK_ERRORS

#: Records of the topics that are little.
SMALL_RECORDS = 1 << 15
#: A session's for little data. One partition has together what any query wants together, and a join by
#: broadcast would be a job of its own. Most of the time goes to planning: what looks through whole plans for
#: work to spare, or for bugs of Spark, costs more than all rows.
_LITTLE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.exchange.reuse": "false",
    "spark.sql.execution.reuseSubquery": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Scale:
    """For much data: tables are computed where Spark's workers are, and cached there."""

    def kept(self, frame: Any) -> Any:
        """A table that several queries look at, which stays as it is."""
        return frame.cache()

    def counted(self, frame: Any) -> tuple[Any, int]:
        """The same, and how many rows it has."""
        kept = self.kept(frame)
        return kept, kept.count()

    def gathered(self, frame: Any, *columns: str) -> Any:
        """The table with rows in one place that are equal in these columns."""
        return frame.repartition(*columns)

    def table(self, spark: Any, rows: pa.Table) -> Any:
        """Few rows, or many of little data, that this process has."""
        return spark.createDataFrame(rows)

    def rows(self, spark: Any, rows: Iterable[Sequence[Any]], schema: str) -> Any:
        """The same of rows in the plain columns of `schema`."""
        arrow = arrow_schema(schema)
        cells = list(zip(*rows, strict=True)) or [()] * len(arrow)
        arrays = [pa.array(column, field.type) for column, field in zip(cells, arrow, strict=True)]
        return self.table(spark, pa.Table.from_arrays(arrays, schema=arrow))

    def together(self, frame: Any) -> Any:
        """The table of many queries, of which another one looks at all."""
        return frame

    @contextmanager
    def settings(self, spark: Any) -> Iterator[None]:
        """The session's, while queries run."""
        yield


class Little(Scale):
    """For little: rows are part of each query's plan, which ends at once where they leave nothing to do."""

    def kept(self, frame: Any) -> Any:
        return self.counted(frame)[0]

    def counted(self, frame: Any) -> tuple[Any, int]:
        rows = frame.toArrow()
        return self.table(frame.sparkSession, rows), rows.num_rows

    def gathered(self, frame: Any, *columns: str) -> Any:
        return frame.coalesce(1)

    def together(self, frame: Any) -> Any:
        return frame.coalesce(1)

    @contextmanager
    def settings(self, spark: Any) -> Iterator[None]:
        before = {name: spark.conf.get(name, None) for name in _LITTLE}
        for name, value in _LITTLE.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            # a session whose Java has died has no settings, and the verdict says that it died
            with suppress(*SPARK_ERRORS, OSError):
                for name, value in before.items():
                    spark.conf.unset(name) if value is None else spark.conf.set(name, value)

    def table(self, spark: Any, rows: pa.Table) -> Any:
        return super().table(spark, rows).coalesce(1)


MUCH, LITTLE = Scale(), Little()


def scale_of(
    sizes: Mapping[str, int],
    ranges: Iterable[OffsetRange],
    log_dirs: Mapping[int, str],
    topics: Iterable[str],
) -> Scale:
    """Of ledgers {file: bytes}, the topics' ranges, and their replicas in {broker: log dir, or several}.
    Raises: OSError, and ValueError for a log dir that is not there."""
    if sum(sizes.values()) > SMALL_BYTES or sum(item.end - item.start for item in ranges) > SMALL_RECORDS:
        return MUCH
    return MUCH if _replica_bytes(log_dirs, topics) > SMALL_BYTES * len(log_dirs) else LITTLE


def _replica_bytes(log_dirs: Mapping[int, str], topics: Iterable[str]) -> int:
    paths = [f"{broker}={path}" for broker, text in log_dirs.items() for path in text.split(",")]
    if not paths:
        return 0
    folders = replica_folders(parse_log_dirs(",".join(paths)), frozenset(topics))
    return sum(segment_bytes(folder.path) for folder in folders)
