"""Ports for the nodes of a cluster: free ones, that no other cluster on this machine is about to take.

Between the choice of a port and the moment a node listens there is a second in which another cluster, of
another test process most of all, would find the same port free. A name in the kernel marks it as taken for
so long (Linux; elsewhere a port is only probed). Names go with the process that holds them.
"""

import os
import random
import socket
import sys
import weakref
from collections.abc import Iterable

from holdfast.localcluster.nodes import ClusterError

#: Below the ports that kernels give to outgoing connections, so that a stopped node's port stays free; and
#: none that docker-compose.yml publishes, or containers could not start beside a local cluster.
PORTS = range(20_000, 28_000)
LOOPBACK = tuple(f"127.0.0.{number}" for number in range(1, 10))


class ReservedPorts:
    """Some ports, reserved for as long as this object lives."""

    def __init__(self, count: int, base_port: int | None = None) -> None:
        """`count` ports: consecutive from `base_port`, else anywhere in PORTS. Raises: ClusterError."""
        self.numbers: list[int] = []
        marks: list[int] = []
        weakref.finalize(self, _close, marks)
        if base_port is not None:
            candidates = list(range(base_port, base_port + count))
        else:
            candidates = random.sample(PORTS, len(PORTS))
        for port in candidates:
            if len(self.numbers) == count:
                break
            if _reserve(port, marks) and _is_free(port):
                self.numbers.append(port)
            elif base_port is not None:
                raise ClusterError(f"port {port} is taken: choose another --base-port")
        if len(self.numbers) < count:
            raise ClusterError("no free ports found")


def loopback_with_free(ports: Iterable[int]) -> str:
    """The first of 127.0.0.1 to 127.0.0.9 at which all these ports are free; only Linux has more than one.

    Raises: ClusterError, which names the ports that are taken at 127.0.0.1.
    """
    wanted = list(ports)
    for address in LOOPBACK:
        if all(_is_free(port, address) for port in wanted):
            return address
    taken = ", ".join(str(port) for port in wanted if not _is_free(port))
    raise ClusterError(
        f"ports {taken} of 127.0.0.1 are taken, perhaps by another project (`docker compose ls` shows them), "
        "and no other loopback address has all of them free"
    )


def _is_free(port: int, address: str = LOOPBACK[0]) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
        return True


def _reserve(port: int, marks: list[int]) -> bool:
    """Mark the port, and remember the mark; False when another has marked it."""
    if sys.platform != "linux":
        return True
    with socket.socket(socket.AF_UNIX) as mark:
        try:
            mark.bind(f"\0holdfast-port-{port}")
        except OSError:
            return False
        marks.append(mark.detach())
        return True


def _close(marks: list[int]) -> None:
    for mark in marks:
        os.close(mark)
