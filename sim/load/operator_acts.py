"""What operators are asked to do to a simulated cluster: drawn like faults, kept within the fault budget.

Owns the choice of an act from what is committed now. The acts themselves are in `sim.load.operators`.
"""

from collections.abc import Callable

from holdfast.client.admin_configs import Resource
from holdfast.metadata.partition import PartitionRegistration
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.sim.cluster.world import Topic, World
from holdfast.sim.faults.budget import Budget
from holdfast.sim.load import operators
from holdfast.sim.load.clients import partition_at
from holdfast.sim.machine.choices import Stream, between, one_in

#: of all topics together
_PARTITIONS_MAX = 12
_SCRATCH_MAX = 3
#: how often writes of a topic are flushed whose acknowledged records need not be durable
_FLUSH_MESSAGES = (None, "2", "20")
_MORE_FLUSH_MESSAGES = (*_FLUSH_MESSAGES, "1")
_UNCLEAN_KINDS = (
    ElectionKind.UNCLEAN,
    ElectionKind.LONGEST_LOG_AGGRESSIVE,
    ElectionKind.LONGEST_LOG_BALANCED,
    ElectionKind.DESIGNATION,
)
_MIN_ISR = "min.insync.replicas"
_STRATEGIES = ("Aggressive", "Balanced", "None", None)


class Operations:
    """Chooses acts and puts them on the desk. Each method returns whether it could."""

    def __init__(self, world: World, budget: Budget, at: Callable[[int, Callable[[], None]], None]) -> None:
        self._world = world
        #: calls something after so many ms
        self._at = at
        self._budget = budget
        #: {place: its replicas before it was moved}
        self._homes: dict[int, tuple[int, ...]] = {}
        #: topics without load
        self._scratch: list[str] = []
        self._scratch_made = 0
        self._min_isrs = {topic.name: topic.min_isr for topic in world.topics}
        #: of the cluster, and topics that have one of their own
        self._cluster_min_isr = world.shape.min_isr
        self._have_own = {topic.name for topic in world.topics if _MIN_ISR in topic.configs}
        self.table: dict[str, Callable[[Stream], bool]] = {
            "move_partition": self._move,
            "move_back": self._move_back,
            "cancel_move": self._cancel,
            "change_min_isr": self._change_min_isr,
            "elect_preferred": self._elect_preferred,
            "add_partition": self._add_partition,
            "make_topic": self._make_topic,
            "drop_topic": self._drop_topic,
            "change_flush": self._change_flush,
            "change_strategy": self._change_strategy,
            "elect_unclean": self._elect_unclean,
            "switch_elr": self._switch_elr,
        }
        #: behind all others, so that earlier tapes mean what they did
        self.newest: dict[str, Callable[[Stream], bool]] = {"delete_records": self._delete_records}

    # --- partitions ------------------------------------------------------------------------------------

    def _row(self, stream: Stream, *, moving: bool = False) -> tuple[int, PartitionRegistration] | None:
        rows = self._world.partitions()
        if moving:
            rows = [(place, row) for place, row in rows if row.adding_replicas or row.removing_replicas]
        return rows[stream.draw(len(rows))] if rows and not self._world.operator_queue.is_busy else None

    def _move(self, stream: Stream) -> bool:
        """To other brokers, now and then to more or fewer; also one that is on its way elsewhere."""
        found = self._row(stream)
        return found is not None and self.move_place(stream, found[0])

    def move_place(self, stream: Stream, place: int) -> bool:
        """As `_move`, of this partition."""
        row = dict(self._world.partitions()).get(place)
        if row is None or self._world.operator_queue.is_busy:
            return False
        left = [broker.node_id for broker in self._world.brokers]
        target = tuple(b for b in row.replicas if b not in row.adding_replicas)
        count = len(target) + (0, 0, 0, 1, -1)[stream.draw(5)]
        # With fewer replicas than min ISR asks for, a lower one would count.
        count = max(self._min_isrs[partition_at(place).topic], min(count, len(left)))
        replicas = [left.pop(stream.draw(len(left))) for _ in range(count)]
        self._homes.setdefault(place, target)
        self._world.operator_queue.put(
            f"move {place} to {replicas}", operators.move(partition_at(place), replicas)
        )
        follow = stream.draw(3)
        if follow:
            wait_ms = between(stream, 20, 1_500)
            self._at(wait_ms, lambda: self._change_mind(place, is_back=follow == 1))
        return True

    def move_to(self, place: int, replicas: list[int]) -> bool:
        """To these brokers and no others: as many as its min ISR asks for, at least."""
        if self._world.operator_queue.is_busy or len(replicas) < self._min_isrs[partition_at(place).topic]:
            return False
        self._world.operator_queue.put(
            f"move {place} to {replicas}", operators.move(partition_at(place), replicas)
        )
        return True

    def cancel_move_of(self, place: int) -> None:
        """Also when it is over already."""
        if not self._world.operator_queue.is_busy:
            self._world.operator_queue.put(
                f"cancel the move of {place}", operators.move(partition_at(place), None)
            )

    def _change_mind(self, place: int, *, is_back: bool) -> None:
        """A move that was just begun goes back home, or is called off."""
        if self._world.load.is_over or self._world.operator_queue.is_busy:
            return
        if is_back:
            self._go_home(place)
        else:
            self._world.operator_queue.put(
                f"cancel the move of {place}", operators.move(partition_at(place), None)
            )

    def _go_home(self, place: int) -> bool:
        home = self._homes.pop(place, ())
        if len(home) < self._min_isrs[partition_at(place).topic]:
            return False
        self._world.operator_queue.put(
            f"move {place} back to {home}", operators.move(partition_at(place), home)
        )
        return True

    def _move_back(self, stream: Stream) -> bool:
        places = sorted(self._homes)
        if not places or self._world.operator_queue.is_busy:
            return False
        return self._go_home(places[stream.draw(len(places))])

    def _cancel(self, stream: Stream) -> bool:
        found = self._row(stream, moving=True)
        if found is None:
            return False
        self._world.operator_queue.put(
            f"cancel the move of {found[0]}", operators.move(partition_at(found[0]), None)
        )
        return True

    def _elect_preferred(self, stream: Stream) -> bool:
        found = self._row(stream)
        if found is None:
            return False
        one = None if one_in(stream, 2) else partition_at(found[0])
        self._world.operator_queue.put(
            "elect preferred leaders", operators.elect(ElectionKind.PREFERRED, one)
        )
        return True

    def _elect_unclean(self, stream: Stream) -> bool:
        """A replica that is alive leads, or one that operators name: only where losses are allowed, of
        partitions without a leader if there are any."""
        rows = self._world.partitions()
        rows = [(place, row) for place, row in rows if row.leader is None] or rows
        if not rows or self._world.operator_queue.is_busy or not self._world.shape.over_budget:
            return False
        place, row = rows[stream.draw(len(rows))]
        kind = _UNCLEAN_KINDS[stream.draw(len(_UNCLEAN_KINDS))]
        leader = row.replicas[stream.draw(len(row.replicas))] if kind is ElectionKind.DESIGNATION else None
        told = kind.name if leader is None else f"{kind.name} of b{leader}"
        act = operators.elect(kind, partition_at(place), leader)
        self._world.operator_queue.put(f"elect by {told} for {place}", act)
        return True

    def elect_by_hand(self, stream: Stream, place: int, leader: int) -> None:
        """This one, or any live replica: where losses are allowed only."""
        if self._world.operator_queue.is_busy or not self._world.shape.over_budget:
            return
        kinds = (ElectionKind.DESIGNATION, ElectionKind.UNCLEAN, ElectionKind.LONGEST_LOG_AGGRESSIVE)
        kind = kinds[stream.draw(len(kinds))]
        wanted = leader if kind is ElectionKind.DESIGNATION else None
        act = operators.elect(kind, partition_at(place), wanted)
        self._world.operator_queue.put(f"elect b{leader} by {kind.name} for {place}", act)

    def unregister(self, broker_id: int) -> bool:
        """With all that it holds; the budget has been asked."""
        if self._world.operator_queue.is_busy:
            return False
        self._world.operator_queue.put(f"unregister b{broker_id}", operators.unregister(broker_id))
        return True

    # --- topics ----------------------------------------------------------------------------------------

    def _topic(self, stream: Stream) -> Topic | None:
        topics = self._world.topics
        return None if self._world.operator_queue.is_busy else topics[stream.draw(len(topics))]

    def _add_partition(self, stream: Stream) -> bool:
        topic = self._topic(stream)
        return topic is not None and self._add_to(topic)

    def add_partition_of(self, place: int) -> bool:
        """To the topic of this partition."""
        name = partition_at(place).topic
        topic = next(topic for topic in self._world.topics if topic.name == name)
        return not self._world.operator_queue.is_busy and self._add_to(topic)

    def _add_to(self, topic: Topic) -> bool:
        rows = self._world.partitions()
        if not rows or len(rows) >= _PARTITIONS_MAX:
            return False
        count = sum(partition_at(place).topic == topic.name for place, _ in rows)
        began = operators.begin_load(self._world.load, topic.name, count)
        self._world.operator_queue.put(
            f"add a partition to {topic.name}", operators.add_partition(topic.name, count + 1), began
        )
        return True

    def _make_topic(self, stream: Stream) -> bool:
        if self._world.operator_queue.is_busy or len(self._scratch) >= _SCRATCH_MAX:
            return False
        self._scratch_made += 1
        name = f"x{self._scratch_made}"
        self._scratch.append(name)
        replicas = 1 + stream.draw(len(self._world.brokers))
        times = 1 + stream.draw(3)
        act = operators.make_topic(name, 1 + stream.draw(3), replicas, times=times)
        self._world.operator_queue.put(f"make {name} {times} times", act)
        return True

    def _drop_topic(self, stream: Stream) -> bool:
        if self._world.operator_queue.is_busy or not self._scratch:
            return False
        name = self._scratch.pop(stream.draw(len(self._scratch)))
        self._world.operator_queue.put(f"drop {name}", operators.drop_topic(name))
        return True

    # --- configuration ---------------------------------------------------------------------------------

    def _change_min_isr(self, stream: Stream) -> bool:
        """Up or down by one, as far as the replicas go."""
        topic = self._topic(stream)
        return topic is not None and self._step_min_isr(stream, topic)

    def change_min_isr_of(self, stream: Stream, place: int) -> bool:
        """Of the topic of this partition."""
        name = partition_at(place).topic
        topic = next(topic for topic in self._world.topics if topic.name == name)
        return not self._world.operator_queue.is_busy and self._step_min_isr(stream, topic)

    def _step_min_isr(self, stream: Stream, topic: Topic) -> bool:
        rows = self._world.partitions()
        sizes = [
            len(r.replicas) - len(r.adding_replicas) for p, r in rows if partition_at(p).topic == topic.name
        ]
        if not sizes:
            return False
        now = self._min_isrs[topic.name]
        # Without a flush before each acknowledgement one copy is none: no power cut was in budget then.
        lowest = 1 if topic.every_write else 2
        values = [value for value in (now - 1, now + 1) if lowest <= value <= min(sizes)]
        if not values:
            return False
        value = values[stream.draw(len(values))]
        if not self._budget.may_set_min_isr(topic.name, value):
            return False
        self._min_isrs[topic.name] = value
        resource, what = Resource.topic(topic.name), topic.name
        text: str | None = str(value)
        if self._world.shape.more_acts:
            only_one = len(self._world.topics) == len(self._have_own - {topic.name}) + 1
            if value == self._cluster_min_isr and topic.name in self._have_own:
                text = None  # the cluster's counts again
                self._have_own.discard(topic.name)
            elif only_one and topic.name not in self._have_own and one_in(stream, 2):
                resource, what, self._cluster_min_isr = Resource.cluster(), "the cluster", value
            else:
                self._have_own.add(topic.name)
        act = operators.set_config(resource, _MIN_ISR, text)
        self._world.operator_queue.put(f"min ISR of {what} from {now} to {value}", act)
        return True

    def be_content_with_one(self, place: int) -> bool:
        """One in sync is enough for this partition, and the others of its topic: where losses are allowed."""
        name = partition_at(place).topic
        if self._world.operator_queue.is_busy or not self._world.shape.over_budget:
            return False
        self._budget.may_set_min_isr(name, 1)
        self._min_isrs[name] = 1
        self._have_own.add(name)
        act = operators.set_config(Resource.topic(name), _MIN_ISR, "1")
        self._world.operator_queue.put(f"min ISR of {name}: 1", act)
        return True

    def _change_flush(self, stream: Stream) -> bool:
        """Of a topic whose acknowledged records need not be durable; they need not afterwards."""
        topic = self._topic(stream)
        if topic is None or topic.every_write:
            return False
        values = _MORE_FLUSH_MESSAGES if self._world.shape.more_acts else _FLUSH_MESSAGES
        value = values[stream.draw(len(values))]
        self._world.reflushed.add(topic.name)
        act = operators.set_config(Resource.topic(topic.name), "flush.messages", value)
        self._world.operator_queue.put(f"flush.messages of {topic.name}: {value}", act)
        return True

    def _change_strategy(self, stream: Stream) -> bool:
        """What is done when no replica is complete: only where losses are allowed."""
        topic, shape = self._topic(stream), self._world.shape
        if topic is None or not shape.over_budget:
            return False
        if not (shape.elr and shape.recovery_manager) and one_in(stream, 2):
            self._set_unclean(topic.name, (None, "true", "false")[stream.draw(3)])
        else:
            self._set_strategy(topic.name, _STRATEGIES[stream.draw(len(_STRATEGIES))])
        return True

    def be_aggressive(self, place: int) -> bool:
        """Any live replica may lead this partition, and the others of its topic: as `_change_strategy`."""
        if self._world.operator_queue.is_busy or not self._world.shape.over_budget:
            return False
        self._set_strategy(partition_at(place).topic, "Aggressive")
        return True

    def _set_strategy(self, topic_name: str, value: str | None) -> None:
        act = operators.set_config(Resource.topic(topic_name), "unclean.recovery.strategy", value)
        self._world.operator_queue.put(f"strategy of {topic_name}: {value}", act)

    def _set_unclean(self, topic_name: str, value: str | None) -> None:
        """Kafka's own key, which counts where no strategy says otherwise, or no logs are compared."""
        act = operators.set_config(Resource.topic(topic_name), "unclean.leader.election.enable", value)
        self._world.operator_queue.put(f"unclean elections of {topic_name}: {value}", act)

    def _delete_records(self, stream: Stream) -> bool:
        """Up to an offset that is committed, which lies within a batch more often than not."""
        found = self._row(stream)
        high_watermark = 0 if found is None else self._high_watermark(found[0])
        if found is None or not high_watermark:
            return False
        world, place = self._world, found[0]
        offset = 1 + stream.draw(high_watermark)
        world.asked_deletions[place] = max(offset, world.asked_deletions.get(place, 0))

        def told() -> None:
            world.told_deletions[place] = max(offset, world.told_deletions.get(place, 0))

        act = operators.delete_records(partition_at(place), offset)
        world.operator_queue.put(f"delete {place} below {offset}", act, told)
        return True

    def _high_watermark(self, place: int) -> int:
        """As the leader knows it that metadata names; 0 when it does not answer for now."""
        world, row = self._world, dict(self._world.partitions())[place]
        replicas = (world.replica(one, place) for one in world.brokers if one.node_id == row.leader)
        return next((one.high_watermark for one in replicas if one is not None), 0)

    def _switch_elr(self, stream: Stream) -> bool:
        if self._world.operator_queue.is_busy or not self._world.shape.switches_elr:
            return False
        level = 1 - stream.draw(2)
        self._world.operator_queue.put(operators.elr_level_name(level), operators.set_elr_level(level))
        return True
