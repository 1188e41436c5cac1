"""The power of all brokers goes at once, under load: what was acknowledged and not flushed is gone (G-3).

Once with each way of losing power that matters here: the tracked disk, and the nastiest file system if this
machine can mount it.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.admin import Admin
from holdfast.client.core.history import parse_value
from holdfast.localcluster.power import drivers
from holdfast.localcluster.processes import STATE_FILE, LocalCluster
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.conftest import QUICK
from tests.e2e.load import Answers, Load, assert_nothing_lost, read_all, watch
from tests.e2e.test_readme import free_base_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

DRIVERS = [name for name in ("tracked", "ext4-nasty") if not drivers.why_not(name)]
PAGE = Path(__file__).parents[2] / "docs" / "power-loss.md"
FLUSHED, UNFLUSHED = "flushed", "unflushed"


@pytest.fixture(params=DRIVERS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "c", 3, 1, properties=QUICK, power_loss=request.param)
    try:
        made.up()
        yield made
    finally:
        made.destroy()


def create_topics(cluster: LocalCluster) -> None:
    async def work(runtime: Runtime) -> int:
        admin = Admin(cluster.bootstrap_servers, runtime=runtime)
        for name, configs in ((FLUSHED, {"flush.messages": "1"}), (UNFLUSHED, {})):
            await admin.create_topic(name, assignments={0: (1, 2, 3), 1: (2, 3, 1)}, configs=configs)
        await admin.close()
        return 0

    run(work)


def lost(cluster: LocalCluster, topic: str, answers: Answers) -> int:
    """How many of the acknowledged records are not where they were."""
    found = read_all(cluster.bootstrap_servers, topic, 2)

    def is_there(where: tuple[int, int], number: int) -> bool:
        said = parse_value(found[where].value or b"") if where in found else None
        return said is not None and said.pseq == number

    return sum(not is_there(where, number) for where, number in answers.acked.items())


def test_a_power_loss_of_all_brokers_takes_acknowledged_records_unless_every_write_is_flushed(
    cluster: LocalCluster,
) -> None:
    create_topics(cluster)
    servers = cluster.bootstrap_servers
    unflushed = Load(servers, UNFLUSHED, records_per_second=1000, name="unflushed")
    with Load(servers, FLUSHED, records_per_second=200, name="flushed") as flushed:
        with unflushed:
            flushed.wait_acked(200)
            unflushed.wait_acked(1000)
        losses = cluster.power_loss(cluster.brokers, seed=5)
        assert [loss.node for loss in losses] == ["broker-1", "broker-2", "broker-3"]
        assert all(cluster.pid(node) is None for node in cluster.brokers)
        for loss in losses:
            in_topic = [file for file in loss.files if f"/{UNFLUSHED}-" in file.path]
            assert sum(file.bytes_lost for file in in_topic) > 10_000
        for node in cluster.brokers:
            cluster.start(node)
        # while they start, reading what the first loss has left
        cluster.power_loss(cluster.brokers, seed=6)
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_ready(cluster.brokers)
        watch(servers).wait_full_isr(FLUSHED)
        flushed.wait_acked(200)
    assert_nothing_lost(servers, FLUSHED, 2, flushed.answers)
    assert lost(cluster, UNFLUSHED, unflushed.answers) > 0, "the power loss took nothing"


def test_the_commands_of_the_page_lose_acknowledged_records(tmp_path: Path) -> None:
    """docs/power-loss.md, typed one after the other; its folder and ports may be in use on this machine."""
    base = free_base_port(tmp_path)
    lines = [
        re.sub(r"\b192(\d\d)\b", lambda found: str(base + int(found[1])), line.strip())
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("    ")
    ]
    script = "set -eu\n" + "\n".join(line.replace("/tmp/", f"{tmp_path}/") for line in lines)
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=100, check=False
        )
    finally:
        if (tmp_path / "dark" / STATE_FILE).exists():
            LocalCluster.load(tmp_path / "dark").destroy()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("power lost: broker-") == 3
    (end_offset,) = re.findall(r"^t:0:(\d+)$", done.stdout, re.MULTILINE)
    assert int(end_offset) < 1000
    assert done.stdout.endswith("\ndown\n")
