"""Packets reach a network namespace later: `python packet_delay.py DELAY_MS ADDRESS...`, run as root in it.

Packets from the addresses wait in a queue of the kernel (NFQUEUE) until they are due, in their order. At the
receiver, as a sender's own queue would count them as not sent. Everything ends with standard input, so also
with the process at the other end of it: the rules are removed, and what waits passes. A process of its own
from the standard library alone, since a namespace is entered by processes. `tc netem` does the same in
kernels that have it, which many small ones do not.
"""

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence

READY = "ready"

_NETFILTER, _SUBSYSTEM = 12, 3
_MSG_PACKET, _MSG_VERDICT, _MSG_CONFIG = 0, 1, 2
_CFG_CMD, _CFG_PARAMS, _CFG_QUEUE_MAXLEN, _CFG_MASK, _CFG_FLAGS = 1, 2, 3, 4, 5
_CMD_BIND, _COPY_META, _FLAG_GSO, _ACCEPT = 1, 1, 4, 1
_QUEUE_MAX = 65_536
_SO_RCVBUFFORCE, _SOL_NETLINK, _NO_ENOBUFS = 33, 270, 5
_HEADER = 20


class Queue:
    """One NFQUEUE of this namespace."""

    def __init__(self, number: int) -> None:
        """Raises: OSError when the kernel has none."""
        self._number = number
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
        self.socket.bind((0, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
        for attributes in (
            _attribute(_CFG_CMD, struct.pack("!BBH", _CMD_BIND, 0, socket.AF_INET)),
            _attribute(_CFG_PARAMS, struct.pack("!IB", 0, _COPY_META)),
            _attribute(_CFG_QUEUE_MAXLEN, struct.pack("!I", _QUEUE_MAX))
            + _attribute(_CFG_MASK, struct.pack("!I", _FLAG_GSO))
            + _attribute(_CFG_FLAGS, struct.pack("!I", _FLAG_GSO)),
        ):
            self.socket.send(self._message(_MSG_CONFIG, attributes, is_answered=True))
            (error,) = struct.unpack_from("=i", self.socket.recv(1 << 16), 16)
            if error:
                raise OSError(-error, f"NFQUEUE: {os.strerror(-error)}")

    def packets(self) -> list[int]:
        """The ids of those that have come; waits for none."""
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return packet_ids(self.socket.recv(1 << 20))
        return []

    def pass_on(self, packet: int) -> None:
        """It goes on its way."""
        self.socket.send(self._message(_MSG_VERDICT, _attribute(2, struct.pack("!II", _ACCEPT, packet))))

    def _message(self, kind: int, attributes: bytes, *, is_answered: bool = False) -> bytes:
        body = struct.pack("!BBH", 0, 0, self._number) + attributes
        head = (16 + len(body), _SUBSYSTEM << 8 | kind, 5 if is_answered else 1, 0, 0)
        return struct.pack("=IHHII", *head) + body


def packet_ids(data: bytes) -> list[int]:
    """The ids in what the kernel says of packets, in order."""
    found = []
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        at = offset + _HEADER
        while kind == _SUBSYSTEM << 8 | _MSG_PACKET and at < offset + length:
            size, name = struct.unpack_from("=HH", data, at)
            if name & 0x7FFF == 1:
                found.append(struct.unpack_from("!I", data, at + 4)[0])
                break
            at += (size + 3) & ~3
        offset += (length + 3) & ~3
    return found


def _attribute(name: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), name) + value + b"\0" * (-len(value) % 4)


def hold(queue: Queue, delay_s: float) -> None:
    """Hold each packet for so long, until standard input ends; then pass on what waits."""
    waiting: deque[tuple[float, int]] = deque()
    while True:
        while waiting and waiting[0][0] <= time.monotonic():
            queue.pass_on(waiting.popleft()[1])
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([queue.socket, sys.stdin], [], [], left)
        if sys.stdin in readable:
            break
        due = time.monotonic() + delay_s
        waiting.extend((due, packet) for packet in queue.packets())
    for _, packet in waiting:
        queue.pass_on(packet)


def _rules(order: str, addresses: Sequence[str], number: int) -> None:
    """Add (-I) or remove (-D) the rules. `--queue-bypass`: without this process packets just pass."""
    for address in addresses:
        words = ["-s", address, "-j", "NFQUEUE", "--queue-num", str(number), "--queue-bypass"]
        done = subprocess.run(
            ["iptables", "-w", "5", order, "INPUT", *words], capture_output=True, text=True, check=False
        )
        if done.returncode != 0 and order == "-I":
            raise OSError(f"iptables: {done.stderr.strip()}")


def main(delay_ms: str, *addresses: str) -> int:
    """0 when standard input has ended; 1 with a sentence when the kernel does not allow it."""
    number = os.getpid() % 60_000 + 1
    try:
        queue = Queue(number)
        _rules("-I", addresses, number)
    except OSError as error:
        print(f"packets cannot be held: {error}", flush=True)
        _rules("-D", addresses, number)
        return 1
    try:
        print(READY, flush=True)
        hold(queue, float(delay_ms) / 1000)
    finally:
        _rules("-D", addresses, number)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
