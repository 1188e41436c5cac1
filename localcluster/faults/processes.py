"""Faults of processes: killed, stopped, silent, without power. Healed: the nodes run again."""

from collections.abc import Mapping
from typing import Any

from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.power.disks import PowerLoss as Loss
from holdfast.localcluster.processes import LocalCluster


@undoes("start")
def _start(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    cluster.start(cluster.node(details["node"]))


@undoes("resume")
def _resume(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    cluster.resume(cluster.node(details["node"]))


class Kill(Fault):
    """SIGKILL; the page cache survives."""

    name = "kill"
    ends_nodes = True

    def apply(self) -> str:
        for node in self.nodes:
            self._step("start", lambda: None, node=node.name)
        self.cluster.kill(self.nodes)
        return f"killed {self.target} (SIGKILL): what was in the page cache is still there"


class Stop(Fault):
    """SIGTERM, and wait for the clean end."""

    name = "stop"
    ends_nodes = True

    def apply(self) -> str:
        for node in self.nodes:
            self._step("start", lambda: None, node=node.name)
        self.cluster.stop(self.nodes)
        return f"stopped {self.target} cleanly (SIGTERM)"


class Pause(Fault):
    """SIGSTOP: connections stand, nothing answers."""

    name = "pause"

    def apply(self) -> str:
        for node in self.nodes:
            if self.cluster.pid(node) is None:
                raise FaultRefused(f"{node.name} does not run, so it cannot be paused")
        for node in self.nodes:
            self._step("resume", lambda node=node: self.cluster.pause(node), node=node.name)  # type: ignore[misc]
        return f"paused {self.target} (SIGSTOP): connections stand, nothing answers"


class PowerLoss(Fault):
    """What was not synced is lost. All nodes lose power at the same moment."""

    name = "power-loss"
    ends_nodes = True

    def __init__(self, cluster: LocalCluster, *nodes: Node, seed: int = 0) -> None:
        super().__init__(cluster, *nodes)
        self._seed = seed
        #: what each node has lost, after `apply`
        self.losses: list[Loss] = []

    def apply(self) -> str:
        if self.cluster.power_loss_driver is None:
            raise FaultRefused("this cluster cannot lose power: it was made without a --power-loss driver")
        for node in self.nodes:
            self._step("start", lambda: None, node=node.name)
        self.losses = self.cluster.power_loss(self.nodes, seed=self._seed)
        lost = sum(loss.log_bytes_lost for loss in self.losses)
        return f"cut the power of {self.target}: {lost:,} bytes of logs that were not synced are lost"
