"""A link in front of a listener that can fall silent: bytes stop, connections stay, none is refused."""

import contextlib
import socket
import threading


class StalledLink:
    """Forwards connections to a port of this machine until `stall`. Use as a context manager."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._flows = threading.Event()
        self._flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "StalledLink":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._flows.set()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.close()

    def stall(self) -> None:
        """From now on not a byte passes, in either direction."""
        self._flows.clear()

    def heal(self) -> None:
        """Let everything pass again, also what has waited."""
        self._flows.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._open += [near, far]
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._flows.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
