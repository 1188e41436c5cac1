"""A whole cluster out of one seed: real brokers, controllers and clients on simulated machines.

Owns the machines, how they are configured (durations scaled down, all by configuration keys) and how time is
passed. What befalls the cluster is in `sim.faults.table`, what must be true of it in
`sim.checks.history_rules`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from holdfast.broker.core.replicas.partition import Partition
from holdfast.client.producer import Acks, Producer
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.offsets_topic import OFFSETS_TOPIC_CONFIGS
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from holdfast.runtime.api import Runtime
from holdfast.sim.cluster.nodes import (
    BROKER_PORT,
    CONTROLLER_PORT,
    SimBroker,
    SimClient,
    SimController,
    SimNode,
    Surroundings,
)
from holdfast.sim.load import clients, recreated_topic
from holdfast.sim.load.group_members import GroupHistory, group_member
from holdfast.sim.load.invalid_requests import InvalidRequest, invalid_request_client
from holdfast.sim.load.operators import OperatorQueue
from holdfast.sim.load.seeking_reader import ReadSpan, seeking_reader
from holdfast.sim.load.single_node_client import FreshAnswers, single_node_client
from holdfast.sim.machine.choices import Choices, Stream, one_in
from holdfast.sim.machine.disk import LOG_DIRS, SimDisk
from holdfast.sim.machine.loop import make_loop
from holdfast.sim.machine.network import SimNetwork
from holdfast.sim.machine.page_cache import Personality
from holdfast.sim.machine.runtime import HandlerDelay, Machine
from holdfast.sim.machine.trace import Trace

_MS = 1_000_000
#: the client that carries out what operators are asked for
OPERATORS = "operators"
#: the one that asks each controller alone
ASKER = "asker"
INTRUDER = "intruder"
FIRST_VOTER = 101
_STRICT = (Personality.STRICT, Personality.EXT4, Personality.NODELALLOC, Personality.XFS)
IN_BUDGET = (*_STRICT, Personality.JOURNALLED, Personality.METADATA, Personality.ADVERSARIAL)

#: of topics that count what is not durable
_FLUSH_POLICIES = (("flush.ms", "9223372036854775807"), ("flush.ms", "50"), ("flush.messages", "3"))
#: Kafka's durations, made short. Ratios between them stay about the same.
BROKER_PROPERTIES = {
    "broker.heartbeat.interval.ms": "300",
    "initial.broker.registration.timeout.ms": "60000",
    "holdfast.controlled.shutdown.timeout.ms": "5000",
    "replica.lag.time.max.ms": "2000",
    "holdfast.replica.silent.ms": "700",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "2000",
    "holdfast.leader.silence.max.ms": "300",
    "request.timeout.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "holdfast.ceiling.records": "20",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.segment.bytes": "20000",
    # tests/unit/broker/test_scrubber.py has it
    "holdfast.log.scrub.interval.hours": "0",
}
CONTROLLER_PROPERTIES = {"broker.session.timeout.ms": "1500"}
#: of metadata log between two snapshots, in stories that have some: some ten records
_SNAPSHOT_BYTES = "1000"
#: of stories with a consumer group
GROUP_PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
_GROUP_ASSIGNORS = ("range", "cooperative-sticky", "roundrobin")
_OFFSETS_PARTITIONS = 2
#: what no story is long enough for otherwise
SHORT_INTERVALS = {
    "unclean.recovery.timeout.ms": "800",
    "unclean.leader.election.interval.ms": "1000",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "30",
}
QUORUM_PROPERTIES = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "500",
    "controller.quorum.request.timeout.ms": "1000",
}


#: (acks, idempotent) of producers, in turn
_KINDS: tuple[tuple[Acks, bool], ...] = (("all", True), ("all", False), ("all", True), (1, True), (0, False))
_REMADE_ACKS: tuple[Acks, ...] = ("all", 1, "all")
#: with so many producers there is one of each kind
PRODUCER_KINDS = len(_KINDS)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a run consists of. Everything else is drawn from its seed."""

    brokers: int = 3
    voters: int = 3
    partitions: int = 4
    replicas: int = 3
    min_isr: int = 2
    producers: int = 4
    #: most that a producer waits between two sends; unless all are alike, one in four waits less
    send_gap_ms: int = 350
    producers_alike: bool = False
    #: those beyond the first have sizes of their own, drawn
    topics: int = 1
    readers: int = 1
    #: that seek
    wanderers: int = 0
    #: members of a consumer group; beyond none, its offsets are flushed before they count
    members: int = 0
    #: a topic is deleted and made again under load
    remakes: bool = False
    #: brokers are spread over so many; 0: they know of none
    racks: int = 0
    #: every write is flushed before it counts: any number of power cuts is in budget (G-3)
    every_write: bool = False
    #: of each broker
    log_dirs: int = 1
    #: logs are compared before an unclean election
    recovery_manager: bool = False
    #: eligible leader replicas are on; without them the last replica standing leads
    elr: bool = True
    #: ELR is switched off and on while the cluster runs; what is lost meanwhile is as without it
    switches_elr: bool = False
    #: any broker may lose what it has not flushed, at any time (G-4)
    over_budget: bool = False
    #: beyond the budget, but by one broker only
    on_edge: bool = False
    #: over the budget: one flush in three of a broker's log is a lie (P7)
    disks_lie: bool = False
    #: logs are kept short: their beginning is deleted over and over
    retention: bool = False
    #: a follower's fetch brings it one batch
    small_fetches: bool = False
    #: what controllers do, or wait for, minutes long takes a second
    short_intervals: bool = False
    #: each node is asked alone, too
    asks_alone: bool = False
    #: an intruder sends to every node what no correct peer does
    intrudes: bool = False
    #: operators do more than at the reference load: what the whole cluster is configured to, and flushes
    more_acts: bool = False
    #: handles take time, now and then
    strained: bool = False
    #: a majority of the voters and some brokers are healed first, and must do without the others
    core_first: bool = False
    #: one voter is lost to the end, though all else is healed
    loses_voter: bool = False
    #: the disks of voters are replaced by empty ones, and operators remove these voters and add them again
    replaces_voters: bool = False
    #: every node makes a snapshot of the metadata each ten records, and its log begins there
    snapshots: bool = False
    #: limits that only big clusters reach are drawn from tiny values (`sim.cluster.limits`)
    tiny_limits: bool = False


def controller_endpoint(node_id: int) -> str:
    """Where a controller is reached."""
    return f"c{node_id}:{CONTROLLER_PORT}"


def varied(shape: ClusterSpec, stream: Stream) -> ClusterSpec:
    """The shape with more of what a cluster may have: brokers beyond the replicas, topics, racks, readers."""
    draw = stream.draw
    return replace(
        shape,
        brokers=shape.brokers + (0, 0, 0, 1, 2)[draw(5)],
        topics=(1, 1, 2, 3)[draw(4)],
        readers=(1, 1, 2)[draw(3)],
        racks=(0, 0, 2, 3)[draw(4)],
        recovery_manager=draw(2) == 1,
        # With as many as there are replicas the ELR fills while others are still in sync.
        min_isr=max(shape.min_isr, (0, 0, 0, shape.replicas)[draw(4)])
        if shape.min_isr > 1
        else shape.min_isr,
        log_dirs=(1, 1, 2)[draw(3)],
    )


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with load as it is made."""

    number: int
    partitions: int
    replicas: int
    min_isr: int
    #: every write is flushed before it counts
    every_write: bool
    configs: dict[str, str]

    @property
    def name(self) -> str:
        return clients.topic_name(self.number)

    @property
    def first_place(self) -> int:
        return self.number * clients.PLACES_PER_TOPIC


class Violation(AssertionError):
    """A property does not hold. The text names it first."""


class World:
    """The machines of one run."""

    def __init__(
        self, shape: ClusterSpec, choices: Choices, sink: Callable[[str], object] | None = None
    ) -> None:
        self.shape = shape
        self.choices = choices
        draw = choices.stream("world").draw
        self.loop = make_loop(choices.stream("sched"), step_ns=1_000 + draw(20_000))
        self.trace = Trace(lambda: self.loop.now_ns, sink)
        self.network = SimNetwork(self.loop, choices.stream("net"), self.trace)
        self.around = Surroundings(self.loop, self.network, self.trace, choices.seed)
        if shape.strained:
            self.around.handler_delay = HandlerDelay(self.loop, choices.stream("strain"))
        self.network.cuts_reads = draw(10) == 9
        #: how much slower than a rack's links and disks these are
        self._link_factor = (1, 1, 5, 20)[draw(4)]
        self._disk_factor = (1, 1, 5, 30)[draw(4)]
        voters = range(FIRST_VOTER, FIRST_VOTER + shape.voters)
        self._common = {
            "holdfast.cluster.id": "simulated",
            "controller.quorum.voters": ",".join(f"{id}@{controller_endpoint(id)}" for id in voters),
            "min.insync.replicas": str(shape.min_isr),
            **QUORUM_PROPERTIES,
        }
        if shape.snapshots:
            self._common["metadata.log.max.record.bytes.between.snapshots"] = _SNAPSHOT_BYTES
        self.controllers = [self._controller(voter) for voter in voters]
        self.brokers = [self._broker(number) for number in range(1, shape.brokers + 1)]
        self.nodes: list[SimNode] = [*self.controllers, *self.brokers]
        self.topics = [self._topic(number) for number in range(shape.topics)]
        self.load = clients.Load(
            ",".join(f"{broker.name}:{BROKER_PORT}" for broker in self.brokers),
            [t.first_place + index for t in self.topics for index in range(t.partitions)],
        )
        #: topics whose flushes operators have changed: what counted before need not be durable
        self.reflushed: set[str] = set()
        #: {place: below which records were asked to be deleted, and were told to be}
        self.asked_deletions: dict[int, int] = {}
        self.told_deletions: dict[int, int] = {}
        #: names of voters that are lost to the end: liveness does not wait for them
        self.lost: set[str] = set()
        self.read_spans: list[ReadSpan] = []
        self.group = GroupHistory()
        #: of nodes that were asked alone
        self.heard = FreshAnswers()
        #: what the intruder was answered since the observer last looked
        self.intrusions: list[InvalidRequest] = []
        self.operator_queue = OperatorQueue(self.trace, self.load.bootstrap)
        self.clients: list[SimClient] = []
        self.producer_machines: dict[str, Machine] = {}
        #: ERROR lines of nodes, for the report
        self.errors: list[str] = []

    def _retention(self) -> dict[str, str]:
        """How much is kept of the logs of a topic, if not all."""
        if not self.shape.retention:
            return {}
        draw = self.choices.stream("retention").draw
        configs = {"segment.bytes": str(1_024 + draw(3_000)), "retention.bytes": str(draw(6_000))}
        draw = self.choices.stream("retention.time").draw
        if draw(2):
            # Shorter than a partition is without a leader at times: all that it has expires then.
            configs["retention.ms"] = str((150, 500, 1_500, 4_000)[draw(4)])
        return configs

    def _topic(self, number: int) -> Topic:
        shape = self.shape
        if number == 0:
            configs = {"flush.messages": "1"} if shape.every_write else {}
            configs |= self._retention()
            return Topic(0, shape.partitions, shape.replicas, shape.min_isr, shape.every_write, configs)
        draw = self.choices.stream("topics").draw
        replicas = min((3, 3, 2, 4, 1)[draw(5)], shape.brokers)
        min_isr = 1 + draw(replicas)
        # One whose copy is not durable may be the only one to have a record: no power cut was in budget.
        every_write = shape.every_write or min_isr == 1 or draw(4) == 3
        configured = min_isr
        if min_isr == replicas and self.choices.stream("topics.more").draw(3) == 1:
            configured += 1  # as many as there are count then
        configs = {"min.insync.replicas": str(configured), **self._retention()}
        if every_write:
            configs["flush.messages"] = "1"
        else:
            key, value = _FLUSH_POLICIES[draw(len(_FLUSH_POLICIES))]
            configs[key] = value
        return Topic(number, 1 + draw(2), replicas, min_isr, every_write, configs)

    # --- machines --------------------------------------------------------------------------------------

    def _machine(self, name: str) -> Machine:
        sim_disk = SimDisk(self.loop, self.choices.stream("disk"), self.trace, name)
        sim_disk.personality = IN_BUDGET[self.choices.stream("world").draw(len(IN_BUDGET))]
        sim_disk.usual_more_ns = sim_disk.flush_more_ns = 800_000 * self._disk_factor
        machine = Machine(self.network.add_host(name), sim_disk)
        draw = self.choices.stream("world").draw
        for one, other, link in self.network.links():
            if machine.host in (one, other):
                link.low_ns = 50_000 + draw(300_000 * self._link_factor)
                link.mean_ns = draw(500_000 * self._link_factor)
        return machine

    def _drift_ppm(self) -> int:
        world = self.choices.stream("world")
        return world.draw(400) - 200 if one_in(world, 4) else 0

    def _broker(self, number: int) -> SimBroker:
        properties = {
            **self._common,
            **BROKER_PROPERTIES,
            "node.id": str(number),
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://b{number}:{BROKER_PORT}",
            "log.dirs": ",".join(LOG_DIRS[: self.shape.log_dirs]),
            "metadata.log.dir": "/metadata",
        }
        if self.shape.retention:
            properties["log.retention.check.interval.ms"] = "1500"
            # Its pass forgets silent producers, by a wall clock that faults put forward by days.
            properties["producer.id.expiration.ms"] = "2147483647"
        if self.shape.short_intervals:
            properties["holdfast.log.dir.stall.ms"] = "1000"
        if self.shape.small_fetches:
            properties["replica.fetch.response.max.bytes"] = "1"
        if self.shape.tiny_limits:
            properties["log.index.interval.bytes"] = "1"
        if self.shape.members:
            properties |= GROUP_PROPERTIES
        if self.shape.racks:
            properties["broker.rack"] = f"r{number % self.shape.racks}"
        broker = SimBroker(self.around, self._machine(f"b{number}"), number, properties)
        broker.drift_ppm = self._drift_ppm()
        if self.shape.disks_lie:
            broker.machine.sim_disk.personality, broker.machine.sim_disk.lies_one_in = Personality.LYING, 3
        return broker

    def _controller(self, voter: int) -> SimController:
        properties = {
            **self._common,
            **CONTROLLER_PROPERTIES,
            "unclean.recovery.manager.enabled": str(self.shape.recovery_manager).lower(),
            "eligible.leader.replicas.enabled": str(self.shape.elr or self.shape.switches_elr).lower(),
            "node.id": str(voter),
            "process.roles": "controller",
            "listeners": f"CONTROLLER://c{voter}:{CONTROLLER_PORT}",
            "log.dirs": "/data",
            **(SHORT_INTERVALS if self.shape.short_intervals else {}),
            **({"holdfast.quorum.joins": "true"} if self.shape.replaces_voters else {}),
        }
        controller = SimController(self.around, self._machine(f"c{voter}"), voter, properties)
        controller.drift_ppm = self._drift_ppm()
        return controller

    def start_client(self, name: str, program: Callable[[Runtime], object]) -> SimClient:
        """A client program on a machine of its own, running at once."""
        client = SimClient(self.around, self._machine(name), len(self.clients), program)
        client.machine.sim_disk.personality = Personality.STRICT
        self.clients.append(client)
        client.boot()
        return client

    # --- life ------------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start every node and make the topics. Raises: Violation when they do not come to be."""
        for node in self.nodes:
            node.boot()
        self.eventually("L-1 the cluster comes up", lambda: all(broker.is_ready for broker in self.brokers))
        topics = [clients.NewTopic(t.name, t.partitions, t.replicas, t.configs) for t in self.topics]
        if self.shape.members:
            configs = {**OFFSETS_TOPIC_CONFIGS, "flush.messages": "1"}
            offsets = clients.NewTopic(OFFSETS_TOPIC, _OFFSETS_PARTITIONS, self.shape.replicas, configs)
            topics.append(offsets)
        self.start_client("admin", clients.creator(self.load, topics))
        self.eventually("L-9 the topic is made", lambda: self.load.is_created and self._has_leaders())

    def _has_leaders(self) -> bool:
        rows = self.partitions()
        return len(rows) >= len(self.load.places) and all(row.leader is not None for _, row in rows)

    def start_load(self) -> None:
        """Producers of every kind in turn, consumers, and operators who wait to be asked."""
        work = self.choices.stream("work")
        servers = self.load.bootstrap.split(",")
        for number in range(self.shape.producers):
            acks, idempotent = _KINDS[number % len(_KINDS)]
            name = f"p{number}"
            first = number % len(servers)
            make = partial(
                Producer,
                servers[first:] + servers[:first],  # each asks another broker for its id (D12)
                acks=acks,
                idempotent=idempotent,
                linger_ms=work.draw(10),
                delivery_timeout_ms=clients.DELIVERY_TIMEOUT_MS,
                request_timeout_ms=2_000,
                max_block_ms=5_000,
            )
            longest_ms = self.shape.send_gap_ms
            shortest_ms = longest_ms if self.shape.producers_alike else min(100, longest_ms)
            gap_ms = (longest_ms, longest_ms, longest_ms, shortest_ms)[work.draw(4)]
            echo = self.choices.stream("echo") if self.shape.strained else None
            program = clients.producer(self.load, name, work, make, gap_ms, echo)
            self.producer_machines[name] = self.start_client(name, program).machine
        for number in range(self.shape.readers):
            self.start_client(f"reader{number or ''}", clients.consumer(self.load))
        for number in range(self.shape.wanderers):
            stream = self.choices.stream("wander")
            self.start_client(f"reader-w{number}", seeking_reader(self.load, self.read_spans, stream))
        if self.shape.members:
            stream = self.choices.stream("members")
            assignor = _GROUP_ASSIGNORS[stream.draw(len(_GROUP_ASSIGNORS))]
            for number in range(self.shape.members):
                program = group_member(self.load, self.group, stream, f"m{number}", assignor)
                self.start_client(f"member{number}", program)
        if self.shape.remakes:
            self._start_remaking()
        if self.shape.asks_alone:
            stream = self.choices.stream("asker")
            program = single_node_client(self.load, self.heard, stream, self.controllers, self.brokers)
            self.start_client(ASKER, program)
        if self.shape.intrudes:
            program = invalid_request_client(
                self.load,
                self.intrusions,
                self.choices.stream("intruder"),
                self.active_controller,
                self.brokers,
                self.controllers,
            )
            self.start_client(INTRUDER, program)
        self.operator_queue.open(self.start_client(OPERATORS, self.operator_queue.program))

    def _start_remaking(self) -> None:
        load, work = self.load, self.choices.stream("remade")
        self.start_client("remaker", recreated_topic.remaker(load, work, min(3, self.shape.brokers)))
        for number, acks in enumerate(_REMADE_ACKS):
            program = recreated_topic.churning_producer(load, work, acks)
            self.start_client(f"churner{number}", program)
        self.start_client("churning-consumer", recreated_topic.churning_consumer(load))

    def pass_time(self, duration_ms: float) -> None:
        """Let so much virtual time pass."""
        loop = self.loop
        end_ns = loop.now_ns + int(duration_ms * _MS)
        over: list[bool] = []
        loop.at_ns(end_ns, loop.kernel, over.append, True)
        loop.run(lambda: bool(over))
        self.check_bugs()

    def eventually(self, what: str, condition: Callable[[], bool], within_ms: int = 60_000) -> None:
        """Let time pass until it is so. Raises: Violation after `within_ms`."""
        for _ in range(0, within_ms, 20):
            if condition():
                return
            self.pass_time(20)
        raise Violation(f"{what}: not within {within_ms} ms")

    def check_bugs(self) -> None:
        """Raises: Violation when a node met its own bug."""
        if self.around.bugs:
            who, error = self.around.bugs[0]
            raise Violation(f"OwnBug {who}: {error!r}") from error

    # --- what checkers and faults look at --------------------------------------------------------------

    def broker(self, broker_id: int | None) -> SimBroker | None:
        """The machine that runs it."""
        return next((broker for broker in self.brokers if broker.node_id == broker_id), None)

    def partition(self, place: int) -> PartitionRegistration | None:
        """As committed; None without an active controller."""
        return dict(self.partitions()).get(place)

    def led_partitions(self) -> list[tuple[int, PartitionRegistration, SimBroker]]:
        """Places whose leader runs, with it."""
        rows = [(place, row, self.broker(row.leader)) for place, row in self.partitions()]
        return [(place, row, leader) for place, row, leader in rows if leader is not None and leader.is_up]

    def active_controller(self) -> SimController | None:
        """The one with the highest epoch of those that believe it."""
        active = [c for c in self.controllers if c.is_active and c.server is not None]
        return max(active, key=lambda c: c.server.driver.raft_epoch if c.server else 0, default=None)

    def image(self) -> MetadataImage | None:
        """What the active controller has committed."""
        controller = self.active_controller()
        return None if controller is None or controller.server is None else controller.server.core.committed

    def named_voters(self) -> dict[int, bytes]:
        """Directories of the voters that the metadata log names, as committed; empty without an active
        controller, and as long as the configuration names them."""
        active = self.active_controller()
        driver = None if active is None or active.server is None else active.server.driver
        if driver is None or driver._node is None:
            return {}
        named = driver._node.voters_below(driver.committed_offset)
        return {voter.voter_id: voter.directory_id for voter in named}

    def partitions(self) -> list[tuple[int, PartitionRegistration]]:
        """(place, registration) of partitions with load as committed; none without an active controller."""
        image = self.image()
        if image is None:
            return []
        return [
            (topic.first_place + index, row)
            for topic in self.topics
            if topic.name in image.topic_ids
            for index, row in image.topics[image.topic_ids[topic.name]].sorted_partitions()
        ]

    def replica(self, broker: SimBroker, place: int) -> Partition | None:
        """A broker's live replica of a partition."""
        node, image = broker.node, self.image()
        if not broker.is_up or node is None or not hasattr(node, "core") or image is None:
            return None
        topic, index = clients.partition_at(place)
        return node.core.partitions.get(PartitionId(image.topic_ids[topic], index))

    def close(self) -> None:
        """End the run; nothing may be asked of it afterwards."""
        self.loop.dispose()


#: how a controller tells of its own bug, after which another one shall try (D7)
_TOLD_BUGS = ("invariant broken", "committed record does not fit")
#: who tells that a task or a callback has failed, of clients too, for which no entry point waits
_OF_TASKS = "holdfast.tasks"


class _Lines(logging.Handler):
    """What nodes log becomes part of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        process = world.loop.current.name
        text = f"{process} {record.levelname} {record.name}: {record.getMessage()}"
        world.trace.add("log", text)
        if record.levelno >= logging.ERROR:
            world.errors.append(text)
            failure = record.exc_info[1] if record.name == _OF_TASKS and record.exc_info else None
            if failure is not None or any(told in text for told in _TOLD_BUGS):
                world.around.bugs.append((process, failure or AssertionError(record.getMessage())))


@contextmanager
def logs_of(world: World) -> Iterator[None]:
    """Take the nodes' log lines into the trace instead of the process's handlers."""
    logger = logging.getLogger("holdfast")
    level, propagates, handlers = logger.level, logger.propagate, logger.handlers
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [_Lines(world)]
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.propagate = propagates
        logger.handlers = handlers
