"""Brokers are killed -9 in turn while a client works: leaders and coordinators among them."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from holdfast.client.core.errors import ClientError
from holdfast.localcluster.asker import Asker
from holdfast.testing import HoldfastCluster

#: How long replicas may take to be in sync again, on a busy machine.
PATIENCE_S = 120.0


class Kills:
    """A thread that kills one broker after the other, each when all replicas are in sync."""

    def __init__(self, cluster: HoldfastCluster, rest_s: float) -> None:
        self.count = 0
        self._cluster = cluster
        self._rest_s = rest_s
        self._asker = Asker(cluster.bootstrap_controllers)
        self._is_over = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self._run_ends = self._thread.submit(self._run)

    def end(self) -> None:
        """No further kill; every broker is up and in sync. Raises: what went wrong."""
        self._is_over.set()
        try:
            self._run_ends.result()
            self._cluster.wait_until(self._is_in_sync, PATIENCE_S)
        finally:
            self._thread.shutdown()
            self._asker.close()

    def rounds(self, minutes: float = 0.0) -> Iterator[int]:
        """Numbers, until every broker was killed once and so much time has passed."""
        deadline_s = time.monotonic() + 60 * minutes
        for number in itertools.count():
            is_enough = self.count >= len(self._cluster.brokers) and time.monotonic() > deadline_s
            if is_enough or self._run_ends.done():
                return
            yield number

    def _run(self) -> None:
        for broker in itertools.cycle(self._cluster.brokers):
            if not self._wait_for_sync():
                return
            self._cluster.kill(broker)
            self._cluster.restart(broker)
            self.count += 1
            self._is_over.wait(self._rest_s)

    def _wait_for_sync(self) -> bool:
        """False when it is over."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self._is_in_sync():
            assert time.monotonic() < deadline_s, "replicas are not in sync again"
            if self._is_over.wait(0.1):
                return False
        return not self._is_over.is_set()

    def _is_in_sync(self) -> bool:
        with suppress(ClientError):
            topics = self._asker.ask(lambda admin: admin.describe_topics())
            return all(
                len(row.isr) == len(row.replicas) and row.leader_id >= 0
                for topic in topics
                for row in topic.partitions
            )
        return False


@contextmanager
def kills_in_turn(cluster: HoldfastCluster, rest_s: float = 0.0) -> Iterator[Kills]:
    """For as long as the block runs, and so long after each one all brokers live at least.

    Raises: what a broker that does not come back raises.
    """
    kills = Kills(cluster, rest_s)
    try:
        yield kills
    finally:
        kills.end()
