"""What operators ask for once all was healed: a topic is made, grown, configured, moved, led by another
and deleted, and each question must be answered as it is (L-10).

Owns the list, and what the true answers are; they are worked out from what the quorum has committed and from
the replicas themselves. The acts are at a topic of its own, so that nothing of the load changes; but what is
left of that stays from now on, however old it becomes while it is read.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from holdfast.client.admin import Admin
from holdfast.client.admin_configs import Resource
from holdfast.client.core.errors import RowError
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.compression import unpack_batch
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.record_batch import BatchHeader, decode_records, iter_batches
from holdfast.protocol.topic_names import TopicPartition
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import World
from holdfast.sim.load import operators
from holdfast.sim.load.clients import partition_at
from holdfast.sim.load.operators import Act

TOPIC = "z"
_TIMEOUT_MS = 2_500
_STRATEGY = "unclean.recovery.strategy"
_LATEST, _EARLIEST = -1, -2


class FinalOperation(NamedTuple):
    """What operators want; it is asked for again until it is fulfilled."""

    what: str
    act: Act
    is_fulfilled: Callable[[], bool]


def unblocking_operations(world: World) -> Iterator[FinalOperation]:
    """Where the strategy is to wait for an operator, an operator removes it: else no replica may lead. An
    operator also acts where no logs are compared and no replica is in sync, eligible or known to have led
    last: that one was unregistered (D8.9), or the partition had no leader when ELR was switched on (B9). And
    operators give up a damaged replica that may have been the last complete one."""
    for topic in world.topics:
        if _image(world).topic_config(topic.name, _STRATEGY) == "None":
            act = operators.set_config(Resource.topic(topic.name), _STRATEGY, None)
            yield _done(world, f"wait for no operator: {topic.name}", act)
    for place, row in world.partitions() if world.shape.over_budget else ():
        has_nobody = not row.isr and not row.elr and row.last_known_leader is None
        if row.leader is None and has_nobody and not world.shape.recovery_manager:
            partition = TopicPartition(*partition_at(place))
            act = operators.elect(ElectionKind.UNCLEAN, partition)
            yield _done(world, f"let anybody lead {partition}", act)
    for place, row in world.partitions() if world.shape.disks_lie else ():
        partition = TopicPartition(*partition_at(place))
        if row.leader is None and _is_damaged(world, partition):
            yield _done(
                world,
                f"give up what is damaged of {partition}",
                operators.elect(ElectionKind.UNCLEAN, partition),
            )


def _is_damaged(world: World, partition: TopicPartition) -> bool:
    topic_id = _image(world).topic_ids.get(partition.topic, b"")
    nodes = [broker.node for broker in world.brokers if broker.node is not None]
    return any((topic_id, partition.partition) in node.core.damaged_replicas for node in nodes)


def operations(world: World) -> Iterator[FinalOperation]:
    """In the order in which they are to be fulfilled."""
    for topic in world.topics:
        if "retention.ms" in topic.configs:
            act = operators.set_config(Resource.topic(topic.name), "retention.ms", "-1")
            yield _kept(world, topic.name, act)
    for what, act in _acts(world):
        yield _done(world, what, act)
    for what, ask, truth in _questions(world):
        yield _question(what, ask, truth)
    yield _done(world, f"drop {TOPIC}", operators.drop_topic(TOPIC))


def fulfil(world: World, operation: FinalOperation, within_ms: int) -> None:
    """Ask until it is so. Raises: Violation after `within_ms`."""
    asked: list[bool] = []

    def is_fulfilled() -> bool:
        if not world.operator_queue.is_idle:
            return False
        if asked and operation.is_fulfilled():
            return True
        asked.append(True)
        world.operator_queue.put(operation.what, operation.act)
        return False

    world.eventually(f"L-10 operators are served: {operation.what}", is_fulfilled, within_ms)


def _done(world: World, what: str, act: Act) -> FinalOperation:
    return FinalOperation(what, act, lambda: act.is_done(_image(world)))


def _kept(world: World, topic: str, act: Act) -> FinalOperation:
    """Done when every broker knows."""

    def is_kept() -> bool:
        image = _image(world)
        nodes = [broker.node for broker in world.brokers if broker.node is not None]
        logs = [row for node in nodes for row in node.log_manager.logs.items()]
        return act.is_done(image) and not any(
            topic_id == image.topic_ids.get(topic) and log.config.retention_ms is not None
            for (topic_id, _), log in logs
        )

    return FinalOperation(f"keep all of {topic}", act, is_kept)


def _acts(world: World) -> list[tuple[str, Act]]:
    ids = [broker.node_id for broker in world.brokers]
    first, topic = TopicPartition(TOPIC, 0), Resource.topic(TOPIC)
    home = ids[: min(2, len(ids))]
    away = ids[::-1][: len(home)]
    return [
        (f"make {TOPIC}", operators.make_topic(TOPIC, 2, len(home))),
        (f"add a partition to {TOPIC}", operators.add_partition(TOPIC, 3)),
        (f"configure {TOPIC}", operators.set_config(topic, "flush.messages", "7")),
        (f"move {first}", operators.move(first, home)),
        (f"move {first} away", operators.move(first, away)),
        (f"elect the preferred leader of {first}", operators.elect(ElectionKind.PREFERRED, first)),
        (f"take the configuration of {TOPIC} away", operators.set_config(topic, "flush.messages", None)),
    ]


def _question(what: str, ask: Callable[[Admin], Awaitable[Any]], truth: Callable[[], Any]) -> FinalOperation:
    answers: list[Any] = []

    async def run(client: Admin) -> None:
        answers.append(await ask(client))

    return FinalOperation(what, Act(run), lambda: bool(answers) and answers[-1] == truth())


def _questions(
    world: World,
) -> Iterator[tuple[str, Callable[[Admin], Awaitable[Any]], Callable[[], Any]]]:
    async def topics(client: Admin) -> object:
        return {
            (topic.name, row.partition_index): (
                row.leader_id,
                row.leader_epoch,
                row.partition_epoch,
                row.replicas,
                row.isr,
                row.eligible_leader_replicas or (),
                row.last_known_elr or (),
                row.min_isr,
                row.offline_replicas,
            )
            for topic in await client.describe_topics(timeout_ms=_TIMEOUT_MS)
            for row in topic.partitions
        }

    def true_topics() -> object:
        return {
            (topic.name, index): (
                -1 if row.leader is None else row.leader,
                row.leader_epoch,
                row.partition_epoch,
                row.replicas,
                row.isr,
                row.elr,
                row.last_known_elr,
                row.min_isr,
                (),
            )
            for topic in _image(world).topics.values()
            for index, row in topic.sorted_partitions()
        }

    yield "describe all topics", topics, true_topics

    async def moves(client: Admin) -> object:
        return await client.list_partition_reassignments(timeout_ms=_TIMEOUT_MS)

    yield "list reassignments", moves, lambda: {}

    async def cluster(client: Admin) -> object:
        found = await client.describe_cluster(timeout_ms=_TIMEOUT_MS)
        rows = [(row.broker_id, row.broker_epoch, row.is_fenced, row.rack) for row in found.brokers]
        return found.controller_id, rows

    def true_cluster() -> object:
        rows = _image(world).sorted_brokers()
        leader = world.active_controller()
        return None if leader is None else leader.node_id, [
            (row.broker_id, row.broker_epoch, row.is_fenced, row.rack) for row in rows
        ]

    yield "describe the cluster", cluster, true_cluster

    async def quorum(client: Admin) -> object:
        found = await client.describe_quorum(timeout_ms=_TIMEOUT_MS)
        return found.leader_id, [row.replica_id for row in found.voters]

    def true_quorum() -> object:
        leader = world.active_controller()
        return None if leader is None else leader.node_id, [node.node_id for node in world.controllers]

    yield "describe the quorum", quorum, true_quorum

    async def configs(client: Admin) -> object:
        names = [Resource.topic(topic.name) for topic in world.topics]
        found = await client.describe_configs(names, timeout_ms=_TIMEOUT_MS)
        return {
            resource: {entry.name: entry.value for entry in rows if entry.source == "TOPIC"}
            for resource, rows in found.items()
            if isinstance(rows, list)
        }

    def true_configs() -> object:
        known = _image(world).configs
        names = [Resource.topic(topic.name) for topic in world.topics]
        return {name: dict(known.get((name.kind, name.name), {})) for name in names}

    yield "describe the topics' configuration", configs, true_configs

    for stamp, what in ((_LATEST, "latest"), (_EARLIEST, "earliest")):
        yield f"list {what} offsets", *_offsets(world, stamp)
    if world.shape.more_acts:
        yield "list offsets by time", *_offsets_by_time(world)
    for broker in world.brokers:
        yield f"ask b{broker.node_id} for its logs", *_logs(world, broker.node_id)


def _offsets(world: World, stamp: int) -> tuple[Callable[[Admin], Awaitable[Any]], Callable[[], Any]]:
    async def ask(client: Admin) -> object:
        wanted: dict[tuple[str, int], int] = {partition_at(place): stamp for place, _ in world.partitions()}
        found = await client.list_offsets(wanted, timeout_ms=_TIMEOUT_MS)
        return {partition: row.offset for partition, row in found.items()}

    def truth() -> object:
        led = [(place, leader) for place, _, leader in world.led_partitions()]
        replicas = {partition_at(place): world.replica(leader, place) for place, leader in led}
        return {
            partition: replica.high_watermark if stamp == _LATEST else replica.log.log_start_offset
            for partition, replica in replicas.items()
            if replica is not None
        }

    return ask, truth


def _offsets_by_time(world: World) -> tuple[Callable[[Admin], Awaitable[Any]], Callable[[], Any]]:
    """Where a record in the middle of each log is, by its time, the newest of its batch; two are asked for in
    turn, that time and the next millisecond."""

    def batches(place: int, leader: SimBroker) -> list[tuple[BatchHeader, memoryview]]:
        replica, node = world.replica(leader, place), leader.node
        assert replica is not None
        assert node is not None
        log = node.log_manager.logs[replica.key]
        found: list[tuple[BatchHeader, memoryview]] = []
        offset = log.log_start_offset
        while offset < replica.high_watermark:
            found += iter_batches(log.read(offset, 1 << 20, replica.high_watermark))
            offset = found[-1][0].next_offset
        return found

    def first_offset(batch: memoryview, stamp: int) -> int:
        records = decode_records(unpack_batch(batch))
        return next(one.offset for one in records if one.timestamp_ms >= stamp)

    def wanted() -> dict[TopicPartition, tuple[int, int]]:
        """{partition: (a time, the first record that is not older)}"""
        found = {}
        for place, _, leader in world.led_partitions():
            every = batches(place, leader)
            if every:
                stamp = every[len(every) // 2][0].max_timestamp + place % 2
                young = next((batch for header, batch in every if header.max_timestamp >= stamp), None)
                found[partition_at(place)] = stamp, -1 if young is None else first_offset(young, stamp)
        return found

    async def ask(client: Admin) -> object:
        stamps: dict[tuple[str, int], int] = {partition: stamp for partition, (stamp, _) in wanted().items()}
        found = await client.list_offsets(stamps, timeout_ms=_TIMEOUT_MS)
        return {partition: row.offset for partition, row in found.items()}

    return ask, lambda: {partition: first for partition, (_, first) in wanted().items()}


def _logs(world: World, broker_id: int) -> tuple[Callable[[Admin], Awaitable[Any]], Callable[[], Any]]:
    """Of what it has a replica of."""

    def held() -> list[int]:
        return [place for place, row in world.partitions() if broker_id in row.replicas]

    async def ask(client: Admin) -> object:
        wanted = [partition_at(place) for place in held()]
        found = await client.get_replica_log_info(broker_id, wanted, timeout_ms=_TIMEOUT_MS)
        return {
            partition: (log.broker_epoch, log.leader_epoch, log.last_epoch, log.end_offset)
            for partition, log in found.items()
            if not isinstance(log, RowError)
        }

    def truth() -> object:
        broker = world.broker(broker_id)
        assert broker is not None
        replicas = {place: world.replica(broker, place) for place in held()}
        epoch = _image(world).brokers[broker_id].broker_epoch
        return {
            partition_at(place): (
                epoch,
                replica.leader_epoch,
                replica.log.last_epoch,
                replica.log.log_end_offset,
            )
            for place, replica in replicas.items()
            if replica is not None
        }

    return ask, truth


def _image(world: World) -> MetadataImage:
    """As committed; an empty one while the quorum has no leader."""
    return world.image() or MetadataImage()
