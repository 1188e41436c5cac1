"""Plays damage on a real cluster: many topics, each with its own damage, share one restart of one broker.

A cell is (what is damaged) x (where: the replica leads, follows, or is the last) x (how the broker stopped).
Each cell has a topic; all are damaged while broker 1 is down; then it is started again. What must hold is
asked of each cell by itself, but a broker that ends fails its whole round: play one with -k to see which.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError
from holdfast.client.core.history import make_value
from holdfast.client.producer import Producer
from holdfast.drills.demo.watch import ClusterWatch
from holdfast.localcluster.faults.fault import Fault
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from tests.e2e.load import wait_until
from tests.e2e.log_reading import log_of

LEADER, FOLLOWER, LAST = "leader", "follower", "last replica"
CLEAN, UNCLEAN = "clean", "unclean"
DAMAGED = 1
#: the first is the preferred leader
_REPLICAS = {LEADER: (DAMAGED, 2, 3), FOLLOWER: (2, DAMAGED, 3), LAST: (DAMAGED,)}
#: records of a topic, written in batches of a few: some segments with index entries and producer snapshots
_ROUNDS, _BATCH, _VALUE_BYTES = 12, 4, 256
_CONFIGS = {"segment.bytes": "4096", "index.interval.bytes": "512"}
_PATIENCE_S = 20.0

#: (cluster, stopped node, partition) -> the fault
Damage = Callable[[LocalCluster, Node, str], Fault]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of damage."""

    name: str
    damage: Damage
    #: a last replica still serves all of it: the log itself is whole
    is_derived: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table."""

    kind: Kind
    where: str
    start: str

    @property
    def topic(self) -> str:
        return f"{self.kind.name}.{self.where}.{self.start}".replace(" ", "-")

    def __str__(self) -> str:
        return f"{self.kind.name}, {self.where}, {self.start} start"


@dataclass(slots=True)
class Outcome:
    """What became of one cell."""

    #: what the fault said
    done: str
    #: deviations from what must happen; none: as it must be
    complaints: list[str] = field(default_factory=list)


def play(cluster: LocalCluster, cells: Sequence[Cell]) -> dict[Cell, Outcome]:
    """Damage all cells, which have the same kind of start, in one restart of broker 1."""
    (start,) = {cell.start for cell in cells}
    look = ClusterWatch(cluster.bootstrap_servers, _PATIENCE_S)
    node = cluster.broker(DAMAGED)
    for cell in cells:
        replicas = _REPLICAS[cell.where]
        configs = {**_CONFIGS, "min.insync.replicas": str(min(2, len(replicas)))}
        look.ask(
            lambda admin, cell=cell, replicas=replicas, configs=configs: admin.create_topic(  # type: ignore[misc]
                cell.topic, assignments={0: replicas}, configs=configs
            )
        )
        look.wait_full_isr(cell.topic)
    sent = _write(cluster.bootstrap_servers, [cell.topic for cell in cells])
    if start == CLEAN:
        cluster.stop([node])
    else:
        cluster.kill([node])
    outcomes = {cell: Outcome(cell.kind.damage(cluster, node, f"{cell.topic}-0").apply()) for cell in cells}
    pids = _pids(cluster)
    cluster.start(node)
    pids[node] = cluster.pid(node)
    try:
        cluster.wait_ready([node])
    except ClusterError as error:
        for outcome in outcomes.values():
            outcome.complaints.append(f"broker {DAMAGED} does not start: {error}")
        return outcomes
    for cell, outcome in outcomes.items():
        outcome.complaints += _judge(cluster, look, cell, sent[cell.topic])
    for one, pid in pids.items():
        if cluster.pid(one) != pid:
            for outcome in outcomes.values():
                outcome.complaints.append(f"{one.name} has ended: {cluster.last_words(one, 3)}")
    return outcomes


def _judge(cluster: LocalCluster, look: ClusterWatch, cell: Cell, sent: dict[int, bytes]) -> Iterable[str]:
    """What is not as it must be, for one cell."""
    if cell.where == LAST:
        return _judge_last(cluster, cell, sent)
    try:
        look.wait_full_isr(cell.topic)
        if cell.where == LEADER:
            partition = TopicPartition(cell.topic, 0)
            look.ask(lambda admin: admin.elect_leaders(ElectionKind.PREFERRED, [partition]))
    except (ClusterError, ClientError) as error:
        return [f"not in sync again: {error}"]
    complaints = list(missing(cluster.bootstrap_servers, cell.topic, sent))
    if not complaints and cell.where == LEADER:
        complaints += _not_healed(cluster, look, cell)
    return complaints


def _judge_last(cluster: LocalCluster, cell: Cell, sent: dict[int, bytes]) -> Iterable[str]:
    """No other replica can give anything back: derived files are made again, content is not made up."""
    if cell.kind.is_derived:
        return missing(cluster.bootstrap_servers, cell.topic, sent)
    return wrong(cluster.bootstrap_servers, cell.topic, sent)


def _not_healed(cluster: LocalCluster, look: ClusterWatch, cell: Cell) -> Iterable[str]:
    """Why the damaged replica is not what the others are, after all of it was read."""
    replicas = [cluster.broker(id) for id in _REPLICAS[cell.where]]

    def is_healed() -> bool:
        logs = [log_of(cluster, node, cell.topic, 0) for node in replicas]
        return logs[0] == logs[1] == logs[2] and len(look.describe(cell.topic).partitions[0].isr) == 3

    try:
        wait_until(is_healed, _PATIENCE_S)
    except AssertionError:
        ends = {node.name: len(log_of(cluster, node, cell.topic, 0)) for node in replicas}
        row = look.describe(cell.topic).partitions[0]
        return [f"not healed: whole batches {ends}, leader {row.leader_id}, ISR {row.isr}"]
    return []


def _pids(cluster: LocalCluster) -> dict[Node, int | None]:
    return {node: cluster.pid(node) for node in cluster.nodes}


# --- records -----------------------------------------------------------------------------------------------


def _write(bootstrap_servers: str, topics: Sequence[str]) -> dict[str, dict[int, bytes]]:
    """`{topic: {offset: value}}` of what was acknowledged, with acks=all, in several batches a topic."""
    sent: dict[str, dict[int, bytes]] = {topic: {} for topic in topics}

    async def work(runtime: Runtime) -> int:
        producer = Producer(bootstrap_servers, acks="all", runtime=runtime)
        await producer.start()
        for number in range(_ROUNDS):
            waiting = [
                (topic, value, await producer.submit(topic, value))
                for topic in topics
                for value in (
                    make_value(topic, number * _BATCH + index, _VALUE_BYTES) for index in range(_BATCH)
                )
            ]
            await producer.flush()
            for topic, value, delivery in waiting:
                sent[topic][delivery.result().offset] = value
        await producer.close()
        return 0

    run(work)
    return sent


def read(bootstrap_servers: str, topic: str, count: int) -> tuple[dict[int, bytes], str]:
    """(`{offset: value}`, why it is not all): what a consumer gets within its patience."""
    found: dict[int, bytes] = {}
    problem: list[str] = []

    async def work(runtime: Runtime) -> int:
        deadline = runtime.clock.now_ms() + _PATIENCE_S * 1000
        while len(found) < count and runtime.clock.now_ms() < deadline:
            consumer = Consumer(bootstrap_servers, runtime=runtime)
            try:
                consumer.assign([(topic, 0)])
                consumer.seek_to_beginning((topic, 0))
                while len(found) < count and runtime.clock.now_ms() < deadline:
                    for record in await consumer.poll(1_000, 1_000):
                        found[record.offset] = record.value or b""
            except ClientError as error:  # once more: leadership moves to a whole replica
                problem[:] = [str(error)]
                await runtime.clock.sleep(100)
            finally:
                await consumer.close()
        return 0

    run(work)
    return found, "; ".join(problem)


def missing(bootstrap_servers: str, topic: str, sent: dict[int, bytes]) -> Iterable[str]:
    """Acknowledged records that cannot be read, or read otherwise."""
    found, problem = read(bootstrap_servers, topic, len(sent))
    if found == sent:
        return []
    return [f"{len(sent)} records were acknowledged, {len(found.keys() & sent.keys())} are read; {problem}"]


def wrong(bootstrap_servers: str, topic: str, sent: dict[int, bytes]) -> Iterable[str]:
    """Records that are read but were never sent so."""
    found, _ = read(bootstrap_servers, topic, 1)
    return [
        f"offset {offset} holds what was not sent" for offset in found if found[offset] != sent.get(offset)
    ]
