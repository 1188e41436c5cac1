"""A controller with a damaged, older or empty log never makes the quorum forget what was acknowledged.

(what is damaged) x (a follower, the active controller) x (it stopped cleanly or was killed). The damaged
controller may refuse to start or to vote, in a sentence; no other node ends.
"""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from holdfast.drills.demo.watch import ClusterWatch
from holdfast.localcluster.faults import damage
from holdfast.localcluster.faults.fault import Fault
from holdfast.localcluster.faults.places import Part, Place
from holdfast.localcluster.launch import shared_launcher
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from tests.e2e.conftest import QUICK
from tests.e2e.load import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.xdist_group("faults-controllers")]

Damage = Callable[[LocalCluster, Node], Fault]

KINDS: dict[str, Damage] = {
    "log bit": lambda c, node: damage.FlipBit(c, node, Place(Part.METADATA_LOG), seed=2),
    "log cut": lambda c, node: damage.CutFile(c, node, Place(Part.METADATA_LOG), keep=0.6),
    "log removed": lambda c, node: damage.RemoveFile(c, node, Place(Part.METADATA_LOG)),
    "quorum-state cut": lambda c, node: damage.CutFile(c, node, Place(Part.QUORUM_STATE)),
    "quorum-state removed": lambda c, node: damage.RemoveFile(c, node, Place(Part.QUORUM_STATE)),
    "meta.properties removed": lambda c, node: damage.RemoveFile(c, node, Place(Part.META_PROPERTIES)),
    "disk wiped": damage.WipeDisk,
}
ROLES = ("follower", "active")
STARTS = ("clean", "unclean")
#: one of a kind; the others are further rows
EVERY_TIME = {
    ("log bit", "follower", "clean"),
    ("log cut", "active", "unclean"),
    ("quorum-state removed", "follower", "unclean"),
    ("disk wiped", "active", "clean"),
}
CELLS = [
    pytest.param(*cell, marks=[] if cell in EVERY_TIME else [pytest.mark.long])
    for cell in product(KINDS, ROLES, STARTS)
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers and three controllers of this test alone: a damaged controller may be one for good."""
    made = LocalCluster.create(tmp_path / "cluster", 3, 3, properties=QUICK, launcher=shared_launcher())
    try:
        made.up()
        yield made
    finally:
        made.destroy()


def topics_of(look: ClusterWatch) -> set[str]:
    return set(look.ask(lambda admin: admin.list_topics()))


def waits(cluster: LocalCluster, controller: Node) -> bool:
    """It takes no part until an operator says so: what it had as a voter is gone."""
    return "so it waits" in cluster.log_file(controller).read_text()


@pytest.mark.parametrize(("kind", "role", "start"), CELLS)
def test_a_damaged_controller_makes_the_quorum_forget_nothing(
    cluster: LocalCluster, kind: str, role: str, start: str
) -> None:
    look = ClusterWatch(cluster.bootstrap_servers)
    controllers = ClusterWatch(cluster.bootstrap_controllers)
    names = {f"t-{number}" for number in range(10)}
    for name in sorted(names):
        look.create_topic(name, 1, 3, 2)
    active = cluster.node(f"controller-{look.active_controller()}")
    hit = active if role == "active" else next(node for node in cluster.controllers if node != active)
    others = {node: cluster.pid(node) for node in cluster.nodes if node != hit}
    (cluster.stop if start == "clean" else cluster.kill)([hit])
    KINDS[kind](cluster, hit).apply()
    cluster.start(hit)
    wait_until(lambda: cluster.pid(hit) is None or cluster.is_ready(hit) or waits(cluster, hit))
    look.create_topic("after", 1, 3, 2)
    assert topics_of(controllers) == names | {"after"}
    assert {node: cluster.pid(node) for node in others} == others, "another node has ended"
    if not cluster.is_ready(hit):
        assert "Traceback" not in cluster.last_words(hit, 100)
        return
    # a majority with the damaged one in it: whichever leads knows everything
    killed = next(node for node in cluster.controllers if node != hit)
    cluster.kill([killed])
    look.create_topic("in-the-end", 1, 3, 2)
    assert topics_of(controllers) == names | {"after", "in-the-end"}
    for node, pid in others.items():
        assert node == killed or cluster.pid(node) == pid, cluster.last_words(node)
