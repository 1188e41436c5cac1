"""Kills, clean stops and restarts in random order: nothing acknowledged is lost, doubled or moved (G-2, I-9).

Process kills keep the page cache, so any number of them is within the fault budget. Flush-every-write topics
survive power losses of all brokers as well (G-3). At every moment each replica that the controller has in the
ISR or the ELR holds all below the highest high watermark that any leader ever had (I-7, B6): also while the
partition moves to other brokers and min ISR changes.
"""

import asyncio
from functools import partial
from itertools import product
from typing import Any

import pytest

from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    ResourceType,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.rpc.channel import CallRefused
from holdfast.runtime.api import NetworkError
from holdfast.runtime.memory.machine import SeededRandom, settle
from tests.cases import slow
from tests.unit.broker.cluster import CONTROLLER_PORT, BrokerMachine, Cluster, batch, values

STEPS = 60


class Run:
    """One random run with one seed."""

    def __init__(self, seed: int, faults: str, broker_count: int = 3) -> None:
        self.random = SeededRandom(seed)
        self.with_power_loss = faults == "power"
        self.with_cuts = faults == "cuts"
        self.cluster = Cluster(broker_count, broker_session_timeout_ms="3000")
        #: {value: offset} of what was acknowledged
        self.acked: dict[str, int] = {}
        #: highest high watermark that any leader had
        self.high_watermark = 0
        #: {broker_id: end of its log}, of a dead one what its disk has
        self.ends: dict[int, int] = {}
        #: moments at which the ELR had a member
        self.elr_count = 0
        self._sent = 0

    @property
    def key(self) -> PartitionId:
        return PartitionId(self.cluster.topic_id, 0)

    def check(self) -> None:
        """Compare what brokers hold with what the controller has registered, now."""
        for machine in self.cluster.machines.values():
            self._look_at(machine)
        registration = self.cluster.image.partition(*self.key)
        assert registration is not None
        self.elr_count += bool(registration.elr)
        for replica_id in registration.isr + registration.elr:
            end = self.ends.get(replica_id, 0)
            assert end >= self.high_watermark, (
                f"broker {replica_id} has {end} of {self.high_watermark}: {registration}"
            )

    def _look_at(self, machine: BrokerMachine) -> None:
        # of a dead one the log as its process left it, until the next process has opened it
        log = machine.node.log_manager.logs.get(self.key)
        if log is not None:
            # with every write flushed a member may lose what is not
            self.ends[machine.id] = log.flushed_offset if self.with_power_loss else log.log_end_offset
        elif machine.node.core.has_roles:
            self.ends[machine.id] = 0
        partition = machine.node.core.partitions.get(self.key)
        if partition is not None and partition.is_serving and machine.is_running:
            self.high_watermark = max(self.high_watermark, partition.high_watermark)

    async def advance(self, duration_ms: int) -> None:
        await self.cluster.advance(duration_ms)

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
        await self.advance(self.random.randint(0, 400))

    async def cut_or_mend(self) -> None:
        """Nothing gets to a broker's port any more, or what waited arrives late (N-4)."""
        if self.random.random() < 0.3:
            await self.cut_controller()
            return
        port = self.pick(list(self.cluster.machines.values())).port
        if self.cluster.network.is_cut_off(port):
            self.cluster.network.mend(port)
        else:
            self.cluster.network.cut_off(port)
        await self.advance(self.random.randint(0, 20_000))

    async def cut_controller(self) -> None:
        """Proposals and heartbeats wait for a while, and some are sent again (R44, R45)."""
        self.cluster.network.cut_off(CONTROLLER_PORT)
        for _ in range(self.random.randint(1, 4)):
            running = [machine for machine in self.cluster.machines.values() if machine.is_running]
            await self.produce(running)
            await self.advance(self.random.randint(0, 1_000))
        self.cluster.network.mend(CONTROLLER_PORT)
        await self.advance(self.random.randint(0, 1_000))

    async def produce(self, running: list[BrokerMachine]) -> None:
        """Several batches at once to each broker that thinks that it leads."""
        for machine in running:
            partition = machine.node.core.partitions.get(self.key)
            if partition is None or not partition.is_serving:
                continue
            if self.cluster.network.is_cut_off(machine.port):
                continue
            sent = []
            for _ in range(self.random.randint(1, 4)):
                self._sent += 1
                value = f"v{self._sent}"
                # acks=1 is taken below min ISR too, and must stay invisible then (F4)
                acks = 1 if self.random.random() < 0.3 else -1
                try:
                    answer = await self.cluster.send(machine.id, batch(value), acks=acks, timeout_ms=800)
                except (NetworkError, CallRefused):
                    return
                if acks == -1:
                    sent.append((value, answer))
            if self.random.random() < 0.5:
                await self.advance(self.random.randint(0, 900))
            await settle()
            for value, answer in sent:
                answer.add_done_callback(partial(self.answered, value))

    def answered(self, value: str, done: "asyncio.Future[Any]") -> None:
        if done.exception() is None:
            row = done.result().partitions[0]
            if row.error_code == ErrorCode.NONE:
                self.acked[value] = row.base_offset

    async def heal(self) -> None:
        """End all faults, and wait until replicas 1 to 3 have everything."""
        for machine in self.cluster.machines.values():
            self.cluster.network.mend(machine.port)
            if not machine.is_running:
                await machine.boot()
        await self.cluster.all_run()
        await self.settle_assignment()
        await self.cluster.in_sync(1, 2, 3)
        leader = await self.cluster.leader()
        end = leader.partition().log.log_end_offset
        await self.cluster.eventually(lambda: all(m.partition().high_watermark == end for m in self.replicas))

    async def settle_assignment(self) -> None:
        """The replicas are 1 to 3 all the time."""

    @property
    def replicas(self) -> list[BrokerMachine]:
        return [self.cluster[broker_id] for broker_id in (1, 2, 3)]

    def assert_nothing_lost(self) -> None:
        logs = [machine.bytes() for machine in self.replicas]
        assert logs[0] == logs[1] == logs[2]
        stored = values(logs[0])
        assert len(set(stored)) == len(stored)
        wrong = {
            value: offset for value, offset in self.acked.items() if stored[offset : offset + 1] != [value]
        }
        assert not wrong
        assert len(self.acked) > 10, "the run was too unlucky to prove anything"


class MovingRun(Run):
    """Five brokers; the partition moves among them, and its min ISR changes."""

    def __init__(self, seed: int, faults: str) -> None:
        super().__init__(seed, faults, broker_count=5)

    async def step(self) -> None:
        choice = self.random.random()
        if choice < 0.1:
            await self.move(self.some_replicas())
        elif choice < 0.12:
            await self.move(None)
        elif choice < 0.25:
            await self.set_min_isr(self.random.randint(1, 3))
        await super().step()

    def some_replicas(self) -> tuple[int, ...]:
        ids = sorted(self.cluster.machines)
        return tuple(ids.pop(self.random.randint(0, len(ids) - 1)) for _ in range(self.random.randint(2, 4)))

    async def move(self, replicas: tuple[int, ...] | None) -> int:
        """Ask for it; a refusal is an answer like others."""
        rows = (ReassignableTopic("t", (ReassignablePartition(0, replicas),)),)
        answer = await self.cluster.ask_controller(AlterPartitionReassignmentsRequest(5000, True, rows))
        code: int = answer.responses[0].partitions[0].error_code
        return code

    async def set_min_isr(self, value: int) -> None:
        change = AlterableConfig("min.insync.replicas", ConfigOperation.SET, str(value))
        rows = (AlterConfigsResource(ResourceType.TOPIC, "t", (change,)),)
        answer = await self.cluster.ask_controller(IncrementalAlterConfigsRequest(False, rows))
        assert answer.responses[0].error_code == ErrorCode.NONE

    async def settle_assignment(self) -> None:
        """Back to 1 to 3; the others delete what they have."""
        await self.set_min_isr(2)
        for _ in range(100):
            if await self.move((1, 2, 3)) == ErrorCode.NONE:
                break
            await self.advance(200)
        await self.cluster.eventually(self._is_settled)

    def _is_settled(self) -> bool:
        registration = self.cluster.image.partition(*self.key)
        assert registration is not None
        others = [self.cluster[broker_id] for broker_id in (4, 5)]
        return registration.replicas == (1, 2, 3) and not any(
            self.key in machine.node.log_manager.logs for machine in others
        )


FAULTS = ("kills", "power", "cuts")
#: Runs in which the ELR gets a member. With cuts few do: most brokers that die restart within their session,
#: and leave the ISR without entering the ELR (D14).
RUNS = [
    *product([3], FAULTS),
    *slow(*product([4, 5, 8], ["kills", "power"]), *product([5, 7, 9], ["cuts"])),
]


@pytest.mark.parametrize(("seed", "faults"), RUNS)
async def test_what_was_acknowledged_stays_where_it_was(seed: int, faults: str) -> None:
    run = Run(seed, faults)
    cluster = await run.cluster.boot()
    configs = {"min_insync_replicas": "2"} | ({"flush_messages": "1"} if run.with_power_loss else {})
    await cluster.topic(1, **configs)
    cluster.check = run.check
    for _ in range(STEPS):
        await run.step()
    await run.heal()
    assert run.elr_count
    run.assert_nothing_lost()
    await cluster.end()


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("seed", [4, *slow(2, 3, 5)])
async def test_nothing_is_lost_while_the_partition_moves_and_min_isr_changes(seed: int, faults: str) -> None:
    """R100-R105, R109, B4, B6."""
    run = MovingRun(seed, faults)
    cluster = await run.cluster.boot()
    configs = {"min_insync_replicas": "2"} | ({"flush_messages": "1"} if run.with_power_loss else {})
    await cluster.topic(1, **configs)
    cluster.check = run.check
    for _ in range(STEPS):
        await run.step()
    await run.heal()
    run.assert_nothing_lost()
    await cluster.end()
