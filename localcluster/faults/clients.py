"""Greedy and broken clients: what one stranger's connections can do to a node. Healed: they are closed.

The connections belong to this process and end with it, so the journal has nothing to undo.
"""

import random
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from holdfast.localcluster.faults.fault import Fault, FaultRefused
from holdfast.localcluster.faults.journal import undoes
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest
from holdfast.protocol.messages.metadata import MetadataRequest

_TIMEOUT_S = 2.0
_CHUNK = bytes(1 << 20)


@undoes("end-with-process")
def _nothing(_cluster: LocalCluster, _details: Mapping[str, Any]) -> None:
    pass


class Clients(Fault):
    """Connections to one node, which do what a subclass says."""

    def __init__(self, cluster: LocalCluster, node: Node, count: int = 10) -> None:
        super().__init__(cluster, node)
        self.node = node
        self.count = count
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def heal(self) -> None:
        """Close all connections and end the threads behind them."""
        self._over.set()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join()
        self._connections.clear()
        self._threads.clear()
        super().heal()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.node.port), timeout=_TIMEOUT_S)
        self._connections.append(connection)
        return connection

    def _begin(self) -> None:
        self._over.clear()
        self._step("end-with-process", lambda: None)

    def _open(self) -> None:
        """Connect as often as `count` says. Raises: FaultRefused when not even one comes through."""
        self._begin()
        for _ in range(self.count):
            try:
                self._connect()
            except OSError as error:
                if not self._connections:
                    raise FaultRefused(f"{self.node.name} takes no connection: {error}") from error
                return

    def _in_background(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"fault {self.name}", daemon=True)
        self._threads.append(thread)
        thread.start()


class IdleConnections(Clients):
    """Connections that say nothing."""

    name = "idle-connections"

    def apply(self) -> str:
        self._open()
        return f"{len(self._connections)} idle connections to {self.node.name}"


class HalfFrames(Clients):
    """Each connection announces a large frame, sends most of it and waits."""

    name = "half-frames"

    def __init__(
        self, cluster: LocalCluster, node: Node, count: int = 10, frame_bytes: int = 20 << 20
    ) -> None:
        super().__init__(cluster, node, count)
        self.frame_bytes = frame_bytes

    def apply(self) -> str:
        self._open()
        sent = sum(self._send_most(connection) for connection in self._connections)
        return (
            f"{len(self._connections)} half frames to {self.node.name}: {sent:,} bytes were taken, "
            "the rest never comes"
        )

    def _send_most(self, connection: socket.socket) -> int:
        sent = 0
        with suppress(OSError):  # closed, or not read: that is the node's right
            connection.sendall(struct.pack(">II", self.frame_bytes, 1 << 10))
            while sent < self.frame_bytes - len(_CHUNK):
                sent += connection.send(_CHUNK)
        return sent


class UnreadFetches(Clients):
    """Each connection asks for much data, again and again, and reads none of it."""

    name = "unread-fetches"

    def __init__(
        self,
        cluster: LocalCluster,
        node: Node,
        topic_id: bytes,
        count: int = 10,
        *,
        partition: int = 0,
        requests: int = 8,
        max_bytes: int = 64 << 20,
    ) -> None:
        super().__init__(cluster, node, count)
        row = FetchPartition(topic_id, partition, -1, 0, -1, -1, max_bytes)
        self._request = FetchRequest(None, CONSUMER_REPLICA_ID, -1, 0, 0, max_bytes, (row,))
        self._requests = requests

    def apply(self) -> str:
        self._open()
        for connection in self._connections:
            with suppress(OSError):
                for number in range(self._requests):
                    connection.sendall(_frame(ApiKey.FETCH, number, self._request))
        return f"{len(self._connections)} connections fetch from {self.node.name} and read nothing"


class MetadataFlood(Clients):
    """Each connection asks for many topics that do not exist, one request after the other."""

    name = "metadata-flood"

    def __init__(self, cluster: LocalCluster, node: Node, count: int = 2, names: int = 10_000) -> None:
        super().__init__(cluster, node, count)
        self._frame = _frame(
            ApiKey.METADATA, 1, MetadataRequest(tuple(f"no-such-topic-{n}" for n in range(names)))
        )

    def apply(self) -> str:
        self._open()
        for connection in self._connections:
            self._in_background(lambda connection=connection: self._ask_on(connection))  # type: ignore[misc]
        return f"{len(self._connections)} connections flood {self.node.name} with metadata requests"

    def _ask_on(self, connection: socket.socket) -> None:
        while not self._over.is_set():
            try:
                connection.sendall(self._frame)
                connection.recv(1 << 20)
            except TimeoutError:
                continue
            except OSError:
                return


class Garbage(Clients):
    """Connections that send random bytes, some of them as frames, and come again when they are closed."""

    name = "garbage"

    def __init__(self, cluster: LocalCluster, node: Node, count: int = 4, seed: int = 0) -> None:
        super().__init__(cluster, node, count)
        self._seed = seed

    def apply(self) -> str:
        self._begin()
        for number in range(self.count):
            self._in_background(lambda number=number: self._throw(number))  # type: ignore[misc]
        return f"{self.count} clients send garbage to {self.node.name}"

    def _throw(self, number: int) -> None:
        chance = random.Random(f"{self._seed}:{number}")
        while not self._over.is_set():
            body = chance.randbytes(chance.choice((1, 9, 100, 5_000)))
            head = struct.pack(">II", 4 + len(body), chance.randrange(1 + len(body)))
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self.node.port), _TIMEOUT_S) as connection,
            ):
                connection.sendall(chance.choice((body, head + body)))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)
            self._over.wait(0.01)


def _frame(key: ApiKey, correlation_id: int, request: Any) -> bytes:
    api = APIS[key]
    return b"".join(encode_request(api, api.max_version, correlation_id, "stranger", request))
