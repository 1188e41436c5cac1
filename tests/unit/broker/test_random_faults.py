"""Kills, clean stops and restarts in random order: nothing acknowledged is lost, doubled or moved (B-2, I-9).

Process kills keep the page cache, so any number of them is within the fault budget. Flush-every-write topics
survive power losses of everybody as well (B-3).
"""

import asyncio
from functools import partial
from typing import Any

import pytest

from broker.partition import TopicPartition
from protocol.errors import ErrorCode
from rpc.channel import CallRefused
from runtime.api import NetworkError
from runtime.memory import SeededRandom, settle
from tests.unit.broker.cluster import BrokerMachine, Cluster, batch, values

STEPS = 60


class Run:
    """One random run with one seed."""

    def __init__(self, seed: int, faults: str) -> None:
        self.random = SeededRandom(seed)
        self.with_power_loss = faults == "power"
        self.with_cuts = faults == "cuts"
        self.cluster = Cluster(broker_session_timeout_ms="3000")
        #: {value: offset} of what was acknowledged
        self.acked: dict[str, int] = {}
        self._sent = 0

    def pick(self, machines: list[BrokerMachine]) -> BrokerMachine:
        return machines[self.random.randint(0, len(machines) - 1)]

    async def step(self) -> None:
        running = [machine for machine in self.cluster.machines.values() if machine.is_running]
        down = [machine for machine in self.cluster.machines.values() if not machine.is_running]
        if self.with_cuts and self.random.random() < 0.12:
            await self.cut_or_mend()
            return
        choice = self.random.random()
        if choice < 0.6:
            await self.produce(running)
        elif choice < 0.72 and running:
            machine = self.pick(running)
            if self.with_power_loss and self.random.random() < 0.5:
                await machine.lose_power()
            else:
                await machine.kill()
        elif choice < 0.78 and len(running) > 1:
            await self.pick(running).stop()
        elif choice < 0.95 and down:
            await self.pick(down).boot()
        await self.cluster.clock.advance(self.random.randint(0, 400))

    async def cut_or_mend(self) -> None:
        """Nothing gets to a broker's port any more, or what waited arrives late (D-4)."""
        port = self.pick(list(self.cluster.machines.values())).port
        if self.cluster.network.is_cut_off(port):
            self.cluster.network.mend(port)
        else:
            self.cluster.network.cut_off(port)
        await self.cluster.clock.advance(self.random.randint(0, 20_000))

    async def produce(self, running: list[BrokerMachine]) -> None:
        """Several batches at once to whoever thinks that it leads."""
        for machine in running:
            partition = machine.node.core.partitions.get(TopicPartition(self.cluster.topic_id, 0))
            if partition is None or not partition.is_serving:
                continue
            if self.cluster.network.is_cut_off(machine.port):
                continue
            sent = []
            for _ in range(self.random.randint(1, 4)):
                self._sent += 1
                value = f"v{self._sent}"
                try:
                    sent.append((value, await self.cluster.send(machine.id, batch(value), timeout_ms=800)))
                except (NetworkError, CallRefused):
                    return
            if self.random.random() < 0.5:
                await self.cluster.clock.advance(self.random.randint(0, 900))
            await settle()
            for value, answer in sent:
                answer.add_done_callback(partial(self.answered, value))

    def answered(self, value: str, done: "asyncio.Future[Any]") -> None:
        if done.exception() is None:
            row = done.result().partitions[0]
            if row.error_code == ErrorCode.NONE:
                self.acked[value] = row.base_offset

    async def heal(self) -> None:
        for machine in self.cluster.machines.values():
            self.cluster.network.mend(machine.port)
            if not machine.is_running:
                await machine.boot()
        await self.cluster.all_run()
        await self.cluster.in_sync(1, 2, 3)
        leader = await self.cluster.leader()
        end = leader.partition().log.log_end_offset
        await self.cluster.eventually(
            lambda: all(m.partition().high_watermark == end for m in self.cluster.machines.values())
        )


@pytest.mark.parametrize("faults", ["kills", "power", "cuts"])
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
async def test_what_was_acknowledged_stays_where_it_was(seed: int, faults: str) -> None:
    run = Run(seed, faults)
    cluster = await run.cluster.boot()
    configs = {"min_insync_replicas": "2"} | ({"flush_messages": "1"} if run.with_power_loss else {})
    await cluster.topic(1, **configs)
    for _ in range(STEPS):
        await run.step()
    await run.heal()
    logs = [machine.bytes() for machine in cluster.machines.values()]
    assert logs[0] == logs[1] == logs[2]
    stored = values(logs[0])
    assert len(set(stored)) == len(stored)
    wrong = {value: offset for value, offset in run.acked.items() if stored[offset : offset + 1] != [value]}
    assert not wrong
    assert len(run.acked) > 10, "the run was too unlucky to prove anything"
    await cluster.end()
