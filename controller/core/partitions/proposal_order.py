"""Rejects AlterPartition requests that come too late: copies that their leader no longer expects (R44, R45).

A leader without an answer sends its proposal again. If the second copy is refused with INELIGIBLE_REPLICA,
the leader goes on without the replica; if the first copy arrives later, after the replica was unfenced, it
must not add the replica to the ISR. So a request is void after a later one has arrived, and so is one sent to
another tenure of the controller. Numbers begin anew with each tenure. A number far above the last one is no
honest broker's: taken, it would void all that the broker sends from then on. Owns the request numbers,
nothing else.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

#: Value of a peer that does not send tenures and numbers.
_UNKNOWN = -1
#: Requests of one broker that may have been lost since its last one. A thousand a second are 30 years.
NUMBER_JUMP_MAX = 1 << 40


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
        self._heard.clear()

    def refusal(
        self, request: AlterPartitionRequest, registered_epoch: int | None
    ) -> AlterPartitionResponse | None:
        """The answer to a request that comes too late or has a number out of range; None for one that counts,
        whose number is recorded. One of another registration than `registered_epoch` is for others to refuse.
        """
        if request.controller_epoch not in (_UNKNOWN, self._raft_epoch):
            text = (
                f"sent to the active controller of epoch {request.controller_epoch}, this is epoch "
                f"{self._raft_epoch}; send it again"
            )
            return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, text, ())
        number = request.request_number
        if number == _UNKNOWN or request.broker_epoch != registered_epoch:
            return None
        heard_epoch, last_number = self._heard.get(request.broker_id, (registered_epoch, 0))
        if heard_epoch != registered_epoch:
            last_number = 0
        if number <= last_number:
            text = f"request {last_number} of this broker has arrived before; nothing was changed"
            return AlterPartitionResponse(ErrorCode.OPERATION_NOT_ATTEMPTED, text, (), last_number)
        if number > last_number + NUMBER_JUMP_MAX:
            text = f"request {number} comes behind {last_number}: number them one by one from 1 on"
            return AlterPartitionResponse(ErrorCode.INVALID_REQUEST, text, ())
        self._heard[request.broker_id] = registered_epoch, number
        return None
