"""Requests that any node answers from its own image, and the function that answers each.

One table for brokers and controllers, so that both give the same answers (R113). Decides nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.metadata.answer_steps import AnswerSteps, in_one_go
from holdfast.metadata.describe import (
    describe_cluster_response,
    describe_topic_partitions_response,
    list_partition_reassignments_response,
    metadata_steps,
)
from holdfast.metadata.describe_configs import describe_configs_steps
from holdfast.metadata.describe_quotas import describe_client_quotas_steps
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.messages.client_quotas import DescribeClientQuotasRequest
from holdfast.protocol.messages.configs import DescribeConfigsRequest
from holdfast.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from holdfast.protocol.messages.reassignments import ListPartitionReassignmentsRequest
from holdfast.protocol.messages.topics import DescribeTopicPartitionsRequest

#: Requests that `answer_question` answers.
QUESTION_APIS = (
    ApiKey.METADATA,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the answering node knows besides its image."""

    #: listener that the request came through; answers have addresses of it
    listener_name: str
    cluster_id: str
    #: the quorum's leader as known here
    controller_id: int | None
    controller_epoch: int
    #: most partitions in one DescribeTopicPartitions answer
    partition_limit: int
    #: values of the node's file by key
    static: Mapping[str, Any]


def answer_question(image: MetadataImage, question: Any, asked: Asked) -> Any:
    """The answer of a node with this image."""
    return in_one_go(answer_steps(image, question, asked))


def answer_steps(image: MetadataImage, question: Any, asked: Asked) -> AnswerSteps:
    """The same in steps: not all questions have small answers."""
    controller_id = -1 if asked.controller_id is None else asked.controller_id
    match question:
        case MetadataRequest():
            answer = yield from metadata_steps(
                image,
                question,
                listener_name=asked.listener_name,
                cluster_id=asked.cluster_id,
                controller_id=controller_id,
            )
            return answer
        case DescribeClusterRequest():
            return describe_cluster_response(
                image,
                listener_name=asked.listener_name,
                cluster_id=asked.cluster_id,
                controller_id=controller_id,
                controller_epoch=asked.controller_epoch,
            )
        case DescribeTopicPartitionsRequest():
            return describe_topic_partitions_response(image, question, partition_limit=asked.partition_limit)
        case DescribeConfigsRequest():
            answer = yield from describe_configs_steps(image, question, asked.static)
            return answer
        case DescribeClientQuotasRequest():
            answer = yield from describe_client_quotas_steps(image, question)
            return answer
        case ListPartitionReassignmentsRequest():
            return list_partition_reassignments_response(image, question)
    raise AssertionError(f"no image answers {type(question).__name__}")
