"""Faults planted into what brokers store beside segments, and into ends of logs: each alone is found and
named rightly, and what a crash leaves is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.plain_writer import DIRECTORY_ID, SEGMENT, Plain, checkpoint
from tests.spark.test_planted_faults import Fault, check
from tests.spark.test_planted_replicas import flipped, marks, tampered, write

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(600)]


def _points(*rows: str) -> Callable[[Path], object]:
    return lambda log_dir: checkpoint(log_dir / "recovery-point-offset-checkpoint", list(rows))


def _starts(*rows: str) -> Callable[[Path], object]:
    return lambda log_dir: checkpoint(log_dir / "log-start-offset-checkpoint", list(rows))


def _empty_segment(offset: int) -> Callable[[Path], object]:
    return lambda log_dir: (log_dir / "t-0" / f"{offset:020}.log").touch()


def _zeros_behind(log_dir: Path) -> None:
    with (log_dir / "t-0" / SEGMENT).open("ab") as file:
        file.write(bytes(600))


def _zeros_after_a_clean_stop(log_dir: Path) -> None:
    _zeros_behind(log_dir)
    (log_dir / ".kafka_cleanshutdown").touch()


def _flipped_above_the_mark(run: Plain) -> None:
    flipped(run)
    tampered(marks("t 0 5", "t 1 15"))(run)


def _as_a_second_segment(log_dir: Path) -> None:
    """Its first segment ends at 10, and its leader epochs begin there."""
    place = log_dir / "t-0"
    whole = (place / SEGMENT).read_bytes()
    end = 0
    for _ in range(2):
        end += 12 + int.from_bytes(whole[end + 8 : end + 12])
    (place / SEGMENT).write_bytes(whole[:end])
    (place / f"{10:020}.log").write_bytes(whole[end:])
    checkpoint(place / "leader-epoch-checkpoint", ["3 10"])


def _properties(**changed: str) -> Callable[[Path], object]:
    said = {"version": "1", "cluster.id": "planted", "node.id": "2", "directory.id": "A" * 22} | changed
    return write("meta.properties", "".join(f"{key}={text}\n" for key, text in said.items() if text))


def _short_and_not_acked(run: Plain) -> None:
    for line in run.lines:
        if line["kind"] == "complete" and line["producer"] == "a" and line["pseq"] >= 10:
            line.update(outcome="info", offset=-1, leader_epoch=-1)
    run.flushed = 5
    del run.replicas[2][0][2:]


def _emptied(log_dir: Path) -> None:
    for path in log_dir.iterdir():
        path.unlink()


def _a_new_disk(run: Plain) -> None:
    """Its broker has not begun with it yet."""
    run.replicas[2] = {}
    tampered(_emptied)(run)


LOG_DIRS = {
    "a byte of a batch above the high watermark and below the recovery point": Fault(
        _flipped_above_the_mark,
        5,
        {"damaged": 1},
        says="t-0 offset 5: batch on replica 2, 0+.log at byte ",
        is_fast=True,
    ),
    "zeros behind the last batch, after a clean stop": Fault(
        tampered(_zeros_after_a_clean_stop), 5, {"damaged": 1}, says="t-0 offset 20: batch on replica 2, "
    ),
    "zeros behind the last batch": Fault(tampered(_zeros_behind), 0),
    "a recovery point behind the end": Fault(
        tampered(_points("t 0 99", "t 1 15")),
        5,
        {"damaged": 1},
        says="t-0 offset 20: batch on replica 2, 0.*: the log ends at 20, and was flushed up to 99",
        is_fast=True,
    ),
    "a recovery point behind the end, of a replica out of sync": Fault(
        tampered(_points("t 0 99", "t 1 15")),
        6,
        says="1 replicas hold bytes that cannot be read, or end too early: .*: broker 2 of t-0",
        leaving=(2,),
    ),
    "a high watermark behind the end, in sync": Fault(
        tampered(marks("t 0 99", "t 1 15")),
        0,
        says="note: replicas below their own high watermarks: broker 2 of t-0 ends at 20, its mark is 99",
    ),
    "a replica in sync without what lies below its high watermark and was not acknowledged": Fault(
        _short_and_not_acked,
        6,
        {"recovered": 10},
        says="1 replicas in sync lack what was below their marks: broker 2 of t-0",
        is_fast=True,
    ),
    "a high watermark behind the end, out of sync": Fault(
        tampered(marks("t 0 99", "t 1 15")), 0, says="note: replicas below their own", leaving=(2,)
    ),
    "a log start that hides what is served": Fault(
        tampered(_starts("t 0 7")),
        6,
        says="1 replicas that begin behind records that are served, .*broker-2/t-0",
        is_fast=True,
    ),
    "a log start behind the end": Fault(
        tampered(_starts("t 0 99")), 6, says="1 replicas that begin behind records that are served, "
    ),
    "a log start where the log begins": Fault(tampered(_starts("t 0 0", "t 1 0")), 0),
    "a log start that cannot be read": Fault(
        tampered(write("log-start-offset-checkpoint", "rubbish")), 6, says="where logs begin is not known"
    ),
    "leader epochs that begin behind a segment": Fault(
        tampered(_as_a_second_segment), 6, says="1 replicas that begin behind records that are served, "
    ),
    "an empty segment far behind the end": Fault(
        tampered(_empty_segment(100)),
        5,
        {"diverged": 1},
        says="t-0 offset 20: replica 2 goes on at offset 100, 0+100.log at byte 0",
        is_fast=True,
    ),
    "an empty segment at the end": Fault(tampered(_empty_segment(20)), 0),
    "an empty segment far behind the end, of a replica out of sync": Fault(
        tampered(_empty_segment(100)), 0, leaving=(2,)
    ),
    "no meta.properties": Fault(
        tampered(lambda log_dir: (log_dir / "meta.properties").unlink()),
        6,
        says="broker-2 is given as that of broker 2, node.id 2, and its meta.properties say no node.id",
        is_fast=True,
    ),
    "empty meta.properties": Fault(
        tampered(write("meta.properties", "")), 6, says="cluster.id planted, and its .* say no cluster.id"
    ),
    "a directory id that is none": Fault(
        tampered(_properties(**{"directory.id": "?"})), 6, says="broker 2: .* say no sound directory.id"
    ),
    "no directory id, as of older builds of Kafka": Fault(tampered(_properties(**{"directory.id": ""})), 0),
    "the directory id of another log dir": Fault(
        tampered(_properties(**{"directory.id": f"{DIRECTORY_ID}1"})),
        6,
        says="1 directory ids that several log dirs have, .*broker-1, .*broker-2",
    ),
    "a new disk": Fault(_a_new_disk, 0, leaving=(2,)),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if fault.is_fast else pytest.mark.long) for name, fault in LOG_DIRS.items()],
)
def test_a_fault_of_log_dirs_is_found_alone(spark: Any, tmp_path: Path, name: str) -> None:
    check(LOG_DIRS[name], spark, tmp_path)
