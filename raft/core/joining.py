"""How a controller makes itself a voter, where its operator has allowed that (K30).

Owns nothing; works on the member. It asks the leader as an operator would, once the metadata log names the
voters and it has what they have, and asks again until it is one.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import AddRaftVoterRequest, AddRaftVoterResponse
from holdfast.raft.core.member import Member
from holdfast.raft.core.roles import Follower

#: The answer waits for the commit, or for the end of the leadership; a lost one is asked for again.
ANSWER_WAIT_MS = 10_000


def due_ms(member: Member) -> int | None:
    """When to ask; None where it need not, or cannot now."""
    config, role = member.config, member.role
    if config.joins_as is None or member.join_request_id is not None or not member.voters.are_named:
        return None
    # One whose id another directory has is refused as long as that one is a voter: a human decides.
    if config.node_id in member.voters.ids or not member.has_caught_up:
        return None
    is_led = isinstance(role, Follower) and role.has_fetched and not role.is_leader_gone
    return member.join_at_ms if is_led else None


def send(member: Member) -> None:
    """Ask when that is due."""
    at_ms, config, leader_id = due_ms(member), member.config, member.leader_id
    if at_ms is not None and leader_id is not None and at_ms <= member.now_ms:
        request = AddRaftVoterRequest(config.node_id, member.state.directory_id, config.joins_as)
        member.join_request_id = member.send(leader_id, request, ANSWER_WAIT_MS)


def answered(member: Member, request_id: int, response: AddRaftVoterResponse) -> None:
    """The leader has made this member a voter, or says why it does not."""
    failed(member, request_id)
    if response.error_code != ErrorCode.NONE:
        member.note(f"this controller is no voter yet: {response.error_message}")


def failed(member: Member, request_id: int) -> None:
    """The question under way has ended, if it was that: it is asked again while this member is no voter."""
    if request_id == member.join_request_id:
        member.join_request_id = None
        member.join_at_ms = member.now_ms + member.config.request_timeout_ms
