"""Too few file handles, too little memory, no room in files: limits of the kernel on a node's process.

A live process gets a lower soft limit, and its old one back. A limit from the start on is a file that
`LocalCluster.start` reads; healed, the file is gone and a node that runs under it is restarted cleanly.
"""

import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster


@undoes("live-limit")
def _lift(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    if cluster.pid(cluster.node(details["node"])) == details["pid"]:
        _set(details["pid"], details["limit"], details["soft"])


@undoes("start-limit")
def _forget(cluster: LocalCluster, details: Mapping[str, Any]) -> None:
    node = cluster.node(details["node"])
    file = cluster.limits_file(node)
    if not file.exists():
        return
    is_limited = cluster.last_start(node) != details["start"] and cluster.pid(node) is not None
    if is_limited:
        cluster.stop([node])
    file.unlink()
    if is_limited:
        cluster.start(node)


class _Limit(Fault):
    limit: str

    def __init__(self, cluster: LocalCluster, node: Node, spare: int) -> None:
        super().__init__(cluster, node)
        self.node = node
        self.spare = spare

    def _used(self, pid: int) -> int:
        raise AssertionError

    def _lower(self) -> int:
        """The new limit."""
        pid = self.cluster.pid(self.node)
        if pid is None:
            raise FaultRefused(f"{self.node.name} does not run: it has nothing to limit")
        try:
            new = self._used(pid) + self.spare
        except (FileNotFoundError, PermissionError) as error:
            raise FaultRefused(f"what {self.node.name} uses cannot be seen here: {error}") from error
        soft, _hard = resource.prlimit(pid, getattr(resource, self.limit))
        self._step(
            "live-limit",
            lambda: _set(pid, self.limit, new),
            node=self.node.name,
            pid=pid,
            limit=self.limit,
            soft=soft,
        )
        return new


class FewHandles(_Limit):
    """A running node may open only a few files and connections more than it has."""

    name = "few-handles"
    limit = "RLIMIT_NOFILE"

    def __init__(self, cluster: LocalCluster, node: Node, spare: int = 2) -> None:
        super().__init__(cluster, node, spare)

    def _used(self, pid: int) -> int:
        # the limit is about the highest number, not about how many there are
        return max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()) + 1

    def apply(self) -> str:
        return f"{self.node.name} may have {self._lower()} file handles, {self.spare} more than now"


class LittleMemory(_Limit):
    """A running node may map only a little more memory than it has."""

    name = "little-memory"
    limit = "RLIMIT_AS"

    def __init__(self, cluster: LocalCluster, node: Node, spare: int = 8 << 20) -> None:
        super().__init__(cluster, node, spare)

    def _used(self, pid: int) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize()

    def apply(self) -> str:
        self._lower()
        return f"{self.node.name} gets no more than {self.spare:,} further bytes of memory"


class NoRoomInFiles(_Limit):
    """A running node cannot write beyond a file's first bytes: EFBIG, where a full disk says ENOSPC."""

    name = "no-room-in-files"
    ends_nodes = True  # a failed log dir, when there is no other
    limit = "RLIMIT_FSIZE"

    def __init__(self, cluster: LocalCluster, node: Node, spare: int = 64 << 10) -> None:
        """`spare`: size in bytes beyond which no file can be written."""
        super().__init__(cluster, node, spare)

    def _used(self, pid: int) -> int:
        return 0

    def apply(self) -> str:
        return f"{self.node.name} cannot write to any file beyond byte {self._lower():,}"


class LimitedStart(Fault):
    """A stopped node will have few handles or little memory from its next start on."""

    name = "limited-start"

    def __init__(
        self,
        cluster: LocalCluster,
        node: Node,
        *,
        handles: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        super().__init__(cluster, node)
        self.node = node
        wanted = {"RLIMIT_NOFILE": handles, "RLIMIT_AS": memory_bytes}
        self.limits = {name: (most, most) for name, most in wanted.items() if most is not None}

    def apply(self) -> str:
        if self.cluster.pid(self.node) is not None:
            raise FaultRefused(f"{self.node.name} runs: stop it before it is limited from its start on")
        text = json.dumps(self.limits)
        self._step(
            "start-limit",
            lambda: self.cluster.limits_file(self.node).write_text(text, encoding="utf-8"),
            node=self.node.name,
            start=self.cluster.last_start(self.node),
        )
        return f"{self.node.name} will start with {text}"


def _set(pid: int, limit: str, soft: int) -> None:
    number = getattr(resource, limit)
    _, hard = resource.prlimit(pid, number)
    resource.prlimit(pid, number, (soft, hard))
