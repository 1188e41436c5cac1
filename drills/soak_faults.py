"""The menus of a soak: which faults it makes on one broker or one controller, and how often each is drawn."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.drills.fault_kinds import Given, Undoable
from holdfast.drills.ground import Ground, LocalGround
from holdfast.localcluster.faults import damage, network, processes
from holdfast.localcluster.faults.fault import Fault
from holdfast.localcluster.faults.places import Field, Part, Place
from holdfast.localcluster.faults.shapes import WAYS
from holdfast.localcluster.faults.targets import Targets
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster

#: parts of a partition that a soak damages
_PARTS = (
    Part.CLOSED_SEGMENT,
    Part.FIRST_SEGMENT,
    Part.INDEX,
    Part.TIME_INDEX,
    Part.SNAPSHOT,
    Part.LEADER_EPOCH_CHECKPOINT,
)


@dataclass(frozen=True, slots=True)
class Course:
    """What faults are drawn from."""

    ground: Ground
    targets: Targets
    chance: random.Random
    topics: Sequence[str]

    @property
    def cluster(self) -> LocalCluster:
        """The processes, for faults that only they have."""
        assert isinstance(self.ground, LocalGround), "only on the menu of processes"
        return self.ground.cluster

    def broker(self) -> Node:
        """A broker, more often one that leads."""
        topic = self.chance.choice(self.topics)
        words = ("random broker", f"leader of {topic}-0", f"follower of {topic}-0", "most leaders")
        return self.targets.one(self.chance.choice(words))

    def controller(self) -> Node:
        """A controller, more often the active one."""
        return self.targets.one(self.chance.choice(("random controller", "active controller")))

    def place(self) -> Place:
        """A part of one partition's files."""
        return Place(self.chance.choice(_PARTS), f"{self.chance.choice(self.topics)}-0")

    @property
    def damaged(self) -> Node:
        """Damage that no reader has met yet stays; so only this broker ever has any, and two are whole."""
        return self.cluster.brokers[0]

    @property
    def seed(self) -> int:
        return self.chance.randrange(1 << 31)


Make = Callable[[Course], Sequence[Undoable]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A fault on one broker, as steps in order; healed in the same order."""

    weight: int
    make: Make


def _on_broker(fault: str) -> Make:
    """As `holdfast chaos` makes it, on a broker."""
    return lambda course: course.ground.make(fault, [course.broker()], Given(seed=course.seed))


def _on_controller(fault: str) -> Make:
    return lambda course: course.ground.make(fault, [course.controller()], Given(seed=course.seed))


def _down(course: Course, node: Node) -> Fault:
    kind = course.chance.choice((processes.Kill, processes.Stop))
    return kind(course.cluster, node)


def _flip(course: Course) -> Sequence[Fault]:
    place, field = course.place(), None
    if place.part in (Part.CLOSED_SEGMENT, Part.FIRST_SEGMENT):
        field = course.chance.choice(list(Field))
    node = course.damaged
    return _down(course, node), damage.FlipBit(course.cluster, node, place, course.seed, field)


def _cut(course: Course) -> Sequence[Fault]:
    node = course.damaged
    keep = course.chance.random()
    return _down(course, node), damage.CutFile(course.cluster, node, course.place(), course.seed, keep)


def _remove(course: Course) -> Sequence[Fault]:
    node = course.damaged
    return _down(course, node), damage.RemoveFile(course.cluster, node, course.place(), course.seed)


def _wipe(course: Course) -> Sequence[Fault]:
    node = course.broker()
    return _down(course, node), damage.WipeDisk(course.cluster, node)


def _partition(course: Course) -> Sequence[Fault]:
    cluster, node = course.cluster, course.broker()
    others = [other for other in cluster.nodes if other != node]
    shapes: tuple[Callable[[], network.Partition], ...] = (
        lambda: network.Partition.isolate(cluster, node),
        lambda: network.Partition.isolate(cluster, node, also_clients=True),
        lambda: network.Partition.isolate_from_controllers(cluster, node),
        lambda: network.Partition.isolate_from_brokers(cluster, node),
        lambda: network.Partition.one_way(cluster, [node], others),
        lambda: network.Partition.one_way(cluster, others, [node]),
        lambda: network.Partition.bridge(cluster, node),
    )
    return (course.chance.choice(shapes)(),)


def _unread(course: Course) -> Sequence[Undoable]:
    topic = course.chance.choice(course.topics)
    node = course.targets.one(f"leader of {topic}-0")
    given = Given(topic_id=course.targets.topic_id(topic))
    return course.ground.make("unread-fetches", [node], given)


def _slow_links(course: Course) -> Sequence[Undoable]:
    given = Given(seed=course.seed, delay_ms=course.chance.randrange(200))
    return course.ground.make("slow-links", [course.broker()], given)


MENU: dict[str, Entry] = {
    "kill": Entry(4, _on_broker("kill")),
    "stop": Entry(3, _on_broker("stop")),
    "pause": Entry(3, _on_broker("pause")),
    "power-loss": Entry(4, _on_broker("power-loss")),
    "flip-bit": Entry(3, _flip),
    "cut-file": Entry(2, _cut),
    "remove-file": Entry(2, _remove),
    "wipe-disk": Entry(2, _wipe),
    "partition": Entry(5, _partition),
    "slow-links": Entry(1, _slow_links),
    "few-handles": Entry(2, _on_broker("few-handles")),
    "little-memory": Entry(1, _on_broker("little-memory")),
    "no-room-in-files": Entry(1, _on_broker("no-room-in-files")),
    "full-disk": Entry(1, _on_broker("full-disk")),
    "frozen-disk": Entry(1, _on_broker("frozen-disk")),
    "slow-disk": Entry(1, _on_broker("slow-disk")),
    "half-frames": Entry(1, _on_broker("half-frames")),
    "unread-fetches": Entry(1, _unread),
    "metadata-flood": Entry(1, _on_broker("metadata-flood")),
    "garbage": Entry(1, _on_broker("garbage")),
}

#: Beside a fault on a broker, sometimes; of processes and of containers.
OF_CONTROLLERS: dict[str, Entry] = {
    "kill": Entry(2, _on_controller("kill")),
    "stop": Entry(1, _on_controller("stop")),
    "pause": Entry(2, _on_controller("pause")),
    "power-loss": Entry(2, _on_controller("power-loss")),
    "partition": Entry(2, _on_controller("partition")),
}


# --- containers ----------------------------------------------------------------------------------------


def _parted_container(course: Course) -> Sequence[Undoable]:
    node = course.broker()
    others = [other for other in course.ground.nodes.nodes if other != node]
    shapes = (*(Given(how=how) for how in WAYS), Given(other=others, one_way=True))
    return course.ground.make("partition", [node], course.chance.choice(shapes))


def _slow_links_of_container(course: Course) -> Sequence[Undoable]:
    given = Given(seed=course.seed, delay_ms=course.chance.randrange(1, 200))
    return course.ground.make("slow-links", [course.broker()], given)


ON_CONTAINERS: dict[str, Entry] = {
    "kill": Entry(4, _on_broker("kill")),
    "stop": Entry(3, _on_broker("stop")),
    "pause": Entry(3, _on_broker("pause")),
    "partition": Entry(5, _parted_container),
    "power-loss": Entry(4, _on_broker("power-loss")),
    "frozen-disk": Entry(1, _on_broker("frozen-disk")),
    "slow-disk": Entry(1, _on_broker("slow-disk")),
    "slow-links": Entry(1, _slow_links_of_container),
}

#: {driver: of one broker, and of one controller beside it}
MENUS: dict[str, tuple[dict[str, Entry], dict[str, Entry]]] = {
    "local": (MENU, OF_CONTROLLERS),
    "compose": (ON_CONTAINERS, OF_CONTROLLERS),
}
