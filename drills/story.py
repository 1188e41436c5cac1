"""Completes the history of a run, and writes its report.

What needs no watching while the run goes on is added at its end: elections from the metadata log, rates and
latencies from the ledgers, the verdict.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.inspect.history_rows import metadata_rows
from holdfast.cli.inspect.metadata_log import fetch_log
from holdfast.cli.inspect.partition_story import ReadLog
from holdfast.cli.inspect.run_history import elections_in, history_of
from holdfast.client.core.errors import ClientError
from holdfast.drills.outcome import LostRecord, some_of_each
from holdfast.durability import loss_story
from holdfast.durability.ledger_files import is_polls
from holdfast.durability.verdict import SAMPLES_MAX, Verdict
from holdfast.report.history import History, Row, read_history
from holdfast.report.load import load_rows
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

READ_TIMEOUT_MS = 20_000


def add_metadata(history: History, bootstrap_servers: str) -> None:
    """Add what the live cluster's metadata log tells; a note when it cannot be read."""
    found = ReadLog([])

    async def read(runtime: Runtime) -> int:
        nonlocal found
        found = await fetch_log(runtime, bootstrap_servers, READ_TIMEOUT_MS)
        return 0

    try:
        run(read)
    except ClientError as error:
        history.write(kind="note", text=f"the metadata log could not be read: {error}")
        return
    history.add(metadata_rows(found, history.wall_ms))


def add_load(history: History, ledger_folder: Path, topic: str | None = None) -> None:
    """Add rates and latencies of the sends to the topic, with None to any, from all ledgers in the folder."""
    ledgers = [file for file in sorted(ledger_folder.glob("*.jsonl")) if not is_polls(file.name)]
    history.add(load_rows(ledgers, topic, history.mono_ns))


def verdict_row(verdict: Verdict, file: Path, lost: Sequence[LostRecord] = ()) -> dict[str, Any]:
    """What Spark said of the ledgers of a run, with the times of the run. `lost`: those whose stories its
    history in `file` tells; without them the verdict has told what it knows. Raises: OSError, ValueError."""
    mono_ns = history_of(read_history(file)).mono_ns
    samples = {name: [_timed(row, mono_ns) for row in rows] for name, rows in verdict.samples.items()}
    shown = some_of_each(lost, SAMPLES_MAX)
    if shown:
        samples["lost"] = [
            _timed(_lost_row(one) | {"story": story}, mono_ns)
            for one, story in zip(shown, loss_stories(file, shown), strict=True)
        ]
    return {
        "kind": "verdict",
        "exit_code": verdict.exit_code,
        "counts": dict(verdict.counts),
        "facts": dict(verdict.facts),
        "samples": samples,
        "reasons": list(verdict.reasons),
        "notes": list(verdict.notes),
    }


def _lost_row(one: LostRecord) -> dict[str, Any]:
    place = {"topic": one.topic, "partition": one.partition, "offset": one.offset, "value": one.value}
    return place if one.acked_ns is None else {**place, "time_ns": one.acked_ns}


def _timed(row: Mapping[str, Any], mono_ns: int) -> dict[str, Any]:
    """A sample with the time of the run at which its send was answered, where that is known."""
    timed = dict(row)
    time_ns = timed.pop("time_ns", None)
    if time_ns is not None:
        timed["t_ms"] = round((time_ns - mono_ns) / 1e6, 1)
    return timed


def loss_stories(file: Path, lost: Sequence[LostRecord]) -> list[str]:
    """What the history of a run tells of each of these records. Raises: OSError, ValueError."""
    rows = read_history(file)
    history = history_of(rows)
    stories = []
    for one in lost:
        elections = elections_in(rows, history.wall_ms, one.topic, one.partition)
        record = loss_story.LostRecord(
            *(one.topic, one.partition, one.offset, one.value, 0),
            *(one.leader_epoch, one.acked_ns, one.given_in, one.outlived),
        )
        stories.append(loss_story.story_of((), record, elections, history) or "nothing is known of it")
    return stories


def write_report(file: Path, histories: Sequence[Path], titles: Sequence[str] = ()) -> None:
    """Write the page of these runs to `file`."""
    from holdfast.report.page import page

    runs: list[list[Row]] = [read_history(history) for history in histories]
    file.write_text(page(runs, titles), encoding="utf-8")
