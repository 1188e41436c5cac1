"""FindCoordinator and the APIs of groups and their members; the broker that coordinates a group answers."""

from collections.abc import Callable
from typing import Any

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import group_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupHeartbeatRequest,
    GroupHeartbeatResponse,
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)

#: Kafka's code that clients do not try again: they raise at once what they were refused.
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
#: Kafka's, of a protocol that is switched off: it ends a consumer, too.
_UNSUPPORTED_VERSION = 35
_NO_CONSUMER_PROTOCOL = "the consumer group protocol (KIP-848) is not served; use group.protocol=classic"
_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_NO_TRANSACTIONS = "transactions are not served; leave transactional.id unset"

_FIRST_JOIN_WITH_KNOWN_ID = 4
_FIRST_JOIN_WITH_NULL_PROTOCOL = 7
_FIRST_JOIN_WITHOUT_ASSIGNMENT = 9
_FIRST_LEAVE_WITH_ROWS = 3
_FIRST_DESCRIBE_WITH_NOT_FOUND = 6
#: Kafka's name of the groups that are served here.
_CLASSIC = "classic"


def find_coordinator(request: Request, cluster: ClusterView) -> Outcome:
    """The broker that coordinates a group. Transactions are refused with a code that nothing tries again."""
    message = request.message
    keys = getattr(message, "coordinator_keys", None)
    asked: tuple[str, ...] = (message.key,) if keys is None else tuple(keys)
    key_type = getattr(message, "key_type", _GROUP_KEY)
    if key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        text = f"{key_type} is no type of keys that have a coordinator here"
        return _nowhere(asked, int(ErrorCode.INVALID_REQUEST), text)
    if key_type == _TRANSACTION_KEY:
        return _nowhere(asked, _TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)

    def answer(response: FindCoordinatorResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        rows = [
            {
                "key": key,
                "node_id": row.node_id,
                "host": row.host,
                "port": row.port,
                "error_code": group_code(row.error_code),
                "error_message": row.error_message,
            }
            for key, row in zip(asked, response.coordinators, strict=True)
        ]
        first = rows[0] if rows else {}
        return {"error_code": 0, **first, "coordinators": rows}

    def refused(code: int, text: str) -> Outcome:
        return _nowhere(asked, int(ErrorCode.COORDINATOR_NOT_AVAILABLE), text)

    return Ask(FindCoordinatorRequest(asked), answer, refused)


def _nowhere(keys: tuple[str, ...], code: int, text: str) -> Fields:
    nowhere = {"node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": text}
    return {**nowhere, "coordinators": [{**nowhere, "key": key} for key in keys]}


def consumer_group_heartbeat(request: Request, cluster: ClusterView) -> Outcome:
    """Refused. It is served only for this: where the API is not in the answer to ApiVersions, librdkafka
    looks for another coordinator for ever and says nothing. Kafka with the protocol switched off answers
    the same code, which ends the consumer with an error."""
    return {
        "error_code": _UNSUPPORTED_VERSION,
        "error_message": _NO_CONSUMER_PROTOCOL,
        "member_epoch": 0,
        "heartbeat_interval": 0,
    }


# --- members -------------------------------------------------------------------------------------------


def join_group(request: Request, cluster: ClusterView) -> Outcome:
    """Answered when the members have joined the next generation."""
    message, version = request.message, request.version
    ours = JoinGroupRequest(
        message.group_id,
        message.session_timeout,
        getattr(message, "rebalance_timeout", -1),
        message.member_id,
        getattr(message, "group_instance_id", None),
        message.protocol_type,
        tuple(JoinGroupProtocol(one.name, one.metadata) for one in message.protocols),
        version >= _FIRST_JOIN_WITH_KNOWN_ID,
        version >= _FIRST_JOIN_WITHOUT_ASSIGNMENT,
    )
    no_name = None if version >= _FIRST_JOIN_WITH_NULL_PROTOCOL else ""
    member_id: str = message.member_id

    def answer(response: JoinGroupResponse) -> Outcome:
        return {
            "error_code": group_code(response.error_code),
            "generation_id": response.generation_id,
            "protocol_type": response.protocol_type,
            "protocol_name": no_name if response.protocol_name is None else response.protocol_name,
            "leader": response.leader,
            "skip_assignment": response.skip_assignment,
            "member_id": response.member_id,
            "members": [
                {
                    "member_id": one.member_id,
                    "group_instance_id": one.group_instance_id,
                    "metadata": one.metadata,
                }
                for one in response.members
            ],
        }

    def refused(code: int, text: str) -> Outcome:
        return answer(JoinGroupResponse(code, text, -1, None, None, "", False, member_id, ()))

    return Ask(ours, answer, refused)


def sync_group(request: Request, cluster: ClusterView) -> Outcome:
    """Answered when the leader has given the assignments and they are committed."""
    message = request.message
    ours = SyncGroupRequest(
        message.group_id,
        message.generation_id,
        message.member_id,
        getattr(message, "group_instance_id", None),
        getattr(message, "protocol_type", None),
        getattr(message, "protocol_name", None),
        tuple(SyncGroupAssignment(one.member_id, one.assignment) for one in message.assignments),
    )

    def answer(response: SyncGroupResponse) -> Outcome:
        return {
            "error_code": group_code(response.error_code),
            "protocol_type": response.protocol_type,
            "protocol_name": response.protocol_name,
            "assignment": response.assignment,
        }

    return Ask(ours, answer, lambda code, _: {"error_code": group_code(code), "assignment": b""})


def heartbeat(request: Request, cluster: ClusterView) -> Outcome:
    """Whether a member may go on, or must join again."""
    message = request.message
    instance = getattr(message, "group_instance_id", None)
    ours = GroupHeartbeatRequest(message.group_id, message.generation_id, message.member_id, instance)

    def answer(response: GroupHeartbeatResponse) -> Outcome:
        return {"error_code": group_code(response.error_code)}

    return Ask(ours, answer, lambda code, _: {"error_code": group_code(code)})


def leave_group(request: Request, cluster: ClusterView) -> Outcome:
    """Members leave, static ones also by their instance id."""
    message = request.message
    has_rows = request.version >= _FIRST_LEAVE_WITH_ROWS
    leaving = (
        tuple(
            LeavingMember(one.member_id, getattr(one, "group_instance_id", None)) for one in message.members
        )
        if has_rows
        else (LeavingMember(message.member_id, None),)
    )

    def answer(response: LeaveGroupResponse) -> Outcome:
        code = response.error_code
        if not has_rows and response.members:
            code = code or response.members[0].error_code
        rows = [
            {
                "member_id": one.member_id,
                "group_instance_id": one.group_instance_id,
                "error_code": group_code(one.error_code),
            }
            for one in response.members
        ]
        return {"error_code": group_code(code), "members": rows}

    ours = LeaveGroupRequest(message.group_id, leaving)
    return Ask(ours, answer, lambda code, _: {"error_code": group_code(code), "members": ()})


# --- operators -----------------------------------------------------------------------------------------


def list_groups(request: Request, cluster: ClusterView) -> Outcome:
    """The groups that this broker coordinates."""
    message = request.message
    types = [one.lower() for one in getattr(message, "types_filter", ())]
    if types and _CLASSIC not in types:
        return {"error_code": 0, "groups": ()}

    def answer(response: ListGroupsResponse) -> Outcome:
        rows = [
            {
                "group_id": one.group_id,
                "protocol_type": one.protocol_type,
                "group_state": one.state,
                "group_type": _CLASSIC,
            }
            for one in response.groups
        ]
        return {"error_code": group_code(response.error_code), "groups": rows}

    ours = ListGroupsRequest(tuple(getattr(message, "states_filter", ())))
    return Ask(ours, answer, lambda code, _: {"error_code": group_code(code), "groups": ()})


def describe_groups(request: Request, cluster: ClusterView) -> Outcome:
    """State and members of groups of this coordinator."""
    group_ids: tuple[str, ...] = tuple(request.message.groups)
    says_not_found = request.version >= _FIRST_DESCRIBE_WITH_NOT_FOUND

    def answer(response: DescribeGroupsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        return {"groups": [_described(one, says_not_found=says_not_found) for one in response.groups]}

    def refused(code: int, text: str) -> Outcome:
        rows = (DescribedGroup(code, text, group_id, "", "", "", ()) for group_id in group_ids)
        return {"groups": [_described(one, says_not_found=True) for one in rows]}

    return Ask(DescribeGroupsRequest(group_ids), answer, refused)


def _described(group: DescribedGroup, *, says_not_found: bool) -> Fields:
    code = group_code(group.error_code)
    if code == ErrorCode.GROUP_ID_NOT_FOUND and not says_not_found:
        code = 0
    members = [
        {
            "member_id": one.member_id,
            "group_instance_id": one.group_instance_id,
            "client_id": one.client_id,
            "client_host": f"/{one.client_host}",
            "member_metadata": one.metadata,
            "member_assignment": one.assignment,
        }
        for one in group.members
    ]
    return {
        "error_code": code,
        "error_message": group.error_message if code else None,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": members,
    }


def delete_groups(request: Request, cluster: ClusterView) -> Outcome:
    """Groups without members, with their offsets."""
    group_ids: tuple[str, ...] = tuple(request.message.groups_names)

    def answer(response: DeleteGroupsResponse) -> Outcome:
        if response.error_code:
            return finish(lambda index: response.error_code)
        return finish(lambda index: response.groups[index].error_code)

    def finish(code_of: Callable[[int], int]) -> Outcome:
        rows: list[dict[str, Any]] = [
            {"group_id": group_id, "error_code": group_code(code_of(index))}
            for index, group_id in enumerate(group_ids)
        ]
        return {"results": rows}

    return Ask(DeleteGroupsRequest(group_ids), answer, lambda code, _: finish(lambda index: code))
