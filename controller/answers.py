"""Answers that refuse a whole request: each response class with an error and nothing else in it."""

from typing import Any

from controller.operations import (
    OPERATIONS,
    AlterConfig,
    ElectLeader,
    Outcome,
    Reassign,
    UnregisterBroker,
    UpdateFeature,
)
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

#: Requests that only the active controller may answer.
WRITES = (
    BrokerRegistrationRequest,
    BrokerHeartbeatRequest,
    AlterPartitionRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    AllocateProducerIdsRequest,
    *OPERATIONS,
)


def refusal(request: Any, error: ErrorCode, text: str) -> Any:
    """The response to `request` that carries nothing but the error."""
    match request:
        case BrokerRegistrationRequest():
            return BrokerRegistrationResponse(error, text, -1, False)
        case BrokerHeartbeatRequest():
            return BrokerHeartbeatResponse(error, text, False, False, False)
        case AlterPartitionRequest():
            return AlterPartitionResponse(error, text, ())
        case CreateTopicsRequest():
            return CreateTopicsResponse(error, text, ())
        case DeleteTopicsRequest():
            return DeleteTopicsResponse(error, text, ())
        case AllocateProducerIdsRequest():
            return AllocateProducerIdsResponse(error, text, -1, 0)
        case AlterConfig() | ElectLeader() | Reassign() | UpdateFeature() | UnregisterBroker():
            return Outcome(error, text)
    raise AssertionError(f"{type(request).__name__} is not for the controller")
