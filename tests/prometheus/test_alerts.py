"""Every alert that a machine can cause fires on a real cluster, in a real Prometheus (docs/metrics.md).

The rules are those of docker/prometheus without their waits. One cluster lives through all causes, in an
order in which each finds what it needs; it is on a tmpfs where the test may mount one, to be filled up.
"""

import http.server
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.durability.log_dir_files import high_watermarks
from holdfast.localcluster.faults.damage import FlipBit
from holdfast.localcluster.faults.places import Field, Part, Place
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.ports import ReservedPorts
from holdfast.localcluster.processes import LocalCluster
from holdfast.storage.core.files import SCRUB_CHECKPOINT
from tests.e2e.conftest import QUICK

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="no prometheus: apt-get install prometheus"
    ),
]
RULES = Path(__file__).parents[2] / "docker" / "prometheus" / "holdfast.rules.yml"
WAIT_S = 120.0
MIB = 1 << 20
TMPFS_MIB = 2_000
#: Only a bug of Holdfast makes it fire.
NOT_CAUSED = {"BrokenInvariant"}
#: Need a device that may be filled.
OF_A_DEVICE = {"LogDirNearlyFull", "LogDirFilling"}


class _Collector:
    """Stands for the node exporter with its text-file collector."""

    def __init__(self) -> None:
        self.text = ""
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(collector.text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Monitoring:
    """Prometheus over a cluster, and everything that has fired so far."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self._reserved = ReservedPorts(1)
        (self._port,) = self._reserved.numbers
        self._collector = _Collector()
        rules = re.sub(r"for: \w+", "for: 0s", RULES.read_text())
        (folder / "rules.yml").write_text(rules)
        jobs = [
            (f"holdfast-{role}s", [f"127.0.0.1:{n.http_port}" for n in cluster.nodes if n.role == role])
            for role in ("controller", "broker")
        ]
        jobs.append(("node", [f"127.0.0.1:{self._collector.port}"]))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(folder / "rules.yml")],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": targets}]} for name, targets in jobs
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # YAML, too
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        self.fired: dict[str, str] = {}

    def collect(self, text: str) -> None:
        """What a text-file collector finds from now on."""
        self._collector.text = text

    def close(self) -> None:
        """End it."""
        self._collector.close()
        self._process.terminate()
        self._process.wait(60)

    def look(self) -> set[str]:
        """Alerts that fire now."""
        address = f"http://127.0.0.1:{self._port}/api/v1/alerts"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                alerts = json.load(answer)["data"]["alerts"]
        except OSError:
            assert self._process.poll() is None, "Prometheus has ended"
            return set()
        now = {one["labels"]["alertname"]: one for one in alerts if one["state"] == "firing"}
        for name, one in now.items():
            self.fired.setdefault(name, one["annotations"]["summary"])
        return set(now)

    def wait(self, *names: str, meanwhile: Callable[[], object] = lambda: time.sleep(0.2)) -> None:
        """Until all of them have fired since the test began."""
        deadline = time.monotonic() + WAIT_S
        while not self.fired.keys() >= set(names):
            assert time.monotonic() < deadline, set(names) - self.fired.keys()
            meanwhile()
            self.look()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Until it is so."""
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.1)
            self.look()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A device of its own where that can be had."""
    mount = tmp_path / "device"
    mount.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={TMPFS_MIB}m", "tmpfs", str(mount)]
    done = subprocess.run(["mount", *options], capture_output=True, check=False)
    yield mount
    if done.returncode == 0:
        subprocess.run(["umount", "-l", str(mount)], check=True)


@pytest.fixture
def cluster(folder: Path) -> Iterator[LocalCluster]:
    keys = {**QUICK, "replica.high.watermark.checkpoint.interval.ms": "200"}
    made = LocalCluster.create(folder / "cluster", 3, 3, properties=keys)
    # the last broker has two log dirs: one that loses its only one has nothing to live for
    file, first = made.properties_file(made.brokers[2]), made.data_folder(made.brokers[2])
    both = f"log.dirs={first},{first.parent / 'more'}\n"
    file.write_text(file.read_text().replace(f"log.dirs={first}\n", both))
    try:
        made.up()
        yield made
    finally:
        for node in made.nodes:
            made.resume(node)
        made.destroy()


@pytest.fixture
def monitoring(tmp_path: Path, cluster: LocalCluster) -> Iterator[Monitoring]:
    made = Monitoring(tmp_path, cluster)
    yield made
    made.close()


def holdfast(cluster: LocalCluster, *words: str) -> None:
    line = [sys.executable, "-m", "holdfast.cli", *words, "--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def judged(cluster: LocalCluster, ledger: Path) -> str:
    """What the validator says of a ledger that proves nothing, for the collector."""
    words = ["validate", "--ledger", str(ledger), "--output", "prometheus"]
    line = [sys.executable, "-m", "holdfast.cli", *words, "--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 6, done.stdout + done.stderr
    return done.stdout


def create(cluster: LocalCluster, topic: str, assignment: str, *configs: str) -> None:
    words = [word for config in configs for word in ("--config", config)]
    holdfast(cluster, "topics", "--create", "--topic", topic, "--replica-assignment", assignment, *words)


def produce(cluster: LocalCluster, topic: str, count: int, *words: str) -> None:
    common = ("--topic", topic, "--num-records", str(count), "--record-size", "10")
    holdfast(cluster, "producer-perf-test", *common, *words)


def starts(cluster: LocalCluster, *nodes: Node) -> None:
    for node in nodes:
        cluster.start(node)
    cluster.wait_ready(nodes, WAIT_S)


def test_alerts_fire_when_their_cause_is_there(
    folder: Path, cluster: LocalCluster, monitoring: Monitoring
) -> None:
    controllers, brokers = cluster.controllers, cluster.brokers

    # controllers
    cluster.kill(controllers[:1])
    monitoring.wait("QuorumLostMember", "ScrapeDown")
    cluster.kill(controllers[1:2])
    monitoring.wait("ActiveController")
    starts(cluster, *controllers[:2])

    # records that are nowhere on a disk, and a process that gets no CPU
    create(cluster, "t", "1:2:3,2:3:1,3:1:2", "min.insync.replicas=2")
    produce(cluster, "t", 1_200_000, "--command-property", "linger.ms=50")
    monitoring.wait("ExposureHigh")

    def stutter() -> None:
        cluster.signal(brokers[2], signal.SIGSTOP)
        time.sleep(0.6)
        cluster.signal(brokers[2], signal.SIGCONT)
        time.sleep(0.2)

    monitoring.wait("EventLoopLag", meanwhile=stutter)

    # brokers
    create(cluster, "balanced", "1:2", "min.insync.replicas=2")
    create(cluster, "manual", "1:2", "min.insync.replicas=2", "unclean.recovery.strategy=None")
    for topic in ("balanced", "manual"):
        produce(cluster, topic, 10)
    cluster.kill(brokers[:2])
    monitoring.wait("OfflinePartitions", "BrokerFenced", "UnderMinIsr", "ElrInUse")
    produce(cluster, "t", 10, "--command-property", "acks=1")
    monitoring.wait("HwmBlocked")
    starts(cluster, brokers[0])
    monitoring.wait("UncleanShutdown")
    cluster.kill(brokers[:1])
    starts(cluster, brokers[1])
    monitoring.wait("UncleanRecoveryStuck")
    starts(cluster, brokers[0])
    monitoring.wait("UncleanElection", "ManualLeaderElectionRequired")

    create(cluster, "cut", "1:2", "min.insync.replicas=1")
    produce(cluster, "cut", 10)
    cluster.kill([brokers[1]])
    produce(cluster, "cut", 50)
    # the leader remembers that they were committed
    monitoring.until(
        lambda: (high_watermarks(str(cluster.data_folder(brokers[0]))) or {}).get(("cut", 0)) == 60
    )
    cluster.kill([brokers[0]])
    starts(cluster, brokers[1])
    words = ("--topic", "cut", "--partition", "0", "--designated-leader", "2")
    holdfast(cluster, "leader-election", "--election-type", "DESIGNATION", *words)
    starts(cluster, brokers[0])
    monitoring.wait("CommittedDataTruncated")

    # what was proved
    (folder / "no-ledger").mkdir()
    monitoring.collect(judged(cluster, folder / "no-ledger"))
    monitoring.wait("ValidatorFailed")

    # a bit that a start does not read, and the scrub does
    create(cluster, "scrubbed", "3", "segment.bytes=4096")
    for _ in range(3):
        produce(cluster, "scrubbed", 300)
    cluster.stop(brokers[2:])
    FlipBit(cluster, brokers[2], Place(Part.CLOSED_SEGMENT, "scrubbed-0"), 1, Field.PAYLOAD).apply()
    for log_dir in cluster.log_dirs(brokers[2]):
        (log_dir / SCRUB_CHECKPOINT).unlink(missing_ok=True)  # a pass is due
    starts(cluster, brokers[2])
    monitoring.wait("ScrubFoundDamage")

    # log dirs
    create(cluster, "many", ",".join(["3"] * 300))
    produce(cluster, "many", 3_000, "--command-property", "linger.ms=0")

    def restart() -> None:
        """Opening logs may be over before Prometheus looks."""
        cluster.kill(brokers[2:])
        cluster.start(brokers[2])
        monitoring.until(lambda: cluster.is_ready(brokers[2]))

    monitoring.wait("LogRecoverySlow", "NoFailureHeadroom", meanwhile=restart)
    if folder.is_mount():
        ballast, size = (folder / "ballast").open("wb"), [0]
        room = shutil.disk_usage(folder).free

        def fill() -> None:
            step = min(40 * MIB, shutil.disk_usage(folder).free - 50 * MIB)
            if step > 0:
                ballast.write(bytes(step))
                ballast.flush()
                size[0] += step
            time.sleep(0.5)

        with ballast:
            monitoring.wait("LogDirFilling", "LogDirNearlyFull", "LogDirRefusesRecords", meanwhile=fill)
            assert size[0] <= room
        (folder / "ballast").unlink()
    data = cluster.data_folder(brokers[2])
    data.rename(data.with_name("aside"))
    data.write_text("no folder\n")
    # it is noticed when a file must be made there: that of a new partition
    topics = iter(range(1_000))
    monitoring.wait("LogDirOffline", meanwhile=lambda: create(cluster, f"new-{next(topics)}", "3"))
    expected = set(re.findall(r"alert: (\w+)", RULES.read_text())) - NOT_CAUSED
    assert monitoring.fired.keys() >= expected - (set() if folder.is_mount() else OF_A_DEVICE), (
        monitoring.fired
    )
