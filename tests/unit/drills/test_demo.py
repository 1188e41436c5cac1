"""How `holdfast demo` ends; what it does while it runs is `make demo`'s to show."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.drills.demo import command
from holdfast.durability.verdict import Verdict
from holdfast.localcluster.nodes import ClusterError, Nodes
from holdfast.localcluster.processes import LocalCluster

GOOD = Verdict({}, {}, {"acked": 9})
LOST = Verdict({"lost": 2}, {}, {"acked": 9})


@pytest.fixture(autouse=True)
def no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these demos comes as far as Spark."""
    monkeypatch.setattr("holdfast.drills.demo.command.require", lambda extra: None)


class PlayedCluster(Nodes):
    """No nodes; stops, or does not."""

    def __init__(self, folder: Path, trouble: str) -> None:
        super().__init__([])
        self._folder = folder
        self._trouble = trouble

    def up(self) -> None:
        self._folder.mkdir()

    def down(self) -> None:
        if self._trouble:
            raise ClusterError(self._trouble)


@pytest.mark.parametrize(
    ("verdict", "trouble", "code"),
    [(GOOD, "", 0), (LOST, "", 4), (GOOD, "still running after 60 s: broker-1", 1)],
)
def test_only_a_good_verdict_on_a_cluster_that_has_stopped_ends_with_0_and_without_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Verdict, trouble: str, code: int
) -> None:
    folder = tmp_path / "demo"
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(folder))
    monkeypatch.setattr(LocalCluster, "create", lambda folder, *_: PlayedCluster(folder, trouble))
    monkeypatch.setattr(command.Demo, "produce", lambda *_, **__: None)
    monkeypatch.setattr(command.Demo, "verdict", lambda _: verdict)
    done = CliRunner().invoke(main, ["demo"])
    assert done.exit_code == code
    assert folder.exists() == (code != 0)
    assert trouble in done.output


def test_programs_get_the_verdict_alone_on_stdout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(LocalCluster, "create", lambda folder, *_: PlayedCluster(folder, ""))
    monkeypatch.setattr(command.Demo, "produce", lambda *_, **__: None)
    monkeypatch.setattr(command.Demo, "verdict", lambda _: LOST)
    (tmp_path / "kept").mkdir()
    done = CliRunner().invoke(main, ["demo", "--output", "json", "--keep", str(tmp_path / "kept")])
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["ok"], answer["data"]["exit_code"]) == (4, False, 4)
    assert answer["data"]["counts"] == {"lost": 2}
    assert "cluster is up" in done.stderr
