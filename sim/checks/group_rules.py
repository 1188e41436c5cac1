"""Rules of consumer groups, over what the members of one were told and what its coordinator knows at the end.

They hold within the fault budget: the offsets of these stories are flushed before they count, so that any
power cut is in it (G-3).
"""

from collections.abc import Mapping

from holdfast.broker.core.groups.group import Group, GroupState
from holdfast.metadata.ids import PartitionId
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.load.clients import TOPIC
from holdfast.sim.load.group_members import GROUP, GroupHistory


def is_judged(shape: ClusterSpec) -> bool:
    """There is a group, and nothing that it was promised may be lost."""
    beyond = shape.over_budget or shape.on_edge or shape.disks_lie or shape.switches_elr or not shape.elr
    return shape.members > 0 and not beyond


def broken_rules(history: GroupHistory) -> list[str]:
    """What does not hold, a sentence each."""
    return [*_generations(history), *_owners(history), *_starts(history)]


def _generations(history: GroupHistory) -> list[str]:
    """Generation grows: a member is never told of one that is older than one it was told of."""
    found, newest = [], dict[str, int]()
    for one in history.assignments:
        if one.generation_id < newest.get(one.member, -1):
            before = newest[one.member]
            found.append(f"group: generation grows: {one.member} got {one.generation_id} after {before}")
        newest[one.member] = one.generation_id
    return found


def _owners(history: GroupHistory) -> list[str]:
    """One owner a partition and generation."""
    found, owners = [], dict[tuple[int, int], str]()
    for one in history.assignments:
        for index in one.partitions:
            owner = owners.setdefault((one.generation_id, index), one.member)
            if owner != one.member:
                text = f"{TOPIC}-{index} in generation {one.generation_id}: {owner} and {one.member}"
                found.append(f"group: one owner a partition and generation: {text}")
    return found


def _starts(history: GroupHistory) -> list[str]:
    """An acknowledged commit survives: who gets a partition goes on behind it."""
    return [
        f"group: an acknowledged commit survives: {one.member} begins {TOPIC}-{index} at {start}, and "
        f"{one.acknowledged[index]} was committed"
        for one in history.assignments
        for index, start in one.starts.items()
        if index in one.acknowledged and (start is None or start < one.acknowledged[index])
    ]


def lost_commits(history: GroupHistory, committed: Mapping[int, int]) -> list[str]:
    """`committed`: {partition: offset} as the coordinator has it when all is healed."""
    return [
        f"group: an acknowledged commit survives: {TOPIC}-{index} at {offset}, and the coordinator has "
        f"{committed.get(index)}"
        for index, offset in sorted(history.acknowledged.items())
        if committed.get(index, -1) < offset
    ]


def coordinated(world: World) -> Group | None:
    """The group, at the broker that coordinates it."""
    for broker in world.brokers:
        core = getattr(broker.node, "core", None)
        if not broker.is_up or core is None:
            continue
        for shard in core.groups.shards.values():
            if shard.is_active and GROUP in shard.groups:
                found: Group = shard.groups[GROUP]
                return found
    return None


def committed_offsets(world: World) -> dict[int, int]:
    """{partition: offset} of the group."""
    group, image = coordinated(world), world.image()
    if group is None or image is None:
        return {}
    topic_id = image.topic_ids[TOPIC]
    return {
        key.partition_index: stored.offset
        for key, stored in group.offsets.items()
        if key == PartitionId(topic_id, key.partition_index)
    }


def is_at_rest(world: World) -> bool:
    """All members are in one generation, and each partition is read by one of them."""
    group, image = coordinated(world), world.image()
    if group is None or image is None or group.state is not GroupState.STABLE:
        return False
    wanted = len(image.topics[image.topic_ids[TOPIC]].partitions)
    members = list(world.group.members.values())
    read = sorted(one.partition for member in members for one in member.assignment)
    generations = {member._member.core.generation_id for member in members}
    return read == [*range(wanted)] and generations == {group.generation_id}
