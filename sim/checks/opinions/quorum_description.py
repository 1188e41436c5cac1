"""What a leader of the quorum tells of the others, worked out once more from what they have asked it (K16).

Owns a second opinion: sentences about where the leader differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse, QuorumReplica
from holdfast.raft.core.effects import Reply, RequestReceived
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.node import RaftNode


@dataclass(slots=True)
class _Fetched:
    """The newest fetch of a replica in this epoch: its end, when, and where the leader's log ended then."""

    end_offset: int
    at_ms: int
    leaders_end: int
    caught_up_ms: int | None


class QuorumTold:
    """Of one voter's process."""

    def __init__(self, voter: RaftNode) -> None:
        self._voter = voter
        self._role: Any = None
        self._fetched: dict[int, _Fetched] = {}

    def differs(self, event: Any, effects: Sequence[Any], now_ms: int) -> list[str]:
        """What is wrong with what an event has led to."""
        role, former = self._voter._member.role, self._role
        if role is not former:
            self._role, self._fetched = role, {}
        if type(event) is not RequestReceived:
            return []
        answer = next(
            (effect.response for effect in effects if type(effect) is Reply and effect.token == event.token),
            None,
        )
        if type(event.request) is FetchRequest and isinstance(role, Leader):
            self._note(event.request, answer, now_ms)
        if type(event.request) is DescribeQuorumRequest:
            assert isinstance(answer, DescribeQuorumResponse), "it is answered at once"
            if role is not former and isinstance(former, Leader):
                return []  # it has answered, and then led for too long: one event does both
            return self._wrong(answer, event.wall_ms - now_ms)
        return []

    def _note(self, request: FetchRequest, answer: object, now_ms: int) -> None:
        if isinstance(answer, FetchResponse):
            rows = answer.partitions
            if not rows or rows[0].error_code != ErrorCode.NONE or rows[0].diverging_epoch is not None:
                return  # refused, or from another history: it proves nothing
            if rows[0].snapshot_id is not None:
                return  # its log is about to be replaced (K14)
        if request.replica_id < 0:
            return
        offset, end = request.partitions[0].fetch_offset, self._voter.log_end_offset
        before = self._fetched.get(request.replica_id)
        caught_up_ms = None if before is None else before.caught_up_ms
        if offset >= end:
            caught_up_ms = now_ms
        elif before is not None and offset >= before.leaders_end:
            caught_up_ms = max(before.at_ms, caught_up_ms or before.at_ms)
        self._fetched[request.replica_id] = _Fetched(offset, now_ms, end, caught_up_ms)

    def _wrong(self, told: DescribeQuorumResponse, to_wall_ms: int) -> list[str]:
        voter, config = self._voter, self._voter._config
        if not isinstance(self._role, Leader):
            is_sent_on = told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and not told.voters
            return [] if is_sent_on else [f"does not lead, and tells of the quorum: {told}"]
        found: list[str] = []
        state = (told.error_code, told.leader_id, told.raft_epoch, told.high_watermark)
        if state != (ErrorCode.NONE, config.node_id, voter.raft_epoch, voter.high_watermark):
            found.append(f"leads epoch {voter.raft_epoch} up to {voter.high_watermark}, and tells {state}")
        if [row.replica_id for row in told.voters] != sorted(config.voters):
            found.append(f"tells of the voters {told.voters}")
        for row in (*told.voters, *told.observers):
            wanted = self._row(row.replica_id, to_wall_ms)
            if row != wanted:
                found.append(f"tells {row}, it is {wanted}")
        return found

    def _row(self, replica_id: int, to_wall_ms: int) -> QuorumReplica:
        if replica_id == self._voter._config.node_id:
            now_ms = self._voter._member.now_ms + to_wall_ms
            return QuorumReplica(replica_id, self._voter.log_end_offset, now_ms, now_ms)
        known = self._fetched.get(replica_id)
        if known is None:
            return QuorumReplica(replica_id, -1, -1, -1)
        caught_up_ms = -1 if known.caught_up_ms is None else known.caught_up_ms + to_wall_ms
        return QuorumReplica(replica_id, known.end_offset, known.at_ms + to_wall_ms, caught_up_ms)
