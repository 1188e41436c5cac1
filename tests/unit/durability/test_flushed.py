"""What of a replica was flushed all the time between two looks."""

from pathlib import Path

import pytest

from holdfast.durability.flushed import Flushed
from holdfast.durability.segments import ReplicaFolder


def stored(folder: Path, point: int, epochs: str) -> Flushed:
    """What is looked at when these are the recovery point and the leader epochs."""
    place = folder / "t-0"
    place.mkdir(exist_ok=True)
    (folder / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {point}\n")
    (place / "leader-epoch-checkpoint").write_text(epochs)
    return Flushed.of(ReplicaFolder(1, "t", 0, str(place)))


@pytest.mark.parametrize(
    ("point", "epochs", "until"),
    [
        (30, "0\n1\n1 0\n", 30),
        (40, "0\n1\n1 0\n", 30),
        (5, "0\n1\n1 0\n", 5),
        (40, "0\n2\n1 0\n2 8\n", 8),
        (40, "0\n2\n1 0\n2 33\n", 30),
        (40, "0\n1\n1 20\n", 30),
        (40, "", 30),
    ],
    ids=[
        "nothing happened", "more was flushed", "truncated", "truncated and filled again", "a new leader",
        "its beginning was deleted", "no epochs are known",
    ],
)  # fmt: skip
def test_what_was_truncated_meanwhile_was_not_flushed_all_the_time(
    tmp_path: Path, point: int, epochs: str, until: int
) -> None:
    before = stored(tmp_path, 30, "0\n1\n1 0\n")
    stored(tmp_path, point, epochs)
    assert before.still().until == until


def test_a_broker_that_was_started_meanwhile_may_have_truncated(tmp_path: Path) -> None:
    mark = tmp_path / ".kafka_cleanshutdown"
    mark.touch()
    before = stored(tmp_path, 30, "0\n1\n1 0\n")
    assert before.row == before.still().row == (1, "t", 0, (1 << 63) - 1)
    mark.unlink()
    assert before.still().row == (1, "t", 0, 30)
