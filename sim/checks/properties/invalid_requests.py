"""What no correct peer sends is refused, by every node that gets it, with a code that says what is wrong."""

from holdfast.protocol.errors import ErrorCode
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.load.invalid_requests import InvalidRequest

#: the node that was asked may be unable to answer, or to reach one that can, or know less than the sender
_NOT_NOW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REQUEST_LIMIT_REACHED,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class IntrudersAreRefused(Property):
    """D3: nothing of it is done, and the sender hears why (`sim/load/invalid_requests.py`)."""

    name = "D3 IntrudersAreRefused"

    def intruded(self, seen: Observer, intrusion: InvalidRequest) -> None:
        refusals = intrusion.answered - {ErrorCode.NONE}
        if not refusals or not refusals <= intrusion.expected | _NOT_NOW:
            codes = ", ".join(sorted(code.name for code in intrusion.answered)) or "nothing"
            wanted = ", ".join(sorted(code.name for code in intrusion.expected))
            story = f"{intrusion.host} answers {intrusion.what} with {codes}"
            seen.broken(self, None, f"{story}; it is to be refused with {wanted}")
