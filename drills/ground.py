"""Where chaos is played: a cluster of its own, of local processes or of containers, with the same methods.

Owns how each is made, watched, healed and taken away. What is broken on it is decided elsewhere.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from holdfast.drills.drill import QUICK
from holdfast.drills.fault_kinds import KINDS, Given, Undoable
from holdfast.localcluster import clocks
from holdfast.localcluster.compose import ComposeCluster
from holdfast.localcluster.compose_delays import DelayedPackets
from holdfast.localcluster.compose_disks import ContainerDisks
from holdfast.localcluster.compose_faults import healing_containers
from holdfast.localcluster.endings import undisturbed
from holdfast.localcluster.faults.fault import FaultRefused, healing
from holdfast.localcluster.nodes import ClusterError, Node, Nodes
from holdfast.localcluster.power import drivers
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.configs import environment_name

#: Of every node, so that a follower that is cut off leaves the ISR while the fault lasts.
PROPERTIES: Mapping[str, str] = {**QUICK, "replica.lag.time.max.ms": "3000"}
PROJECT = "holdfast-chaos"
BROKERS = CONTROLLERS = 3
_CONTAINERS_UP_S = 240.0
#: Faults of containers for which each must have a disk of its own.
NEEDS_DISKS = frozenset({"power-loss", "frozen-disk", "slow-disk"})
#: The fault for which nodes must have clocks of their own.
NEEDS_CLOCKS = "clock-jump"

Properties = Mapping[str, str]
NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Ground(Protocol):
    """A cluster to break."""

    #: of the command line: local or compose
    driver: str

    @property
    def nodes(self) -> Nodes: ...
    def up(self, timeout_s: float = ...) -> None:
        """Start and resume what does not run, and wait until all nodes are ready. Raises: ClusterError."""

    def words(self) -> str:
        """What runs, in words."""

    def lives(self) -> Mapping[Node, str | None]:
        """Tells one life of each node from the next; None: it does not run."""

    def last_words(self, node: Node) -> str:
        """The end of what it has logged."""

    def make(self, fault: str, nodes: Sequence[Node], given: Given) -> Sequence[Undoable]:
        """The fault as steps in order; nothing is done yet. Raises: FaultRefused."""

    def healing(self) -> AbstractContextManager[None]:
        """Heals everything at the end of a block, however it ends."""

    def log_dirs(self) -> dict[int, str]:
        """{broker id: folder} of those whose files can be read from here."""

    def save_logs(self) -> None:
        """Keep what the nodes have logged, where it would go with them."""

    def destroy(self) -> None:
        """Take everything away that was made; files in the run's folder stay."""


class LocalGround:
    """Processes on this machine, with links and a power-loss driver."""

    driver = "local"

    def __init__(
        self,
        folder: Path,
        properties: Properties = NOTHING,
        of_brokers: Mapping[int, Properties] = NOTHING,
        *,
        has_clocks: bool = False,
    ) -> None:
        """Writes the cluster's files in `folder`/cluster; `has_clocks`: those of nodes can be put wrong.
        Raises: ClusterError."""
        self._cluster = LocalCluster.create(
            folder / "cluster",
            BROKERS,
            CONTROLLERS,
            properties={**PROPERTIES, **properties},
            power_loss=drivers.choose("auto"),
            has_links=True,
            has_clocks=has_clocks,
        )
        for broker_id, own in of_brokers.items():
            with self._cluster.properties_file(self._cluster.broker(broker_id)).open("a") as file:
                file.writelines(f"{key}={value}\n" for key, value in own.items())

    @property
    def nodes(self) -> Nodes:
        return self._cluster

    @property
    def cluster(self) -> LocalCluster:
        """For faults that only processes have."""
        return self._cluster

    def up(self, timeout_s: float = 60.0) -> None:
        self._cluster.up(timeout_s)

    def words(self) -> str:
        return f"{len(self._cluster.nodes)} processes, power loss by {self._cluster.power_loss_driver}"

    def lives(self) -> Mapping[Node, str | None]:
        pids = {node: self._cluster.pid(node) for node in self._cluster.nodes}
        return {node: None if pid is None else str(pid) for node, pid in pids.items()}

    def last_words(self, node: Node) -> str:
        return self._cluster.last_words(node, 3)

    def make(self, fault: str, nodes: Sequence[Node], given: Given) -> Sequence[Undoable]:
        return KINDS[fault].make(self._cluster, nodes, given)

    def healing(self) -> AbstractContextManager[None]:
        return healing(self._cluster)

    def log_dirs(self) -> dict[int, str]:
        return {node.node_id: str(self._cluster.data_folder(node)) for node in self._cluster.brokers}

    def save_logs(self) -> None:
        """They are in the folder."""

    def destroy(self) -> None:
        with undisturbed():
            self._cluster.destroy()


class ContainerGround:
    """The containers of docker-compose.yml in the working folder, as a project of their own."""

    driver = "compose"

    def __init__(
        self, folder: Path, properties: Properties = NOTHING, of_brokers: Mapping[int, Properties] = NOTHING
    ) -> None:
        """Raises: ClusterError when the project exists already."""
        self._folder = folder
        override = folder / "compose-override.yml"
        self._cluster = ComposeCluster.create(Path.cwd(), PROJECT, override)
        if not ContainerDisks.why_not():
            services = [self._cluster.service(node) for node in self._cluster.nodes]
            self._cluster.disks = ContainerDisks(folder, PROJECT, services)
        self._override = override
        self._environments = self._all_environments(properties, of_brokers)

    def _all_environments(self, properties: Properties, of_brokers: Mapping[int, Properties]) -> Any:
        """{service: {"environment": ...}}, as a Compose file has it."""
        return {
            self._cluster.service(node): {
                "environment": {
                    environment_name(key): value
                    for key, value in {
                        **PROPERTIES,
                        **properties,
                        **(of_brokers.get(node.node_id, {}) if node.role == "broker" else {}),
                    }.items()
                }
            }
            for node in self._cluster.nodes
        }

    @property
    def nodes(self) -> Nodes:
        return self._cluster

    def up(self, timeout_s: float = _CONTAINERS_UP_S) -> None:
        if self._override.exists() and self._cluster.states():
            self._cluster.resume(self._cluster.nodes)
            for node, state in self._cluster.states().items():
                if state in ("exited", "created"):
                    self._cluster.start(node)
            self._cluster.wait_ready(self._cluster.nodes, timeout_s)
        else:
            self._begin()
            self._cluster.up(timeout_s)

    def _begin(self) -> None:
        override: dict[str, Any] = {"services": self._environments}
        if self._cluster.disks is not None:
            self._cluster.disks.attach()
            override["volumes"] = self._cluster.disks.volumes()
        self._override.write_text(json.dumps(override, indent=1) + "\n")  # JSON is YAML, too

    def words(self) -> str:
        disks = "with disks of their own" if self._cluster.disks is not None else "no power loss (needs root)"
        return f"{len(self._cluster.nodes)} containers of the Compose project {PROJECT}, {disks}"

    def lives(self) -> Mapping[Node, str | None]:
        states = self._cluster.states()
        lives = self._cluster.lives()
        return {
            node: lives[node] if states.get(node) in ("running", "paused") else None
            for node in self._cluster.nodes
        }

    def last_words(self, node: Node) -> str:
        return self._cluster.last_words(node)

    def make(self, fault: str, nodes: Sequence[Node], given: Given) -> Sequence[Undoable]:
        make = KINDS[fault].on_containers
        if make is None:
            raise FaultRefused(f"{fault} is not possible with containers here")
        return make(self._cluster, nodes, given)

    def healing(self) -> AbstractContextManager[None]:
        return healing_containers(self._cluster)

    def log_dirs(self) -> dict[int, str]:
        found = {node.node_id: self._cluster.data_folder(node) for node in self._cluster.brokers}
        return {node_id: str(folder) for node_id, folder in found.items() if folder is not None}

    def save_logs(self) -> None:
        with suppress(ClusterError):  # the run matters more than its logs
            if self._override.exists():
                self._cluster.save_logs(self._folder)

    def destroy(self) -> None:
        with undisturbed():
            if self._override.exists():
                self._cluster.down()
            if self._cluster.disks is not None:
                self._cluster.disks.detach()


def ground_for(
    driver: str,
    folder: Path,
    properties: Properties = NOTHING,
    of_brokers: Mapping[int, Properties] = NOTHING,
    faults: Collection[str] = (),
) -> Ground:
    """A new cluster of the driver `local` or `compose`, on which these faults are possible; nothing runs yet.
    Raises: ClusterError."""
    if driver == "compose":
        return ContainerGround(folder, properties, of_brokers)
    return LocalGround(folder, properties, of_brokers, has_clocks=NEEDS_CLOCKS in faults)


def not_possible(driver: str, faults: Sequence[str]) -> list[str]:
    """Why faults cannot be made with a driver, as far as it is known before anything runs."""
    if driver == "local":
        reason = clocks.why_not() if NEEDS_CLOCKS in faults else ""
        return [f"{NEEDS_CLOCKS}: {reason}"] if reason else []
    on_disks = sorted(NEEDS_DISKS & set(faults))
    reason = ContainerDisks.why_not() if on_disks else ""
    if reason:
        return [f"{', '.join(on_disks)}: containers cannot have disks of their own here: {reason}"]
    reason = DelayedPackets.why_not() if "slow-links" in faults else ""
    if reason:
        return [f"slow-links: {reason}"]
    possible = ", ".join(fault for fault, kind in KINDS.items() if kind.on_containers is not None)
    return [
        f"{fault} is not possible with containers (possible: {possible}); use --driver local"
        for fault in sorted(faults)
        if KINDS[fault].on_containers is None
    ]
