"""The cluster under load: a local one of its own or one that runs already, and what its processes use."""

import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.extras import require
from holdfast.cli.progress import shown
from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.real.machine import run

T = TypeVar("T")

PARTITIONS = 6
REPLICATION_FACTOR = 3
MIN_ISR = 2
#: For how long a topic may be without all its replicas before a benchmark gives up.
FULL_ISR_S = 60.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process since it started; `rss_mb` is its highest so far."""

    cpu_s: float
    rss_mb: float


class BenchCluster:
    """What benchmarks do to a cluster. `local` is None for one that we only visit."""

    def __init__(self, bootstrap_servers: str, local: LocalCluster | None, folder: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.local = local
        #: on the same file system as the cluster's logs, as far as we know
        self.folder = folder

    def usage(self) -> dict[str, Usage]:
        """By node name; empty for a cluster that we only visit."""
        found: dict[str, Usage] = {}
        for node in self.local.nodes if self.local is not None else ():
            pid = self.local.pid(node) if self.local is not None else None
            if pid is not None:
                found[node.name] = process_usage(pid)
        return found

    def ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """The answer to an administrative question."""
        answers: list[T] = []

        async def work(runtime: Runtime) -> int:
            admin = Admin(self.bootstrap_servers, runtime=runtime)
            try:
                answers.append(await question(admin))
            finally:
                await admin.close()
            return 0

        run(work)
        return answers[0]

    def check_nodes(self) -> None:
        """Raises: click.ClickException when a node of our own has ended."""
        for node in self.local.nodes if self.local is not None else ():
            if self.local is not None and self.local.pid(node) is None:
                raise click.ClickException(has_ended(self.local, node))

    def create_topic(self, topic: str, partitions: int = PARTITIONS) -> None:
        """RF 3, min ISR 2, ready to be written to."""
        configs = {"min.insync.replicas": str(MIN_ISR)}
        self.ask(lambda a: a.create_topic(topic, partitions, REPLICATION_FACTOR, configs=configs))
        self.wait_full_isr(topic)

    def wait_full_isr(self, topic: str) -> None:
        """Until every partition has a leader and all its replicas in sync.

        Raises: click.ClickException after a minute.
        """

        async def wait(admin: Admin) -> None:
            deadline_s = time.monotonic() + FULL_ISR_S
            while True:
                (described,) = await admin.describe_topics([topic])
                rows = described.partitions
                wrong = [r for r in rows if len(r.isr) < len(r.replicas) or r.leader_id < 0]
                if rows and not wrong:
                    return
                if time.monotonic() > deadline_s:
                    raise click.ClickException(
                        f"{topic} is not in sync after {FULL_ISR_S:.0f} s: {len(wrong)} of {len(rows)} "
                        f"partitions, code {described.error_code}"
                    )

        self.ask(wait)

    def delete_topic(self, topic: str) -> None:
        """Gives its disk space back."""
        try:
            self.ask(lambda a: a.delete_topic(topic))
        except ClientError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def process_usage(pid: int) -> Usage:
    """CPU seconds and peak RSS; the present RSS where the system does not keep the peak."""
    import psutil

    process = psutil.Process(pid)
    times = process.cpu_times()
    rss = process.memory_info().rss
    try:
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                rss = int(line.split()[1]) * 1024
    except OSError:
        pass
    return Usage(times.user + times.system, rss / 1e6)


@contextlib.contextmanager
def bench_cluster(bootstrap_servers: str | None, folder: Path | None) -> Iterator[BenchCluster]:
    """Three brokers and three controllers in a temporary folder, gone afterwards; or the cluster given."""
    if bootstrap_servers is None:
        with own_cluster(folder) as cluster:
            yield cluster
        return
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=folder))
    try:
        with _one_sentence():
            yield BenchCluster(bootstrap_servers, None, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def has_ended(local: LocalCluster, node: Node) -> str:
    """A sentence about a node, whose log will be gone with the cluster."""
    return f"{node.name} has ended; its last words:\n{local.last_words(node)}"


@contextlib.contextmanager
def _one_sentence(local: LocalCluster | None = None) -> Iterator[None]:
    """What ends a benchmark becomes a sentence on stderr and exit code 1, with the last words of nodes that
    have ended. A broken pipe would be neither: click takes it for the reader of stdout, who has gone."""
    try:
        yield
    except (ClientError, ClusterError, NetworkError, BrokenPipeError) as error:
        nodes = local.nodes if local is not None else ()
        ended = [has_ended(local, node) for node in nodes if local is not None and local.pid(node) is None]
        raise click.ClickException("\n".join([str(error) or repr(error), *ended])) from error
    except SystemExit as end:
        if local is not None and end.code == 128 + signal.SIGTERM:
            click.echo("ended by SIGTERM", err=True)
        raise


@contextlib.contextmanager
def own_cluster(folder: Path | None, **settings: Any) -> Iterator[BenchCluster]:
    """Three brokers and three controllers in a folder of their own, with `settings` of
    `LocalCluster.create`; nothing is left of them at the end, be it by an error, Ctrl-C or SIGTERM."""
    require("bench")
    # without a handler SIGTERM would leave the nodes running
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=folder))
    try:
        with _one_sentence():
            local = LocalCluster.create(home / "cluster", 3, 3, **settings)
            try:
                with _one_sentence(local):
                    with shown("A cluster starts"):
                        local.up()
                    yield BenchCluster(local.bootstrap_servers, local, home)
            finally:
                local.destroy()
    finally:
        shutil.rmtree(home, ignore_errors=True)
