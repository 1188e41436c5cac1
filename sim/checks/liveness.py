"""What must come to be once everything works again, each by its name in the specifications (L-1 to L-10).

Owns the list, in the order in which a cluster comes to rest, and the time that it has. Looks at nodes between
two steps.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.cluster.nodes import SimBroker, SimController
from holdfast.sim.cluster.world import World
from holdfast.sim.load.clients import partition_at
from holdfast.storage.core.files import is_quarantine_name

#: virtual ms for each
WITHIN_MS = 120_000
#: its name, and whether it is so
Wanted: TypeAlias = tuple[str, Callable[[World], bool]]


def has_quorum_leader(world: World) -> bool:
    """One voter leads, has applied its log, and all follow it; a majority does when one is lost for good."""
    if not world.lost:
        return follow_one_leader(world, world.controllers)
    up = [voter for voter in world.controllers if voter.is_up]
    followers = [voter for voter in up if follow_one_leader(world, [voter])]
    return 2 * len(followers) > len(world.controllers)


def follow_one_leader(world: World, voters: Iterable[SimController]) -> bool:
    """These voters know who leads and has applied its log."""
    leader = world.active_controller()
    return leader is not None and all(
        node.server is not None and node.server.driver.leader_id == leader.node_id for node in voters
    )


def are_brokers_back(world: World) -> bool:
    """Every broker runs and is unfenced."""
    return all(broker.is_ready for broker in world.brokers)


def has_leaders(world: World) -> bool:
    """Every partition is led by a broker that knows it."""
    rows = world.partitions()
    return bool(rows) and all(is_led(world, index, row) for index, row in rows)


def is_led(world: World, index: int, row: PartitionRegistration) -> bool:
    """Its leader runs, and serves it in its epoch."""
    leader = world.broker(row.leader)
    replica = None if leader is None else world.replica(leader, index)
    return replica is not None and replica.is_serving and replica.leader_epoch == row.leader_epoch


def are_writes_acknowledged(world: World) -> bool:
    """Every producer that asks for it was acknowledged again, and every partition has taken a batch."""
    load = world.load
    writers = {name for name, _ in load.acknowledged}
    places = {place for _, place in load.acknowledged}
    return not load.writers or (writers >= load.writers and places >= {*load.places} - load.resting)


def have_answers(world: World) -> bool:
    """Producers that send no more have heard about all they sent."""
    return world.load.producers_running == 0


def have_views_converged(world: World) -> bool:
    """Every replica believes what the controllers have committed, and no proposal is open."""
    for index, row in world.partitions():
        for _, replica in replicas_of(world, index):
            leadership = replica.leadership
            role = Role.LEADER if row.leader == replica.broker_id else Role.FOLLOWER
            if replica.registration != row or replica.role is not role:
                return False
            if leadership is not None and leadership.proposal is not None:
                return False
    return True


def are_replicas_equal(world: World) -> bool:
    """Every replica is in sync, has all there is, and knows that it is committed."""
    rows = world.partitions()
    for index, row in rows:
        replicas = replicas_of(world, index)
        ends = {replica.log.log_end_offset for _, replica in replicas}
        marks = {replica.high_watermark for _, replica in replicas}
        if len(row.isr) < len(row.replicas) or len(replicas) < len(row.replicas):
            return False
        if len(ends) > 1 or marks != ends:
            return False
    return bool(rows)


def have_brokers_no_other_logs(world: World) -> bool:
    """Each has the logs of the replicas that it is assigned, in its memory and on its disk, and has put aside
    damaged ones of theirs only (R107)."""
    image = world.image()
    if image is None:
        return False
    for broker in world.brokers:
        if broker.node is None:
            return False
        wanted = list(image.partitions_of(broker.node_id))
        keys = {(topic.topic_id, index) for topic, index, _ in wanted}
        names = {f"{topic.name}-{index}" for topic, index, _ in wanted}
        folders = {
            name.rpartition(".")[0] if is_quarantine_name(name) else name
            for name in broker.machine.sim_disk.log_folders()
        }
        if broker.node.log_manager.logs.keys() - keys or folders - names:
            return False
    return True


def have_readers_read_all(world: World) -> bool:
    """Every consumer has come to the end of every partition, however long it has been under way."""
    load = world.load
    ends = {
        partition_at(index): replica.high_watermark
        for index, row in world.partitions()
        for broker, replica in replicas_of(world, index)
        if broker.node_id == row.leader and index in load.places
    }
    return len(ends) == len(load.places) and all(
        reader.assigned == len(load.places)
        and all(reader.consumer.position(partition) == end for partition, end in ends.items())
        for reader in load.readers
    )


def have_moves_ended(world: World) -> bool:
    """Every reassignment is over."""
    rows = world.partitions()
    return bool(rows) and not any(row.adding_replicas or row.removing_replicas for _, row in rows)


def have_equal_images(world: World) -> bool:
    """Every node has replayed all that is committed, from the log or from a snapshot, and made the same of
    it."""
    images = [node.server.core.committed for node in world.controllers if node.server is not None]
    images += [broker.node.core.image for broker in world.brokers if broker.node is not None]
    # The quorum's own records change no image, and the active controller does not count them.
    found = [replace(image, offset=0) for image in images]
    return len(found) == len(world.nodes) and all(image == found[0] for image in found)


def do_all_vote(world: World) -> bool:
    """The metadata log names every controller as a voter."""
    return len(world.named_voters()) == len(world.controllers)


def replicas_of(world: World, index: int) -> list[tuple[SimBroker, Partition]]:
    """The live replicas of a partition, by broker."""
    found = []
    for broker in world.brokers:
        replica = world.replica(broker, index)
        if replica is not None:
            found.append((broker, replica))
    return found


BEFORE_THE_LOAD_ENDS: tuple[Wanted, ...] = (
    ("L-8 the quorum has a leader", has_quorum_leader),
    ("L-1 every broker is back and unfenced", are_brokers_back),
)
#: and once nothing waits for operators any more
ALL_LED: tuple[Wanted, ...] = (("L-9 every partition has a leader", has_leaders),)
#: since they were healed
WHILE_THE_LOAD_GOES_ON: tuple[Wanted, ...] = (
    ("L-5 every producer and every partition is acknowledged again", are_writes_acknowledged),
)
AFTER_THE_LOAD: tuple[Wanted, ...] = (("L-5 every producer has its answers", have_answers),)
AT_REST: tuple[Wanted, ...] = (
    ("L-7 every reassignment has ended", have_moves_ended),
    ("L-6 every replica is in sync and equal", are_replicas_equal),
    ("L-4 every view is that of the controllers, and no proposal is open (L-3)", have_views_converged),
    ("L-6 every reader has read all there is", have_readers_read_all),
    ("L-7 no broker keeps what was deleted or moved away (R107)", have_brokers_no_other_logs),
)
#: where nodes begin with snapshots
IMAGES_AT_REST: tuple[Wanted, ...] = (("Q-8 every node has the same image", have_equal_images),)
#: where disks of voters are replaced
VOTERS_AT_REST: tuple[Wanted, ...] = (("L-8 every controller is a voter again", do_all_vote),)


def settle(world: World, wanted: tuple[Wanted, ...]) -> None:
    """Wait for each in turn. Raises: Violation."""
    for name, holds in wanted:
        world.eventually(name, lambda holds=holds: holds(world), WITHIN_MS)  # type: ignore[misc]
