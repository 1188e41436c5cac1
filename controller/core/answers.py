"""Answers that refuse a whole request: per request class its response with only the error set."""

from typing import Any

from holdfast.controller.core.operators.operations import (
    OPERATIONS,
    AlterConfig,
    ElectLeader,
    OperationResult,
    Reassign,
    UnregisterBroker,
    UpdateFeature,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from holdfast.protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from holdfast.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from holdfast.protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from holdfast.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

#: Requests of brokers to the active controller.
_OF_BROKERS = (
    BrokerRegistrationRequest,
    BrokerHeartbeatRequest,
    AlterPartitionRequest,
    AllocateProducerIdsRequest,
)
#: Requests that only the active controller may answer.
WRITES = (
    *_OF_BROKERS,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    CreatePartitionsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    UnregisterBrokerRequest,
    *OPERATIONS,
)


def undecided(request: Any) -> Any:
    """The response to a request whose records the next controller may or may not commit."""
    text = "the active controller changed before this was committed; check whether it was done, or try again"
    # brokers repeat the request at the next controller; operators must know that it may have been done
    is_of_broker = isinstance(request, _OF_BROKERS)
    return refusal(request, ErrorCode.NOT_CONTROLLER if is_of_broker else ErrorCode.REQUEST_TIMED_OUT, text)


def refusal(request: Any, error: ErrorCode, text: str) -> Any:
    """The response to `request` with only the error set."""
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
        case CreatePartitionsRequest():
            return CreatePartitionsResponse(error, text, ())
        case IncrementalAlterConfigsRequest():
            return IncrementalAlterConfigsResponse(error, text, ())
        case UpdateFeaturesRequest():
            return UpdateFeaturesResponse(error, text, ())
        case AlterPartitionReassignmentsRequest():
            return AlterPartitionReassignmentsResponse(error, text, ())
        case ElectLeadersRequest():
            return ElectLeadersResponse(error, text, ())
        case UnregisterBrokerRequest():
            return UnregisterBrokerResponse(error, text)
        case AlterConfig() | ElectLeader() | Reassign() | UpdateFeature() | UnregisterBroker():
            return OperationResult(error, text)
    raise AssertionError(f"{type(request).__name__} is not for the controller")
