"""Each driver does what it says, and heals it: also when its own process is killed in the middle."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.localcluster.faults import clients, damage, disks, limits, processes
from holdfast.localcluster.faults.fault import FaultRefused, heal_cluster
from holdfast.localcluster.faults.journal import FaultJournal
from holdfast.localcluster.faults.places import Part, Place
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.nodes import ClusterError
from holdfast.localcluster.processes import LocalCluster
from holdfast.storage.clean_shutdown import FILE_NAME
from tests.e2e.load import assert_nothing_lost, produce, wait_until, watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120), pytest.mark.xdist_group("faults")]


def test_targets_are_found_by_what_they_do(cluster: LocalCluster, targets: Targets) -> None:
    row = watch(cluster.bootstrap_servers).describe("t").partitions[0]
    leader = targets.one("leader of t-0")
    assert leader == cluster.broker(row.leader_id)
    assert targets.one(str(row.leader_id)) == targets.one(leader.name) == leader
    assert set(targets.find("followers of t-0")) == set(cluster.brokers) - {leader}
    assert targets.one("follower of t-0") in targets.find("followers of t-0")
    assert targets.one("most leaders") == leader
    active = watch(cluster.bootstrap_servers).active_controller()
    assert targets.one("active controller").node_id == active
    assert targets.find("1, 102") == (cluster.broker(1), cluster.node("controller-102"))
    for words, reason in (
        ("broker-9", "no target"),
        ("leader of t-7", "no t-7"),
        ("all brokers", "name one"),
    ):
        with pytest.raises(ClusterError, match=reason):
            targets.one(words)


def test_processes_end_or_fall_silent_and_are_back_when_healed(
    cluster: LocalCluster, targets: Targets
) -> None:
    leader, follower = targets.one("leader of t-0"), targets.one("follower of t-0")
    active = targets.one("active controller")
    faults = (
        processes.Pause(cluster, follower),
        processes.Stop(cluster, active),
        processes.PowerLoss(cluster, leader, seed=3),
    )
    said = [fault.apply() for fault in faults]
    assert [node.name in text for node, text in zip((follower, active, leader), said, strict=True)] == [
        True
    ] * 3
    assert cluster.is_paused(follower)
    assert cluster.pid(active) is None
    assert cluster.pid(leader) is None
    for fault in reversed(faults):
        fault.heal()
        fault.heal()
    cluster.wait_ready(cluster.nodes)
    watch(cluster.bootstrap_servers).wait_full_isr("t")
    assert FaultJournal(cluster).open_steps() == []


def test_damaged_files_are_put_back_unless_the_node_has_been_started_since(cluster: LocalCluster) -> None:
    watch(cluster.bootstrap_servers).create_topic("damaged", 1, 3, 2)
    produce(cluster.bootstrap_servers, "damaged", 50)
    node = cluster.broker(1)
    log = Place(Part.ACTIVE_SEGMENT, "damaged-0")
    with pytest.raises(FaultRefused, match="runs"):
        damage.FlipBit(cluster, node, log).apply()
    stopped = processes.Stop(cluster, node)
    stopped.apply()
    before = _files(cluster.data_folder(node))
    faults = (
        damage.FlipBit(cluster, node, log, seed=1),
        damage.CutFile(cluster, node, log, seed=2),
        damage.RemoveFile(cluster, node, Place(Part.PARTITION_METADATA, "damaged-0")),
        damage.RemoveFile(cluster, node, Place(Part.CLEAN_SHUTDOWN_FILE)),
        damage.WipeDisk(cluster, node),
    )
    for fault in faults:
        fault.apply()
    assert not cluster.data_folder(node).exists()
    heal_cluster(cluster)
    cluster.stop([node])  # healing has started it again: that was the first fault
    assert _files(cluster.data_folder(node)).keys() == before.keys()
    removed = damage.RemoveFile(cluster, node, Place(Part.CLEAN_SHUTDOWN_FILE))
    removed.apply()
    cluster.start(node)
    cluster.wait_ready([node])
    removed.heal()
    assert not (cluster.data_folder(node) / FILE_NAME).exists(), "it would call an unclean stop a clean one"


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_limits_of_a_live_process_are_lifted_again(cluster: LocalCluster) -> None:
    node = cluster.broker(2)
    pid = cluster.pid(node)
    assert pid is not None
    numbers = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE)
    before = [resource.prlimit(pid, number) for number in numbers]
    faults = (
        limits.FewHandles(cluster, node, spare=100),
        limits.LittleMemory(cluster, node, spare=1 << 30),
        limits.NoRoomInFiles(cluster, node, spare=1 << 30),
    )
    for fault in faults:
        fault.apply()
    assert all(
        resource.prlimit(pid, number)[0] < was[0] or was[0] == -1
        for number, was in zip(numbers, before, strict=True)
    )
    for fault in faults:
        fault.heal()
    assert [resource.prlimit(pid, number) for number in numbers] == before


def test_a_node_started_with_few_handles_gets_them_back(cluster: LocalCluster) -> None:
    node = cluster.broker(2)
    cluster.stop([node])
    fault = limits.LimitedStart(cluster, node, handles=500)
    fault.apply()
    cluster.start(node)
    cluster.wait_ready([node])
    assert resource.prlimit(cluster.pid(node) or 0, resource.RLIMIT_NOFILE) == (500, 500)
    fault.heal()
    cluster.wait_ready([node])
    assert resource.prlimit(cluster.pid(node) or 0, resource.RLIMIT_NOFILE)[1] > 500


def test_a_disk_of_the_machine_is_neither_filled_nor_frozen(cluster: LocalCluster) -> None:
    for kind in (disks.FullDisk, disks.FrozenDisk):
        with pytest.raises(FaultRefused, match="not touched"):
            kind(cluster, cluster.broker(1)).apply()


def test_rude_clients_end_no_node_and_leave_no_connection(cluster: LocalCluster, targets: Targets) -> None:
    node = targets.one("leader of t-0")
    topic_id = watch(cluster.bootstrap_servers).describe("t").topic_id
    faults: list[clients.Clients] = [
        clients.IdleConnections(cluster, node),
        clients.HalfFrames(cluster, node, 3, 4 << 20),
        clients.UnreadFetches(cluster, node, topic_id, 3),
        clients.MetadataFlood(cluster, node, 1, 100),
        clients.Garbage(cluster, node, 2),
    ]
    for fault in faults:
        assert node.name in fault.apply()
    answers = produce(cluster.bootstrap_servers, "t", 50, name="neighbour")
    for fault in faults:
        fault.heal()
    assert not answers.failed
    assert_nothing_lost(cluster.bootstrap_servers, "t", 1, answers)


#: a process that makes faults, says so, and waits for its end
_DRIVER = """
import sys
from pathlib import Path
from holdfast.localcluster.faults import processes, damage, fault
from holdfast.localcluster.faults.places import Part, Place
from holdfast.localcluster.processes import LocalCluster

cluster = LocalCluster.load(Path(sys.argv[1]))
with fault.healing(cluster):
    processes.Pause(cluster, cluster.broker(1)).apply()
    processes.Kill(cluster, cluster.broker(2)).apply()
    damage.RemoveFile(cluster, cluster.broker(2), Place(Part.META_PROPERTIES)).apply()
    print("done", flush=True)
    sys.stdin.read()
"""


_HEALER = """
import sys
from pathlib import Path
from holdfast.localcluster.faults.fault import heal_all

print("\\n".join(heal_all(Path(sys.argv[1]))))
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_faults_are_healed_after_the_end_of_their_driver(cluster: LocalCluster, end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(cluster.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"done\n"
        assert cluster.is_paused(cluster.broker(1))
        # its end comes to the driver before it comes to this process, its parent
        wait_until(lambda: cluster.pid(cluster.broker(2)) is None)
        driver.send_signal(end)
        driver.communicate()
    if end == signal.SIGKILL:
        healer = subprocess.run(
            [sys.executable, "-c", _HEALER, str(cluster.folder)], capture_output=True, text=True, check=True
        )
        assert sorted(healer.stdout.splitlines()) == [
            "kill of broker-2",
            "pause of broker-1",
            "remove-file of meta-properties on broker-2",
        ]
    assert heal_cluster(cluster) == []
    assert not cluster.is_paused(cluster.broker(1))
    wait_until(lambda: cluster.pid(cluster.broker(2)) is not None)
    cluster.wait_ready(cluster.nodes)
