"""`holdfast chaos` on a real cluster: it says what it did, and nothing stays that was not to stay."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.localcluster.pytest_cluster import HoldfastCluster
from tests.e2e.conftest import QUICK

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("chaos"), pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HoldfastCluster]:
    with HoldfastCluster.running(tmp_path_factory.mktemp("chaos"), properties=QUICK) as running:
        running.create_topic("t", configs={"min.insync.replicas": "2"})
        yield running


def chaos(cluster: HoldfastCluster, *words: str, code: int = 0) -> str:
    """What it prints. A process of its own, as nodes that it starts again are its children."""
    command = [sys.executable, "-m", "holdfast.cli", "chaos", *words, "--dir", str(cluster.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + (done.stderr if code else "")


def whole(cluster: HoldfastCluster) -> None:
    cluster.wait_until(lambda: len(cluster.isr("t")) == 3)


@pytest.mark.parametrize("fault", ["kill", "stop", "pause", "few-handles", "half-frames", "garbage"])
def test_a_fault_with_a_duration_heals_itself(cluster: HoldfastCluster, fault: str) -> None:
    whole(cluster)
    said = chaos(cluster, fault, "--target", "leader of t-0", "--seconds", "0.2")
    assert said.splitlines()[-1] == "healed"
    assert "broker-" in said
    whole(cluster)
    assert chaos(cluster, "heal") == "nothing was left to heal\n"


def test_a_fault_without_a_duration_stays_until_it_is_healed(cluster: HoldfastCluster) -> None:
    whole(cluster)
    leader = cluster.leader("t")
    assert leader is not None
    said = json.loads(chaos(cluster, "pause", "--target", leader.name, "--output", "json").splitlines()[-1])
    assert said["data"]["fault"] == "pause"
    cluster.wait_until(lambda: cluster.leader("t") not in (leader, None))
    assert chaos(cluster, "heal") == f"healed: pause of {leader.name}\n"
    whole(cluster)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("kill", "--target", "nonsense"), "no target 'nonsense'"),
        (("partition", "--target", "1"), "make it with links"),
        (("full-disk", "--target", "1"), "disk"),
    ],
)
def test_what_is_not_possible_is_refused_with_the_reason(
    cluster: HoldfastCluster, words: tuple[str, ...], says: str
) -> None:
    assert says in chaos(cluster, *words, code=1)
    assert chaos(cluster, "heal") == "nothing was left to heal\n"


def test_the_list_names_each_command() -> None:
    listed = CliRunner().invoke(main, ["chaos", "list", "--output", "json"])
    names = {row["name"] for row in json.loads(listed.output)["data"]}
    shown = CliRunner().invoke(main, ["chaos", "--help"]).output
    assert names >= {"kill", "pause", "power-loss", "partition", "flip-bit", "full-disk", "garbage"}
    assert all(name in shown for name in names)


def test_a_cluster_must_be_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["chaos", "kill", "--target", "1"])
    assert done.exit_code == 2
    assert "--driver compose" in done.output
