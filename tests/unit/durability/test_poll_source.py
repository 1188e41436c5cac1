"""`format("holdfast.polls")`: small files share a task, and each is read as far as it was seen."""

import json
import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyarrow as pa

from holdfast.durability import poll_source
from holdfast.durability.poll_files import POLL_SCHEMA
from holdfast.durability.poll_source import PollsReader, PollsSource
from holdfast.durability.segment_source import arrow_schema
from tests.unit.durability.test_poll_files import line


def test_files_are_read_by_workers_as_far_as_they_were_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones by one of them: a task is dearer than its rows."""
    names = [f"{number:03}" for number in range(200)]
    paths = [tmp_path / f"{name}.polls.jsonl" for name in names]
    for path in paths:
        path.write_text(line(consumer=path.name[:3]) + line(poll=1))
    sizes = {str(path): len(line(consumer="000")) for path in paths}
    monkeypatch.setattr(poll_source, "TASK_BYTES", 50 * len(line(consumer="000")))
    source = PollsSource({"sizes": json.dumps(sizes)})
    assert source.schema() == POLL_SCHEMA
    reader, found = pickle.loads(pickle.dumps(source.reader(None))), []
    for partition in reader.partitions():
        batches = list(reader.read(pickle.loads(pickle.dumps(partition))))
        found.append(pa.Table.from_batches(batches, schema=arrow_schema(POLL_SCHEMA)).to_pylist())
    assert [len(rows) for rows in found] == [100] * 4
    told = [(row["consumer"], row["offset"]) for rows in found for row in rows]
    assert told == [(name, offset) for name in names for offset in (0, 1)]


def test_a_large_file_is_read_by_one_worker_and_a_packed_one_is_larger_than_it_is() -> None:
    size = poll_source.TASK_BYTES // 8
    sizes = {"a.polls.jsonl": 8 * size + 1, "b.polls.jsonl": 1, "c.polls.jsonl": 1, "d.polls.jsonl.gz": size}
    planned = [[path[0] for path, _, _ in partition.parts] for partition in PollsReader(sizes).partitions()]
    assert planned == [["a"], ["b", "c"], ["d"]]
