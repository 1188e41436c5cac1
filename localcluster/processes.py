"""A cluster of local processes in one folder: start, stop, kill, pause, cut the power, look.

Owns the processes and the files `cluster.json`, `<node>/server.properties`, `node.log` and `node.pid`; knows
nothing of records or partitions. The state is in the folder, so a later process finds the cluster again.
There are three kinds of stop (D10): `stop` (SIGTERM, clean), `kill` (SIGKILL: the page cache survives),
`power_loss` (what was not synced is lost). `pause` (SIGSTOP) makes a node silent.
"""

import contextlib
import fcntl
import json
import os
import random
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import javaproperties

from holdfast.localcluster import clocks, links_process
from holdfast.localcluster.health import probe
from holdfast.localcluster.launch import Child, CommandLauncher, Launcher, Limits, is_ending
from holdfast.localcluster.links_process import LinksProcess
from holdfast.localcluster.nodes import ClusterError, Node, Nodes
from holdfast.localcluster.ports import ReservedPorts
from holdfast.localcluster.power import drivers
from holdfast.localcluster.power.disks import PowerLoss
from holdfast.storage.core.files import METADATA_FOLDER

STATE_FILE = "cluster.json"
#: A power loss that has begun: the next command finishes it if this one is interrupted.
POWER_LOSS_FILE = "power-loss.json"
#: What faults have done and how it is undone (`localcluster.faults.journal`).
FAULTS_FILE = "faults.jsonl"
#: In a node's folder: limits of its process, `{name: [soft, hard]}`, from its next start on.
LIMITS_FILE = "limits.json"
#: Ids of controllers start here, those of brokers at 1.
FIRST_CONTROLLER_ID = 101
#: For how long a killed node may have a thread that waits for a disk.
ENDING_S = 60.0


class LocalCluster(Nodes):
    """The nodes of one folder. Pid files identify the processes, also those started by other commands."""

    def __init__(
        self,
        folder: Path,
        cluster_id: str,
        nodes: Sequence[Node],
        power_loss: str | None = None,
        launcher: Launcher | None = None,
        links_port: int | None = None,
    ) -> None:
        """`power_loss`: driver of `localcluster.power.drivers`; None: the nodes keep their data in plain
        folders. `launcher` starts the processes; None: each is a command of its own. `links_port`: where
        the process that holds links takes orders; None: nodes connect to each other without it."""
        super().__init__(nodes)
        #: absolute, without links: it identifies the nodes, which outlive a link or a working directory
        self.folder = Path(os.path.realpath(folder))
        self.cluster_id = cluster_id
        self.power_loss_driver = power_loss
        self._disks = drivers.disks(power_loss)
        self._launcher = launcher or CommandLauncher()
        self.links = None if links_port is None else LinksProcess(self.folder, links_port)
        #: what a role does not understand of the properties that `create` was given
        self.warnings: dict[str, list[str]] = {}
        #: children of this very process: they must be reaped, or a dead one looks alive
        self._children: dict[str, Child] = {}
        #: kept so that no other cluster takes them while a node is down; None: made by another process
        self._ports: ReservedPorts | None = None

    # --- making and finding ---------------------------------------------------------------------------

    @staticmethod
    @contextlib.contextmanager
    def making(folder: Path) -> Iterator[None]:
        """Lock out other commands that look whether there is a cluster in `folder`, and make one if not.

        Without it, of two at once one would find half of what the other makes.
        """
        made = [parent for parent in (folder, *folder.parents) if not parent.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        except BaseException:
            for parent in made:
                with contextlib.suppress(OSError):  # it is not empty
                    parent.rmdir()
            raise
        finally:
            os.close(descriptor)

    @classmethod
    def create(
        cls,
        folder: Path,
        brokers: int,
        controllers: int,
        *,
        base_port: int | None = None,
        properties: Mapping[str, str] | None = None,
        power_loss: str | None = None,
        launcher: Launcher | None = None,
        has_links: bool = False,
        has_clocks: bool = False,
    ) -> "LocalCluster":
        """Choose ports and write the configuration of every node. Nothing is started.

        `power_loss`: "auto" or a driver of `power_losses_available()`, for clusters that will lose power.
        `has_links`: connections run through a process that can hold them (Linux), for network partitions.
        `has_clocks`: each node's wall clock can be put wrong (`localcluster.clocks`).
        """
        if "," in os.path.realpath(folder):
            raise ClusterError(
                f"{folder}: `log.dirs` is a list with commas, so no folder's name may have one"
            )
        if (folder / STATE_FILE).exists():
            raise ClusterError(
                f"{folder} holds a cluster already: `holdfast cluster up --dir {folder}` resumes it"
            )
        if has_clocks and clocks.why_not():
            raise ClusterError(f"no node can have a clock of its own: {clocks.why_not()}")
        count = brokers + controllers
        reserved = ReservedPorts(2 * count + brokers + (count + 1) * has_links, base_port)
        nodes = _numbered_nodes(brokers, controllers, reserved.numbers, has_links=has_links)
        driver = drivers.choose(power_loss) if power_loss is not None else None
        for key in ("log.dirs", "log.dir", "metadata.log.dir"):
            if driver is not None and key in (properties or {}):
                raise ClusterError(f"{key} cannot be chosen here: data is on the disk whose power is cut")
        links_port = reserved.numbers[2 * count + brokers] if has_links else None
        cluster = cls(folder, secrets.token_urlsafe(16), nodes, driver, launcher, links_port)
        cluster._ports = reserved
        written = {node: {**cluster._properties(node), **(properties or {})} for node in nodes}
        for node, keys in written.items():
            cluster._check_properties(node, keys)
            if cluster.home(node).exists():
                raise ClusterError(
                    f"{cluster.home(node)} exists already: remove it if nothing in it is needed"
                )
        for node, keys in written.items():
            cluster.home(node).mkdir(parents=True, exist_ok=True)
            text = "".join(map(_properties_line, keys, keys.values()))
            cluster.properties_file(node).write_text(text, encoding="utf-8")
            cluster._disks.make(cluster.home(node))
            if has_clocks:
                clocks.put_off(cluster.clock_file(node), 0)
        state = {
            "version": 1,
            "cluster_id": cluster.cluster_id,
            "power_loss": driver,
            "links_port": cluster.links.port if cluster.links is not None else None,
            "nodes": [asdict(node) for node in nodes],
        }
        (folder / STATE_FILE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        return cluster

    @classmethod
    def load(cls, folder: Path) -> "LocalCluster":
        """The cluster that an earlier `create` made in the folder."""
        try:
            state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
            nodes = [Node(**node) for node in state["nodes"]]
            return cls(
                folder,
                state["cluster_id"],
                nodes,
                state.get("power_loss"),
                links_port=state.get("links_port"),
            )
        except FileNotFoundError:
            raise ClusterError(
                f"no cluster in {folder}: `holdfast cluster up --dir {folder}` makes one"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{folder / STATE_FILE} cannot be read: {error}") from error

    def _check_properties(self, node: Node, keys: Mapping[str, str]) -> None:
        from holdfast.broker.core.config import BrokerConfig
        from holdfast.controller.core.config import ControllerConfig
        from holdfast.metadata.configs import ConfigError

        config = ControllerConfig if node.role == "controller" else BrokerConfig
        try:
            _, self.warnings[node.role] = config.from_properties(keys, {})
        except ConfigError as error:
            raise ClusterError(str(error)) from error

    def _properties(self, node: Node) -> dict[str, str]:
        disk = self._disks.data_home(self.home(node))
        voters = ",".join(f"{n.node_id}@127.0.0.1:{n.port}" for n in self.nodes if n.role == "controller")
        if not voters:
            raise ClusterError("a cluster needs at least one controller")
        listeners = [
            f"{'CONTROLLER' if node.role == 'controller' else 'PLAINTEXT'}://127.0.0.1:{node.bind_port}"
        ]
        if node.kafka_port:
            listeners.append(f"KAFKA://127.0.0.1:{node.kafka_port}")
        keys = {
            "process.roles": node.role,
            "node.id": str(node.node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(disk / "data"),
            "metadata.log.dir": str(disk / "metadata"),
            "holdfast.cluster.id": self.cluster_id,
            "holdfast.http.listener": f"127.0.0.1:{node.http_port}",
        }
        replicas = min(3, sum(n.role == "broker" for n in self.nodes))
        keys["default.replication.factor"] = str(max(1, replicas))
        keys["min.insync.replicas"] = str(max(1, replicas - 1))
        if node.role == "broker":
            keys["inter.broker.listener.name"] = "PLAINTEXT"
            if node.own_port:
                keys["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{node.port}"
                if node.kafka_port:
                    keys["advertised.listeners"] += f",KAFKA://127.0.0.1:{node.kafka_port}"
        return keys

    # --- looking --------------------------------------------------------------------------------------

    def home(self, node: Node) -> Path:
        return self.folder / node.name

    def data_folder(self, node: Node) -> Path:
        """Where the segment files are; on a disk of its own (ext4, xfs) only while the cluster is up."""
        return self._disks.data_home(self.home(node)) / "data"

    def log_dirs(self, node: Node) -> tuple[Path, ...]:
        """Every log dir of a broker, as its server.properties has them; a controller has none."""
        if node.role != "broker":
            return ()
        lines = self.properties_file(node).read_text(encoding="utf-8").splitlines()
        value = [line.partition("=")[2] for line in lines if line.startswith("log.dirs=")][-1]
        return tuple(Path(folder.strip()) for folder in value.split(","))

    def last_start(self, node: Node) -> str:
        """Tells one start of a node from the next; empty: it was never started."""
        try:
            return f"{(self.home(node) / 'node.pid').stat().st_mtime_ns}"
        except FileNotFoundError:
            return ""

    def settle(self, node: Node) -> None:
        """Take the files of a stopped node as durable, before something else than the node changes them."""
        self._disks.settle(self.home(node))

    def metadata_folder(self, node: Node) -> Path:
        """Where its copy of the metadata log is, with the vote of a controller."""
        return self._disks.data_home(self.home(node)) / "metadata" / METADATA_FOLDER

    def properties_file(self, node: Node) -> Path:
        return self.home(node) / "server.properties"

    def log_file(self, node: Node) -> Path:
        return self.home(node) / "node.log"

    def pid(self, node: Node) -> int | None:
        """Pid of the running process of a node, None when it does not run."""
        child = self._children.get(node.name)
        if child is not None and child.is_running():
            return child.pid  # its command line is not to be seen yet while it is being started
        self._children.pop(node.name, None)
        try:
            pid = int((self.home(node) / "node.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if _runs(pid, self.properties_file(node)) else None

    def is_paused(self, node: Node) -> bool:
        """True when the process of a node is stopped (SIGSTOP); unknown, so False, without /proc."""
        try:
            status = Path(f"/proc/{self.pid(node)}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the latter when it ends between open and read
            return False
        return status.rpartition(") ")[2].startswith("T")

    def is_ready(self, node: Node) -> bool:
        """True when the node answers /readyz with 200."""
        return probe("127.0.0.1", node.http_port, "/readyz", 2.0)[0]

    # --- acting ---------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        """Start the process of one node, unless it runs already.

        Raises: ClusterError for a killed node that does not end.
        """
        with self._alone():
            self._end_power_loss(node)
            self._wait_ended(node)
            if self.pid(node) is not None:
                return
            self._disks.attach(self.home(node))
            if self.links is not None:
                self.links.start()
            words = [node.role, "--config", str(self.properties_file(node))]
            words += self._disks.options(self.home(node))
            environment = clocks.environment(self.clock_file(node))
            if environment:  # a fork would load no library
                child: Child = CommandLauncher().launch(
                    words, self.log_file(node), self._limits(node), environment
                )
            else:
                child = self._launcher.launch(words, self.log_file(node), self._limits(node))
            self._children[node.name] = child
            (self.home(node) / "node.pid").write_text(f"{child.pid}\n")

    def clock_file(self, node: Node) -> Path:
        """By how much its wall clock is off; only of clusters that were made with clocks."""
        return self.home(node) / clocks.CLOCK_FILE

    def limits_file(self, node: Node) -> Path:
        """Limits that a fault has set for the node's next start; there is none without such a fault."""
        return self.home(node) / LIMITS_FILE

    def _limits(self, node: Node) -> Limits:
        try:
            limits: Limits = json.loads(self.limits_file(node).read_text(encoding="utf-8"))
            return limits
        except FileNotFoundError:
            return {}

    def up(self, timeout_s: float = 60.0) -> None:
        """Start stopped nodes, resume paused ones and wait until every node is ready."""
        for node in self.nodes:
            self.resume(node)
            self.start(node)
        self.wait_ready(self.nodes, timeout_s)

    def wait_ready(self, nodes: Sequence[Node], timeout_s: float = 60.0) -> None:
        """Wait until all of `nodes` are ready. Raises: ClusterError naming the log of one that is not."""
        deadline = time.monotonic() + timeout_s
        waiting = list(nodes)
        while waiting:
            waiting = [node for node in waiting if not self.is_ready(node)]
            for node in waiting:
                if self.pid(node) is None:
                    raise ClusterError(f"{node.name} has ended; its last words:\n{self.last_words(node)}")
            if waiting and time.monotonic() > deadline:
                names = ", ".join(node.name for node in waiting)
                raise ClusterError(
                    f"not ready after {timeout_s:.0f} s: {names}; see {self.log_file(waiting[0])}"
                )
            if waiting:
                time.sleep(0.02)

    def stop(self, nodes: Sequence[Node], timeout_s: float = 60.0) -> None:
        """Stop cleanly and wait. Raises: ClusterError when a node does not end in time."""
        for node in nodes:
            self.signal(node, signal.SIGTERM)
        self._wait_gone(nodes, timeout_s)

    def kill(self, nodes: Sequence[Node]) -> None:
        """SIGKILL all of `nodes` at once and wait until they have ended. The page cache survives."""
        for node in nodes:
            self.signal(node, signal.SIGKILL)
        self._wait_gone(nodes, ENDING_S)

    def pause(self, node: Node) -> None:
        self.signal(node, signal.SIGSTOP)

    def resume(self, node: Node) -> None:
        """Resume a paused node; if its power loss was interrupted, finish the loss instead."""
        with self._alone():
            self._end_power_loss(node)
            self.signal(node, signal.SIGCONT)

    def signal(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to a node, if it runs."""
        pid = self.pid(node)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def down(self, timeout_s: float = 60.0) -> None:
        """Stop cleanly: brokers first, since their controlled shutdown needs the controllers."""
        for node in self.nodes:
            self.resume(node)
        self.stop(self.brokers, timeout_s)
        self.stop(self.controllers, timeout_s)
        self._end_links()
        self._detach()

    def destroy(self) -> None:
        """SIGKILL every node and remove mounts and loop devices; the folder stays."""
        for node in self.nodes:
            self.signal(node, signal.SIGCONT)
        self.kill(self.nodes)
        self._end_links()
        self._detach()

    def _end_links(self) -> None:
        if self.links is not None:
            self.links.stop()

    def delete(self) -> None:
        """Remove the folders of the stopped nodes, and the cluster's folder when nothing else is in it."""
        for node in self.nodes:
            if self.home(node).is_symlink():
                self.home(node).unlink()
            elif self.home(node).exists():
                shutil.rmtree(self.home(node))
        for name in (FAULTS_FILE, links_process.PID_FILE, links_process.LOG_FILE):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / STATE_FILE).unlink()  # last, so that an interrupted command can be repeated
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _detach(self) -> None:
        with self._alone():
            for node in self.nodes:
                self._disks.detach(self.home(node))

    # --- power loss -----------------------------------------------------------------------------------

    @staticmethod
    def power_losses_available() -> tuple[str, ...]:
        """The drivers that work on this machine, preferred one first; found by trying (0.1 s)."""
        return drivers.available()

    def power_loss(self, nodes: Sequence[Node], *, seed: int | None = None) -> list[PowerLoss]:
        """Cut the power of all of `nodes`, running or dead, at the same moment; they are down afterwards.

        Their disks are usable again: start them with `start` or `up`. The driver `tracked` draws from `seed`
        which unsynced bytes are lost. Raises: ClusterError when the cluster was made without a driver.
        """
        seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
        with self._alone():
            if self.power_loss_driver is None:
                raise ClusterError(
                    "this cluster cannot lose power: make it with `holdfast cluster up --power-loss auto`"
                )
            for node in nodes:
                self._power_loss_file(node).write_text(json.dumps({"seed": seed}) + "\n", encoding="utf-8")
            return self._lose_power(nodes, seed)

    def _lose_power(self, nodes: Sequence[Node], seed: int) -> list[PowerLoss]:
        for node in nodes:
            self.pause(node)
        self._wait_paused(nodes)
        for node in nodes:
            self._disks.look(self.home(node))
        for node in nodes:
            self._disks.cut(self.home(node))
        self.kill(nodes)
        losses = []
        for node in nodes:
            losses.append(self._disks.restore(self.home(node), seed))
            self._power_loss_file(node).unlink()
        return losses

    def _end_power_loss(self, node: Node) -> None:
        """Finish a power loss of the node that an interrupted command has begun."""
        try:
            seed = json.loads(self._power_loss_file(node).read_text(encoding="utf-8"))["seed"]
        except FileNotFoundError:
            return
        except (ValueError, KeyError):
            seed = 0  # interrupted while it was written
        self._lose_power([node], seed)

    def _power_loss_file(self, node: Node) -> Path:
        return self.home(node) / POWER_LOSS_FILE

    def _wait_paused(self, nodes: Sequence[Node], timeout_s: float = 10.0) -> None:
        def acts(node: Node) -> bool:
            pid = self.pid(node)
            return pid is not None and not is_ending(pid) and not self.is_paused(node)

        deadline = time.monotonic() + timeout_s
        while left := [node.name for node in nodes if acts(node)]:
            if not Path("/proc/self").exists():
                return  # unknown there, and next to immediate
            if time.monotonic() > deadline:
                raise ClusterError(f"not paused after {timeout_s:.0f} s: {', '.join(left)}")
            time.sleep(0.001)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock out other commands that start nodes of this cluster or cut their power."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def last_words(self, node: Node, lines: int = 5) -> str:
        """The end of a node's log."""
        try:
            return "\n".join(self.log_file(node).read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

    def _wait_ended(self, node: Node) -> None:
        """Wait for a node that was killed: its last thread still holds the locks of its data."""
        deadline = time.monotonic() + ENDING_S
        while (pid := self.pid(node)) is not None and is_ending(pid):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{node.name} was killed and has not ended after {ENDING_S:.0f} s: it waits for a disk"
                )
            time.sleep(0.01)

    def _wait_gone(self, nodes: Sequence[Node], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while left := [node.name for node in nodes if self.pid(node) is not None]:
            if time.monotonic() > deadline:
                raise ClusterError(f"still running after {timeout_s:.0f} s: {', '.join(left)}")
            time.sleep(0.01)


def _properties_line(key: str, value: str) -> str:
    """As people write it where that is read as the same value, else with escapes."""
    plain = f"{key}={value}\n"
    if javaproperties.loads(plain) == {key: value}:
        return plain
    return str(javaproperties.join_key_value(key, value)) + "\n"


def _numbered_nodes(brokers: int, controllers: int, numbers: Sequence[int], *, has_links: bool) -> list[Node]:
    """The nodes with their ports: two each, behind those one more a broker for Kafka clients, and at the end
    one a node where links lead to it."""
    ports = list(numbers)
    kafka_ports = ports[2 * (brokers + controllers) :]

    def node(role: str, node_id: int, kafka_port: int) -> Node:
        own_port = ports.pop() if has_links else 0
        return Node(role, node_id, ports.pop(0), ports.pop(0), kafka_port, own_port)

    return [
        *(node("controller", FIRST_CONTROLLER_ID + index, 0) for index in range(controllers)),
        *(node("broker", 1 + index, kafka_ports[index]) for index in range(brokers)),
    ]


def _runs(pid: int, properties_file: Path) -> bool:
    """True when the pid is a live process started with this configuration (pids are reused).

    The command that started it may have spelled the folder in another way.
    """
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends between open and read
        return False if Path("/proc/self").exists() else _answers(pid)
    if not any(command):
        return is_ending(pid)
    name = os.fsencode(properties_file.name)
    files = [os.path.realpath(word) for word in command if os.path.basename(word) == name]
    return os.path.realpath(os.fsencode(properties_file)) in files


def _answers(pid: int) -> bool:
    # without /proc (macOS), a pid that accepts signal 0 must be enough
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
