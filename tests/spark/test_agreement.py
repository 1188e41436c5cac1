"""Spark's rules and the plain ones find the same rows in simulated runs, and of damage done to them."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import lit

from holdfast.durability.judge import ENDS_SCHEMA, EPOCHS_SCHEMA, MARKS_SCHEMA, MEMBERS_SCHEMA, judge
from holdfast.durability.ledger import read_sends
from holdfast.durability.poll_files import POLL_SCHEMA
from holdfast.durability.polls import Polls
from holdfast.durability.rules import RULES
from holdfast.durability.rules.rule import Looks
from holdfast.durability.segment_source import BATCH_SCHEMA
from holdfast.durability.stray_records import STRAY_SCHEMA
from tests.spark.builders import LOG_SCHEMA
from tests.spark.plain_rules import Polled, Row, found_in
from tests.spark.simulated_runs import SimulatedRun, play_run, write_ledger

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("spark session"),
    pytest.mark.timeout(3600),
]

BANDS = ("over-budget", "budget", "unclean-no-elr", "no-elr")
IDEMPOTENT = (None, "p0", "p2")
#: JUDGED_RUNS=100 plays a hundred
RUNS = int(os.environ.get("JUDGED_RUNS", "4"))


def read_twice(run: SimulatedRun) -> None:
    """A consumer reads all that is served, and reads on from the middle in another session."""
    tables, half = run.tables, len(run.tables.log) // 2
    for number, log in enumerate((tables.log, tables.log[half:])):
        tables.polls += [
            Polled(
                *(f"s{number}", one.topic, one.partition, one.offset),
                *(tables.ends[one.topic, one.partition], one.crc or 0, one.producer, one.pseq),
            )
            for one in log
        ]


def damage_polls(run: SimulatedRun) -> None:
    """A little of everything in what the consumer was given."""
    polls, at = run.tables.polls, run.number
    polls[at + 3] = polls[at + 3]._replace(crc=7)
    polls[at + 5] = polls[at + 5]._replace(high_watermark=polls[at + 5].offset)
    polls[at + 8] = polls[at + 8]._replace(high_watermark=-1)
    polls[at + 9] = polls[at + 9]._replace(producer=None, pseq=None)
    polls[at + 15] = polls[at + 15]._replace(pseq=1_000_000)
    polls[at + 17] = polls[at + 17]._replace(partition=1 - polls[at + 17].partition)
    polls.insert(at + 25, polls[at + 21])
    del polls[at + 33 : at + 35]


def damage(run: SimulatedRun) -> None:
    """What no run shows: a little of everything, in the same way to both."""
    tables, at = run.tables, run.number
    record = tables.log[at]
    tables.log.append(record._replace(offset=record.offset + 10_000))
    tables.log.append(record._replace(offset=record.offset + 20_000, partition=1 - record.partition))
    tables.log.append(record._replace(offset=30_000, pseq=1_000_000))
    tables.log[at + 17] = tables.log[at + 17]._replace(producer=None, pseq=None, state="foreign")
    tables.log[at + 19] = tables.log[at + 19]._replace(pseq=1_000_001)
    tables.log[at + 7] = tables.log[at + 7]._replace(crc=7)
    tables.log[at + 11] = tables.log[at + 11]._replace(fields=(1, 2, 3))
    tables.log.pop(at + 13)
    others = {one.batch_crc for one in tables.log[at + 23 :: 29]}
    tables.log = [one._replace(batch_crc=7) if one.batch_crc in others else one for one in tables.log]
    changes: tuple[tuple[int, dict[str, Any]], ...] = (
        (at, {"crc": 7}),
        (at + 3, {"epoch": 0}),
        (at + 5, {"position": 10**6}),
    )
    for number, changed in changes:
        index = number % len(tables.copies)
        tables.copies[index] = tables.copies[index]._replace(**changed)
    tables.copies.pop((at + 9) % len(tables.copies))
    copy = tables.copies[at + 21]
    strange = tuple((offset, "stranger", pseq, crc, key) for offset, _, pseq, crc, key in copy.records)
    tables.copies[at + 21] = copy._replace(crc=9, records=strange)
    tables.marks[copy.broker, copy.topic, copy.partition] = copy.last
    record = tables.log[at + 31]
    tables.log[at + 31] = record._replace(batch_epoch=record.batch_epoch + 1)


def test_both_writings_of_the_rules_agree(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [play_run(number, BANDS[number % len(BANDS)], monkeypatch) for number in range(RUNS)]
    for run in runs:
        read_twice(run)
    for run in runs[::2]:
        damage_polls(run)
        damage(run)
    expected = sum((found_in(run.tables) for run in runs), Counter[Row]())
    found = judged(spark, tmp_path, runs)
    assert found == expected, f"Spark alone: {found - expected}, plain alone: {expected - found}"
    kinds = {row[0] for row in expected}
    assert {"lost", "duplicated", "unexpected", "misplaced", "corrupt", "key_changed"} <= kinds
    assert {"diverged", "unserved", "unsent"} <= kinds
    assert {name for name, rule in RULES.items() if rule.looks is Looks.POLLS} <= kinds
    in_budget = [run for run in runs[1::2] if BANDS[run.number % len(BANDS)] == "budget"]
    sound = [row for run in in_budget for row in found_in(run.tables) if row[4] in IDEMPOTENT]
    assert not [row for row in sound if RULES[row[0]].is_forbidden]


def judged(spark: Any, folder: Path, runs: list[SimulatedRun]) -> Counter[Row]:
    """The rows of view `violations`."""
    sends, totals = read_sends(spark, str(write_ledger(folder, runs)))
    tables = [run.tables for run in runs]

    def frame(rows: list[Any], schema: str) -> Any:
        return spark.createDataFrame(rows, schema)

    log = [
        (
            *(one.topic, one.partition, one.offset, one.state, one.producer, one.pseq, one.crc),
            *(*one.fields, one.batch_crc, one.batch_epoch),
        )
        for table in tables
        for one in table.log
    ]
    replica = [
        (
            *(copy.broker, copy.topic, copy.partition, copy.base, copy.last, copy.epoch, copy.crc),
            *(copy.is_readable, copy.is_damaged, 1, copy.segment, copy.position),
            None if copy.is_readable else "crc does not hold",
        )
        for table in tables
        for copy in table.copies
    ]
    epochs = [
        (*key, epoch, start, end, flushed)
        for table in tables
        for key, (rows, flushed) in table.epochs.items()
        for (epoch, start), end in zip(rows, [*(start for _, start in rows[1:]), None], strict=False)
        if start < flushed
    ]
    members = [(*key, key in run.tables.in_sync) for run in runs for key in run.members]
    ends = [(*place, end, end, 0) for table in tables for place, end in table.ends.items()]
    records = [
        (
            *(copy.broker, copy.topic, copy.partition, offset, copy.segment, copy.position),
            *("good", producer, pseq, crc, key_crc),
        )
        for table in tables
        for copy in table.copies
        for offset, producer, pseq, crc, key_crc in copy.records
    ]

    polls = [
        (
            *(f"{run.number}.polls.jsonl", number, 0, f"run{run.number}", "c", one.session, number),
            *(one.topic, None, one.partition, one.high_watermark, None, one.offset, 3, one.crc),
            *(one.producer, one.pseq, None, None),
        )
        for run in runs
        for number, one in enumerate(run.tables.polls)
    ]

    def strays(batches: Any) -> Any:
        held = frame(records, STRAY_SCHEMA)
        places = batches.select("broker", "topic", "partition", "segment", "position").distinct()
        return held.join(places, list(places.columns)).withColumn("is_told", lit(True))

    verdict = judge(
        spark,
        sends,
        frame(log, LOG_SCHEMA + ", batch_epoch int"),
        totals,
        replica=frame(replica, BATCH_SCHEMA),
        marks=frame([(*key, mark) for table in tables for key, mark in table.marks.items()], MARKS_SCHEMA),
        members=frame(members, MEMBERS_SCHEMA),
        ends=frame(ends, ENDS_SCHEMA),
        epochs=frame(epochs, EPOCHS_SCHEMA),
        strays=strays,
        polls=Polls(frame(polls, POLL_SCHEMA), len(polls), len(runs)),
        one_clock=True,
    )
    rows = Counter(
        (row["class"], row.topic, row.partition, row.offset, row.producer, row.pseq)
        for row in spark.table("violations").collect()
    )
    assert {name: count for name, count in verdict.counts.items() if count} == Counter(
        row[0] for row in rows.elements()
    )
    return rows
