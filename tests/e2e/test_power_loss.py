"""The power of all brokers goes at once, under load: what was acknowledged and not flushed is gone (B-3).

Once with each way of losing power that matters here: the tracked disk, and the nastiest file system if this
machine can mount it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import power_drivers
from cli.local_cluster import LocalCluster
from client.admin import Admin
from client.history import parse_value
from runtime.api import Runtime
from runtime.real import run
from tests.e2e.conftest import QUICK
from tests.e2e.load import Answers, Load, assert_nothing_lost, read_all, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

DRIVERS = [name for name in ("tracked", "ext4-nasty") if not power_drivers.why_not(name)]
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
        admin = Admin(runtime, cluster.bootstrap_servers)
        for name, configs in ((FLUSHED, {"flush.messages": "1"}), (UNFLUSHED, {})):
            await admin.create_topic(name, assignments={0: (1, 2, 3), 1: (2, 3, 1)}, configs=configs)
        admin.close()
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
