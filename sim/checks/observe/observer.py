"""Looks at every node after each of its steps, and tells the properties what has changed.

Owns the ghost state that no node has: what the quorum has committed, the highest high watermark that any
leader reached, what is below it. Reads the nodes' own objects between two steps, outside of virtual time;
draws nothing and changes nothing. What cores were asked and have answered `sim.checks.observe.taps` has
noted. A step in which no core was called costs one comparison.
"""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.runtime.api import DiskError
from holdfast.sim.checks.bands import LossEvidence, excuse
from holdfast.sim.checks.observe import facts
from holdfast.sim.checks.observe.batches import BatchHistory, BatchMark
from holdfast.sim.checks.observe.coverage_marks import Marks
from holdfast.sim.checks.observe.durable_files import has_dropped_pages, has_ended_cleanly
from holdfast.sim.checks.observe.quorum_log import QuorumLog
from holdfast.sim.checks.observe.taps import BrokerTap, ControllerTap, TapRecord, VoterTap
from holdfast.sim.checks.observe.views import NO_PLACE, Before, Change, Ghost, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimBroker, SimController, SimNode, State
from holdfast.sim.cluster.world import ASKER, INTRUDER, OPERATORS, Violation, World
from holdfast.sim.load.clients import PLACES_PER_TOPIC, REMADE, first_place_of, name_at, partition_at


class Observer:
    """Everything that can be seen of a world."""

    def __init__(self, world: World, properties: Sequence[Property]) -> None:
        self.world = world
        self.marks = Marks(world.shape)
        self.quorum = QuorumLog()
        #: place of partition 0 of each topic that has load
        self.topics: dict[bytes, int] = {}
        self.ghosts: dict[int, Ghost] = {}
        #: {place: {broker id: its replica}}, also of brokers that are down
        self.replicas: dict[int, dict[int, ReplicaView]] = {}
        #: looks that found something new
        self.changes = 0
        #: {(property, rule that allows it): partitions on which it was broken}
        self.allowed: dict[tuple[str, str], set[int]] = {}
        #: {(rule of the history, rule that allows it): rows}
        self.allowed_rows: dict[tuple[str, str], int] = {}
        #: what a voter looked like after its last step
        self._voters: dict[int, tuple[object, int, int, bool]] = {}
        self._images: dict[str, MetadataImage] = {}
        #: names of brokers' processes that have taken their roles
        self._placed: set[str] = set()
        #: topics that the quorum has committed, when they were last looked at
        self._topics_seen: object = None
        self._remade_count = 0

        self._hearers = facts.hearers([self.marks, *properties])
        self._on_row = facts.hearers([one for one in properties if one.judges_rows])[facts.PartitionChanged]
        world.around.watch = self._watcher
        world.around.ending = self._ends

    def tell(self, fact: tuple[Any, ...]) -> None:
        """Each property that hears of it looks at it now. Raises: Violation."""
        for hears in self._hearers[type(fact)]:
            hears(self, *fact)

    @property
    def image(self) -> MetadataImage:
        """What the quorum has committed, known to all nodes or to few."""
        return self.quorum.image

    def broken(self, one: Property, index: int | None, story: str) -> None:
        """A property does not hold. Raises: Violation, unless a rule allows it in this band."""
        rule = excuse(one, self.world.shape, self.evidence(index))
        place = "" if index in (None, NO_PLACE) else f" partition {index}"
        if rule is None:
            raise Violation(f"{one.name}{place}: {story}")
        self.allowed.setdefault((one.name, rule), set()).add(-1 if index is None else index)

    def evidence(self, index: int | None) -> LossEvidence:
        """What is known of losses of a partition; of the whole cluster without one."""
        broken = [broker.machine.sim_disk.broken for broker in self.world.brokers]
        if index is None:
            return LossEvidence(None, any(broken), False)
        ghost = self.ghosts.get(index, Ghost())
        views = self.replicas.get(index, {}).values()
        # by its name: of a log that was put aside there is no view
        name = "" if index == NO_PLACE else name_at(index)
        has_lied = any(folder.rpartition("/")[2] == name for folders in broken for folder in folders)
        is_shorter = any(v.survives is not None and v.survives < v.end_offset for v in views)
        return LossEvidence(ghost.unclean, has_lied, ghost.has_lost_tail or is_shorter)

    def losses(self) -> dict[str, int]:
        """What was broken and allowed: of properties how many partitions, of rules how many rows."""
        counts = {key: len(indexes) for key, indexes in sorted(self.allowed.items())}
        return {f"{name} ({rule})": count for (name, rule), count in {**counts, **self.allowed_rows}.items()}

    def _watcher(self, node: SimNode) -> Callable[[], None] | None:
        """What runs after each step of the process that boots now."""
        self._images.pop(node.name, None)
        if isinstance(node, SimBroker):
            heard = TapRecord(node)
            return lambda: self._look_at_broker(node, heard)
        if isinstance(node, SimController):
            self._voters.pop(node.node_id, None)
            heard = TapRecord(node)
            return lambda: self._look_at_controller(node, heard)
        if node.name.startswith(("reader", "last")):
            return self._handing_on(self.world.load.fresh, facts.Consumed)
        if node.name == OPERATORS:
            return self._look_at_acts
        if node.name == ASKER:
            return self._handing_on(self.world.heard.fresh, facts.NodeAnswered)
        if node.name == INTRUDER:
            return self._handing_on(self.world.intrusions, facts.Intruded)
        return None

    def is_live(self, view: ReplicaView) -> bool:
        """Its process runs, and its registration is the one that the cluster has agreed on."""
        broker = view.broker
        registration = self.quorum.image.brokers.get(broker.node_id)
        return (
            registration is not None
            and view.survives is None
            and not view.process.is_dead
            and view.process is broker.process
            and broker.node is not None
            and broker.node.core.lifecycle.broker_epoch == registration.broker_epoch
        )

    def counts_durable(self, view: ReplicaView) -> bool:
        """What counts in this replica is durable, and has always been."""
        return view.replica.counts_flushed and partition_at(view.index).topic not in self.world.reflushed

    def live_replica(self, index: int, broker_id: int) -> ReplicaView | None:
        """A live broker's replica, once its log is loaded."""
        view = self.replicas.get(index, {}).get(broker_id)
        return view if view is not None and self.is_live(view) else None

    def running(self, index: int) -> list[ReplicaView]:
        """The replicas in processes that run, live or not."""
        views = self.replicas.get(index, {}).values()
        return [
            view
            for view in views
            if view.survives is None and not view.process.is_dead and view.process is view.broker.process
        ]

    # --- brokers ---------------------------------------------------------------------------------------

    def _look_at_broker(self, broker: SimBroker, heard: TapRecord) -> None:
        if broker.state is State.STOPPING:
            self.tell(facts.BrokerStepped(broker))
        if not heard.is_called and broker.state is not State.STOPPING:
            return  # whose logs may grow by what had waited for them
        node = broker.node
        if node is None or not hasattr(node, "core"):
            return
        core = node.core
        if not heard.has_taps:
            heard.has_taps = True
            node.server.pump.add_tap(BrokerTap(core, heard))
        heard.is_called = False
        if core.counts.metadata_violations:
            raise Violation(f"OwnBug {broker.name}: a committed record did not fit (D7)")
        image = core.image
        is_news = image is not self._images.get(broker.name)
        if is_news:
            self._images[broker.name] = image
            self.tell(facts.ImageFollowed(broker, image))
        if core.has_roles and (is_news or broker.process.name not in self._placed):
            self._placed.add(broker.process.name)
            self._forget_moved(broker, core)
        if core.offline_replicas:
            self._forget_offline(broker, core)
        for cut, leader_epoch in heard.cuts:
            known = self._view(*cut, broker)
            if known is not None:
                known.cut_in = leader_epoch
        heard.cuts.clear()
        topics, replicas, node_id = self.topics, self.replicas, broker.node_id
        for key, replica in core.partitions.items():
            first = topics.get(key.topic_id)
            if first is None:
                continue
            place = first + key.partition_index
            views = replicas.get(place)
            if views is None:
                views = replicas[place] = {}
            view = views.get(node_id)
            if view is None or view.replica is not replica:
                self._load(broker, key, replica, view)
            elif _has_changed(view, replica):
                self._replica_changed(view, replica)
        self._tell_noted(heard)
        self.tell(facts.BrokerCalled(broker))

    def _tell_noted(self, heard: TapRecord) -> None:
        """What was noted at a node, in its order: of replicas once their views are as they are now."""
        for key, fact, fields in heard.facts:
            if key is None:
                self.tell(fact(*fields))
            elif self._hearers[fact]:
                view = self._view(*key, heard.node)
                if view is not None and view.process is heard.node.process:
                    self.tell(fact(view, *fields))
        heard.facts.clear()

    def _forget_moved(self, broker: SimBroker, core: Broker) -> None:
        """Replicas that were moved away are gone; what comes back one day is a new one."""
        for replicas in self.replicas.values():
            view = replicas.get(broker.node_id)
            if view is not None and view.replica.key not in core.partitions:
                row = core.image.partition(*view.replica.key)
                if row is None or broker.node_id not in row.replicas:
                    del replicas[broker.node_id]

    def _forget_offline(self, broker: SimBroker, core: Broker) -> None:
        """Replicas in a failed log dir have ended, though their process goes on. Damaged ones are gone:
        what begins anew in their place is another one."""
        for replicas in self.replicas.values():
            view = replicas.get(broker.node_id)
            if view is not None and view.replica.key in core.damaged_replicas:
                del replicas[broker.node_id]
            elif view is not None and view.survives is None and view.process is broker.process:
                if view.replica.key in core.offline_replicas:
                    _end(view, has_dropped_pages(broker.machine.sim_disk, view.log.folder))

    def _load(
        self, broker: SimBroker, key: PartitionId, replica: Partition, prior: ReplicaView | None
    ) -> None:
        assert broker.node is not None
        log = broker.node.log_manager.logs.get(key)
        if log is None or broker.process.is_dead:
            return  # killed within this step: its files cannot be read any more
        if prior is not None and prior.process is broker.process:
            prior = None  # moved away and back
        index = self.topics[key.topic_id] + key.partition_index
        incarnation_id = broker.node.core.lifecycle.identity.incarnation_id
        ghost = self.ghosts.setdefault(index, Ghost())
        history = BatchHistory(log, ghost.committed if ghost.unclean is None else ())
        view = ReplicaView(broker, broker.process, index, replica, log, history, incarnation_id)
        if prior is not None and prior.process is not view.process:
            is_whole = prior.survives is None or prior.survives >= prior.end_offset
            view.follows_clean_stop = prior.ended_cleanly and is_whole
        view.high_watermark = replica.high_watermark
        self.replicas[index][broker.node_id] = view
        appended = self._update(view, replica)
        if prior is not None and view.end_offset < prior.end_offset:
            ghost.has_lost_tail = True
        self.tell(facts.ReplicaLoaded(view, prior))
        self.tell(facts.ReplicaChanged(view, Before(None, None, Role.NONE, 0, 0, 0, None), appended))

    def _replica_changed(self, view: ReplicaView, replica: Partition) -> None:
        before = Before(
            view.registration,
            view.leadership,
            view.role,
            view.high_watermark,
            view.end_offset,
            view.flushed_offset,
            view.proposal,
        )
        appended = self._update(view, replica)
        self.tell(facts.ReplicaChanged(view, before, appended))

    def _update(self, view: ReplicaView, replica: Partition) -> list[BatchMark]:
        self.changes += 1
        leadership = replica.leadership
        view.registration = replica.registration
        view.leadership = leadership
        view.role = replica.role
        view.high_watermark = replica.high_watermark
        view.end_offset = replica.log.log_end_offset
        view.flushed_offset = replica.log.flushed_offset
        view.maximal_isr = () if leadership is None else leadership.maximal_isr
        view.proposal = None if leadership is None else leadership.proposal
        history = view.history
        appended: list[BatchMark] = []
        if history.is_behind:
            appended = history.follow()
            view.compared = min(view.compared, len(history.batches))
        elif history.cut or history.has_begun_anew:
            history.cut, history.has_begun_anew = [], False
        ghost = self.ghosts.setdefault(view.index, Ghost())
        if view.role is Role.LEADER and view.high_watermark > ghost.high_watermark:
            ghost.high_watermark = view.high_watermark
            if ghost.unclean is None:
                _commit(ghost, history)
        return appended

    def place(self, topic_id: bytes, index: int) -> int | None:
        """The number of a partition; None for topics without load."""
        first = self.topics.get(topic_id)
        return None if first is None else first + index

    def _view(self, topic_id: bytes, index: int, broker: SimBroker) -> ReplicaView | None:
        first = self.topics.get(topic_id)
        return None if first is None else self.replicas.get(first + index, {}).get(broker.node_id)

    def _ends(self, node: SimNode, is_power_lost: bool) -> None:
        """A process is about to end, or a machine that is down loses what it has not flushed."""
        if not isinstance(node, SimBroker):
            return
        self.tell(facts.BrokerEnds(node))
        for replicas in self.replicas.values():
            view = replicas.get(node.node_id)
            if view is None:
                continue
            is_cache_lost = is_power_lost or has_dropped_pages(node.machine.sim_disk, view.log.folder)
            if view.survives is not None and view.process is node.process and view.is_cut_under_way:
                _end(view, is_cache_lost)  # a cut goes on also in a log dir that has failed
            elif view.survives is None and view.process is node.process:
                _end(view, is_cache_lost)
                view.ended_cleanly = has_ended_cleanly(node)
            elif is_cache_lost and view.survives is not None:
                view.survives = min(view.survives, view.flushed_offset)

    # --- controllers -----------------------------------------------------------------------------------

    def _look_at_controller(self, node: SimController, heard: TapRecord) -> None:
        server = node.server
        if server is None or node.log is None:
            return
        core, driver = server.core, server.driver
        if not heard.has_taps:
            heard.has_taps = True
            server.pump.add_tap(ControllerTap(core, heard))
        if driver._node is not None and driver.pump is not None and not heard.has_voter_taps:
            heard.has_voter_taps = True
            driver.pump.add_tap(VoterTap(driver._node, heard))
        if heard.bugs or core.counts.replay_violations:
            raise Violation(f"OwnBug {node.name}: {heard.bugs or 'a committed record did not fit (D7)'}")
        if heard.warnings:
            self.tell(facts.ControllerWarned(node, heard.warnings))
            heard.warnings = []
        self._tell_noted(heard)
        now = (core.committed, driver.raft_epoch, driver.committed_offset, driver.is_leader)
        before = self._voters.get(node.node_id)
        if before is not None and before[0] is now[0] and before[1:] == now[1:]:
            return
        self._voters[node.node_id] = now
        self.changes += 1
        voter = driver.snapshot()
        if voter is not None:
            self.tell(facts.VoterChanged(node, voter))
        if now[2] > self.quorum.end_offset:
            self._commit(node, now[2])
        if core.committed is not self._images.get(node.name):
            self._images[node.name] = core.committed
            self.tell(facts.ImageFollowed(node, core.committed))

    def _commit(self, node: SimController, end_offset: int) -> None:
        """The quorum has committed more, as this voter knows first."""
        assert node.log is not None
        for batch in self.quorum.read(node.log, end_offset):
            for offset, record, change in self.quorum.replay(batch):
                self.tell(facts.RecordCommitted(offset, record, self.quorum.before))
                if change is not None:
                    self._row_changed(*change)
            self._rows_committed()
            self.tell(facts.MetadataCommitted())

    def _row_changed(self, key: PartitionId, change: Change) -> None:
        place = self.place(*key)
        if place is not None:
            self._partition_changed(place, change)
            return
        for judges in self._on_row:
            judges(self, NO_PLACE, change)

    def _partition_changed(self, index: int, change: Change) -> None:
        ghost = self.ghosts.setdefault(index, Ghost())
        if change.is_unclean_election and ghost.unclean is None:
            assert change.decision.reason is not None
            ghost.unclean = change.decision.reason.value
        self.tell(facts.PartitionChanged(index, change))

    def _rows_committed(self) -> None:
        image = self.quorum.image
        if image.topic_ids is not self._topics_seen:
            self._topics_seen = image.topic_ids
            self._topics_committed(image)
        for topic_id, first in self.topics.items():
            for index, row in image.topics[topic_id].sorted_partitions():
                self.ghosts.setdefault(first + index, Ghost()).row = row

    def _topics_committed(self, image: MetadataImage) -> None:
        """Give places to new topics with load, forget what is known of those that are gone."""
        for topic_id in [one for one in self.topics if one not in image.topics]:
            first = self.topics.pop(topic_id)
            for place in [one for one in self.ghosts if first <= one < first + PLACES_PER_TOPIC]:
                del self.ghosts[place]
                self.replicas.pop(place, None)
        for name, topic_id in sorted(image.topic_ids.items()):
            first_place = first_place_of(name, self._remade_count)
            if first_place is not None and topic_id not in self.topics:
                self.topics[topic_id] = first_place
                self._remade_count += name == REMADE

    # --- clients ---------------------------------------------------------------------------------------

    def _handing_on(self, fresh: list[Any], fact: type[Any]) -> Callable[[], None]:
        """What tells the properties what a client has noted since they were told last."""

        def look() -> None:
            for one in fresh:
                self.tell(fact(one))
            fresh.clear()

        return look

    def _look_at_acts(self) -> None:
        fresh = self.world.operator_queue.fresh
        if fresh:
            for name, act in fresh:
                self.tell(facts.ActSucceeded(name, act))
            fresh.clear()


def _commit(ghost: Ghost, history: BatchHistory) -> None:
    """Take what has come below the true high watermark."""
    committed, batches, high_watermark = ghost.committed, history.batches, ghost.high_watermark
    at = len(committed)
    if at < len(batches):
        end_offset = committed[-1].last_offset + 1 if committed else 0
        if batches[at].base_offset != end_offset:
            if history.start_offset:
                return  # what is below is not known
            # The leader's log is another: what was committed is gone, as far as that was allowed.
            committed.clear()
            at = 0
    while at < len(batches) and batches[at].last_offset < high_watermark:
        committed.append(batches[at])
        at += 1


def _end(view: ReplicaView, is_cache_lost: bool) -> None:
    """Nothing is appended to the log any more; what the next process must find of it is known."""
    if view.history.is_behind:
        view.history.follow()
        view.end_offset = view.log.log_end_offset
    view.flushed_offset = view.log.flushed_offset
    failure = view.log.failure
    has_failed_in_cut = isinstance(failure, DiskError) and failure.operation in ("truncate", "unlink")
    view.is_cut_under_way = view.log.guard.changing is not None or has_failed_in_cut
    survives = view.flushed_offset if is_cache_lost else view.log.log_end_offset
    if view.history.is_resetting:
        view.is_cut_under_way, survives = True, 0  # any beginning of the dropped log may be left, or none
    view.survives = survives if view.survives is None else min(view.survives, survives)


def _has_changed(view: ReplicaView, replica: Partition) -> bool:
    leadership = replica.leadership
    log = replica.log
    if (
        replica.high_watermark != view.high_watermark
        or log.log_end_offset != view.end_offset
        or log.flushed_offset != view.flushed_offset
        or replica.registration is not view.registration
        or leadership is not view.leadership
        or replica.role is not view.role
    ):
        return True
    return leadership is not None and (
        leadership.maximal_isr is not view.maximal_isr or leadership.proposal is not view.proposal
    )
