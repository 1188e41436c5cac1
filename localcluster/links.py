"""The links of a cluster: every connection to a node runs through this process, which can hold it.

`python -m holdfast.localcluster.links FOLDER` listens at the port that each node gives to others and passes
bytes on to the port where the node itself listens. Who connects is seen from /proc, so links know their two
ends by name; a connection of no node is one of `clients`. A held direction is like a dropped cable: bytes and
ends of connections wait, new connections stay without an answer, and are reset when the link is whole again.

Works without privileges and without a node's knowledge. A port is open only while its node's port is, so that
a refused connection still says that the process is gone. Rules are orders in JSON lines at the control port.
"""

import asyncio
import json
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from holdfast.localcluster.nodes import Node

#: The other end of a connection that belongs to no node.
CLIENTS = "clients"
_HOST = "127.0.0.1"
_PROBE_S = 0.02
_HIGH_BYTES = 256 << 10
#: Without any node for so long the process ends: the cluster was killed from outside.
_LONELY_S = 60.0

#: (from, to), names of nodes
Direction = tuple[str, str]


class Rules:
    """Which directions are held or slow now, from orders that each have a name."""

    def __init__(self) -> None:
        self._orders: dict[str, Mapping[str, Any]] = {}
        self._held: set[Direction] = set()
        self._delays_s: dict[Direction, float] = {}

    def change(self, name: str, order: Mapping[str, Any] | None) -> None:
        """Set the order of this name, or forget it (None)."""
        if order is None:
            self._orders.pop(name, None)
        else:
            self._orders[name] = order
        orders = self._orders.values()
        self._held = {(a, b) for order in orders for a, b in order.get("hold", ())}
        self._delays_s = {(a, b): ms / 1000 for order in orders for a, b, ms in order.get("delay", ())}

    def is_held(self, direction: Direction) -> bool:
        """True while nothing gets through in this direction."""
        return direction in self._held

    def delay_s(self, direction: Direction) -> float:
        """How much later bytes arrive in this direction."""
        return self._delays_s.get(direction, 0.0)


class _End(asyncio.Protocol):
    """One of the two connections of a link; what it reads is written to the other."""

    def __init__(
        self, link: "_Link", direction: Direction, made: Callable[[int], None] = lambda _port: None
    ) -> None:
        """`made` is called with the port of the peer when the connection stands."""
        self._link = link
        self._made = made
        self.direction = direction
        self._transport: asyncio.Transport | None = None
        #: why it does not read: "held", "full", "unconnected"
        self._pauses: set[str] = set()
        self._late: deque[tuple[float, bytes]] = deque()
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(high=_HIGH_BYTES)
        if self._pauses:  # an order came while the connection was being made
            self._transport.pause_reading()
        self._made(transport.get_extra_info("peername")[1])

    def hold(self, is_held: bool) -> None:
        """Stop reading, or go on."""
        if is_held:
            self.pause("held")
        else:
            self.resume("held")

    def data_received(self, data: bytes) -> None:
        delay_s = self._link.rules.delay_s(self.direction)
        if not delay_s and not self._late:
            self._pass_on(data)
            return
        loop = asyncio.get_running_loop()
        self._late.append((loop.time() + delay_s, data))
        loop.call_at(self._late[-1][0], self._pass_late)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        while self._late:
            self._pass_on(self._late.popleft()[1])
        self._link.lost(self)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause("full")

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.resume("full")

    def close(self) -> None:
        """Write what is left, then close."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            linger = b"\1\0\0\0\0\0\0\0"
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()

    def _pass_late(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._late and self._late[0][0] <= now:
            self._pass_on(self._late.popleft()[1])

    def _pass_on(self, data: bytes) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)

    def pause(self, why: str) -> None:
        """Read nothing until every reason to pause is gone."""
        if self._transport is not None and not self._pauses:
            self._transport.pause_reading()
        self._pauses.add(why)

    def resume(self, why: str) -> None:
        """This reason is gone."""
        if why in self._pauses:
            self._pauses.remove(why)
            if self._transport is not None and not self._pauses:
                self._transport.resume_reading()


class _Link:
    """One connection from a node or client to a node."""

    def __init__(self, links: "Links", node: Node) -> None:
        self._links = links
        self.rules = links.rules
        self._node = node
        self._source = CLIENTS
        self.near = _End(self, (CLIENTS, node.name), self._accepted)
        self._far: _End | None = None
        self._is_waiting = False

    def _accepted(self, port: int) -> None:
        self.near.pause("unconnected")
        self._source = self._links.owner(port, self._node.port)
        self.near.direction = (self._source, self._node.name)
        self._links.open.add(self)
        self.obey()

    def obey(self) -> None:
        """Follow the present rules."""
        there, back = (self._source, self._node.name), (self._node.name, self._source)
        is_cut = self.rules.is_held(there) or self.rules.is_held(back)
        if self._far is not None:
            self.near.hold(self.rules.is_held(there))
            self._far.hold(self.rules.is_held(back))
        elif is_cut:
            self._is_waiting = True
        elif self._is_waiting:  # the one who connected may have given up: what it sent is of the past
            self.near.abort()
        else:
            self._is_waiting = False
            self._links.run(self._connect())

    async def _connect(self) -> None:
        far = _End(self, (self._node.name, self._source))
        far.other, self.near.other = self.near, far
        self._far = far
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, _HOST, self._node.bind_port)
        except OSError:
            self._links.run(self._links.probe(self._node))
            self.near.abort()
            return
        self.obey()
        self.near.resume("unconnected")

    def lost(self, end: _End) -> None:
        other = self._far if end is self.near else self.near
        self._links.open.discard(self)
        if end is self._far:
            self._links.run(self._links.probe(self._node))
        if other is not None:
            other.close()


class Links:
    """All links of one cluster."""

    def __init__(self, folder: Path, nodes: Iterable[Node], control_port: int) -> None:
        self._folder = folder
        self._nodes = list(nodes)
        self._control_port = control_port
        self.rules = Rules()
        self.open: set[_Link] = set()
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Any) -> None:
        """Start a task and keep it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def serve(self) -> None:
        """Until no node has run for a while."""
        control = await asyncio.start_server(self._obey_orders, _HOST, self._control_port)
        last_seen = time.monotonic()
        async with control:
            while time.monotonic() - last_seen < _LONELY_S:
                for node in self._nodes:
                    if node.name not in self._servers:
                        await self._open(node)
                if self._servers:
                    last_seen = time.monotonic()
                await asyncio.sleep(_PROBE_S)

    async def _obey_orders(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            said = json.loads(line)
            self.rules.change(said["name"], said.get("order"))
            for link in list(self.open):
                link.obey()
            writer.write(b"done\n")
        writer.close()

    async def _open(self, node: Node) -> None:
        if await self._answers(node):
            self._servers[node.name] = await asyncio.get_running_loop().create_server(
                lambda: _Link(self, node).near, _HOST, node.port, backlog=1024
            )

    async def probe(self, node: Node) -> None:
        """Close the port when nothing listens behind it."""
        server = self._servers.get(node.name)
        if server is not None and not await self._answers(node):
            self._servers.pop(node.name, None)
            server.close()

    async def _answers(self, node: Node) -> bool:
        try:
            _, writer = await asyncio.open_connection(_HOST, node.bind_port)
        except OSError:
            return False
        writer.close()
        return True

    def owner(self, port: int, to_port: int) -> str:
        """The name of the node whose process has the connection from `port` to `to_port`."""
        inode = _inode(port, to_port)
        if inode is None:
            return CLIENTS
        for node in self._nodes:
            if _has_socket(self._folder / node.name / "node.pid", inode):
                return node.name
        return CLIENTS


def _inode(port: int, to_port: int) -> str | None:
    """The socket with these two ports, as the kernel numbers it."""
    ends = f":{port:04X}", f":{to_port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file:
            fields = line.split()
            if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                return fields[9]
    return None


def _has_socket(pid_file: Path, inode: str) -> bool:
    name = f"socket:[{inode}]"
    try:
        folder = f"/proc/{int(pid_file.read_text())}/fd"
        descriptors = os.listdir(folder)
    except (OSError, ValueError):
        return False
    for descriptor in reversed(descriptors):
        try:
            if os.readlink(f"{folder}/{descriptor}") == name:
                return True
        except OSError:  # closed meanwhile
            continue
    return False


def main(folder: Path) -> None:
    """Serve the links of the cluster in this folder."""
    from holdfast.localcluster.processes import STATE_FILE

    state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
    nodes = [Node(**node) for node in state["nodes"]]
    asyncio.run(Links(folder, nodes, state["links_port"]).serve())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
