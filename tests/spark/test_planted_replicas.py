"""Faults planted into replicas' files, as in `test_planted_faults`: each alone is found and named rightly."""

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.durability.phases import Seconds
from holdfast.durability.validate import ValidateOptions, validate
from tests.spark.plain_writer import BATCH, KEY, TOPIC, Plain, batch, checkpoint, crc32c, value
from tests.spark.planted_log import PlantedLogs
from tests.spark.test_planted_faults import Fault, check

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(600)]


def _other_batch(run: Plain, at: int, epoch: int) -> None:
    run.replicas[2][0][at] = batch(at * BATCH, [value("other", n) for n in range(BATCH)], epoch)


def _other_everywhere(run: Plain, at: int, epoch: int) -> None:
    _other_batch(run, at, epoch)
    for partitions in run.replicas.values():
        partitions[0][at] = run.replicas[2][0][at]


def _without_first(*brokers: int) -> Callable[[Plain], None]:
    def plant(run: Plain) -> None:
        for broker in brokers:
            del run.replicas[broker][0][0]

    return plant


def _more(values: Callable[[Plain], list[bytes]]) -> Callable[[Plain], None]:
    """A batch behind the end of what is served, in all replicas, below their high watermarks."""

    def plant(run: Plain) -> None:
        more = batch(20, values(run))
        for partitions in run.replicas.values():
            partitions[0].append(more)
        run.high_watermark = 25

    return plant


def _sent_later(run: Plain) -> list[bytes]:
    sent = []
    for number in range(20, 25):
        line = run.line("invoke", "a", 7) | {"pseq": number, "value_crc32c": crc32c(value("a", number))}
        run.lines.append(line)
        sent.append(value("a", number))
    return sent


def _above(
    values: Callable[[Plain], list[bytes]], *brokers: int, epoch: int = 4, key: bytes = KEY
) -> Callable[[Plain], None]:
    """The last batch, which lies above the high watermarks, is another one."""

    def plant(run: Plain) -> None:
        for broker in brokers:
            run.replicas[broker][0][3] = batch(3 * BATCH, values(run), epoch, key=key)

    return plant


def _strangers(run: Plain) -> list[bytes]:
    return [value("stranger", number) for number in range(BATCH)]


def _of_epoch(epoch: int, *brokers: int) -> Callable[[Plain], None]:
    """The first batch, byte for byte, in another leader epoch."""

    def plant(run: Plain) -> None:
        run.flushed = 0
        for broker in brokers:
            whole = run.replicas[broker][0][0]
            run.replicas[broker][0][0] = whole[:12] + struct.pack(">i", epoch) + whole[16:]

    return plant


def tampered(change: Callable[[Path], object]) -> Callable[[Plain], None]:
    """Files of broker 2's log dir, changed."""

    def plant(run: Plain) -> None:
        run.tamper = lambda dirs: change(Path(dirs[2]))

    return plant


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda log_dir: (log_dir / name).write_text(text)


def marks(*rows: str) -> Callable[[Path], object]:
    return lambda log_dir: checkpoint(log_dir / "replication-offset-checkpoint", list(rows))


def _in_a_second_log_dir(run: Plain) -> None:
    def plant(dirs: dict[int, str]) -> None:
        again = f"{dirs[2]}-too"
        shutil.copytree(dirs[2], again)
        dirs[2] += f",{again}"

    run.tamper = plant


def _no_replicas(log_dir: Path) -> None:
    """Folders that are no replicas: of a partition that there is not, of one that is being deleted, that was
    put aside, that moves to another log dir."""
    for name in ("t-9", f"t-0.{'a' * 32}-delete", f"t-0.{'a' * 32}-corrupt", f"t-0.{'a' * 32}-future"):
        shutil.copytree(log_dir / "t-1", log_dir / name)


def flipped(run: Plain) -> None:
    whole = run.replicas[2][0][1]
    run.replicas[2][0][1] = whole[:80] + bytes((whole[80] ^ 1,)) + whole[81:]


def _falling(run: Plain) -> None:
    run.flushed = 10
    for partitions in run.replicas.values():
        partitions[0][2] = batch(2 * BATCH, run.served[0][10:15], EPOCH_BEFORE)


def _exchanged(run: Plain) -> None:
    batches = run.replicas[2][0]
    batches[1], batches[2] = batches[2], batches[1]


def _cut_and_other(run: Plain) -> None:
    del run.served[0][-3:]
    run.replicas = {broker: run.batches() for broker in run.replicas}
    _other_batch(run, 1, 3)


def _damaged_and_unmarked(run: Plain) -> None:
    flipped(run)
    run.without_marks = {2}


def _unmarked(run: Plain) -> None:
    run.without_marks = {1, 2, 3}


def _checkpoint(*epochs: tuple[int, int], flushed: int = 15) -> Callable[[Plain], None]:
    def plant(run: Plain) -> None:
        run.epochs, run.flushed = list(epochs), flushed

    return plant


def _no_checkpoint(run: Plain) -> None:
    run.epochs = None


def _damaged_and_marked_0(run: Plain) -> None:
    flipped(run)
    tampered(marks("t 0 0", "t 1 15"))(run)


def _all_marked_0(run: Plain) -> None:
    run.tamper = lambda dirs: [marks("t 0 0", "t 1 15")(Path(log_dir)) for log_dir in dirs.values()]


def _neither_flushed_nor_marked(run: Plain) -> None:
    def change(log_dir: Path) -> None:
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            checkpoint(log_dir / name, ["t 1 15"])

    tampered(change)(run)


def _left_over(run: Plain) -> None:
    def plant(dirs: dict[int, str]) -> None:
        log_dir = Path(dirs[2]).with_name("broker-4")
        shutil.copytree(Path(dirs[2]) / "t-1", log_dir / "t-1")
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            checkpoint(log_dir / name, [])
        (log_dir / ".kafka_cleanshutdown").touch()
        (log_dir / "meta.properties").write_text("version=1\nnode.id=4\ncluster.id=planted\n")
        dirs[4] = str(log_dir)

    run.tamper = plant


EPOCH_BEFORE = 2

REPLICAS = {
    "other bytes below the high watermark": Fault(
        lambda run: _other_batch(run, 1, 3),
        5,
        {"diverged": 1},
        says=r"odd one is replica 2.*byte \d+.*dump-log --files .*broker-2/t-0/0",
        is_fast=True,
    ),
    "other bytes of another epoch above it": Fault(
        lambda run: _other_batch(run, 3, 4),
        5,
        {"unsent": 5},
        says=r"t-0 offset 15 other record 0: replica 2, 0+.log at byte \d+: never sent; holdfast dump-log",
        is_fast=True,
    ),
    "other bytes of the epoch above it": Fault(
        lambda run: _other_batch(run, 3, 3), 5, {"rewritten": 1, "unsent": 5}
    ),
    "what was sent, in another order, above it": Fault(
        _above(lambda run: run.served[0][19:14:-1], 2), 0, says="rules: 23 of 29"
    ),
    "what was sent, below it and not served": Fault(_more(_sent_later), 0),
    "what was never sent, below it and not served": Fault(_more(_strangers), 5, {"unsent": 5}),
    "no value of a ledger, above it": Fault(
        _above(lambda run: [b"hello"] * BATCH, 1, 2, 3), 5, {"unsent": 5}, says="not the value of a ledger"
    ),
    "a value with a broken checksum, above it": Fault(
        _above(lambda run: [*run.served[0][15:19], run.served[0][19][:-1] + b"!"], 2),
        5,
        {"unsent": 1},
        says="checksum does not hold",
    ),
    "what was sent to the other partition, above it": Fault(
        _above(lambda run: run.served[1][15:], 1, 3), 5, {"unsent": 5}, says="replicas 1, 3, .* sent to t-1"
    ),
    "what was sent with another key, above it": Fault(
        _above(lambda run: run.served[0][15:], 2, key=b"other"), 5, {"unsent": 5}, says="its key is not"
    ),
    "the same bytes of another epoch in one": Fault(_of_epoch(2, 2), 5, {"diverged": 1}, says="epoch 2 crc"),
    "the same bytes of another epoch in all": Fault(
        _of_epoch(2, 1, 2, 3),
        5,
        {"unserved": 1},
        says=r"than is served: epoch 2 crc (\d+) .* served is epoch 3 crc \1",
        is_fast=True,
    ),
    "the same other bytes in all, below the high watermark": Fault(
        lambda run: _other_everywhere(run, 1, 3),
        5,
        {"unserved": 1},
        says=r"replicas 1, 2, 3 hold another batch.*crc \d+ up to offset 9, 0+.log at byte \d+"
        r".*dump-log --files .*broker-1/t-0/0",
        is_fast=True,
    ),
    "the same other bytes of another epoch in all": Fault(
        lambda run: _other_everywhere(run, 1, 4), 5, {"unserved": 1, "epoch_order": 6, "epoch_checkpoint": 3}
    ),
    "the same other bytes in all, above it": Fault(
        lambda run: _other_everywhere(run, 3, 4), 5, {"unsent": 5}, says="replicas 1, 2, 3, .*: never sent"
    ),
    "the first batch of a segment": Fault(
        _without_first(2),
        5,
        {"damaged": 1},
        says=r"batch on replica 2, 0+.log at byte 0.*dump-log --files .*broker-2/t-0/0",
        is_fast=True,
    ),
    "the first batch of a segment, in all": Fault(_without_first(1, 2, 3), 5, {"damaged": 3}),
    "records that were deleted within a batch": Fault(_checkpoint((3, 7), (3, 7), (3, 7)), 0),
    "a hole": Fault(
        lambda run: run.replicas[2][0].pop(1), 5, {"diverged": 1}, says="replica 2 goes on at offset 10"
    ),
    "a byte of a batch": Fault(flipped, 5, {"damaged": 1}, says="replica 2, .* at byte "),
    "an epoch that falls": Fault(
        _falling, 5, {"epoch_order": 3, "unserved": 1}, says="epoch 2 behind epoch 3"
    ),
    "a checkpoint of another epoch": Fault(
        _checkpoint((2, 0)),
        5,
        {"epoch_checkpoint": 18},
        says="replica 1, .* at byte 0: epoch 3, the checkpoint says epoch 2 from offset 0; holdfast dump-log",
        is_fast=True,
    ),
    "a checkpoint of another epoch, of what was not flushed": Fault(_checkpoint((2, 0), flushed=0), 0),
    "an epoch that begins within a batch": Fault(
        _checkpoint((3, 0), (4, 7)),
        5,
        {"epoch_checkpoint": 12},
        says="epoch 3, the checkpoint says epoch 3 from offset 0 to 6",
    ),
    "an epoch that begins behind what was flushed": Fault(_checkpoint((3, 0), (4, 15)), 0),
    "the epoch below the beginning of the log": Fault(_checkpoint((2, 0), (2, 0), (3, 0)), 0),
    "only the epoch below the beginning of a log of which all was deleted": Fault(
        _checkpoint((3, 20), (3, 20)), 0
    ),
    "only the epoch below the beginning, with records behind it": Fault(
        _checkpoint((3, 10), (3, 10)), 5, {"epoch_checkpoint": 6}, says="epoch 3, the checkpoint says none at"
    ),
    "no checkpoint of epochs": Fault(
        _no_checkpoint, 6, says="6 replicas without a whole leader epoch checkpoint, .*broker-1/t-0"
    ),
    "a checkpoint without an epoch": Fault(
        _checkpoint(), 5, {"epoch_checkpoint": 18}, says="epoch 3, the checkpoint says none at all"
    ),
    "a checkpoint without an epoch, of what was not flushed": Fault(_checkpoint(flushed=0), 0),
    "a flushed replica without a high watermark": Fault(
        tampered(marks("t 1 15")), 6, says="1 replicas that were flushed and are not in .*broker-2/t-0"
    ),
    "a damaged replica in sync that has lost its high watermark": Fault(
        _damaged_and_marked_0,
        5,
        {"damaged": 1},
        says=r"5 of 6 replicas(.|\n)*inconclusive: 1 flushed replicas in sync .* is 0, .*broker-2/t-0",
    ),
    "flushed replicas of which nothing is committed": Fault(
        _all_marked_0, 0, says=r"3 of 6 replicas(.|\n)*note: 3 flushed replicas .* is 0, .*broker-2/t-0"
    ),
    "a replica that is neither flushed nor has a high watermark": Fault(
        _neither_flushed_nor_marked,
        0,
        says=r"5 of 6 replicas(.|\n)*note: 1 replicas .* neither .*broker-2/t-0",
    ),
    "a high watermark below zero": Fault(
        tampered(marks("t 0 -1", "t 1 15")), 6, says="broker 2 has no whole replication-offset-checkpoint"
    ),
    "a replica with two high watermarks": Fault(
        tampered(marks("t 0 15", "t 1 15", "t 0 5")), 6, says="broker 2 has no whole replication-offset-"
    ),
    "a recovery point that cannot be read": Fault(
        tampered(write("recovery-point-offset-checkpoint", "rubbish")),
        6,
        says="what was flushed is not known",
    ),
    "no recovery point after a clean stop": Fault(
        tampered(
            lambda log_dir: (log_dir / "recovery-point-offset-checkpoint").rename(
                log_dir / ".kafka_cleanshutdown"
            )
        ),
        6,
        says="broker-2 of broker 2 has no whole recovery-point-offset-checkpoint",
    ),
    "a folder that a broker without replicas left over, after a clean stop": Fault(
        _left_over, 0, says="note: 1 folders of replicas .* not compared: .*broker-4/t-1"
    ),
    "a replica of another topic id": Fault(
        tampered(write("t-0/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABg\n")),
        5,
        {"incomplete": 1},
        says=r"replica 2 .* it has no log(.|\n)*metadata does not have, not compared: .*broker-2/t-0",
    ),
    "a replica of which topic is not known": Fault(
        tampered(write("t-0/partition.metadata", "")), 6, says="1 replicas without a readable partition.met"
    ),
    "a replica in two log dirs": Fault(
        _in_a_second_log_dir, 6, says="2 replicas that are in two log dirs .*broker-2/t-0, .*broker-2-too/t-0"
    ),
    "the log dir of another broker": Fault(
        tampered(write("meta.properties", "version=1\nnode.id=3\ncluster.id=planted\n")),
        6,
        says="as that of broker 2, .*say node.id=3",
    ),
    "the log dir of another cluster": Fault(
        tampered(write("meta.properties", "version=1\nnode.id=2\ncluster.id=other\n")),
        6,
        says="say cluster.id=other",
    ),
    "folders that are no replicas": Fault(
        tampered(_no_replicas), 0, says="note: 1 folders of replicas .* not compared: .*broker-2/t-9"
    ),
    "two batches changed places": Fault(_exchanged, 5, {"file_order": 1}, says="replica 2, .* at byte "),
    "a batch is there twice": Fault(
        lambda run: run.replicas[2][0].append(run.replicas[2][0][1]), 5, {"file_order": 1}
    ),
    "a member of the ISR ends too early": Fault(
        lambda run: run.replicas[2][0].__delitem__(slice(2, None)),
        5,
        {"incomplete": 1, "damaged": 1},  # it was flushed, too
        says="replica 2 is in sync, offset 19 is acknowledged, it ends at 10",
    ),
    "a member of the ISR has no log": Fault(
        lambda run: run.replicas[3].pop(1), 5, {"incomplete": 1}, says="replica 3 .* it has no log"
    ),
    "one broker without high watermarks": Fault(
        _damaged_and_unmarked,
        6,
        says="broker-2 of broker 2 has no whole replication-offset-checkpoint",
        is_fast=True,
    ),
    "no high watermarks": Fault(_unmarked, 6, says="nothing was compared"),
    "a loss, and a replica that differs": Fault(_cut_and_other, 4, {"lost": 3, "diverged": 1}),
}


@pytest.mark.parametrize(
    ("was_compacted", "has_cleaned", "code", "says"),
    [
        (True, False, 6, "t was compacted before: .*"),
        pytest.param(None, False, 6, "t: 5 lost records are holes in the log", marks=pytest.mark.long),
        pytest.param(False, False, 4, "lost, first 5 of 5", marks=pytest.mark.long),
        pytest.param(False, True, 6, "t was compacted before: .*", marks=pytest.mark.long),
    ],
    ids=["it was", "it is not known", "it was not", "a replica says so"],
)
def test_holes_in_a_topic_that_may_have_been_compacted_are_not_judged(
    spark: Any, tmp_path: Path, was_compacted: bool | None, has_cleaned: bool, code: int, says: str
) -> None:
    run = Plain.sound()
    run.removed = {(0, 1)}
    ledger, dirs = run.write(tmp_path)
    if has_cleaned:
        checkpoint(Path(dirs[2]) / "t-0" / "cleaner-offset-checkpoint", ["0 15"])
    logs = {(TOPIC, index): batches for index, batches in run.batches().items()}
    with PlantedLogs(logs, replicas=(1, 2, 3)) as node:
        options = ValidateOptions(str(ledger), node.address, log_dirs=dirs, timeout_ms=60_000)
        verdict = validate(spark, options, was_compacted=lambda topic: was_compacted)
    assert {name: count for name, count in verdict.counts.items() if count} == {"lost": 5}
    assert verdict.exit_code == code
    assert re.search(says, verdict.as_text())


def test_a_ledger_that_grows_calls_nothing_never_sent(spark: Any, tmp_path: Path) -> None:
    """Files are read last: what came in since then has its line, but that was not read."""
    run = Plain.sound()
    _more(_strangers)(run)
    ledger, dirs = run.write(tmp_path)

    def grow(phase: str) -> None:
        if "compares" in phase:
            (ledger / "later.jsonl").write_text("")

    logs = {(TOPIC, index): batches for index, batches in run.batches().items()}
    with PlantedLogs(logs, replicas=(1, 2, 3)) as node:
        options = ValidateOptions(str(ledger), node.address, log_dirs=dirs, timeout_ms=60_000)
        verdict = validate(spark, options, Seconds(grow))
    assert verdict.exit_code == 0, verdict.as_text()


def test_a_replica_that_left_the_isr_while_files_were_read_may_be_gone(spark: Any, tmp_path: Path) -> None:
    """A reassignment removes it, or the broker loses power: then it is in sync no more."""
    run = Plain.sound()
    run.replicas[3] = {}
    ledger, dirs = run.write(tmp_path)
    logs = {(TOPIC, index): batches for index, batches in run.batches().items()}
    with PlantedLogs(logs, replicas=(1, 2, 3), leaving=(3,)) as node:
        options = ValidateOptions(str(ledger), node.address, log_dirs=dirs, timeout_ms=60_000)
        verdict = validate(spark, options)
    assert verdict.exit_code == 0, verdict.as_text()


def test_replicas_that_were_read_after_more_came_in_hold_nothing_never_sent(
    spark: Any, tmp_path: Path
) -> None:
    """Another producer, whose ledger is elsewhere, begins after the judge has asked where logs end."""
    run = Plain.sound()
    _more(_strangers)(run)
    ledger, dirs = run.write(tmp_path)
    logs = {(TOPIC, index): batches for index, batches in run.batches().items()}

    def begin(phase: str) -> None:
        if "compares" in phase:
            node.plant(TOPIC, 0, run.replicas[1][0])

    with PlantedLogs(logs, replicas=(1, 2, 3)) as node:
        options = ValidateOptions(str(ledger), node.address, log_dirs=dirs, timeout_ms=60_000)
        verdict = validate(spark, options, Seconds(begin))
    assert verdict.exit_code == 0, verdict.as_text()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if fault.is_fast else pytest.mark.long) for name, fault in REPLICAS.items()],
)
def test_a_fault_of_replicas_is_found_alone(spark: Any, tmp_path: Path, name: str) -> None:
    check(REPLICAS[name], spark, tmp_path)
