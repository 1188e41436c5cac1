"""Bits that change on a stopped broker's disk, real processes: one replica heals, and no node ends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.localcluster.processes import LocalCluster
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch
from tests.e2e.test_tools import Tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

#: Behind the header of a segment's first batch: a start does not look at it.
PAYLOAD = 400
SHOW = ("unclean-recovery", "--all-offline-partitions", "--show-replica-info")
MAGIC = 16


def flip(path: Path, at: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_flipped_bits_cost_one_replica_which_heals(
    make_cluster: Callable[..., LocalCluster], role: str
) -> None:
    """A header that the start meets, and a payload that only a reader meets, in two partitions of a broker
    that was stopped cleanly; all that was acknowledged is read, also by a consumer from the beginning."""
    cluster = make_cluster(controllers=1, log_segment_bytes="65536")
    servers = cluster.bootstrap_servers
    look = watch(servers)
    look.create_topic("t", 2, 3, 2)
    with Load(servers, "t") as load:
        load.wait_acked(3_000)
    look.wait_full_isr("t")
    leader = next(row.leader_id for row in look.describe("t").partitions if row.partition_index == 0)
    hit = next(node for node in cluster.brokers if (node.node_id == leader) is (role == "leader"))
    data = cluster.data_folder(hit)
    cluster.stop([hit])
    first = f"{0:020}.log"
    flip(data / "t-0" / first, MAGIC)
    flip(data / "t-1" / first, PAYLOAD)
    cluster.start(hit)
    cluster.wait_ready([hit])
    wait_until(lambda: len(list(data.glob("t-0.*-corrupt"))) == 1)
    look.wait_full_isr("t")
    cluster.stop([node for node in cluster.brokers if node is not hit][:1])  # the other one may lead, too
    assert_nothing_lost(servers, "t", 2, load.answers)
    cluster.up()
    look.wait_full_isr("t")
    assert_nothing_lost(servers, "t", 2, load.answers)
    assert all(cluster.is_ready(node) for node in cluster.brokers)
    for name in ("t-0", "t-1"):
        assert (data / name).is_dir()


def test_last_complete_replica_says_what_is_lost_and_waits(make_cluster: Callable[..., LocalCluster]) -> None:
    """It has no other replica. Nothing empty leads, also after a restart; the tool names byte and folder."""
    cluster = make_cluster(brokers=1, controllers=1, log_segment_bytes="65536")
    servers = cluster.bootstrap_servers
    look = watch(servers)
    look.create_topic("t", 1, 1, 1)
    with Load(servers, "t") as load:
        load.wait_acked(2_000)
    hit = cluster.brokers[0]
    data = cluster.data_folder(hit)
    cluster.stop([hit])
    flip(data / "t-0" / f"{0:020}.log", MAGIC)
    found: set[Path] = set()
    for _ in range(2):
        cluster.start(hit)
        cluster.wait_ready([hit])
        wait_until(lambda: look.describe("t").partitions[0].leader_id == -1)
        found |= set(data.glob("t-0.*-corrupt"))
        (aside,) = found
        done = Tools(cluster).run(
            "unclean-recovery", "--all-offline-partitions", "--show-replica-info", code=1
        )
        shown = done.out + done.err
        assert aside.name in shown
        assert "damaged at byte 0" in shown
        assert not (data / "t-0").exists()
        cluster.stop([hit])
    found.pop().rename(data / "t-0")  # the operator has a sound copy of the file
    flip(data / "t-0" / f"{0:020}.log", MAGIC)
    cluster.start(hit)
    look.wait_full_isr("t")
    assert_nothing_lost(servers, "t", 1, load.answers)
