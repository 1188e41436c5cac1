"""`format("holdfast.polls")`: files of polls as a table, read by Spark's workers, each file by one of them.

What a line is, is `durability.poll_files`' business.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from holdfast.durability.files_on_workers import read_on_worker
from holdfast.durability.poll_files import POLL_SCHEMA, read_polls
from holdfast.durability.segment_source import arrow_schema


@dataclass
class PollsPartition(InputPartition):
    """One Spark partition: a file, of which so many bytes are read."""

    path: str
    size: int
    #: first byte of what is read
    start: int = 0


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
        return [PollsPartition(path, size) for path, size in self.sizes.items()]

    def read(self, partition: PollsPartition) -> Iterator[pa.RecordBatch]:
        with read_on_worker():
            yield from read_polls(partition.path, partition.size, arrow_schema(POLL_SCHEMA))
