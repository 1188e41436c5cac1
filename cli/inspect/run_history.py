"""What a history of a run says about lost records: the faults, and the leader epochs of partitions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.durability.loss_story import Election, Fault, RunHistory
from holdfast.report.history import Row, read_history


def faults_in(file: Path) -> RunHistory:
    """Raises: OSError, ValueError for another file."""
    return history_of(read_history(file))


def history_of(rows: Sequence[Row]) -> RunHistory:
    """Of the rows of a history, by time. Raises: ValueError for one without its clocks."""
    run = rows[0]
    if "wall_ms" not in run or "mono_ns" not in run:
        raise ValueError("the history does not say when the run began")
    wall_ms = int(run["wall_ms"])
    return RunHistory(
        wall_ms,
        int(run["mono_ns"]),
        tuple(
            Fault(row["text"], wall_ms + round(row["t_ms"]), _wall(wall_ms, row["until_ms"]))
            for row in rows
            if row["kind"] == "fault"
        ),
    )


def _wall(wall_ms: int, t_ms: float | None) -> int | None:
    return None if t_ms is None else wall_ms + round(t_ms)


def elections_in(rows: Iterable[Row], wall_ms: int, topic: str, partition: int) -> Sequence[Election]:
    """The leader epochs of a partition in their order, each with its ISR at first and at last."""
    found: dict[int, Election] = {}
    for row in rows:
        if row["kind"] != "partition" or (row["topic"], row["partition"]) != (topic, partition):
            continue
        epoch, isr = row["leader_epoch"], tuple(row["isr"])
        begun = found.get(epoch)
        if begun is None:
            begun = Election(
                leader_epoch=epoch,
                leader=row["leader"],
                first_isr=isr,
                last_isr=isr,
                is_unclean=row["is_unclean"],
                timestamp_ms=wall_ms + round(row["t_ms"]),
                cause="; ".join(row["why"]) or "no cause is known",
            )
        found[epoch] = replace(
            begun,
            last_isr=isr,
            last_elr=tuple(row.get("elr", ())),
            last_known_elr=tuple(row.get("last_known_elr", ())),
        )
    return tuple(found[epoch] for epoch in sorted(found))
