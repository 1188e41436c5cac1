"""Joins, syncs, heartbeats and leaves: Kafka's classic protocol as its own coordinator has it.

A rebalance waits until every member has joined again, at most for the longest rebalance timeout of the
members; then a generation begins, its leader shares the partitions, and what it gives is answered once it is
committed. Members that are silent for their session timeout are removed. A static member keeps its place
when its process comes back within that time, and its former process is fenced.
"""

from collections.abc import Sequence
from functools import partial

from holdfast.broker.core.events import GroupClient
from holdfast.broker.core.groups.config import (
    GROUP_METADATA_MAX_BYTES,
    GROUPS_MAX,
    METADATA_MAX_BYTES,
    NAME_MAX,
    NEW_MEMBER_TIMEOUT_MS,
)
from holdfast.broker.core.groups.group import Group, GroupState, Member, protocol_bytes, said_bytes
from holdfast.broker.core.groups.shard import Shard, Turn
from holdfast.broker.core.groups.timers import cancel
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import (
    GroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeavingMember,
    LeftMember,
    SyncGroupRequest,
    SyncGroupResponse,
)

_PREPARING, _COMPLETING = GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE

_TEXTS = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member; join with an empty member id",
    ErrorCode.ILLEGAL_GENERATION: "the group is in another generation; join again",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group rebalances; join again",
    ErrorCode.FENCED_INSTANCE_ID: "another process has the group instance id; stop one of them",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "use an assignor that all members of the group have",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full (group.max.size)",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with this member id",
    ErrorCode.NOT_COORDINATOR: "another broker coordinates the group; look for it",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "not enough replicas of the offsets are in sync, or the group is "
    "being deleted; try again",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator reads the log of the offsets; try again",
    ErrorCode.INVALID_GROUP_ID: f"give the group a name, of at most {NAME_MAX} characters",
    ErrorCode.INVALID_SESSION_TIMEOUT: "choose a session timeout between group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
}


def text_of(code: ErrorCode) -> str | None:
    """What to do about an error."""
    return None if code is ErrorCode.NONE else _TEXTS.get(code, code.name)


def join_refused(code: ErrorCode, member_id: str = "", text: str | None = None) -> JoinGroupResponse:
    """No generation."""
    return JoinGroupResponse(code, text or text_of(code), -1, None, None, "", False, member_id, ())


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """No assignment."""
    return SyncGroupResponse(code, text_of(code), None, None, b"")


class Membership:
    """What requests and time do to the members of groups."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    # --- join ---------------------------------------------------------------------------------------------

    def join(self, shard: Shard, reply_to: object, request: JoinGroupRequest, client: GroupClient) -> None:
        """Answered when the next generation begins, or with the present one when nothing has changed."""
        refusal = self._join_refusal(shard, request, client)
        if refusal is not None:
            self._turn.respond(reply_to, refusal)
            return
        group = shard.group(request.group_id)
        if not request.member_id:
            self._join_new(shard, group, reply_to, request, client)
        else:
            self._join_known(shard, group, reply_to, request, client)
        self._maybe_complete_join(shard, group)
        shard.forget_if_idle(group)

    def _join_refusal(
        self, shard: Shard, request: JoinGroupRequest, client: GroupClient
    ) -> JoinGroupResponse | None:
        config, member_id = self._turn.config, request.member_id
        if not config.session_timeout_min_ms <= request.session_timeout_ms <= config.session_timeout_max_ms:
            return join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, member_id)
        problem = _too_large(request, client)
        if problem is not None:
            return join_refused(ErrorCode.INVALID_REQUEST, member_id, problem)
        group = shard.groups.get(request.group_id)
        if group is None:
            if member_id:
                return join_refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            if len(shard.groups) >= GROUPS_MAX:
                text = "this broker has no room for further groups; delete some"
                return join_refused(ErrorCode.POLICY_VIOLATION, member_id, text)
            group = Group(request.group_id)
        if group.state is GroupState.DEAD:
            return join_refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
        if not self._accepts(group, member_id):
            member = group.members.get(member_id)
            if member is not None:
                self._remove(shard, group, member, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
        others = sum(one.said_bytes for one in group.members.values() if one.member_id != member_id)
        new_id = member_id or _new_member_id(request, client)
        own = said_bytes(new_id, request.group_instance_id, client.client_id, request.protocols)
        if others + own > GROUP_METADATA_MAX_BYTES:
            text = f"the members of the group say more than {GROUP_METADATA_MAX_BYTES} bytes about themselves"
            return join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, member_id, text)
        if not group.supports(request.protocol_type, [one.name for one in request.protocols]):
            return join_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        return None

    def _accepts(self, group: Group, member_id: str) -> bool:
        """There is room. While a rebalance waits, those that join again first keep their places."""
        size_max = self._turn.config.group_size_max
        if not member_id and len(group.pending) >= size_max:
            return False
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is _PREPARING:
            joined = sum(one.join_reply is not None for one in group.members.values())
            return (member is not None and member.join_reply is not None) or joined < size_max
        return member is not None or len(group.members) < size_max

    def _join_new(
        self, shard: Shard, group: Group, reply_to: object, request: JoinGroupRequest, client: GroupClient
    ) -> None:
        instance = request.group_instance_id
        member_id = _new_member_id(request, client)
        holder = None if instance is None else group.static_members.get(instance)
        if holder is not None:
            self._take_place(shard, group, group.members[holder], member_id, reply_to, request)
        elif instance is None and request.requires_known_member_id:
            group.pending[member_id] = self._turn.after(
                request.session_timeout_ms, lambda: self._pending_due(shard, group, member_id)
            )
            self._turn.respond(reply_to, join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(shard, group, member_id, reply_to, request, client)

    def _join_known(
        self, shard: Shard, group: Group, reply_to: object, request: JoinGroupRequest, client: GroupClient
    ) -> None:
        member_id, instance = request.member_id, request.group_instance_id
        if member_id in group.pending and instance is None:
            self._add(shard, group, member_id, reply_to, request, client)
            return
        code = group.check_member(member_id, instance)
        if code is not ErrorCode.NONE:
            self._turn.respond(reply_to, join_refused(code, member_id))
            return
        member = group.members[member_id]
        names_and_metadata = [(one.name, one.metadata) for one in member.protocols]
        is_same = names_and_metadata == [(one.name, one.metadata) for one in request.protocols]
        is_leader = group.leader == member_id
        if is_same and (group.state is _COMPLETING or (group.state is GroupState.STABLE and not is_leader)):
            # It has not heard the answer to its last request.
            self._hear(shard, group, member)
            self._turn.respond(reply_to, _joined(group, member, shows_members=group.state is _COMPLETING))
            return
        self._update(member, request)
        self._wait_for_join(member, reply_to)
        self._maybe_rebalance(shard, group)

    def _add(
        self,
        shard: Shard,
        group: Group,
        member_id: str,
        reply_to: object,
        request: JoinGroupRequest,
        client: GroupClient,
    ) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )
        self._update(member, request)
        if not group.members:
            group.protocol_type = request.protocol_type
        # Only a group's first generation waits longer for further members.
        if group.state is _PREPARING and group.generation_id == 0:
            group.has_newcomer = True
        group.add(member)
        member.join_reply = reply_to
        self._time(shard, group, member, NEW_MEMBER_TIMEOUT_MS)
        self._maybe_rebalance(shard, group)

    def _update(self, member: Member, request: JoinGroupRequest) -> None:
        member.say(request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        # Clients of the first version give no other timeout.
        member.rebalance_timeout_ms = (
            request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else request.session_timeout_ms
        )

    def _wait_for_join(self, member: Member, reply_to: object) -> None:
        former, member.join_reply = member.join_reply, reply_to
        if former is not None:  # the client has given up waiting for it
            self._turn.respond(former, join_refused(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))

    def _take_place(
        self,
        shard: Shard,
        group: Group,
        member: Member,
        member_id: str,
        reply_to: object,
        request: JoinGroupRequest,
    ) -> None:
        """Another process of a static member: in a stable group whose protocol stays, without a rebalance."""
        former_leader = group.leader
        self._answer(group, member, ErrorCode.FENCED_INSTANCE_ID)
        group.replace_static(member, member_id)
        self._update(member, request)
        self._hear(shard, group, member)
        member.join_reply = reply_to
        if group.state is GroupState.STABLE and group.selected_protocol == group.protocol_name:
            stored = partial(
                self._place_stored, shard, group, member, reply_to, former_leader, request.can_skip_assignment
            )
            shard.write([group.record()], stored)
        else:
            self._maybe_rebalance(shard, group)

    def _place_stored(
        self,
        shard: Shard,
        group: Group,
        member: Member,
        reply_to: object,
        former_leader: str | None,
        can_skip_assignment: bool,
        code: ErrorCode,
    ) -> None:
        if member.join_reply is not reply_to or group.state is not GroupState.STABLE:
            return  # a rebalance has begun meanwhile, and answers it, or another process has taken the place
        member.join_reply = None
        if code is not ErrorCode.NONE:
            self._turn.respond(reply_to, join_refused(code))
            return
        self._hear(shard, group, member)
        if can_skip_assignment:
            self._turn.respond(reply_to, _joined(group, member, skips_assignment=True))
        else:
            # Named as the leader it would share the partitions anew, and no member waits for that.
            self._turn.respond(reply_to, _joined(group, member, leader=former_leader, shows_members=False))

    # --- rebalance ----------------------------------------------------------------------------------------

    def _maybe_rebalance(self, shard: Shard, group: Group) -> None:
        if group.is_in(GroupState.STABLE, _COMPLETING, GroupState.EMPTY):
            self._prepare_rebalance(shard, group)

    def _prepare_rebalance(self, shard: Shard, group: Group) -> None:
        turn = self._turn
        if group.state is _COMPLETING:
            self._propagate(group, ErrorCode.REBALANCE_IN_PROGRESS)
        delay_ms = turn.config.initial_rebalance_delay_ms
        timeout_ms = group.rebalance_timeout_ms
        group.forget_deadlines()
        if group.state is GroupState.EMPTY and delay_ms:
            group.initial_delay_left_ms = max(timeout_ms - delay_ms, 0)
            timeout_ms = delay_ms
        group.has_newcomer = False
        group.enter(_PREPARING, turn.wall_ms)
        self._wait_for_members(shard, group, timeout_ms)
        self._maybe_complete_join(shard, group)

    def _wait_for_members(self, shard: Shard, group: Group, timeout_ms: int) -> None:
        cancel(group.join_timer)
        group.join_timer = self._turn.after(timeout_ms, lambda: self._join_due(shard, group))

    def _join_due(self, shard: Shard, group: Group) -> None:
        if not _is_held(shard, group):
            return
        left_ms = group.initial_delay_left_ms
        if left_ms and group.has_newcomer:  # others may still come
            delay_ms = min(self._turn.config.initial_rebalance_delay_ms, left_ms)
            group.has_newcomer = False
            group.initial_delay_left_ms = left_ms - delay_ms
            self._wait_for_members(shard, group, delay_ms)
            return
        group.initial_delay_left_ms = None
        self._complete_join(shard, group)

    def _maybe_complete_join(self, shard: Shard, group: Group) -> None:
        if group.state is _PREPARING and group.initial_delay_left_ms is None and group.has_all_joined:
            self._complete_join(shard, group)

    def _complete_join(self, shard: Shard, group: Group) -> None:
        for member in list(group.members.values()):
            if member.join_reply is None and member.group_instance_id is None:
                group.remove(member)
        if group.members and not group.elect_joined_leader():
            # Static members only, and none has come back: their sessions decide.
            self._wait_for_members(shard, group, group.rebalance_timeout_ms)
            return
        group.begin_generation(self._turn.wall_ms)
        if not group.members:
            shard.write([group.record()], None)
            group.is_stored = True
            return
        for member in list(group.members.values()):
            self._begin_member(shard, group, member)
        timeout_ms = group.rebalance_timeout_ms
        group.sync_timer = self._turn.after(timeout_ms, lambda: self._sync_due(shard, group))

    def _begin_member(self, shard: Shard, group: Group, member: Member) -> None:
        reply_to, member.join_reply = member.join_reply, None
        if reply_to is not None:
            self._turn.respond(reply_to, _joined(group, member))
        member.is_new = False
        group.not_synced[member.member_id] = None
        self._hear(shard, group, member)

    def _sync_due(self, shard: Shard, group: Group) -> None:
        group.sync_timer = None
        if _is_held(shard, group) and group.not_synced and group.is_in(_COMPLETING, GroupState.STABLE):
            for member_id in list(group.not_synced):
                group.remove(group.members[member_id])
            self._prepare_rebalance(shard, group)

    # --- sync ---------------------------------------------------------------------------------------------

    def sync(self, shard: Shard, reply_to: object, request: SyncGroupRequest) -> None:
        """Answered when the assignments of the generation are committed."""
        group = shard.groups.get(request.group_id)
        code = self._check_sync(group, request)
        if group is None or code is not ErrorCode.NONE:
            self._turn.respond(reply_to, sync_refused(code))
            return
        member = group.members[request.member_id]
        group.not_synced.pop(member.member_id, None)
        if group.state is GroupState.STABLE:
            self._hear(shard, group, member)
            self._turn.respond(reply_to, _synced(group, member))
            return
        former, member.sync_reply = member.sync_reply, reply_to
        if former is not None:
            self._turn.respond(former, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        if group.leader == member.member_id and group.storing_generation != group.generation_id:
            self._store(shard, group, request)

    def _check_sync(self, group: Group | None, request: SyncGroupRequest) -> ErrorCode:
        code = _check(group, request.member_id, request.group_instance_id, request.generation_id)
        if group is None or code is not ErrorCode.NONE:
            return code
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is _PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        sizes = [len(one.assignment) for one in request.assignments]
        if max(sizes, default=0) > METADATA_MAX_BYTES or sum(sizes) > GROUP_METADATA_MAX_BYTES:
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.NONE

    def _store(self, shard: Shard, group: Group, request: SyncGroupRequest) -> None:
        given = {one.member_id: one.assignment for one in request.assignments}
        group.storing_generation = group.generation_id
        stored = partial(self._stored, shard, group, group.generation_id, given)
        shard.write([group.record(given)], stored)

    def _stored(
        self, shard: Shard, group: Group, generation_id: int, given: dict[str, bytes], code: ErrorCode
    ) -> None:
        if group.storing_generation == generation_id:
            group.storing_generation = -1
        if group.state is not _COMPLETING or group.generation_id != generation_id:
            return  # a rebalance has begun meanwhile
        if code is not ErrorCode.NONE:
            if code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                code = ErrorCode.UNKNOWN_SERVER_ERROR  # the group as a whole is too large for a batch
            self._propagate(group, code)
            if code is not ErrorCode.NOT_COORDINATOR:
                self._maybe_rebalance(shard, group)
            return
        group.is_stored = True
        group.enter(GroupState.STABLE, self._turn.wall_ms)
        for member in group.members.values():
            member.assignment = given.get(member.member_id, b"")
            reply_to, member.sync_reply = member.sync_reply, None
            if reply_to is not None:
                self._hear(shard, group, member)
                self._turn.respond(reply_to, _synced(group, member))

    def _propagate(self, group: Group, code: ErrorCode) -> None:
        """The members that wait for an assignment get this error."""
        for member in group.members.values():
            member.assignment = b""
            reply_to, member.sync_reply = member.sync_reply, None
            if reply_to is not None:
                self._turn.respond(reply_to, sync_refused(code))

    # --- heartbeats and leaves ------------------------------------------------------------------------------

    def heartbeat(self, shard: Shard, request: GroupHeartbeatRequest) -> ErrorCode:
        """Whether the member may go on."""
        group = shard.groups.get(request.group_id)
        code = _check(group, request.member_id, request.group_instance_id, request.generation_id)
        if group is None or code is not ErrorCode.NONE:
            return code
        self._hear(shard, group, group.members[request.member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is _PREPARING else ErrorCode.NONE

    def leave(self, shard: Shard, request: LeaveGroupRequest) -> tuple[LeftMember, ...]:
        """One row for each."""
        group = shard.groups.get(request.group_id)
        return tuple(
            LeftMember(one.member_id, one.group_instance_id, self._leave_one(shard, group, one))
            for one in request.members
        )

    def _leave_one(self, shard: Shard, group: Group | None, leaving: LeavingMember) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member_id, instance = leaving.member_id, leaving.group_instance_id
        if instance is not None and not member_id:
            member_id = group.static_members.get(instance, "")
        if instance is None and group.forget_pending(member_id):
            self._maybe_complete_join(shard, group)
            shard.forget_if_idle(group)
            return ErrorCode.NONE
        code = group.check_member(member_id, instance)
        if code is ErrorCode.NONE:
            self._remove(shard, group, group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        return code

    def _remove(self, shard: Shard, group: Group, member: Member, code: ErrorCode) -> None:
        self._answer(group, member, code)
        group.remove(member)
        if group.is_in(GroupState.STABLE, _COMPLETING):
            self._prepare_rebalance(shard, group)
        else:
            self._maybe_complete_join(shard, group)

    def _answer(self, group: Group, member: Member, code: ErrorCode) -> None:
        """What the member waits for does not come."""
        join_reply, member.join_reply = member.join_reply, None
        sync_reply, member.sync_reply = member.sync_reply, None
        if join_reply is not None:
            self._turn.respond(join_reply, join_refused(code, member.member_id))
        if sync_reply is not None:
            self._turn.respond(sync_reply, sync_refused(code))

    # --- time ---------------------------------------------------------------------------------------------

    def hear(self, shard: Shard, group: Group, member_id: str) -> None:
        """A member has shown that it lives."""
        member = group.members.get(member_id)
        if member is not None:
            self._hear(shard, group, member)

    def _hear(self, shard: Shard, group: Group, member: Member) -> None:
        self._time(shard, group, member, member.session_timeout_ms)

    def _time(self, shard: Shard, group: Group, member: Member, timeout_ms: int) -> None:
        deadline_ms = self._turn.now_ms + timeout_ms
        member.session_deadline_ms = deadline_ms
        # A timer is not moved to a later time: when it comes, it is set anew.
        if member.timer is None or deadline_ms < member.timer.due_ms:
            cancel(member.timer)
            member.timer = self._turn.after(timeout_ms, lambda: self._session_due(shard, group, member))

    def _session_due(self, shard: Shard, group: Group, member: Member) -> None:
        member.timer = None
        due_ms = member.session_deadline_ms
        assert due_ms is not None
        if not _is_held(shard, group):
            return
        if due_ms > self._turn.now_ms:
            self._time(shard, group, member, due_ms - self._turn.now_ms)
        elif not member.is_new and (member.join_reply is not None or member.sync_reply is not None):
            self._hear(shard, group, member)  # it waits for the others, and sends nothing meanwhile
        else:
            self._remove(shard, group, member, ErrorCode.UNKNOWN_MEMBER_ID)

    def _pending_due(self, shard: Shard, group: Group, member_id: str) -> None:
        group.forget_pending(member_id)
        if _is_held(shard, group):
            self._maybe_complete_join(shard, group)
            shard.forget_if_idle(group)

    # --- coordination -------------------------------------------------------------------------------------

    def loaded(self, shard: Shard) -> None:
        """The members of the log have their session to be heard of."""
        for group in shard.groups.values():
            for member in group.members.values():
                self._hear(shard, group, member)

    def closed(self, groups: Sequence[Group]) -> None:
        """Another broker coordinates these groups."""
        for group in groups:
            for member in group.members.values():
                self._answer(group, member, ErrorCode.NOT_COORDINATOR)
            group.forget_timers()


def _is_held(shard: Shard, group: Group) -> bool:
    """The group is still one of this coordinator's."""
    return shard.groups.get(group.group_id) is group


def _check(
    group: Group | None, member_id: str, group_instance_id: str | None, generation_id: int
) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = group.check_member(member_id, group_instance_id)
    if code is ErrorCode.NONE and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return code


def _new_member_id(request: JoinGroupRequest, client: GroupClient) -> str:
    instance = request.group_instance_id
    return f"{client.client_id if instance is None else instance}-{client.member_suffix}"


def _too_large(request: JoinGroupRequest, client: GroupClient) -> str | None:
    names = [request.group_instance_id or "", request.protocol_type, request.member_id, client.client_id]
    names += [one.name for one in request.protocols]
    if max(map(len, names)) > NAME_MAX:
        return f"a name in the request has more than {NAME_MAX} characters"
    if protocol_bytes(request.protocols) > METADATA_MAX_BYTES:
        return f"the protocols and their metadata exceed {METADATA_MAX_BYTES} bytes"
    return None


def _joined(
    group: Group,
    member: Member,
    *,
    leader: str | None = None,
    shows_members: bool = True,
    skips_assignment: bool = False,
) -> JoinGroupResponse:
    is_leader = group.leader == member.member_id
    return JoinGroupResponse(
        ErrorCode.NONE,
        None,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        leader or group.leader or "",
        is_leader and skips_assignment,
        member.member_id,
        group.described_members() if is_leader and shows_members else (),
    )


def _synced(group: Group, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        ErrorCode.NONE, None, group.protocol_type, group.protocol_name, member.assignment
    )
