"""Which AlterPartition requests come too late: copies that a leader no longer counts with (R44, R45).

A leader that gets no answer sends its proposal again. If the later copy is refused as INELIGIBLE_REPLICA, the
leader goes on without the replica; the earlier copy, found in some buffer after the replica was unfenced,
must not let it into the ISR then. So what was sent before a request that has been heard is void, and so is
what was sent to another tenure than the present one. Owns the numbers heard, nothing else.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

#: What a peer says that knows of no tenures and numbers.
_UNKNOWN = -1


class ProposalOrder:
    """Numbers of the requests heard, by sender."""

    __slots__ = ("_heard", "_raft_epoch")

    def __init__(self) -> None:
        self._raft_epoch = 0
        #: {broker_id: (broker_epoch, request_number)} of the newest request
        self._heard: dict[int, tuple[int, int]] = {}

    def start(self, raft_epoch: int) -> None:
        """This controller is active from here on, in that epoch."""
        self._raft_epoch = raft_epoch

    def refusal(self, request: AlterPartitionRequest) -> AlterPartitionResponse | None:
        """The answer to a request that comes too late; None for one that counts, which is remembered."""
        if request.controller_epoch not in (_UNKNOWN, self._raft_epoch):
            text = (
                f"meant for the active controller of epoch {request.controller_epoch}, this is epoch "
                f"{self._raft_epoch}; send it again"
            )
            return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, text, ())
        if request.request_number == _UNKNOWN:
            return None
        number = request.broker_epoch, request.request_number
        if number <= self._heard.get(request.broker_id, (_UNKNOWN, _UNKNOWN)):
            text = "a later request of this broker was here before; nothing was changed"
            return AlterPartitionResponse(ErrorCode.OPERATION_NOT_ATTEMPTED, text, ())
        self._heard[request.broker_id] = number
        return None
