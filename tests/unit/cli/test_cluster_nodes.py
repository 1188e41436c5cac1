"""What `holdfast cluster kill|power-loss|stop|start|pause|resume` is told, before any process is touched."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.processes import LocalCluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster of three brokers and one controller that was never started."""
    LocalCluster.create(tmp_path / "c", 3, 1)
    return tmp_path / "c"


def run(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["cluster", *map(str, words)])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--broker", "2"], "broker-2"),
        (["--broker", "3,1", "--controller", "101"], "controller-101, broker-1, broker-3"),
        (["--broker", "1,1"], "broker-1"),
        (["--all"], "controller-101, broker-1, broker-2, broker-3"),
    ],
)
def test_nodes_are_named_by_their_ids_and_told_in_the_order_of_the_cluster(
    folder: Path, options: Sequence[str], names: str
) -> None:
    assert run("kill", "--dir", folder, *options) == (0, f"killed: {names}\n")


@pytest.mark.parametrize(
    "options", [[], ["--all", "--broker", "1"], ["--broker", "one"], ["--controller", "1,"]]
)
def test_no_node_or_all_and_some_or_a_word_for_an_id_is_a_usage_error(
    folder: Path, options: Sequence[str]
) -> None:
    assert run("stop", "--dir", folder, *options)[0] == 2


def test_a_node_that_is_not_there_is_named_with_those_that_are(folder: Path) -> None:
    code, text = run("kill", "--dir", folder, "--broker", "9")
    assert code == 1
    assert "no node broker-9 here; there are controller-101, broker-1, broker-2, broker-3" in text


def test_a_node_that_does_not_run_cannot_be_paused(folder: Path) -> None:
    code, text = run("pause", "--dir", folder, "--broker", "1")
    assert code == 1
    assert "broker-1 is not running" in text


def test_a_folder_without_a_cluster_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    code, text = run("kill", "--dir", tmp_path, "--all")
    assert code == 1
    assert "holdfast cluster up" in text


def test_a_power_loss_tells_what_each_node_has_lost(tmp_path: Path) -> None:
    LocalCluster.create(tmp_path / "c", 3, 1, power_loss="tracked")
    code, text = run("power-loss", "--dir", tmp_path / "c", "--broker", "3,2", "--seed", "7")
    assert code == 0
    assert text.splitlines() == [
        "power lost: broker-2 (seed 7): 0 log bytes lost, 0 files touched",
        "power lost: broker-3 (seed 7): 0 log bytes lost, 0 files touched",
    ]
    code, text = run("power-loss", "--dir", tmp_path / "c", "--all", "--output", "json")
    assert code == 0
    data = json.loads(text)["data"]
    assert data["driver"] == "tracked"
    assert [row["node"] for row in data["nodes"]] == ["controller-101", "broker-1", "broker-2", "broker-3"]
    assert len({row["seed"] for row in data["nodes"]}) == 1


def test_a_cluster_that_cannot_lose_power_says_how_to_make_one_that_can(folder: Path) -> None:
    code, text = run("power-loss", "--dir", folder, "--all")
    assert code == 1
    assert "make it with `holdfast cluster up --power-loss auto`" in text
