"""Wall clocks that jump, of nodes that were started with the library for it (`localcluster.clocks`)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.localcluster import clocks
from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster


@undoes("set-clock-right")
def _set_right(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    clock = cluster.clock_file(cluster.node(details["node"]))
    if clock.exists():
        clocks.put_off(clock, 0)


class ClockJump(Fault):
    """The node's wall clock jumps; its timers, on the monotonic clock, do not."""

    name = "clock-jump"

    def __init__(self, cluster: LocalCluster, *nodes: Node, by_s: int = 7_200) -> None:
        """`by_s`: seconds, below 0 into the past."""
        super().__init__(cluster, *nodes)
        self.by_s = by_s

    def apply(self) -> str:
        reason = clocks.why_not()
        if reason:
            raise FaultRefused(f"no clock can be put wrong here: {reason}")
        for node in self.nodes:
            if not self.cluster.clock_file(node).exists():
                raise FaultRefused(f"{node.name} has the machine's own clock: make the cluster with --clocks")
        for node in self.nodes:
            put_off = partial(clocks.put_off, self.cluster.clock_file(node), self.by_s)
            self._step("set-clock-right", put_off, node=node.name)
        ahead = "ahead" if self.by_s >= 0 else "behind"
        return f"the wall clock of {self.target} jumped: it is {abs(self.by_s):,} s {ahead}"
