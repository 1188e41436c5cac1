"""The records of replicas' batches that the cluster does not serve, in the columns of a rule.

Reads single batches of segment files, at places that were found before. A batch that is not there any more,
as its file was truncated or deleted meanwhile, is passed over. Whether a record was sent, a rule says.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.client.core.history import key_crc32c, parse_value, value_crc32c
from holdfast.durability.arrow import FOREIGN, GOOD, state_without_name
from holdfast.durability.foreign_lines import PRODUCER, numbers_of_value
from holdfast.durability.segment_source import arrow_schema
from holdfast.durability.segments import SegmentBatch, SegmentRow, Undecodable, batch_at, batch_records

STRAY_SCHEMA = (
    "broker int, topic string, partition int, offset long, segment string, position long, state string, "
    "producer string, pseq long, value_crc32c long, key_crc32c long"
)
#: Records that are looked at: they are read by one process, and more of them are no remainder.
RECORDS_MAX = 1_000_000
#: Rows of one Arrow batch.
_ROWS_MAX = 10_000
#: Of a batch whose crc holds and whose records cannot be read: brokers take none.
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class StrayReader:
    """Reads the records of batches that were found in log dirs."""

    #: {broker id: log dir, or several separated by commas}
    log_dirs: Mapping[int, str]
    #: the ledger is another client's
    is_foreign: bool

    def read(self, places: Iterable[Mapping[str, Any]]) -> pa.Table:
        """As STRAY_SCHEMA; mappings have broker, topic, partition, base_offset, crc, segment and position."""
        made: list[pa.RecordBatch] = []
        rows: list[tuple[Any, ...]] = []
        for place in places:
            rows += self._rows(place)
            if len(rows) >= _ROWS_MAX:
                made.append(_to_arrow(rows))
                rows = []
        if rows:
            made.append(_to_arrow(rows))
        return pa.Table.from_batches(made, schema=arrow_schema(STRAY_SCHEMA))

    def _rows(self, place: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        batch = self._found(place)
        if batch is None or batch.is_control:
            return
        replica = (place["broker"], place["topic"], place["partition"])
        at = (place["segment"], place["position"])
        try:
            records = batch_records(batch)
        except Undecodable:
            yield (*replica, batch.base_offset, *at, UNREADABLE, None, None, None, None)
            return
        for record in records:
            yield (*replica, record.offset, *at, *self._of_value(record), key_crc32c(record.key))

    def _found(self, place: Mapping[str, Any]) -> SegmentBatch | None:
        for log_dir in self.log_dirs.get(place["broker"], "").split(","):
            path = Path(log_dir) / f"{place['topic']}-{place['partition']}" / place["segment"]
            batch = batch_at(path, place["position"])
            if batch is not None and (batch.base_offset, batch.crc) == (place["base_offset"], place["crc"]):
                return batch
        return None

    def _of_value(self, record: SegmentRow) -> tuple[str, str | None, int | None, int | None]:
        """(state, producer, number, checksum), as view `log` has them."""
        if record.value is None:
            return FOREIGN, None, None, None
        if self.is_foreign:
            return GOOD, PRODUCER, *numbers_of_value(record.value)
        name = parse_value(record.value)
        if name is None:
            return state_without_name(record.value), None, None, None
        return GOOD, name.producer, name.pseq, value_crc32c(record.value)


@dataclass(frozen=True, slots=True)
class Strays:
    """Makes view `stray` of durability.rules.rule out of the rows of STRAYS_SQL."""

    reader: StrayReader
    #: a table of Spark
    table: Callable[[pa.Table], Any]
    #: whether neither the ledger nor the log has grown since they were read
    is_told: Callable[[], bool]
    #: what was not looked at
    doubts: list[str] = field(default_factory=list)

    def __call__(self, batches: Any) -> Any:
        if not self.is_told():
            # of what came in since then nothing will be said, and it may be much
            batches = batches.where("base_offset < served_end")
        # a million of them as Python objects would take more than all their records
        rows = batches.limit(RECORDS_MAX + 1).toArrow().to_batches(max_chunksize=_ROWS_MAX)
        places = (place for batch in rows for place in batch.to_pylist())
        found = self.reader.read(self._bounded(places))
        told = pa.array([self.is_told()] * found.num_rows, pa.bool_())
        return self.table(found.append_column("is_told", told))

    def _bounded(self, places: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        records = 0
        for place in places:
            records += place["records"]
            if records > RECORDS_MAX:
                self.doubts.append(
                    f"replicas hold more than {RECORDS_MAX:,} records that are not served: not all were "
                    "looked at"
                )
                return
            yield place


def _to_arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    schema = arrow_schema(STRAY_SCHEMA)
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
