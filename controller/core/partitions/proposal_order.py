"""Rejects AlterPartition requests that come too late: copies that their leader no longer expects (R44, R45).

A leader without an answer sends its proposal again. If the second copy is refused with INELIGIBLE_REPLICA,
the leader goes on without the replica; if the first copy arrives later, after the replica was unfenced, it
must not add the replica to the ISR. So a request is void after a later one has arrived, and so is one sent to
another tenure of the controller. Owns the request numbers, nothing else.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

#: Value of a peer that does not send tenures and numbers.
_UNKNOWN = -1


class ProposalOrder:
    """Numbers of the requests received, by sender."""

    __slots__ = ("_heard", "_raft_epoch")

    def __init__(self) -> None:
        self._raft_epoch = 0
        #: {broker_id: (broker_epoch, request_number)} of the newest request
        self._heard: dict[int, tuple[int, int]] = {}

    def start(self, raft_epoch: int) -> None:
        """This controller is active from now on, in that epoch."""
        self._raft_epoch = raft_epoch

    def refusal(self, request: AlterPartitionRequest) -> AlterPartitionResponse | None:
        """The answer to a request that comes too late; None for one that counts, whose number is recorded."""
        if request.controller_epoch not in (_UNKNOWN, self._raft_epoch):
            text = (
                f"sent to the active controller of epoch {request.controller_epoch}, this is epoch "
                f"{self._raft_epoch}; send it again"
            )
            return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, text, ())
        if request.request_number == _UNKNOWN:
            return None
        number = request.broker_epoch, request.request_number
        if number <= self._heard.get(request.broker_id, (_UNKNOWN, _UNKNOWN)):
            text = "a later request of this broker has arrived before; nothing was changed"
            return AlterPartitionResponse(ErrorCode.OPERATION_NOT_ATTEMPTED, text, ())
        self._heard[request.broker_id] = number
        return None
