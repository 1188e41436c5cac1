"""How the leader of a group shares the partitions: range, roundrobin and cooperative-sticky, as in Kafka.

All members of all libraries must come to the same names, not to the same assignment: one member decides for
all. Static members are ordered by their instance id, so that a restart moves nothing.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from holdfast.client.core.groups.consumer_protocol import UNKNOWN_GENERATION, Subscription
from holdfast.protocol.topic_names import TopicPartition

#: {member: its partitions}, with a row for each member
Assignment = dict[str, list[TopicPartition]]


class JoinedMember(NamedTuple):
    """One member as the leader sees it."""

    member_id: str
    group_instance_id: str | None
    subscription: Subscription


Assignor = Callable[[Iterable[JoinedMember], Mapping[str, int]], Assignment]


def assign_range(members: Iterable[JoinedMember], counts: Mapping[str, int]) -> Assignment:
    """Topic by topic a run of neighbours for each; the first members get one more when it does not come out
    even. `counts`: {topic: partitions}."""
    ordered = _ordered(members)
    found: Assignment = {one.member_id: [] for one in ordered}
    for topic, count in sorted(counts.items()):
        readers = [one.member_id for one in ordered if topic in one.subscription.topics]
        if not readers:
            continue
        share, more = divmod(count, len(readers))
        start = 0
        for number, member_id in enumerate(readers):
            end = start + share + (number < more)
            found[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return found


def assign_roundrobin(members: Iterable[JoinedMember], counts: Mapping[str, int]) -> Assignment:
    """All partitions of all topics in turn. `counts`: {topic: partitions}."""
    ordered = deque(_ordered(members))
    found: Assignment = {one.member_id: [] for one in ordered}
    for topic, count in sorted(counts.items()):
        if not any(topic in one.subscription.topics for one in ordered):
            continue
        for index in range(count):
            while topic not in ordered[0].subscription.topics:
                ordered.rotate(-1)
            found[ordered[0].member_id].append(TopicPartition(topic, index))
            ordered.rotate(-1)
    return found


def assign_cooperative_sticky(members: Iterable[JoinedMember], counts: Mapping[str, int]) -> Assignment:
    """As even as can be, and everything else stays where it is. `counts`: {topic: partitions}.

    A partition that has to go to another member is left out while its owner still reads it: the owner lets go
    of it and joins again, and the next generation gives it away.
    """
    ordered = _ordered(members)
    claims = _claims(ordered, counts)
    shares = _Shares(ordered, counts)
    for partition, owners in claims.items():
        if len(owners) == 1 and partition.topic in shares.topics[owners[0]]:
            shares.give(partition, owners[0])
    shares.give_the_rest(counts)
    shares.balance()
    for member_id, partitions in shares.given.items():
        kept = [one for one in partitions if set(claims.get(one, ())) <= {member_id}]
        shares.given[member_id] = sorted(kept)
    return shares.given


#: {name: assignor}
ASSIGNORS: dict[str, Assignor] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "cooperative-sticky": assign_cooperative_sticky,
}
#: Names of those that leave to members what they keep, while the group rebalances.
COOPERATIVE = frozenset({"cooperative-sticky"})


def _ordered(members: Iterable[JoinedMember]) -> list[JoinedMember]:
    return sorted(
        members, key=lambda one: (one.group_instance_id is None, one.group_instance_id or "", one.member_id)
    )


def _claims(members: list[JoinedMember], counts: Mapping[str, int]) -> dict[TopicPartition, list[str]]:
    """{partition that exists: members that read it}. What a member got in an older generation than another
    one's counts for nothing; a member whose library does not say may be right."""
    found: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member_id, _, subscription in members:
        for one in subscription.owned:
            if one.partition < counts.get(one.topic, 0):
                found.setdefault(one, []).append((subscription.generation_id, member_id))
    newest = {one: max(generation for generation, _ in rows) for one, rows in found.items()}
    return {
        one: [member_id for generation, member_id in rows if generation in (newest[one], UNKNOWN_GENERATION)]
        for one, rows in found.items()
    }


class _Shares:
    """Who has what so far. Each move makes the shares more even, so moving comes to an end."""

    def __init__(self, members: list[JoinedMember], counts: Mapping[str, int]) -> None:
        self.given: Assignment = {one.member_id: [] for one in members}
        self.topics = {one.member_id: frozenset(one.subscription.topics) for one in members}
        #: {topic: members that want it}
        self._readers = {
            topic: [member_id for member_id in self.given if topic in self.topics[member_id]]
            for topic in sorted(counts)
        }
        self._taken: dict[TopicPartition, str] = {}

    def give(self, partition: TopicPartition, member_id: str) -> None:
        """It has no owner so far."""
        self.given[member_id].append(partition)
        self._taken[partition] = member_id

    def give_the_rest(self, counts: Mapping[str, int]) -> None:
        """To those who have the least; first what few members want."""
        for topic, readers in sorted(self._readers.items(), key=lambda row: (len(row[1]), row[0])):
            for index in range(counts[topic] if readers else 0):
                partition = TopicPartition(topic, index)
                if partition not in self._taken:
                    self.give(partition, min(readers, key=lambda member_id: len(self.given[member_id])))

    def balance(self) -> None:
        """Move partitions, also through members between, until no share can become smaller that is larger
        by two than another."""
        while any(self._move_from(member_id) for member_id in self._by_load()):
            pass

    def _by_load(self) -> list[str]:
        return sorted(self.given, key=lambda member_id: -len(self.given[member_id]))

    def _move_from(self, giver: str) -> bool:
        """Begin a chain of moves at this member; False when none helps."""
        goal = len(self.given[giver]) - 2
        came_from: dict[str, tuple[str, str]] = {}
        waiting = deque([giver])
        while waiting:
            member_id = waiting.popleft()
            for topic in sorted(Counter(one.topic for one in self.given[member_id])):
                for reader in self._readers[topic]:
                    if reader == giver or reader in came_from:
                        continue
                    came_from[reader] = (member_id, topic)
                    if len(self.given[reader]) <= goal:
                        self._carry_out(reader, came_from, giver)
                        return True
                    waiting.append(reader)
        return False

    def _carry_out(self, taker: str, came_from: Mapping[str, tuple[str, str]], giver: str) -> None:
        while taker != giver:
            owner, topic = came_from[taker]
            # the last one that it was given: what it had before stays
            place = max(place for place, one in enumerate(self.given[owner]) if one.topic == topic)
            self.give(self.given[owner].pop(place), taker)
            taker = owner
