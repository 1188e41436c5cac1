"""The output about runs: one, two side by side, or a table of many seeds; and the same as JSON.

Pure: runs in, lines and plain values out.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from holdfast.cli.tables import table_lines
from holdfast.drills.drill import Drill
from holdfast.drills.outcome import DrillResult, LostRecord, Run, most_lost, predicted_loss
from holdfast.drills.settings import Axis
from holdfast.durability.verdict import ALLOWED, FORBIDDEN

#: most lost records that are printed with offset and value
SHOWN_MAX = 10
#: classes of the verdict that are always printed
_ALWAYS = ("lost",)
_CLASSES = (*FORBIDDEN, *ALLOWED)


def run_lines(run: Run) -> list[str]:
    """One run: the verdict's numbers, what is lost, and the result."""
    return [*_columns([run], [run.settings.text]), *_lost_lines(run), *_result_lines(run)]


def compare_lines(runs: Sequence[Run], axis: Axis) -> list[str]:
    """Two runs side by side."""
    on_off = ["on" if _is_on(run, axis) else "off" for run in runs]
    lines = _columns(runs, [f"{axis.value} {word}" for word in on_off])
    for run, word in zip(runs, on_off, strict=True):
        lines += [f"{axis.value} {word}: {line}" for line in _lost_lines(run)]
    for run, word in zip(runs, on_off, strict=True):
        lines += [f"{axis.value} {word}: {line}" for line in _result_lines(run)]
    return lines


def seeds_lines(runs: Sequence[Run]) -> list[str]:
    """A row for each run, then the totals by settings."""
    rows = [
        (
            run.drill,
            str(run.settings.seed),
            run.settings.power_loss,
            run.settings.text,
            _fact(run, "acked"),
            _fact(run, "ok"),
            "-" if run.evidence is None else str(run.lost_count),
            _predicted(run),
            f"{run.seconds:.1f}",
            run.result.name,
        )
        for run in runs
    ]
    heads = (
        "DRILL",
        "SEED",
        "POWER LOSS",
        "SETTINGS",
        "ACKED",
        "OK",
        "LOST",
        "PREDICTED",
        "SECONDS",
        "RESULT",
    )
    lines = table_lines(heads, rows)
    for total in totals(runs):
        results = ", ".join(f"{count} {name}" for name, count in total["results"].items())
        lines.append(
            f"{total['drill']}, {total['settings']}, power loss {total['power_loss']}: "
            f"{total['runs']} runs, {results}; "
            f"acknowledged {total['acked']:,}, lost {total['lost']:,} in {total['runs_with_loss']} runs"
        )
    return lines


def totals(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Sums by settings."""

    def key(run: Run) -> tuple[str, str, str]:
        return run.drill, run.settings.text, run.settings.power_loss

    found = []
    for (drill, settings, power_loss), group in groupby(sorted(runs, key=key), key=key):
        members = list(group)
        found.append(
            {
                "drill": drill,
                "settings": settings,
                "power_loss": power_loss,
                "expected": members[0].expectation.loss.value,
                "runs": len(members),
                "results": dict(sorted(Counter(run.result.name for run in members).items())),
                "acked": sum(_number(run, "acked") for run in members),
                "lost": sum(run.lost_count for run in members),
                "runs_with_loss": sum(run.lost_count > 0 for run in members),
                "seconds": round(sum(run.seconds for run in members), 1),
            }
        )
    return found


def run_row(run: Run) -> dict[str, Any]:
    """A run as plain values."""
    row: dict[str, Any] = {
        "drill": run.drill,
        "seed": run.settings.seed,
        "manager": run.settings.manager,
        "elr": run.settings.elr,
        "strategy": run.settings.strategy,
        "power_loss": run.settings.power_loss,
        "client": run.settings.client,
        "expected": run.expectation.loss.value,
        "rule": run.expectation.rule,
        "result": run.result.name,
        "reason": run.reason,
        "seconds": run.seconds,
    }
    if run.evidence is not None:
        row["facts"] = dict(run.evidence.facts)
        row["counts"] = dict(run.evidence.counts)
        row["doubts"] = list(run.evidence.doubts)
        row["notes"] = list(run.evidence.notes)
        row["elections"] = [
            {
                "leader": one.leader,
                "reason": one.reason,
                "predicted_loss": one.predicted_loss,
                "most_lost": one.most_lost,
            }
            for one in run.evidence.elections
        ]
        row["lost"] = [
            {"topic": one.topic, "partition": one.partition, "offset": one.offset, "value": one.value}
            for one in run.evidence.lost
        ]
    return row


def list_lines(drills: Sequence[Drill]) -> list[str]:
    """What `--list` prints."""
    rows = [
        (drill.name, "-" if drill.compares is None else drill.compares.value, drill.source, drill.title)
        for drill in drills
    ]
    return table_lines(("DRILL", "COMPARES", "SOURCE", "STORY"), rows)


# --- parts ---------------------------------------------------------------------------------------------


def _columns(runs: Sequence[Run], titles: Sequence[str]) -> list[str]:
    """A table with a column for each run."""
    found = [name for name in _CLASSES if any(_count(run, name) for run in runs)]
    rows: list[tuple[str, ...]] = [
        ("sent", *(_fact(run, "sent") for run in runs)),
        ("acknowledged", *(_fact(run, "acked") for run in runs)),
        ("ok", *(_fact(run, "ok") for run in runs)),
    ]
    rows += [
        (name.replace("_", " "), *(str(_count(run, name)) if run.evidence else "-" for run in runs))
        for name in _CLASSES
        if name in _ALWAYS or name in found
    ]
    rows.append(("unclean elections", *(_elections(run) for run in runs)))
    rows.append(("predicted loss", *(_predicted(run) for run in runs)))
    rows.append(("expected", *(run.expectation.loss.value for run in runs)))
    rows.append(("result", *(run.result.name for run in runs)))
    return table_lines(("", *titles), rows)


def _lost_lines(run: Run) -> list[str]:
    if run.evidence is None or not run.evidence.lost:
        return []
    lost = run.evidence.lost
    lines = [f"{run.lost_count} acknowledged records are lost: offsets {', '.join(_ranges(lost))}"]
    lines += [f"  lost: offset {record.offset}, value {record.value}" for record in lost[:SHOWN_MAX]]
    if run.lost_count > SHOWN_MAX:
        lines.append(f"  and {run.lost_count - SHOWN_MAX} more; --output json names them")
    return lines


def _ranges(lost: Sequence[LostRecord]) -> Iterator[str]:
    """Offsets of the named records; consecutive ones as `first to last`."""
    for _, group in groupby(enumerate(lost), key=lambda pair: pair[1].offset - pair[0]):
        members = [record.offset for _, record in group]
        yield str(members[0]) if len(members) == 1 else f"{members[0]} to {members[-1]}"


def _result_lines(run: Run) -> list[str]:
    reason = f": {run.reason}" if run.reason else ""
    lines = [] if run.evidence is None else [f"note: {note}" for note in run.evidence.notes]
    what = run.result.value
    if run.result is DrillResult.EXPECTED:
        what = f"{f'{run.lost_count:,}' if run.lost_count else 'nothing'} lost, {what}"
    lines.append(f"{run.result.name}: {what}{reason} ({run.seconds:.1f} s)")
    if run.result is DrillResult.EXPECTED:
        lines.append(f"why: {run.expectation.rule}")
    return lines


def _is_on(run: Run, axis: Axis) -> bool:
    return run.settings.manager if axis is Axis.MANAGER else run.settings.elr


def _count(run: Run, name: str) -> int:
    return 0 if run.evidence is None else run.evidence.counts.get(name, 0)


def _number(run: Run, name: str) -> int:
    found = None if run.evidence is None else run.evidence.facts.get(name)
    return found if isinstance(found, int) else 0


def _fact(run: Run, name: str) -> str:
    return "-" if run.evidence is None else f"{_number(run, name):,}"


def _elections(run: Run) -> str:
    if run.evidence is None:
        return "-"
    return ", ".join(f"{one.leader} ({one.reason})" for one in run.evidence.elections) or "none"


def _predicted(run: Run) -> str:
    if run.evidence is None:
        return "-"
    least, most = predicted_loss(run.evidence.elections), most_lost(run.evidence.elections)
    return _or_dash(least) if most is None or most == least else f"{least or 0}-{most}"


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
