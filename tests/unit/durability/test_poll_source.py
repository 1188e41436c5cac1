"""`format("holdfast.polls")`: each file is a partition of its own, and is read as far as it was seen."""

import json
import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyarrow as pa

from holdfast.durability.poll_files import POLL_SCHEMA
from holdfast.durability.poll_source import PollsSource
from holdfast.durability.segment_source import arrow_schema
from tests.unit.durability.test_poll_files import line


def test_each_file_is_read_by_a_worker_as_far_as_it_was_seen(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.polls.jsonl" for name in "ab"]
    for path in paths:
        path.write_text(line(consumer=path.name[0]) + line(poll=1))
    sizes = {str(path): len(line(consumer="c")) for path in paths}
    source = PollsSource({"sizes": json.dumps(sizes)})
    assert source.schema() == POLL_SCHEMA
    reader, found = pickle.loads(pickle.dumps(source.reader(None))), []
    for partition in reader.partitions():
        batches = list(reader.read(pickle.loads(pickle.dumps(partition))))
        found.append(pa.Table.from_batches(batches, schema=arrow_schema(POLL_SCHEMA)).to_pylist())
    assert [[(row["consumer"], row["offset"]) for row in rows] for rows in found] == [
        [("a", 0), ("a", 1)],
        [("b", 0), ("b", 1)],
    ]
