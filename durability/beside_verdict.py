"""What goes with a verdict: where to look, what became of lost records, the judged tables, the report.

None of it changes what was found; what cannot be written is a note of the verdict.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from holdfast.durability.foreign_lines import name_of
from holdfast.durability.loss_story import Election, RunHistory, story_of
from holdfast.durability.lost_records import LostSample, find_lost
from holdfast.durability.read_options import OffsetRange
from holdfast.durability.replica_places import Found, ReplicaPlaces
from holdfast.durability.session import local_path
from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of
from holdfast.durability.tables import write_tables
from holdfast.durability.verdict import FORBIDDEN, Verdict

_NAME_SCHEMA = "run string, topic string, producer string, pseq long"
#: All leader epochs of (topic, partition), in their order; () when they are not known.
Elections = Callable[[str, int], Sequence[Election]]
#: What an error of Spark says, as the cluster tells it (`JudgedCluster.reason_of`): a query may read its log.
ReasonOf = Callable[[Exception], str]


def with_places(verdict: Verdict, log_dirs: Mapping[int, str]) -> Verdict:
    """The verdict whose samples say with which command to look at a replica."""
    for rows in verdict.samples.values():
        for row in rows:
            for folder in log_dirs.get(row.get("broker", -1), "").split(","):
                path = Path(folder) / f"{row['topic']}-{row['partition']}" / str(row.get("segment"))
                if folder and path.is_file() and isinstance(row, dict):
                    row["command"] = f"holdfast dump-log --files {path}"
    return verdict


def with_tables(
    spark: Any,
    folder: str,
    verdict: Verdict,
    ranges: Sequence[OffsetRange],
    elections: Elections,
    reason_of: ReasonOf,
) -> Verdict:
    """The verdict, after its tables were written; with a note when that failed."""
    led = {(item.topic, item.partition): elections(item.topic, item.partition) for item in ranges}
    try:
        write_tables(spark, Path(folder), verdict.facts["runs"], led)
    except (OSError, *SPARK_ERRORS) as error:
        note = f"the tables in {folder} are not whole: {reason_of(error)}"
        return replace(verdict, notes=(*verdict.notes, note))
    return verdict


def with_values_named(verdict: Verdict) -> Verdict:
    """The verdict on another client's run, whose samples name records as its ledger does."""
    for rows in verdict.samples.values():
        for row in rows:
            assert isinstance(row, dict), "rows of samples are made by durability.judge"
            row.pop("producer")
            number = row.pop("pseq")
            row["value_sha256"] = None if number is None else name_of(number)
    return verdict


def with_unnamed_topics(verdict: Verdict, topic_ids: Mapping[str, Sequence[str]]) -> Verdict:
    """The verdict that says of which topics that lost records no line has the id (`topic_ids`: of which some
    has): sends to another topic of the same name look lost."""
    unnamed = sorted({row["topic"] for row in verdict.samples.get("lost", ())} - topic_ids.keys())
    if not unnamed:
        return verdict
    note = (
        f"no line about {', '.join(unnamed)} has a topic id: what was sent to an earlier topic of that name, "
        "or to another cluster's, looks lost"
    )
    return replace(verdict, notes=(*verdict.notes, note))


def with_times(spark: Any, verdict: Verdict, reason_of: ReasonOf = reason_of) -> Verdict:
    """The verdict whose samples say when their sends were answered or, without an answer, sent: in
    nanoseconds of the producer's monotonic clock."""
    rows = [row for name, found in verdict.samples.items() if name in FORBIDDEN for row in found]
    names = {(row["run"], row["topic"], row["producer"], row["pseq"]) for row in rows}
    names = {name for name in names if None not in name}
    if not names:
        return verdict
    wanted = spark.createDataFrame(sorted(names), _NAME_SCHEMA)
    sends = spark.table("sends").join(F.broadcast(wanted), ["run", "topic", "producer", "pseq"])
    told = sends.selectExpr("run", "topic", "producer", "pseq", "coalesce(t1, t0) AS time_ns")
    try:
        times = {(row.run, row.topic, row.producer, row.pseq): row.time_ns for row in told.collect()}
    except SPARK_ERRORS as error:
        return replace(verdict, notes=(*verdict.notes, f"times of samples: {reason_of(error)}"))
    for row in rows:
        time_ns = times.get((row["run"], row["topic"], row["producer"], row["pseq"]))
        if time_ns is not None and isinstance(row, dict):
            row["time_ns"] = time_ns
    return verdict


def with_stories(
    spark: Any,
    verdict: Verdict,
    log_dirs: Mapping[int, str],
    history: RunHistory | None,
    elections: Elections,
    reason_of: ReasonOf,
) -> Verdict:
    """The verdict that tells the losses, and whose samples of lost records say what became of each."""
    if not verdict.counts.get("lost"):
        return verdict
    try:
        losses, samples = find_lost(spark)
    except SPARK_ERRORS as error:
        return replace(verdict, notes=(*verdict.notes, f"stories of lost records: {reason_of(error)}"))
    places = ReplicaPlaces(log_dirs)
    for one in sorted(samples, key=lambda sample: (sample.record.topic, sample.record.partition)):
        led = _led(elections, one)
        if story := story_of(_found(places, one), one.record, led, history):
            one.row["story"] = story
    told = tuple(
        {**loss.row, "story": loss.first.row.get("story", "")} for loss in losses if loss.first is not None
    )
    shown = {**verdict.samples, "lost": [one.row for one in samples]}
    return replace(verdict, samples=shown, losses=told, facts={**verdict.facts, "losses": len(losses)})


def _led(elections: Elections, one: LostSample) -> Sequence[Election]:
    try:
        return elections(one.record.topic, one.record.partition)
    except (OSError, ValueError):
        return ()


def _found(places: ReplicaPlaces, one: LostSample) -> list[Found]:
    lost = one.record
    try:
        return places.found(lost.topic, lost.partition, lost.offset, lost.producer, lost.pseq)
    except (OSError, ValueError):  # files of a running broker change and go
        return []


def reported(
    spark: Any | None, report: str | None, verdict: Verdict, reason_of: ReasonOf = reason_of
) -> Verdict:
    """The verdict, after its report was written; with a note when that failed. `spark` may be missing where
    there are no violations."""
    if report is None:
        return verdict
    try:
        _write_report(spark, Path(report), verdict)
    except (OSError, *SPARK_ERRORS) as error:
        note = f"the report in {report} is not whole: {reason_of(error)}"
        return replace(verdict, notes=(*verdict.notes, note))
    return verdict


def _write_report(spark: Any | None, folder: Path, verdict: Verdict) -> None:
    """Nothing of an earlier run is left there, and a verdict is there only when all of it is."""
    as_json, as_text, violations = folder / "verdict.json", folder / "verdict.txt", folder / "violations"
    folder.mkdir(parents=True, exist_ok=True)
    for path in (as_json, as_text):
        path.unlink(missing_ok=True)
    if violations.exists():
        shutil.rmtree(violations)
    if spark is not None and any(verdict.counts.values()):
        spark.table("violations").write.parquet(local_path(violations))
    as_json.write_text(json.dumps(verdict.as_json(), indent=2) + "\n", encoding="utf-8")
    as_text.write_text(verdict.as_text() + "\n", encoding="utf-8")
