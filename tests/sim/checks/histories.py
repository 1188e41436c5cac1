"""Small pieces of histories to show to properties: images, rows, changes, an observer of a world at rest."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from immutables import Map

from holdfast.broker.core.registration.known_brokers import KnownBrokers
from holdfast.broker.core.replicas.ceiling import Ceiling
from holdfast.broker.core.replicas.leadership import Leadership
from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.controller.core.decisions import Cause, CauseKind, Decision
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import ELR_FEATURE
from holdfast.sim.checks.observe.batches import BatchHistory, BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Change, Ghost, Property, ReplicaView
from holdfast.sim.cluster.world import ClusterSpec, Violation, World
from holdfast.sim.machine.choices import Choices
from holdfast.storage.core.leader_epoch_cache import LeaderEpochCache
from holdfast.storage.core.log_tap import LogTap

TOPIC_ID = bytes(15) + b"t"


def broker(number: int, *, epoch: int = 0, is_fenced: bool = False, leaves: bool = False) -> Any:
    """A registration."""
    incarnation_id = bytes(15) + bytes([number])
    return BrokerRegistration(
        number, epoch or number, incarnation_id, (), None, (), (), is_fenced, leaves, True
    )


def image(
    fenced: Iterable[int] = (),
    *,
    elr: bool = True,
    row: PartitionRegistration | None = None,
    epochs: dict[int, int] | None = None,
) -> Any:
    """Brokers 1 to 3, and a partition."""
    known = epochs or {}
    brokers = Map({n: broker(n, epoch=known.get(n, 0), is_fenced=n in fenced) for n in (1, 2, 3)})
    partitions = Map({0: row}) if row is not None else Map()
    assigned: Map[int, Map[PartitionId, None]] = Map()
    if row is not None:
        one: Map[PartitionId, None] = Map({PartitionId(TOPIC_ID, 0): None})
        assigned = Map(dict.fromkeys((1, 2, 3), one))
    return MetadataImage(
        offset=100,
        brokers=brokers,
        topics=Map({TOPIC_ID: TopicImage("t", TOPIC_ID, partitions)}),
        topic_ids=Map({"t": TOPIC_ID}),
        features=Map({ELR_FEATURE: int(elr)}),
        assigned=assigned,
    )


def row(**given: Any) -> PartitionRegistration:
    """Replicas 1 to 3, all in sync, led by 1, min ISR 2."""
    usual: dict[str, Any] = {
        "replicas": (1, 2, 3),
        "isr": (1, 2, 3),
        "leader": 1,
        "leader_epoch": 5,
        "partition_epoch": 20,
        "min_isr": 2,
    }
    return PartitionRegistration(**{**usual, **given})


def change(
    before: PartitionRegistration,
    kind: CauseKind = CauseKind.ALTER_PARTITION,
    cause_broker: int | None = None,
    reason: ElectionReason | None = None,
    *,
    fenced: Iterable[int] = (),
    logs: tuple[Any, ...] = (),
    **given: Any,
) -> Change:
    """The next row, with the next epochs unless others are given."""
    epochs = {
        "partition_epoch": before.partition_epoch + 1,
        "leader_epoch": before.leader_epoch + ("leader" in given and given["leader"] != before.leader),
    }
    after = replace(before, **{**epochs, **given})
    decision = Decision(Cause(kind, cause_broker, logs), reason, (), SetsRule.KEPT_BELOW_MIN_ISR)
    return Change(50, before, after, decision, image(fenced, row=before), PartitionId(TOPIC_ID, 0))


class Scene:
    """A world that was never booted, with one property that looks at it."""

    def __init__(self, one: Property, shape: ClusterSpec | None = None) -> None:
        self.world = World(shape or ClusterSpec(), Choices("scene"))
        #: its methods are those of the facts that it hears of
        self.property: Any = one
        self.seen = Observer(self.world, [one])
        self.seen.topics = {TOPIC_ID: 0}
        self.ghost = self.seen.ghosts[0] = Ghost(row=row())
        self.set_image(image(row=self.ghost.row))

    def set_image(self, committed: MetadataImage) -> None:
        """What the quorum has committed."""
        quorum = self.seen.quorum
        quorum.image = committed
        quorum.end_offset = committed.offset
        quorum.images[committed.offset] = committed

    def violation(self, tell: Any) -> str | None:
        """What the property says when it is told something."""
        try:
            tell()
        except Violation as violation:
            return str(violation)
        return None


class SceneLog:
    """Where a log stands, without a disk."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.failure: object = None
        self.folder = "/data/t-0"
        self.leader_epoch_cache = LeaderEpochCache()
        self.taps: list[LogTap] = []

    @property
    def last_epoch(self) -> int:
        latest = self.leader_epoch_cache.latest
        return -1 if latest is None else latest.epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self.leader_epoch_cache.end_offset_for(epoch, self.log_end_offset)


def mark(offset: int, epoch: int = 5, crc: int = 0) -> BatchMark:
    """A batch of one record."""
    return BatchMark(offset, epoch, offset, crc, 100)


def view_of(scene: Scene, broker_id: int, batches: Iterable[BatchMark] = (), **given: Any) -> ReplicaView:
    """A replica of a broker whose process runs, with these batches in its log."""
    sim_broker = scene.world.brokers[broker_id - 1]
    if not hasattr(sim_broker, "process"):
        sim_broker.process = scene.world.loop.process(f"b{broker_id}.1")
    log: Any = SceneLog()
    key = PartitionId(TOPIC_ID, 0)
    replica = Partition(
        broker_id,
        key,
        "t",
        log,
        high_watermark=0,
        brokers=KnownBrokers(),
        lag_ms_max=1000,
        ceiling=Ceiling(100, -1),
        counts_flushed=False,
    )
    history = BatchHistory(log)
    view = ReplicaView(sim_broker, sim_broker.process, 0, replica, log, history, bytes(16))
    grow(view, batches)
    for name, value in given.items():
        setattr(view, name, value)
    replica.high_watermark = view.high_watermark
    scene.seen.replicas.setdefault(0, {})[broker_id] = view
    return view


def grow(view: ReplicaView, batches: Iterable[BatchMark]) -> list[BatchMark]:
    """Append; returns what was appended."""
    new = list(batches)
    log: Any = view.log
    for batch in new:
        log.leader_epoch_cache.assign(batch.leader_epoch, batch.base_offset)
        log.log_end_offset = batch.last_offset + 1
    view.history.batches += new
    view.end_offset = view.history.end_offset = log.log_end_offset
    return new


def cut(view: ReplicaView, end_offset: int) -> None:
    """Cut the log to end there."""
    log: Any = view.log
    batches = view.history.batches
    view.history.cut = []
    while batches and batches[-1].last_offset >= end_offset:
        view.history.cut.append(batches.pop())
    log.log_end_offset = view.end_offset = view.history.end_offset = end_offset
    log.leader_epoch_cache.truncate_from_end(end_offset)


def leads(view: ReplicaView, epoch: int = 5, start_offset: int | None = 0, **given: Any) -> ReplicaView:
    """Make it the leader of that epoch."""
    view.role = view.replica.role = Role.LEADER
    registration = row(leader=view.broker.node_id, leader_epoch=epoch, **given)
    view.registration = view.replica.registration = registration
    view.leadership = view.replica.leadership = Leadership(epoch, {}, registration.isr)
    view.leadership.start_offset = start_offset
    view.maximal_isr = view.leadership.maximal_isr
    return view


def follows(view: ReplicaView, epoch: int = 5, **given: Any) -> ReplicaView:
    """Make it a follower in that epoch."""
    view.role = view.replica.role = Role.FOLLOWER
    view.registration = view.replica.registration = row(leader_epoch=epoch, **given)
    view.leadership = view.replica.leadership = None
    return view


def before(view: ReplicaView, **given: Any) -> Before:
    """As it is, but for what is given."""
    same = Before(
        view.registration,
        view.leadership,
        view.role,
        view.high_watermark,
        view.end_offset,
        view.flushed_offset,
        view.proposal,
    )
    return replace(same, **given)
