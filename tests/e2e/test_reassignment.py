"""Partitions move to other brokers and back while records are written and brokers die (R100-R105).

`E2E_REASSIGNMENT_ROUNDS` says how often they go there and back (2 by default).
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import pytest

from holdfast.client.admin import Admin
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.topics import DescribedTopic
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import Load, assert_nothing_lost, produce, wait_until, watch
from tests.e2e.log_reading import assert_sound, history, log_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("E2E_REASSIGNMENT_ROUNDS", "2"))
PARTITIONS = 6
#: Replicas before a round, and those of its first half; the preferred one moves around.
HOME = {index: (1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3) for index in range(PARTITIONS)}
AWAY = {index: tuple(broker + 3 for broker in replicas) for index, replicas in HOME.items()}
#: Who dies on the way there and on the way back: one that gets replicas, whom the move has to wait for; or
#: one that gives them away, which leads some, and comes back to a cluster that has moved on.
VICTIMS = [(4, 5), (2, 1), (6, 3), (3, 4)]


class Observer:
    """Looks at the topic again and again in a thread, and remembers every state that it was told of."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.states = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Observer":
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
        admin = Admin(self._bootstrap_servers, runtime=runtime)
        last: DescribedTopic | None = None
        while not self._stop.is_set():
            (found,) = await admin.describe_topics([self._topic])
            if found != last:
                self.states += 1
                last = found
                for row in found.partitions:
                    isr, elr = set(row.isr), set(row.eligible_leader_replicas or ())
                    known = set(row.last_known_elr or ())
                    assert isr | elr | known <= set(row.replicas), row
                    assert not isr & elr, row
                    assert row.leader_id in (-1, *isr), row
            await runtime.clock.sleep(20)
        await admin.close()
        return 0


class Mover:
    """One administrator: asks for moves and waits for their end."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._servers = cluster.bootstrap_servers

    def begin(self, targets: Mapping[int, Sequence[int]]) -> None:
        """Ask for all of them at once; every row must be granted."""

        async def work(runtime: Runtime) -> int:
            admin = Admin(self._servers, runtime=runtime)
            rows = await admin.alter_partition_reassignments(
                {TopicPartition("t", index): tuple(target) for index, target in targets.items()}
            )
            await admin.close()
            assert all(row is None for row in rows.values()), rows
            return 0

        run(work)

    def moving(self) -> int:
        """Partitions that are under way."""
        found: list[int] = []

        async def work(runtime: Runtime) -> int:
            admin = Admin(self._servers, runtime=runtime)
            found.append(len(await admin.list_partition_reassignments()))
            await admin.close()
            return 0

        run(work)
        return found[0]


def folders_of_topic(cluster: LocalCluster, node: Node) -> list[str]:
    """What a broker has of the topic, half-deleted folders included."""
    return sorted(path.name for path in cluster.data_folder(node).glob("t-*"))


def move(cluster: LocalCluster, targets: Mapping[int, Sequence[int]], victim: Node, load: Load) -> None:
    """Move all partitions; one broker is killed in the middle and comes back. Leavers keep nothing."""
    mover = Mover(cluster)
    if all(victim.node_id in replicas for replicas in targets.values()):
        cluster.pause(victim)  # they cannot end without it
        mover.begin(targets)
        wait_until(lambda: mover.moving() == len(targets))
    else:
        mover.begin(targets)
    cluster.kill([victim])
    time.sleep(1.0)
    cluster.start(victim)
    wait_until(lambda: mover.moving() == 0, 120)
    cluster.wait_ready([victim])
    watch(cluster.bootstrap_servers).wait_full_isr("t")
    described = watch(cluster.bootstrap_servers).describe("t")
    assert {row.partition_index: row.replicas for row in described.partitions} == dict(targets)
    load.wait_acked(200)
    for node in cluster.brokers:
        kept = [f"t-{index}" for index, replicas in targets.items() if node.node_id in replicas]
        wait_until(lambda node=node, kept=kept: folders_of_topic(cluster, node) == kept)  # type: ignore[misc]


def test_partitions_move_under_load_and_back_while_brokers_die(
    make_cluster: Callable[..., LocalCluster],
) -> None:
    """Nothing is lost, doubled or reordered; at every state of the metadata ELR and LastKnownELR name
    replicas only and R9 holds; who lost a replica has no log of it any more."""
    cluster = make_cluster(6, 1)
    servers = cluster.bootstrap_servers
    look = watch(servers)

    async def create(runtime: Runtime) -> int:
        admin = Admin(servers, runtime=runtime)
        await admin.create_topic("t", configs={"min.insync.replicas": "2"}, assignments=HOME)
        await admin.close()
        return 0

    run(create)
    look.wait_full_isr("t")
    # something to copy, so that a move takes its time
    before = produce(servers, "t", 20_000, name="before")
    with Observer(servers, "t") as seen, Load(servers, "t") as load:
        for number in range(ROUNDS):
            away, home = VICTIMS[number % len(VICTIMS)]
            move(cluster, AWAY, cluster.broker(away), load)
            move(cluster, HOME, cluster.broker(home), load)
    assert not load.answers.failed
    assert seen.states > 4 * ROUNDS
    assert_nothing_lost(servers, "t", PARTITIONS, before, load.answers)
    (controller,) = cluster.controllers
    told = history(cluster, controller, "t")
    assert sorted(told) == list(range(PARTITIONS))
    for index, states in told.items():
        for state in states:
            assert_sound(state.registration)
        assert states[-1].registration.replicas == HOME[index]
        logs = [log_of(cluster, cluster.broker(replica), "t", index) for replica in HOME[index]]
        assert all(log == logs[0] for log in logs), "replicas differ"
