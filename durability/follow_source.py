"""`format("holdfast.followed")`: a ledger's folder as a stream of lines, and of what consumers were given.

What was polled was sent before: files of polls are looked at first, so the line of its send is in the same
micro-batch as a poll, or in one before it.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource

from holdfast.durability.files_on_workers import read_on_worker
from holdfast.durability.growing_files import news
from holdfast.durability.ledger_files import is_polls, poll_files
from holdfast.durability.ledger_lines import read_rows
from holdfast.durability.ledger_source import SCHEMA, LedgerPartition, LedgerStreamReader
from holdfast.durability.poll_files import POLL_SCHEMA
from holdfast.durability.poll_source import PollsPartition, plan_polls
from holdfast.durability.segment_source import arrow_schema

#: What a row is: a line of a ledger, a record of a log, a record that a consumer was given.
LINE, RECORD, POLL = 0, 1, 2
_OF_LINES = SCHEMA.split(", ")
#: Columns of both kinds, those of lines first.
FOLLOWED_SCHEMA = ", ".join(
    ["origin int", *_OF_LINES, *(column for column in POLL_SCHEMA.split(", ") if column not in _OF_LINES)]
)


class FollowedSource(DataSource):
    """Option `path`: a file or a folder, as `--ledger` has it. A stream only."""

    @classmethod
    def name(cls) -> str:
        return "holdfast.followed"

    def schema(self) -> str:
        return FOLLOWED_SCHEMA

    def streamReader(self, schema: Any) -> "FollowedReader":
        return FollowedReader(self.options["path"])


class FollowedReader(LedgerStreamReader):
    """Follows ledgers, and files of polls beside them."""

    def files(self) -> Iterator[list[str]]:
        yield poll_files(self.path)
        yield from super().files()

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> list[LedgerPartition | PollsPartition]:
        polls = {path: size for path, size in end.items() if is_polls(path)}
        lines = {path: size for path, size in end.items() if path not in polls}
        return [*super().partitions(start, lines), *plan_polls(news(start, polls))]

    def read(self, partition: LedgerPartition | PollsPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(FOLLOWED_SCHEMA)
        with read_on_worker():
            if isinstance(partition, PollsPartition):
                yield from (_widened(batch, POLL, schema) for batch in partition.rows())
            else:
                yield from (_widened(batch, LINE, schema) for batch in read_rows(partition.ranges))


def _widened(batch: pa.RecordBatch, origin: int, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns; those that it does not have are NULL."""
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    arrays[0] = pa.array([origin] * batch.num_rows, schema[0].type)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
