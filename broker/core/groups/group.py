"""One group: its members, its generation and its committed offsets. Kafka's classic protocol.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
    any but Empty -> Empty when the last member has gone; Dead once it is deleted

Owns what a group is. `membership` decides what requests and time do to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from holdfast.broker.core.groups.config import PROTOCOL_BYTES
from holdfast.broker.core.groups.records import GroupKey, GroupRecord, GroupValue, MemberValue
from holdfast.broker.core.groups.subscription import subscribed_topics
from holdfast.broker.core.groups.timers import Timer, cancel
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import JoinGroupMember, JoinGroupProtocol

#: The kind of groups whose members are consumers.
CONSUMER = "consumer"


class GroupState(Enum):
    """Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class StoredOffset(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str | None
    commit_timestamp_ms: int


def said_bytes(
    member_id: str, group_instance_id: str | None, client_id: str, protocols: Iterable[JoinGroupProtocol]
) -> int:
    """What a member makes its coordinator keep."""
    names = len(f"{member_id}{group_instance_id or ''}{client_id}".encode())
    return names + protocol_bytes(protocols)


def protocol_bytes(protocols: Iterable[JoinGroupProtocol]) -> int:
    """What its protocols make its coordinator keep."""
    return sum(PROTOCOL_BYTES + len(one.name.encode()) + len(one.metadata) for one in protocols)


@dataclass(slots=True, eq=False)
class Member:
    """One member. `join_reply` and `sync_reply`: its request that waits for the others."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[JoinGroupProtocol, ...]
    assignment: bytes = b""
    join_reply: object | None = None
    sync_reply: object | None = None
    #: it has joined, and no generation has begun since
    is_new: bool = False
    #: when it is removed unless it is heard of
    session_deadline_ms: int | None = None
    #: of its session, perhaps for an earlier time
    timer: Timer | None = None
    #: bytes of what it says, in all protocols, and of its names; kept, since each join adds up all members
    said_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.say(self.protocols)

    def say(self, protocols: tuple[JoinGroupProtocol, ...]) -> None:
        """What it knows and what it says to the leader."""
        self.protocols = protocols
        self.said_bytes = said_bytes(self.member_id, self.group_instance_id, self.client_id, protocols)

    @property
    def described_bytes(self) -> int:
        """Bytes of its description, about."""
        return self.said_bytes + len(self.assignment)

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """What it says for a protocol."""
        return next((one.metadata for one in self.protocols if one.name == protocol_name), b"")

    @property
    def protocol_names(self) -> list[str]:
        """What it knows, best first."""
        return [one.name for one in self.protocols]


@dataclass(slots=True, eq=False)
class Group:
    """One group."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str = ""
    protocol_name: str | None = None
    leader: str | None = None
    #: when the state was entered, ms since 1970
    state_timestamp_ms: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    #: {group instance id: member id}
    static_members: dict[str, str] = field(default_factory=dict)
    #: {member id that was given out and has not joined yet: the timer that forgets it}
    pending: dict[str, Timer] = field(default_factory=dict)
    #: members of this generation that have not asked for their assignment
    not_synced: dict[str, None] = field(default_factory=dict)
    offsets: dict[PartitionId, StoredOffset] = field(default_factory=dict)
    #: removes the members that have not joined again
    join_timer: Timer | None = None
    #: the first generation waits for further members: until then, and how much longer it may be extended
    initial_delay_left_ms: int | None = None
    has_newcomer: bool = False
    #: removes the members that have not asked for their assignment
    sync_timer: Timer | None = None
    #: generation whose assignments are being written, -1 for none
    storing_generation: int = -1
    #: a record of it is in the log
    is_stored: bool = False

    # --- queries ------------------------------------------------------------------------------------------

    def is_in(self, *states: GroupState) -> bool:
        """It is in one of these states."""
        return self.state in states

    @property
    def is_forgotten(self) -> bool:
        """Nothing is to be remembered of it."""
        return self.state is GroupState.EMPTY and not self.offsets and not self.pending

    @property
    def has_all_joined(self) -> bool:
        """Every member, and each client that has got an id, has joined the next generation."""
        return not self.pending and all(member.join_reply is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of its members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def described_bytes(self) -> int:
        """Bytes of its description, about."""
        return sum(member.described_bytes for member in self.members.values())

    def supports(self, protocol_type: str, names: Sequence[str]) -> bool:
        """A member with these protocols can join."""
        if not self.members:
            return bool(protocol_type and names)
        return protocol_type == self.protocol_type and not self._known_by_all().isdisjoint(names)

    def _known_by_all(self) -> set[str]:
        known = [set(member.protocol_names) for member in self.members.values()]
        return set.intersection(*known) if known else set()

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when another process has the name of a static member."""
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def described_members(self) -> tuple[JoinGroupMember, ...]:
        """For the leader."""
        return tuple(
            JoinGroupMember(
                member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name)
            )
            for member in self.members.values()
        )

    def subscribed(self) -> frozenset[str] | None:
        """Names of the topics that its members read; None when that cannot be known."""
        if self.protocol_type != CONSUMER or self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata_for(self.protocol_name))
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    # --- changes ------------------------------------------------------------------------------------------

    def enter(self, state: GroupState, wall_ms: int) -> None:
        """Another state."""
        self.state = state
        self.state_timestamp_ms = wall_ms

    def add(self, member: Member) -> None:
        """A new member; the first one leads and says what kind of group it is."""
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.forget_pending(member.member_id)

    def forget_pending(self, member_id: str) -> bool:
        """An id that was given out is not waited for any more; False when it is not."""
        timer = self.pending.pop(member_id, None)
        cancel(timer)
        return timer is not None

    def remove(self, member: Member) -> None:
        """A member is no such any more."""
        del self.members[member.member_id]
        cancel(member.timer)
        self.not_synced.pop(member.member_id, None)
        instance = member.group_instance_id
        if instance is not None and self.static_members.get(instance) == member.member_id:
            del self.static_members[instance]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace_static(self, member: Member, new_id: str) -> None:
        """Another process has taken the place of a static member: the old id is fenced from here on."""
        old_id = member.member_id
        member.member_id = new_id
        self.members = {one.member_id: one for one in self.members.values()}
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if self.not_synced.pop(old_id, 1) is None:
            self.not_synced[new_id] = None

    def elect_joined_leader(self) -> bool:
        """The leader is one that has joined again; False when no member has."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_reply is not None:
            return True
        joined = (one.member_id for one in self.members.values() if one.join_reply is not None)
        found = next(joined, None)
        if found is not None:
            self.leader = found
        return found is not None

    def forget_deadlines(self) -> None:
        """What the members were given time for is over."""
        cancel(self.join_timer)
        cancel(self.sync_timer)
        self.join_timer = self.sync_timer = self.initial_delay_left_ms = None

    def forget_timers(self) -> None:
        """Nothing is due any more: another broker coordinates the group, or it is deleted."""
        self.forget_deadlines()
        for timer in self.pending.values():
            timer.cancel()
        for member in self.members.values():
            cancel(member.timer)

    def begin_generation(self, wall_ms: int) -> None:
        """The next generation, of those that are members now."""
        # A generation is an int32 on the wire.
        self.generation_id = self.generation_id % 0x7FFFFFFF + 1
        self.not_synced.clear()
        self.forget_deadlines()
        self.has_newcomer = False
        if self.members:
            self.protocol_name = self.selected_protocol
            self.enter(GroupState.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = self.leader = None
            self.enter(GroupState.EMPTY, wall_ms)

    @property
    def selected_protocol(self) -> str:
        """Every member votes for the first in its list that all know."""
        candidates = self._known_by_all()
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next(name for name in member.protocol_names if name in candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    # --- records ------------------------------------------------------------------------------------------

    def record(self, assignments: dict[str, bytes] | None = None) -> GroupRecord:
        """This generation, with these assignments or those of the members."""
        members = tuple(
            MemberValue(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(self.protocol_name),
                member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        value = GroupValue(
            self.protocol_type,
            self.generation_id,
            self.protocol_name,
            self.leader if members else None,
            self.state_timestamp_ms,
            members,
        )
        return GroupRecord(GroupKey(self.group_id), value)

    def load(self, value: GroupValue) -> None:
        """As the record has it: stable with members, else empty."""
        self.protocol_type = value.protocol_type
        self.generation_id = value.generation_id
        self.protocol_name = value.protocol_name
        self.state_timestamp_ms = value.state_timestamp_ms
        self.members, self.static_members, self.leader = {}, {}, None
        for stored in value.members:
            self.add(_member(stored, value.protocol_name))
        self.leader = value.leader
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.is_stored = True


def _member(stored: MemberValue, protocol_name: str | None) -> Member:
    return Member(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout_ms,
        stored.session_timeout_ms,
        (JoinGroupProtocol(protocol_name or "", stored.subscription),),
        stored.assignment,
    )


def in_states(groups: Iterable[Group], states: Sequence[str]) -> list[Group]:
    """Those whose state is named, in any case; all when none is."""
    wanted = {state.lower() for state in states}
    return [group for group in groups if not wanted or group.state.value.lower() in wanted]
