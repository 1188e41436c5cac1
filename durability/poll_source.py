"""`format("holdfast.polls")`: files of polls as a table, read by Spark's workers, small files some at a time.

What a line is, is `durability.poll_files`' business.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.durability.files_on_workers import read_on_worker
from holdfast.durability.ledger_files import weight_of
from holdfast.durability.ledger_source import gathered
from holdfast.durability.poll_files import POLL_SCHEMA, read_polls
from holdfast.durability.segment_source import arrow_schema

#: What a Spark partition has, as JSON lines, where files are smaller: a task is dearer than some rows. One
#: file is read by one worker, as a session's lines are compared with each other.
TASK_BYTES = 4 << 20


@dataclass
class PollsPartition(InputPartition):
    """One Spark partition: parts of files."""

    #: (file, first byte, end)
    parts: list[tuple[str, int, int]]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """As POLL_SCHEMA. Raises: OSError."""
        schema = arrow_schema(POLL_SCHEMA)
        for path, start, end in self.parts:
            yield from read_polls(path, end, schema, start)


def plan_polls(parts: Iterable[tuple[str, int, int]]) -> list[PollsPartition]:
    """The Spark partitions of these parts, of (file, first byte, end)."""
    weighed = (((path, start, end), (end - start) * weight_of(path)) for path, start, end in parts)
    return [PollsPartition(some) for some in gathered(weighed, TASK_BYTES)]


class PollsSource(DataSource):
    """Option `sizes`: JSON {file: bytes to read}."""

    @classmethod
    def name(cls) -> str:
        return "holdfast.polls"

    def schema(self) -> str:
        return POLL_SCHEMA

    def reader(self, schema: Any) -> "PollsReader":
        return PollsReader(json.loads(self.options["sizes"]))


@dataclass
class PollsReader(DataSourceReader):
    """Reads {file: bytes}."""

    sizes: Mapping[str, int]

    def partitions(self) -> list[PollsPartition]:
        return plan_polls((path, 0, size) for path, size in self.sizes.items())

    def read(self, partition: PollsPartition) -> Iterator[pa.RecordBatch]:
        with read_on_worker():
            yield from partition.rows()
