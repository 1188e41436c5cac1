"""The group APIs: FindCoordinator (10), JoinGroup (11), Heartbeat (12), LeaveGroup (13), SyncGroup (14),
DescribeGroups (15), ListGroups (16), DeleteGroups (42). Kafka's classic protocol, with static membership.

`messages.committed_offsets` has the offsets of a group.
"""

from holdfast.protocol.schema.fields import (
    array,
    array_of,
    binary,
    boolean,
    field,
    int16,
    int32,
    message,
    nullable,
    sentence,
    string,
)

#: `generation_id` of who is no member.
NO_GENERATION = -1


@message
class FindCoordinatorRequest:
    """Which broker coordinates these groups. The topic of the offsets is created when it is missing."""

    group_ids: tuple[str, ...] = field(array(string), "Groups.")


@message
class Coordinator:
    """The coordinator of one group."""

    group_id: str = field(string, "Group.")
    error_code: int = field(int16, "NONE, INVALID_GROUP_ID or COORDINATOR_NOT_AVAILABLE.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    node_id: int = field(int32, "Broker, -1 on error.")
    host: str = field(string, "Its address at the listener of the request.")
    port: int = field(int32, "Its port, -1 on error.")


@message
class FindCoordinatorResponse:
    """One row for each group, in order."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    coordinators: tuple[Coordinator, ...] = field(array_of(Coordinator), "Rows.")


@message
class JoinGroupProtocol:
    """One way of sharing partitions that a member knows, with what it says to the one who shares them."""

    name: str = field(string, "Name of the assignor.")
    metadata: bytes = field(binary, "Its subscription; the coordinator does not read it.")


@message
class JoinGroupRequest:
    """Become a member, or go on as one in the next generation."""

    group_id: str = field(string, "Group.")
    session_timeout_ms: int = field(int32, "Without a heartbeat for so long the member is removed.")
    rebalance_timeout_ms: int = field(int32, "How long a rebalance waits for this member.")
    member_id: str = field(string, "Empty for a new member.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")
    protocol_type: str = field(string, "Kind of the group, `consumer` for consumers.")
    protocols: tuple[JoinGroupProtocol, ...] = field(
        array_of(JoinGroupProtocol), "What the member knows, best first."
    )
    requires_known_member_id: bool = field(
        boolean, "A new member gets its id with MEMBER_ID_REQUIRED first, and joins with it then."
    )
    can_skip_assignment: bool = field(boolean, "A leader that takes its place again may share nothing anew.")


@message
class JoinGroupMember:
    """One member, for the leader of the group."""

    member_id: str = field(string, "Member.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")
    metadata: bytes = field(binary, "Its subscription for the chosen protocol.")


@message
class JoinGroupResponse:
    """The generation that begins."""

    error_code: int = field(int16, "NONE, or why the member does not join.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    generation_id: int = field(int32, "Generation, -1 on error.")
    protocol_type: str | None = field(nullable(string), "Kind of the group.")
    protocol_name: str | None = field(nullable(string), "The protocol that most members prefer.")
    leader: str = field(string, "Member that shares the partitions.")
    skip_assignment: bool = field(boolean, "This leader has nothing to share: the assignments stay.")
    member_id: str = field(string, "Id of this member.")
    members: tuple[JoinGroupMember, ...] = field(array_of(JoinGroupMember), "For the leader only.")


@message
class SyncGroupAssignment:
    """What one member gets."""

    member_id: str = field(string, "Member.")
    assignment: bytes = field(binary, "Its partitions; the coordinator does not read it.")


@message
class SyncGroupRequest:
    """The leader gives the assignments, the others ask for theirs."""

    group_id: str = field(string, "Group.")
    generation_id: int = field(int32, "Generation.")
    member_id: str = field(string, "Member.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")
    protocol_type: str | None = field(nullable(string), "Checked when it is given.")
    protocol_name: str | None = field(nullable(string), "Checked when it is given.")
    assignments: tuple[SyncGroupAssignment, ...] = field(
        array_of(SyncGroupAssignment), "From the leader only."
    )


@message
class SyncGroupResponse:
    """The member's assignment, which is committed."""

    error_code: int = field(int16, "NONE, or why there is none.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    protocol_type: str | None = field(nullable(string), "Kind of the group.")
    protocol_name: str | None = field(nullable(string), "The chosen protocol.")
    assignment: bytes = field(binary, "Its partitions.")


@message
class GroupHeartbeatRequest:
    """A member lives."""

    group_id: str = field(string, "Group.")
    generation_id: int = field(int32, "Generation.")
    member_id: str = field(string, "Member.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")


@message
class GroupHeartbeatResponse:
    """Whether it may go on."""

    error_code: int = field(int16, "NONE, REBALANCE_IN_PROGRESS to join again, or why it is no member.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class LeavingMember:
    """One member that leaves; a static one may be named by its instance id alone."""

    member_id: str = field(string, "Member, or empty.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")


@message
class LeaveGroupRequest:
    """Members leave."""

    group_id: str = field(string, "Group.")
    members: tuple[LeavingMember, ...] = field(array_of(LeavingMember), "Who leaves.")


@message
class LeftMember:
    """What became of one."""

    member_id: str = field(string, "As in the request.")
    group_instance_id: str | None = field(nullable(string), "As in the request.")
    error_code: int = field(int16, "NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.")


@message
class LeaveGroupResponse:
    """One row for each member, in order."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    members: tuple[LeftMember, ...] = field(array_of(LeftMember), "Rows.")


@message
class DescribeGroupsRequest:
    """Groups of this coordinator."""

    group_ids: tuple[str, ...] = field(array(string), "Groups.")


@message
class DescribedMember:
    """One member."""

    member_id: str = field(string, "Member.")
    group_instance_id: str | None = field(nullable(string), "Name of a static member.")
    client_id: str = field(string, "What its client calls itself.")
    client_host: str = field(string, "Where it comes from.")
    metadata: bytes = field(binary, "Its subscription; empty unless the group is stable.")
    assignment: bytes = field(binary, "Its partitions; empty unless the group is stable.")


@message
class DescribedGroup:
    """One group."""

    error_code: int = field(int16, "NONE, GROUP_ID_NOT_FOUND, NOT_COORDINATOR and the like.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    group_id: str = field(string, "Group.")
    state: str = field(string, "Empty, PreparingRebalance, CompletingRebalance, Stable or Dead.")
    protocol_type: str = field(string, "Kind of the group.")
    protocol_name: str = field(string, "The chosen protocol; empty unless the group is stable.")
    members: tuple[DescribedMember, ...] = field(array_of(DescribedMember), "Members.")


@message
class DescribeGroupsResponse:
    """One row for each group, in order."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    groups: tuple[DescribedGroup, ...] = field(array_of(DescribedGroup), "Rows.")


@message
class ListGroupsRequest:
    """The groups that this broker coordinates."""

    states: tuple[str, ...] = field(array(string), "Only groups in these states; empty for all.")


@message
class ListedGroup:
    """One group."""

    group_id: str = field(string, "Group.")
    protocol_type: str = field(string, "Kind of the group; empty when only offsets were committed.")
    state: str = field(string, "As in DescribeGroups.")


@message
class ListGroupsResponse:
    """Groups, ascending."""

    error_code: int = field(int16, "NONE, or COORDINATOR_LOAD_IN_PROGRESS: some are not known yet.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    groups: tuple[ListedGroup, ...] = field(array_of(ListedGroup), "Rows.")


@message
class DeleteGroupsRequest:
    """Groups without members and their offsets are deleted."""

    group_ids: tuple[str, ...] = field(array(string), "Groups.")


@message
class DeletedGroup:
    """What became of one."""

    group_id: str = field(string, "Group.")
    error_code: int = field(int16, "NONE, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class DeleteGroupsResponse:
    """One row for each group, in order; answered when the deletions are committed."""

    error_code: int = field(int16, "NONE, or why the whole request was refused.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    groups: tuple[DeletedGroup, ...] = field(array_of(DeletedGroup), "Rows.")
