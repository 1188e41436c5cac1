"""A worker that does not see the driver's files says so in one sentence, instead of finding nothing."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.history import RowWriter
from holdfast.durability.digest_jobs import _each, _sums_of_lines
from holdfast.durability.files_on_workers import NotOnWorker
from holdfast.durability.ledger_source import LedgerReader, plan, sizes_of
from holdfast.durability.poll_source import PollsReader
from holdfast.durability.segment_source import SegmentsReader
from holdfast.durability.spark_errors import reason_of
from tests.spark.builders import clean_history, history_batches, write_log_dir


def ledger(folder: Path) -> Callable[[], Iterator[Any]]:
    (folder / "a.jsonl").write_text(RowWriter("run", "p").invoke(0, "t", 0, 7, -1, 1))
    reader = LedgerReader([str(folder / "a.jsonl")], 1)
    (partition,) = reader.partitions()
    return lambda: reader.read(partition)


def sums(folder: Path) -> Callable[[], Iterator[Any]]:
    (folder / "a.jsonl").write_text(RowWriter("run", "p").invoke(0, "t", 0, 7, -1, 1))
    ranges = plan(sizes_of([str(folder / "a.jsonl")]), 1)
    return lambda: _each(_sums_of_lines, iter(ranges))


def polls(folder: Path) -> Callable[[], Iterator[Any]]:
    (folder / "a.polls.jsonl").write_text("{}\n")
    reader = PollsReader({str(folder / "a.polls.jsonl"): 3})
    (partition,) = reader.partitions()
    return lambda: reader.read(partition)


def log_dir(folder: Path) -> Callable[[], Iterator[Any]]:
    write_log_dir(folder / "b1", history_batches(clean_history("t")), 20)
    reader = SegmentsReader(f"1={folder / 'b1'}", True, None, None, 1)
    (partition,) = reader.partitions()
    return lambda: reader.read(partition)


@pytest.mark.parametrize("planned", [ledger, sums, polls, log_dir])
def test_what_only_the_driver_sees_is_named(
    tmp_path: Path, planned: Callable[[Path], Callable[[], Iterator[Any]]]
) -> None:
    (tmp_path / "here").mkdir()
    read = planned(tmp_path / "here")
    assert list(read()) is not None
    shutil.rmtree(tmp_path / "here")
    with pytest.raises(
        NotOnWorker, match=f"^{tmp_path}/here/.* where Spark reads it: its workers must see it"
    ):
        list(read())


def test_a_replica_that_is_gone_from_its_log_dir_is_read_as_nothing(tmp_path: Path) -> None:
    read = log_dir(tmp_path)
    shutil.rmtree(tmp_path / "b1" / "t-0")
    shutil.rmtree(tmp_path / "b1" / "t-1")
    assert list(read()) == []


TASK = "An error occurred while calling o1.collect.\n: SparkException: Job aborted: Task 0 failed"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{TASK}\nTraceback (most recent call last):\n  File 'a', line 1\nValueError: x\n\n\tat a.B",
            "ValueError: x",
        ),
        (
            f"{TASK}\nTraceback (most recent call last):\n  File 'a'\nholdfast.a.B: y\n\n\tat a.B",
            "holdfast.a.B: y",
        ),
        (
            "PythonException: Traceback (most recent call last):\n  File 'a'\nOSError: 1\n\n"
            "During handling, another:\n\nTraceback (most recent call last):\n  File 'b'\nKeyError: 2\n",
            "KeyError: 2",
        ),
        (TASK, "An error occurred while calling o1.collect."),
        ("", "Exception"),
    ],
)
def test_the_reason_is_what_the_worker_raised(text: str, reason: str) -> None:
    assert reason_of(Exception(text)) == reason
