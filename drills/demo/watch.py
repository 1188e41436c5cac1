"""What the demo asks the cluster while nodes are killed: leaders, ISR, the active controller."""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.localcluster.nodes import ClusterError
from holdfast.protocol.messages.topics import DescribedTopic
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.real.machine import run

T = TypeVar("T")


class ClusterWatch:
    """Synchronous requests, each repeated until the cluster answers or the timeout passes."""

    def __init__(self, bootstrap_servers: str, patience_s: float = 30.0) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._patience_s = patience_s

    def create_topic(self, topic: str, partitions: int, replication_factor: int, min_isr: int) -> None:
        """Create the topic and wait until all partitions have a leader and a full ISR."""
        configs = {"min.insync.replicas": str(min_isr)}
        self.ask(lambda admin: admin.create_topic(topic, partitions, replication_factor, configs=configs))
        self.wait_full_isr(topic)

    def active_controller(self) -> int:
        """Id of the active controller."""
        deadline = time.monotonic() + self._patience_s
        while (found := self.ask(lambda admin: admin.describe_cluster()).controller_id) < 0:
            _check(deadline, "no active controller")
        return found

    def wait_other_controller(self, old_id: int, since_ns: int) -> float:
        """Seconds from `since_ns` until brokers name another active controller than `old_id`."""
        deadline = time.monotonic() + self._patience_s
        while self.ask(lambda admin: admin.describe_cluster()).controller_id in (old_id, -1):
            _check(deadline, "no other controller took over")
        return (time.monotonic_ns() - since_ns) / 1e9

    def led_by_broker(self, topic: str) -> dict[int, dict[int, int]]:
        """`{broker: {partition: leader epoch}}` of the brokers that lead a partition."""
        led: dict[int, dict[int, int]] = {}
        for partition in self.describe(topic).partitions:
            if partition.leader_id >= 0:
                led.setdefault(partition.leader_id, {})[partition.partition_index] = partition.leader_epoch
        return led

    def wait_full_isr(self, topic: str) -> float:
        """Seconds until every replica of every partition is in sync."""
        start = time.monotonic()
        while any(len(p.isr) < len(p.replicas) or p.leader_id < 0 for p in self.describe(topic).partitions):
            _check(start + self._patience_s, f"{topic} has no full ISR")
        return time.monotonic() - start

    def describe(self, topic: str) -> DescribedTopic:
        """One topic as the cluster describes it."""
        found = self.ask(lambda admin: admin.describe_topics([topic]))
        assert len(found) == 1
        return found[0]

    def ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        """The answer to a request, repeated while the cluster does not answer. Raises: ClusterError."""
        answers: list[T] = []

        async def work(runtime: Runtime) -> int:
            admin = Admin(self._bootstrap_servers, runtime=runtime)
            try:
                answers.append(await question(admin))
            finally:
                await admin.close()
            return 0

        deadline = time.monotonic() + self._patience_s
        while not answers:
            try:
                run(work)
            except (ClientError, NetworkError) as error:
                _check(deadline, str(error))
        return answers[0]


def describe_wait(waited: dict[int, float | None]) -> str:
    """One line for what `Producers.wait_new_leaders` found."""
    seen = [seconds for seconds in waited.values() if seconds is not None]
    missing = len(waited) - len(seen)
    if not seen:
        return "no write was acknowledged by a new leader: the producers had finished or gave up waiting"
    text = f"first write acknowledged by the new leaders after {min(seen):.2f} to {max(seen):.2f} s"
    return text + (f"; none yet in {missing} of {len(waited)} partitions" if missing else "")


def _check(deadline: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise ClusterError(f"gave up waiting: {what}")
    time.sleep(0.05)
