"""What this machine can do without us, taken in the same run: page-cache appends and a loopback echo."""

import multiprocessing
import os
import platform
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Limits:
    """MB/s count the producer's bytes once, although they are appended three times."""

    append_mb_s: float
    echo_mb_s: float
    echo_p50_ms: float
    echo_p99_ms: float


def describe() -> dict[str, object]:
    """The machine, for readers who compare figures."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "cpus": os.cpu_count(),
        "cpu_model": model,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def measure(
    folder: Path, *, total_bytes: int, chunk_bytes: int, files: int, record_bytes: int, copies: int = 3
) -> Limits:
    """Append `total_bytes` `copies` times in chunks to `files` files each; echo the same chunks; echo records
    one at a time."""
    echo_mb_s = _echo_stream(total_bytes, chunk_bytes)
    p50_ms, p99_ms = _echo_one_by_one(record_bytes)
    return Limits(
        _append(folder, total_bytes, chunk_bytes, files * copies, copies), echo_mb_s, p50_ms, p99_ms
    )


def _append(folder: Path, total_bytes: int, chunk_bytes: int, files: int, copies: int) -> float:
    chunk = os.urandom(chunk_bytes)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        opened = [os.open(f"{made}/{n}", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for n in range(files)]
        start = time.perf_counter()
        for number in range(total_bytes * copies // chunk_bytes):
            os.write(opened[number % files], chunk)
        elapsed = time.perf_counter() - start
        for handle in opened:
            os.close(handle)
    return total_bytes / elapsed / 1e6


def _serve_echo(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = bytearray(1 << 20)
        while count := connection.recv_into(buffer):
            connection.sendall(memoryview(buffer)[:count])
        connection.close()


class _Echo:
    """A process that sends back what it gets."""

    def __enter__(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._process = multiprocessing.get_context("fork").Process(
                target=_serve_echo, args=(listener,), daemon=True
            )
            self._process.start()
            address = listener.getsockname()
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.join()


def _echo_stream(total_bytes: int, chunk_bytes: int) -> float:
    chunk = os.urandom(chunk_bytes)
    with _Echo() as connection:

        def send() -> None:
            for _ in range(total_bytes // chunk_bytes):
                connection.sendall(chunk)

        start = time.perf_counter()
        sender = threading.Thread(target=send)
        sender.start()
        left = total_bytes // chunk_bytes * chunk_bytes
        buffer = bytearray(1 << 20)
        while left > 0:
            left -= _some(connection.recv_into(buffer))
        sender.join()
        return total_bytes / (time.perf_counter() - start) / 1e6


def _some(count: int) -> int:
    if count == 0:  # to wait for more would take for ever
        raise RuntimeError("the process that echoes has ended")
    return count


def _echo_one_by_one(record_bytes: int, count: int = 2_000) -> tuple[float, float]:
    record = os.urandom(record_bytes)
    samples: list[float] = []
    with _Echo() as connection:
        for _ in range(count):
            start = time.perf_counter()
            connection.sendall(record)
            left = record_bytes
            while left > 0:
                left -= _some(len(connection.recv(left)))
            samples.append((time.perf_counter() - start) * 1000)
    samples.sort()
    return samples[count // 2], samples[count * 99 // 100]
