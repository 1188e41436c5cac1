"""min.insync.replicas goes up and down under load while brokers stand still and wake (R109, B6, N-5).

What is checked: *the high watermark never passes the end of a member of the ELR*, as the controller has it
registered. Three clocks have to be brought together: the metadata log, the high watermark, and what a member
holds.

- A broker that is stopped (SIGSTOP) writes nothing, so its end in its segment files, read once, is its end
  for the whole *freeze*. Only members that stand still are judged; they get into the ELR by that, too.
- The metadata log is replayed at the end: it has every state and how long the log was when it was appended.
  Its length is read from the controller's file: `end(t)` counts all that had been appended at t. Before a
  broker is woken, all of `end` at that moment is known to be committed.
- A *sample* is a high watermark: one told by a leader in a fetch answer, or one behind an acknowledged
  record. The length of the metadata log is read after it, `end(t)`.

Take a freeze of broker b, and the last state S of a partition in it that has b in the ELR: S was appended
before the end of the freeze, and replaced after its beginning, if ever. Take a sample h of that partition
from before the end of the freeze with `end(t)` below the length at which S was replaced. Then there was a
moment at or after t when S was the registered state and b stood still. What is committed never shrinks, so at
that moment the high watermark was h or more, b was in the ELR, and b's end was its frozen end. Hence h must
not be above the frozen end, and b must hold, batch by batch (offsets, epoch, crc), what the final log has
below h. Earlier states of the freeze demand less of the same end, so the last one is enough.

`E2E_MIN_ISR_CHANGES` says how many changes are made (50 by default), `E2E_SEED` which ones.
"""

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import pytest

from holdfast.client.admin import Admin
from holdfast.client.admin_configs import Resource
from holdfast.client.core.batch import Batch
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.image import RESOURCE_TOPIC
from holdfast.protocol.messages.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchRequest
from holdfast.rpc.channel import CallRefused, Pool
from holdfast.runtime.api import NetworkError, Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import Load, assert_nothing_lost, wait_until, watch
from tests.e2e.log_reading import BatchId, State, assert_sound, history, log_of, metadata_end

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CHANGES = int(os.environ.get("E2E_MIN_ISR_CHANGES", "50"))
SEED = int(os.environ.get("E2E_SEED", "966"))
PARTITIONS = 4
#: Longer than a session and the lag time: who stands still for so long is fenced, and out of the ISR.
FREEZE_S = 3.0


class CountingLoad(Load):
    """Load that knows the end of what was acknowledged of each partition."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(bootstrap_servers, topic, records_per_second=1000)
        self.ends: dict[int, int] = {}

    def _on_batch(self, batch: Batch) -> None:
        if batch.outcome is DeliveryOutcome.OK:
            end = batch.base_offset + len(batch.tags)
            self.ends[batch.partition] = max(end, self.ends.get(batch.partition, 0))
        super()._on_batch(batch)


class Sample(NamedTuple):
    """The highest committed ends known at a moment, and the length of the metadata log read after that."""

    ends: dict[int, int]
    metadata_end: int


class Sampler:
    """Asks all running brokers for high watermarks, in a thread."""

    def __init__(self, cluster: LocalCluster, controller: Node, topic_id: bytes, load: CountingLoad) -> None:
        self._cluster = cluster
        self._controller = controller
        self._topic_id = topic_id
        self._load = load
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._told: dict[int, int] = {}
        self.samples: list[Sample] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            run(self._work)
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            self._error = error

    async def _work(self, runtime: Runtime) -> int:
        pool = Pool(runtime, "sampler")
        while not self._stop.is_set():
            for broker in self._cluster.brokers:
                if not self._cluster.is_paused(broker):
                    await self._ask(pool, broker)
            ends = {
                index: max(self._told.get(index, 0), self._load.ends.get(index, 0))
                for index in range(PARTITIONS)
            }
            self.samples.append(Sample(ends, metadata_end(self._cluster, self._controller)))
            await runtime.clock.sleep(20)
        pool.close()
        return 0

    async def _ask(self, pool: Pool, broker: Node) -> None:
        """Fetch nothing of every partition; a broker that does not lead answers with an error row."""
        rows = tuple(
            FetchPartition(self._topic_id, index, -1, self._told.get(index, 0), -1, -1, 1)
            for index in range(PARTITIONS)
        )
        request = FetchRequest(None, CONSUMER_REPLICA_ID, -1, 0, 0, 1, rows)
        try:
            answer = await pool.call("127.0.0.1", broker.port, request, 300)
        except (NetworkError, CallRefused):
            return
        for row in answer.partitions:
            if row.error_code == 0:
                known = self._told.get(row.partition_index, 0)
                self._told[row.partition_index] = max(known, row.high_watermark)


@dataclass
class Freeze:
    """A broker that stands still."""

    node: Node
    until_s: float
    #: what it holds of each partition
    held: dict[int, list[BatchId]]
    metadata_start: int
    metadata_end: int = -1
    #: samples that were complete when it was woken
    sample_count: int = -1


@dataclass
class Freezer:
    """Stops and wakes brokers, and keeps what the check needs."""

    cluster: LocalCluster
    controller: Node
    sampler: Sampler
    frozen: list[Freeze] = field(default_factory=list)
    over: list[Freeze] = field(default_factory=list)

    def freeze(self, node: Node) -> None:
        self.cluster.pause(node)
        wait_until(lambda: self.cluster.is_paused(node))
        start = metadata_end(self.cluster, self.controller)
        held = {index: log_of(self.cluster, node, "t", index) for index in range(PARTITIONS)}
        self.frozen.append(Freeze(node, time.monotonic() + FREEZE_S, held, start))

    def wake(self, freeze: Freeze) -> None:
        freeze.metadata_end = metadata_end(self.cluster, self.controller)
        self._wait_committed(freeze.metadata_end)
        freeze.sample_count = len(self.sampler.samples)
        self.cluster.resume(freeze.node)
        self.frozen.remove(freeze)
        self.over.append(freeze)

    def awake(self) -> list[Node]:
        frozen = [freeze.node for freeze in self.frozen]
        return [node for node in self.cluster.brokers if node not in frozen]

    def _wait_committed(self, end: int) -> None:
        async def work(runtime: Runtime) -> int:
            admin = Admin(f"127.0.0.1:{self.awake()[0].port}", runtime=runtime)
            while (await admin.describe_quorum()).high_watermark < end:
                await runtime.clock.sleep(10)
            await admin.close()
            return 0

        run(work)


def change_min_isr(server: Node, value: int) -> None:
    async def work(runtime: Runtime) -> int:
        admin = Admin(f"127.0.0.1:{server.port}", runtime=runtime)
        resource = Resource(RESOURCE_TOPIC, "t")
        rows = await admin.alter_configs({resource: {"min.insync.replicas": str(value)}})
        await admin.close()
        assert rows == {resource: None}
        return 0

    run(work)


def check_freeze(
    freeze: Freeze, states: list[State], samples: list[Sample], index: int, final: list[BatchId]
) -> int | None:
    """The end that the last ELR membership within the freeze had to have, None when there was none."""
    replaced = [state.log_end for state in states[1:]] + [1 << 62]
    memberships = [
        ends_at
        for state, ends_at in zip(states, replaced, strict=True)
        if freeze.node.node_id in state.registration.elr
        and state.log_end <= freeze.metadata_end
        and ends_at > freeze.metadata_start
    ]
    if not memberships:
        return None
    before = [s.ends[index] for s in samples[: freeze.sample_count] if s.metadata_end < memberships[-1]]
    needed = max(before, default=0)
    held = freeze.held[index]
    end = held[-1].next_offset if held else 0
    name = f"broker {freeze.node.node_id}, t-{index}"
    assert needed <= end, f"{name}: eligible with the end {end} while the high watermark was {needed}"
    below = [batch for batch in final if batch.base_offset < needed]
    assert held[: len(below)] == below, f"{name}: eligible with other records below {needed}"
    return needed


def assert_none_lost_below_min_isr(states: list[State]) -> None:
    """R9, third clause; nothing is unclean here. A change of min ISR begins a new count."""
    for before, after in pairwise(states):
        old, new = before.registration, after.registration
        if new.min_isr == old.min_isr and len(new.isr) < new.min_isr:
            assert len(new.isr + new.elr) >= len(old.isr + old.elr), f"{old} -> {new}"


def test_the_high_watermark_never_passes_an_eligible_replica_while_min_isr_changes(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    cluster = make_cluster(3, 1)
    servers = cluster.bootstrap_servers
    (controller,) = cluster.controllers
    choice = random.Random(SEED)
    look = watch(servers)
    look.create_topic("t", PARTITIONS, 3, 2)
    topic_id = look.describe("t").topic_id
    min_isr = 2
    load = CountingLoad(servers, "t")
    # taken below min ISR too, so that there is always something that must not be committed (F4)
    alone = Load(servers, "t", acks=1, records_per_second=300, name="alone")
    sampler = Sampler(cluster, controller, topic_id, load)
    with load, alone, sampler:
        freezer = Freezer(cluster, controller, sampler)
        for _ in range(CHANGES):
            for freeze in [f for f in freezer.frozen if f.until_s <= time.monotonic()]:
                freezer.wake(freeze)
            if len(freezer.awake()) > 1 and choice.random() < 0.4:
                freezer.freeze(choice.choice(freezer.awake()))
            min_isr = choice.choice([value for value in (1, 2, 3) if value != min_isr])
            change_min_isr(freezer.awake()[0], min_isr)
            time.sleep(choice.uniform(0.1, 1.0))
        for freeze in list(freezer.frozen):
            freezer.wake(freeze)
        change_min_isr(cluster.brokers[0], 2)
        look.wait_full_isr("t")
        load.wait_acked(200)
    assert not load.answers.failed
    assert_nothing_lost(servers, "t", PARTITIONS, load.answers)
    told = history(cluster, controller, "t")
    judged = 0
    for index, states in told.items():
        for state in states:
            assert_sound(state.registration)
        assert_none_lost_below_min_isr(states)
        logs = [log_of(cluster, node, "t", index) for node in cluster.brokers]
        assert logs[0] == logs[1] == logs[2], "replicas differ"
        for freeze in freezer.over:
            judged += check_freeze(freeze, states, sampler.samples, index, logs[0]) is not None
    print(f"{judged} memberships judged in {len(freezer.over)} freezes, {len(sampler.samples)} samples")
    assert judged >= CHANGES // 10, f"{judged} memberships were judged: the test proves nothing"
