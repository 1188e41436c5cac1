"""What stories of lost records take out of a history of a run."""

from pathlib import Path

import pytest

from holdfast.cli.inspect.run_history import elections_in, faults_in, history_of
from holdfast.durability.loss_story import Election, Fault
from holdfast.report.history import History, Row

PARTITION = {
    "kind": "partition",
    "topic": "t",
    "partition": 0,
    "leader": 1,
    "leader_epoch": 3,
    "isr": [1, 2],
    "why": ["it was created"],
    "is_unclean": False,
}


def test_faults_have_their_wall_times(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl", "a run", 1)
    history.write(kind="fault", t_ms=1500.4, until_ms=2000.0, target="broker-1", fault="kill -9", text="a")
    history.write(kind="fault", t_ms=1600.0, until_ms=None, target="broker-2", fault="kill -9", text="b")
    found = faults_in(tmp_path / "history.jsonl")
    assert (found.wall_ms, found.mono_ns) == (history.wall_ms, history.mono_ns)
    assert found.faults == (
        Fault("a", history.wall_ms + 1500, history.wall_ms + 2000),
        Fault("b", history.wall_ms + 1600, None),
    )


def test_leader_epochs_have_their_first_and_last_isr() -> None:
    rows: list[Row] = [
        PARTITION | {"t_ms": 1.0},
        PARTITION | {"t_ms": 2.0, "isr": [1], "why": ["broker 2 lagged"]},
        PARTITION | {"t_ms": 3.0, "leader_epoch": 4, "leader": 2, "isr": [2], "is_unclean": True, "why": []},
        PARTITION | {"t_ms": 4.0, "partition": 1, "leader_epoch": 9},
    ]
    assert elections_in(rows, 100, "t", 0) == (
        Election(3, 1, (1, 2), (1,), False, 101, "it was created"),
        Election(4, 2, (2,), (2,), True, 103, "no cause is known"),
    )


def test_a_history_without_clocks_is_refused() -> None:
    with pytest.raises(ValueError, match="when the run began"):
        history_of([{"kind": "run", "t_ms": 0}])
