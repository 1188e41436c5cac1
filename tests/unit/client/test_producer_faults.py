"""Seeded faults against the whole producer: the log and the outcomes agree under all of them.

Leaders move and die, answers get lost, batches are refused, brokers go silent, and a new leader may lack what
was never acknowledged. Nothing here knows the producer's insides.
"""

import random
from dataclasses import dataclass, field

import pytest

from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import BufferFull
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.producer import Producer
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.client.fake_cluster import FakeCluster

REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
)


@dataclass
class Told:
    """What the producer said, by record."""

    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def __call__(self, batch: Batch) -> None:
        for index, tag in enumerate(batch.tags):
            if batch.outcome is DeliveryOutcome.OK:
                self.acknowledged[tag] = (batch.partition, batch.base_offset + index)
            elif batch.outcome is DeliveryOutcome.FAIL:
                self.failed.add(tag)


class Storm:
    """Faults, one at a time or several, drawn from a seed."""

    def __init__(self, cluster: FakeCluster, told: Told, seed: int) -> None:
        self.cluster = cluster
        self.told = told
        self.random = random.Random(seed)
        self.dead: set[int] = set()

    async def strike(self) -> None:
        fault = self.random.choice([self.move, self.move, self.lose, self.refuse, self.hush, self.kill])
        await fault()

    async def move(self) -> None:
        index = self.random.randrange(2)
        alive = [n for n in (1, 2, 3) if n not in self.dead]
        if self.random.random() < 0.5:
            self.forget_unacknowledged(index)
        self.cluster.move_leader("t", index, self.random.choice(alive))

    def forget_unacknowledged(self, index: int) -> None:
        """The next leader lacks a tail that no client was told of."""
        partition = self.cluster.topics["t"][index]
        safe = max((offset + 1 for p, offset in self.told.acknowledged.values() if p == index), default=0)
        loose = [header.base_offset for header, _ in partition.log if header.base_offset >= safe]
        if loose:
            cut = self.random.choice(loose)
            partition.log[:] = [entry for entry in partition.log if entry[0].base_offset < cut]
            for producer_id, entry in list(partition.producers.items()):
                entry.batches = [batch for batch in entry.batches if batch[2] < cut]
                if not entry.batches:
                    del partition.producers[producer_id]

    async def lose(self) -> None:
        self.cluster.brokers[self.random.randint(1, 3)].answers_lost = self.random.randint(1, 4)

    async def refuse(self) -> None:
        codes = [self.random.choice(REFUSALS) for _ in range(self.random.randint(1, 4))]
        self.cluster.brokers[self.random.randint(1, 3)].errors[ApiKey.PRODUCE] = codes

    async def hush(self) -> None:
        broker = self.cluster.brokers[self.random.randint(1, 3)]
        broker.is_deaf = not broker.is_deaf

    async def kill(self) -> None:
        broker_id = self.random.randint(1, 3)
        if broker_id in self.dead:
            self.dead.discard(broker_id)
            await self.cluster.restart(broker_id)
        elif not self.dead:
            self.dead.add(broker_id)
            self.cluster.kill(broker_id)

    async def end(self) -> None:
        for broker_id in sorted(self.dead):
            await self.cluster.restart(broker_id)
        self.dead.clear()
        for broker in self.cluster.brokers.values():
            broker.is_deaf, broker.answers_lost = False, 0
            broker.errors.clear()


@pytest.mark.parametrize("seed", range(40))
async def test_log_and_outcomes_agree_under_faults(seed: int) -> None:
    runtime, world = memory_runtime(seed)
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 2)
    told = Told()
    storm = Storm(cluster, told, seed)
    producer = Producer(
        cluster.bootstrap_servers,
        linger_ms=storm.random.choice([0, 3]),
        batch_size_bytes=storm.random.choice([150, 1_000]),
        delivery_timeout_ms=storm.random.choice([800, 4_000, 60_000]),
        request_timeout_ms=storm.random.choice([300, 5_000]),
        buffer_memory_bytes=20_000,
        on_batch=told,
        runtime=runtime,
    )
    await producer.start()
    await producer.partition_count("t")
    sent: list[list[str]] = [[], []]
    for step in range(400):
        if storm.random.random() < 0.08:
            await storm.strike()
        for partition in (0, 1):
            tag = f"{partition}-{step:04d}"
            try:
                producer.send_nowait("t", tag.encode(), partition=partition, tag=tag)
            except BufferFull:
                continue
            sent[partition].append(tag)
        await world.clock.advance(storm.random.choice([0, 1, 2, 30]))
    await storm.end()
    await world.clock.advance(70_000)
    await producer.close(timeout_ms=0)
    await settle()
    for partition in (0, 1):
        log = [value.decode() for value in cluster.values("t", partition)]
        assert log == sorted(set(log)), "each record at most once, in the order of sending"
        assert set(log) <= set(sent[partition])
        assert not told.failed & set(log), "a certain failure is in no log"
        for tag, (where, offset) in told.acknowledged.items():
            assert where != partition or log[offset] == tag, "acknowledged means readable there"
    if producer.config.delivery_timeout_ms == 60_000:
        assert len(told.acknowledged) == len(sent[0]) + len(sent[1]), "patience is rewarded"
    await world.tasks.cancel_all()
