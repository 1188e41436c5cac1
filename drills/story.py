"""Completes the history of a run, and writes its report.

What needs no watching while the run goes on is added at its end: elections from the metadata log, rates and
latencies from the ledgers, the verdict.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.inspect.history_rows import metadata_rows
from holdfast.cli.inspect.metadata_log import fetch_log
from holdfast.cli.inspect.partition_story import ReadLog
from holdfast.cli.inspect.run_history import elections_in, history_of
from holdfast.client.core.errors import ClientError
from holdfast.drills.outcome import DrillEvidence, LostRecord
from holdfast.durability import loss_story
from holdfast.durability.verdict import EXIT_INCONCLUSIVE, Verdict
from holdfast.report.history import History, Row, read_history
from holdfast.report.load import load_rows
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run

_READ_TIMEOUT_MS = 20_000


def add_metadata(history: History, bootstrap_servers: str) -> None:
    """Add what the live cluster's metadata log tells; a note when it cannot be read."""
    found = ReadLog([])

    async def read(runtime: Runtime) -> int:
        nonlocal found
        found = await fetch_log(runtime, bootstrap_servers, _READ_TIMEOUT_MS)
        return 0

    try:
        run(read)
    except ClientError as error:
        history.write(kind="note", text=f"the metadata log could not be read: {error}")
        return
    history.add(metadata_rows(found, history.wall_ms))


def add_load(history: History, ledger_folder: Path, topic: str | None = None) -> None:
    """Add rates and latencies of the sends to the topic, with None to any, from all ledgers in the folder."""
    history.add(load_rows(sorted(ledger_folder.glob("*.jsonl")), topic, history.mono_ns))


def verdict_row(verdict: Verdict) -> dict[str, Any]:
    """What Spark said of the ledgers of a run."""
    return {
        "kind": "verdict",
        "exit_code": verdict.exit_code,
        "counts": dict(verdict.counts),
        "facts": dict(verdict.facts),
        "samples": {name: [dict(row) for row in rows] for name, rows in verdict.samples.items()},
        "reasons": [*verdict.inconclusive, *verdict.doubts],
    }


def drill_verdict_row(evidence: DrillEvidence) -> dict[str, Any]:
    """The same of a drill, whose topic is one of several that were judged together."""
    return {
        "kind": "verdict",
        "exit_code": evidence.verdict_code,
        "counts": dict(evidence.counts),
        "facts": dict(evidence.facts),
        "samples": {"lost": [{"offset": one.offset, "value": one.value} for one in evidence.lost]},
        "reasons": list(evidence.notes) if evidence.verdict_code == EXIT_INCONCLUSIVE else [],
    }


def loss_stories(file: Path, lost: Sequence[LostRecord]) -> list[str]:
    """What the history of a run tells of each of these records. Raises: OSError, ValueError."""
    rows = read_history(file)
    history = history_of(rows)
    stories = []
    for one in lost:
        elections = elections_in(rows, history.wall_ms, one.topic, one.partition)
        record = loss_story.LostRecord(
            *(one.topic, one.partition, one.offset, one.value, 0),
            leader_epoch=one.leader_epoch,
            acked_ns=one.acked_ns,
        )
        stories.append(loss_story.story_of({}, record, elections, history) or "nothing is known of it")
    return stories


def write_report(file: Path, histories: Sequence[Path], titles: Sequence[str] = ()) -> None:
    """Write the page of these runs to `file`."""
    from holdfast.report.page import page

    runs: list[list[Row]] = [read_history(history) for history in histories]
    file.write_text(page(runs, titles), encoding="utf-8")
