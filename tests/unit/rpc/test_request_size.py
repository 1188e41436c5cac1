"""A request that names more than an honest client would is refused before it costs anything."""

from typing import Any

import pytest

from holdfast.broker.core.replicas import alter_partition, fetcher
from holdfast.client import admin_partitions, ask_leaders
from holdfast.client.core import fetcher as client_fetcher
from holdfast.client.core.groups import offset_requests
from holdfast.controller.core.operators.topics import PARTITIONS_MAX
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.messages import API_OF_REQUEST
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetPartition,
)
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
)
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest, ForgottenPartition
from holdfast.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from holdfast.protocol.schema.fields import encode_message
from holdfast.protocol.schema.types import Attachment
from holdfast.rpc.core.request_size import ITEMS_MAX, ITEMS_MAX_OF, UNCOUNTED_BYTES, too_much

LARGE = UNCOUNTED_BYTES + 1


@pytest.mark.parametrize("message", [[["t"] * 3_999], [[[1, ["a"] * 3_994]], 2]])
def test_what_clients_ask_for_is_not_too_much(message: Any) -> None:
    assert too_much(ApiKey.METADATA, message, LARGE) is None


@pytest.mark.parametrize(
    ("api_key", "message"),
    [
        (ApiKey.METADATA, [["t"] * 4_000]),
        (ApiKey.METADATA, [[["t"]] * 2_000]),
        (ApiKey.FETCH, [[[1, 2, 3, 4, 5]] * 10_000]),
    ],
)
def test_more_is_refused_with_the_limit(api_key: ApiKey, message: Any) -> None:
    text = too_much(api_key, message, LARGE)
    assert text is not None
    assert str(ITEMS_MAX_OF.get(api_key, ITEMS_MAX)) in text


def test_a_small_request_is_not_counted() -> None:
    assert too_much(ApiKey.METADATA, [[[]] * 8_000], UNCOUNTED_BYTES) is None


ID = bytes(16)
#: replicas of a partition, more than anyone has
REPLICAS = tuple(range(1, 11))
LARGEST = [
    FetchRequest(
        None,
        -1,
        -1,
        500,
        1,
        1 << 20,
        (FetchPartition(ID, 0, 1, 0, 0, -1, 1 << 20),) * client_fetcher.ROWS_MAX,
    ),
    FetchRequest(
        None,
        1,
        1,
        500,
        1,
        1 << 20,
        (FetchPartition(ID, 0, 1, 0, 0, 0, 1 << 20),) * fetcher.ROWS_MAX,
        1,
        1,
        (ForgottenPartition(ID, 0),) * fetcher.ROWS_MAX,
    ),
    AlterPartitionRequest(
        1,
        1,
        (AlterPartitionPartition(ID, 0, 1, 1, tuple(IsrMember(id, 1) for id in REPLICAS), 0),)
        * alter_partition.PARTITIONS_MAX,
        1,
        1,
    ),
    ListOffsetsRequest((ListOffsetsPartition(ID, 0, 1, -1),) * ask_leaders.ROWS_MAX),
    AlterPartitionReassignmentsRequest(
        1_000,
        True,
        (ReassignableTopic("t", (ReassignablePartition(0, REPLICAS),)),)
        * admin_partitions.REASSIGNMENTS_PER_REQUEST,
    ),
    CreateTopicsRequest(
        1_000,
        False,
        (
            CreatableTopic(
                "t",
                -1,
                -1,
                tuple(ReplicaAssignment(index, REPLICAS[:5]) for index in range(PARTITIONS_MAX)),
                (),
            ),
        ),
    ),
    CreatePartitionsRequest(
        1_000,
        False,
        (
            CreatePartitionsTopic(
                "t", PARTITIONS_MAX + 1, (CreatePartitionsAssignment(REPLICAS[:5]),) * PARTITIONS_MAX
            ),
        ),
    ),
    OffsetCommitRequest(
        "g", 1, "m", None, (OffsetCommitPartition(ID, 0, 1, 1, None),) * offset_requests.ROWS_MAX
    ),
    OffsetFetchRequest("g", (OffsetPartition(ID, 0),) * offset_requests.ROWS_MAX),
    ElectLeadersRequest(
        ElectionKind.PREFERRED,
        (ElectionTopicPartitions("t", (0,), None),) * admin_partitions.ELECTIONS_PER_REQUEST,
        1_000,
    ),
]


@pytest.mark.parametrize("request_", LARGEST, ids=lambda one: type(one).__name__)
def test_the_largest_request_that_a_node_or_client_sends_is_not_too_much(request_: Any) -> None:
    api = API_OF_REQUEST[type(request_)]
    message = encode_message(request_, api.max_version, Attachment())
    assert too_much(api.key, message, LARGE) is None
