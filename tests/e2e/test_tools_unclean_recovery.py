"""`holdfast unclean-recovery` on a real cluster with brokers dead, silent, fenced, started anew (R70-R79).

One cluster for all stories. Nothing recovers by itself: the strategy is None.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.topics import DescribedPartition
from tests.e2e.conftest import QUICK
from tests.e2e.load import produce, wait_until
from tests.e2e.test_tools import Tools, write
from tests.e2e.test_unclean_recovery import Drill

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("tools, unclean recovery"), pytest.mark.timeout(180)]

ALL = ("unclean-recovery", "--all-offline-partitions", "--show-replica-info")


class Outage(Drill):
    """Topics of one partition on brokers 1, 2, 3 whose logs end differently, and the tool."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.tools = Tools(cluster)

    def make(self, topic: str) -> None:
        """A topic with 30 records on each replica, 50 on 1 and 2; broker 3 is dead."""
        self.topic(topic, "None")
        servers = self.cluster.bootstrap_servers
        produce(servers, topic, 30)
        self.kill(3)
        wait_until(lambda: self.partition(topic).isr == (1, 2))
        produce(servers, topic, 20, first=30)

    def lose_all_replicas(self, topic: str) -> None:
        """All replicas die and return, 1 last in the ISR, with 60 records; no replica may lead."""
        self.make(topic)
        self.kill(2)
        wait_until(lambda: self.partition(topic).isr == (1,))
        produce(self.cluster.bootstrap_servers, topic, 10, acks=1, first=50)
        self.kill(1)
        self.start(1, 2, 3)
        wait_until(lambda: self.partition(topic).eligible_leader_replicas == ())
        assert self.partition(topic).leader_id == -1

    def partition_by_brokers(self, topic: str) -> DescribedPartition:
        """As a broker has it."""
        return self.ask(lambda admin: admin.describe_topics([topic]), brokers=True)[0].partitions[0]

    def rows(self, out: str, topic: str) -> dict[int, dict[str, str]]:
        """The table's cells of partition 0, by replica and head."""
        heads, *lines = (line.split() for line in out.splitlines())
        found = [dict(zip(heads, line, strict=True)) for line in lines if len(line) == len(heads)]
        return {int(row["REPLICA"]): row for row in found if row["TOPIC"] == topic}

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command whose stderr can be read while it runs."""
        line = self.tools.line(*words)
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def await_line(stream: IO[str] | None, text: str) -> None:
    """Read until a line has this in it."""
    assert stream is not None
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"nothing was said of {text!r}")


@pytest.fixture(scope="module")
def shared_outage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage]:
    folder = tmp_path_factory.mktemp("recovery-tool") / "cluster"
    cluster = LocalCluster.create(folder, 3, 3, properties=QUICK)
    try:
        cluster.up()
        yield Outage(cluster)
    finally:
        for node in cluster.nodes:
            cluster.resume(node)
        cluster.kill(cluster.nodes)


@pytest.fixture
def outage(shared_outage: Outage) -> Iterator[Outage]:
    """The cluster, whole and without topics afterwards."""
    yield shared_outage
    for node in shared_outage.cluster.nodes:
        shared_outage.cluster.resume(node)
    shared_outage.cluster.up()


def test_the_plan_of_the_kip(outage: Outage, tmp_path: Path) -> None:
    """KIP-1275, test plan: kill -9 all of the ISR; the tool elects a replica from outside of it."""
    outage.make("plan")
    outage.kill(1, 2)
    outage.start(3)
    wait_until(lambda: outage.partition("plan").offline_replicas == (1, 2))
    assert outage.partition("plan").leader_id == -1
    done = outage.tools.run(*ALL, "--automated-recovery", "--recovery-duration-ms", "3000")
    rows = outage.rows(done.out, "plan")
    assert [(row["FENCED"], row["REPLIED"], row["BEST"]) for _, row in sorted(rows.items())] == [
        ("yes", "no(NETWORK_EXCEPTION)", "-"),
        ("yes", "no(NETWORK_EXCEPTION)", "-"),
        ("no", "yes", "*"),
    ]
    assert (rows[3]["ROLE"], rows[3]["LEO"]) == ("OUT_OF_SYNC", "30")
    assert "Successfully completed leader election (DESIGNATION) for partitions plan-0\n" in done.out
    assert "warning: the logs of broker 1 are not known for plan-0 (" in done.err
    assert outage.wait_leader("plan") == 3
    # R74, R79: a second run harms nothing and has nothing to elect
    path = write(tmp_path, {"partitions": [{"topic": "plan", "partitions": [0, 5]}]})
    again = outage.tools.run("unclean-recovery", "--path-to-json-file", path, "--automated-recovery", code=1)
    assert "plan-0: ELECTION_NOT_NEEDED: already online" in again.err
    assert "plan-5: UNKNOWN_TOPIC_OR_PARTITION" in again.err
    assert "No partition is without a leader." in outage.tools.run(*ALL, "--automated-recovery").out


def test_a_reboot_and_another_controller_in_the_middle_change_nothing(outage: Outage) -> None:
    """R63, R71: while broker 3 is silent, the best replica is started anew and the controller dies."""
    outage.lose_all_replicas("middle")
    outage.cluster.pause(outage.cluster.broker(3))
    process = outage.begin(*ALL, "--automated-recovery", "--recovery-duration-ms", "20000")
    await_line(process.stderr, "broker 3 is asked again")
    outage.kill(1)
    outage.cluster.kill([outage.cluster.node(f"controller-{outage.active_controller()}")])
    outage.start(1)
    outage.cluster.resume(outage.cluster.broker(3))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, out + err
    rows = outage.rows(out, "middle")
    assert {replica: (row["REPLIED"], row["LEO"]) for replica, row in rows.items()} == {
        1: ("yes", "60"),
        2: ("yes", "50"),
        3: ("yes", "30"),
    }
    # its former incarnation registered before 2 and 3 had anything to do with it
    assert int(rows[1]["BROKER-EPOCH"]) > int(rows[2]["BROKER-EPOCH"])
    assert rows[1]["BEST"] == "*"
    assert outage.wait_leader("middle") == 1


def test_a_signal_ends_it_and_nothing_is_elected(outage: Outage, tmp_path: Path) -> None:
    """R75."""
    outage.lose_all_replicas("stopped")
    outage.cluster.pause(outage.cluster.broker(1))
    process = outage.begin(*ALL, "--automated-recovery")
    await_line(process.stderr, "broker 1 is asked again")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert outage.rows(out, "stopped")[2]["REPLIED"] == "yes"
    assert "error: stopped-0: OPERATION_NOT_ATTEMPTED" in err
    assert outage.partition("stopped").leader_id == -1
    # by hand then: what answered is written down, the operator decides
    path = tmp_path / "elections.json"
    source = write(tmp_path, {"partitions": [{"topic": "stopped", "partitions": [0]}]})
    words = ("--recovery-duration-ms", "3000", "--manual-recovery-output-file", str(path))
    done = outage.tools.run("unclean-recovery", "--path-to-json-file", source, *words)
    assert f"Wrote 1 election(s) to {path}" in done.out
    row = {"topic": "stopped", "partition": 0, "desiredLeader": 2}
    assert json.loads(path.read_text()) == {"partitions": [row]}
    assert outage.partition("stopped").leader_id == -1
    elect = ("leader-election", "--election-type", "DESIGNATED", "--path-to-json-file", str(path))
    outage.tools.run(*elect)
    assert outage.wait_leader("stopped") == 2


def test_a_fenced_broker_that_answers_is_shown_as_fenced_and_refused(outage: Outage) -> None:
    """R76: without controllers broker 1 stays fenced, awake as it is; no replica is elected."""
    outage.lose_all_replicas("fenced")
    outage.cluster.pause(outage.cluster.broker(1))
    wait_until(lambda: outage.partition("fenced").offline_replicas == (1,))
    wait_until(lambda: outage.partition_by_brokers("fenced").offline_replicas == (1,))
    # broker 1 may never hear that it is fenced: no controller says so any more
    servers = ",".join(outage.cluster.bootstrap_servers.split(",")[1:])
    for node in outage.cluster.controllers:
        outage.cluster.pause(node)
    outage.cluster.resume(outage.cluster.broker(1))
    limits = ("--timeout-ms", "2000", "--recovery-election-attempts", "0", "--recovery-duration-ms", "2000")
    done = outage.tools.run(*ALL, "--automated-recovery", *limits, code=1, servers=servers)
    rows = outage.rows(done.out, "fenced")
    assert (rows[1]["FENCED"], rows[1]["REPLIED"], rows[1]["LEO"], rows[1]["BEST"]) == (
        "yes",
        "yes",
        "60",
        "-",
    )
    assert (rows[2]["FENCED"], rows[2]["BEST"]) == ("no", "*")
    assert "warning: no active controller answered" in done.err
    assert "broker 1 (LKELR) is not ready, and its log is better than that of 2" in done.err
    assert "error: fenced-0: " in done.err
