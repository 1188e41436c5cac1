"""Renders an image as the answers of Metadata, DescribeCluster, DescribeTopicPartitions, reassignments.

Brokers and controllers use the same code, each with its own image (R113). Decides nothing.
"""

from collections.abc import Generator

from holdfast.metadata.answer_steps import AnswerSteps, Pace, in_one_go
from holdfast.metadata.broker import SUPPORTED_FEATURES, BrokerRegistration, levels_of
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, TopicImage
from holdfast.metadata.partition import PartitionRegistration, leader_number
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import FeatureRange, ListenerEndpoint
from holdfast.protocol.messages.features import DescribedFeature
from holdfast.protocol.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterResponse,
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from holdfast.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from holdfast.protocol.messages.topics import (
    DescribedPartition,
    DescribedTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicConfig,
    TopicPartitionCursor,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC, topic_name_problem

NO_TOPIC_ID = bytes(16)


def metadata_response(
    image: MetadataImage, request: MetadataRequest, *, listener_name: str, cluster_id: str, controller_id: int
) -> MetadataResponse:
    """Unfenced brokers with their addresses on `listener_name`, and the requested topics, by name."""
    answer: MetadataResponse = in_one_go(
        metadata_steps(
            image,
            request,
            listener_name=listener_name,
            cluster_id=cluster_id,
            controller_id=controller_id,
        )
    )
    return answer


def metadata_steps(
    image: MetadataImage, request: MetadataRequest, *, listener_name: str, cluster_id: str, controller_id: int
) -> AnswerSteps:
    """The same in steps."""
    names = sorted(image.topic_ids if request.topics is None else set(request.topics))
    topics: list[MetadataTopic] = []
    pace = Pace()
    for name in names:
        topic = yield from _metadata_topic(image, name, pace)
        topics.append(topic)
        if pace.is_step_over(1):
            yield
    return MetadataResponse(
        cluster_id=cluster_id,
        controller_id=controller_id,
        metadata_offset=image.offset,
        brokers=tuple(
            MetadataBroker(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for broker in image.sorted_brokers()
            if not broker.is_fenced
            for endpoint in (_endpoint(broker, listener_name),)
        ),
        topics=tuple(topics),
    )


def _metadata_topic(image: MetadataImage, name: str, pace: Pace) -> Generator[None, None, MetadataTopic]:
    topic = image.topic(name)
    if topic is None:
        return MetadataTopic(_missing(name), name, NO_TOPIC_ID, ())
    rows: list[MetadataPartition] = []
    for index, partition in topic.sorted_partitions():
        rows.append(
            MetadataPartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader is None else ErrorCode.NONE,
                partition_index=index,
                leader_id=leader_number(partition.leader),
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                isr=partition.isr,
                offline_replicas=offline_replicas(image, PartitionId(topic.topic_id, index), partition),
            )
        )
        if pace.is_step_over(1):
            yield
    return MetadataTopic(ErrorCode.NONE, name, topic.topic_id, tuple(rows))


def describe_cluster_response(
    image: MetadataImage, *, listener_name: str, cluster_id: str, controller_id: int, controller_epoch: int
) -> DescribeClusterResponse:
    """Every registered broker, fenced or not, and the quorum's leader as known here (-1 when unknown)."""
    rows: list[DescribeClusterBroker] = []
    for broker in image.sorted_brokers():
        endpoint = _endpoint(broker, listener_name)
        rows.append(
            DescribeClusterBroker(
                broker_id=broker.broker_id,
                broker_epoch=broker.broker_epoch,
                incarnation_id=broker.incarnation_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
                in_controlled_shutdown=broker.in_controlled_shutdown,
                clean_shutdown=broker.clean_shutdown,
            )
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id=cluster_id,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        metadata_offset=image.offset,
        brokers=tuple(rows),
        features=described_features(image),
    )


def described_features(image: MetadataImage) -> tuple[DescribedFeature, ...]:
    """Every known feature: the levels that all registered brokers support, and the finalized one."""
    rows: list[DescribedFeature] = []
    for known in SUPPORTED_FEATURES:
        low, high = supported_levels(image, known)
        rows.append(DescribedFeature(known.name, low, high, image.level_of(known.name)))
    return tuple(sorted(rows, key=lambda row: row.name))


def supported_levels(image: MetadataImage, known: FeatureRange) -> tuple[int, int]:
    """Levels that this version and all registered brokers support, both inclusive (R108)."""
    low, high = known.min_level, known.max_level
    for broker in image.sorted_brokers():
        broker_low, broker_high = levels_of(broker.features, known.name)
        low, high = max(low, broker_low), min(high, broker_high)
    return low, high


def describe_topic_partitions_response(
    image: MetadataImage, request: DescribeTopicPartitionsRequest, *, partition_limit: int
) -> DescribeTopicPartitionsResponse:
    """One page of partitions by topic name and index (R110, R112); `partition_limit` is this node's limit."""
    cursor = request.cursor
    if cursor is not None:
        problem = _cursor_problem(request, cursor)
        if problem is not None:
            return DescribeTopicPartitionsResponse(ErrorCode.INVALID_REQUEST, problem, (), None)
    left = max(1, min(partition_limit, request.response_partition_limit))
    rows: list[DescribedTopic] = []
    next_cursor: TopicPartitionCursor | None = None
    for name in sorted(set(request.topics) or image.topic_ids):
        first = 0
        if cursor is not None:
            if name < cursor.topic_name:
                continue
            if name == cursor.topic_name:
                first = cursor.partition_index
        if left == 0:
            next_cursor = TopicPartitionCursor(name, 0)
            break
        topic = image.topic(name)
        if topic is None:
            rows.append(DescribedTopic(_missing(name), name, NO_TOPIC_ID, False, (), ()))
            continue
        wanted = [row for row in topic.sorted_partitions() if row[0] >= first]
        rows.append(_described_topic(image, topic, wanted[:left]))
        if len(wanted) > left:
            next_cursor = TopicPartitionCursor(name, wanted[left][0])
            break
        left -= len(wanted)
    return DescribeTopicPartitionsResponse(ErrorCode.NONE, None, tuple(rows), next_cursor)


def list_partition_reassignments_response(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Those of the requested partitions that are being reassigned; others are left out."""
    topics = request.topics
    asked = {(topic.name, index) for topic in topics or () for index in topic.partition_indexes}
    rows: list[OngoingTopicReassignment] = []
    for name in sorted(image.topic_ids if topics is None else {topic.name for topic in topics}):
        known = image.topic(name)
        moving = tuple(
            OngoingPartitionReassignment(
                index, partition.replicas, partition.adding_replicas, partition.removing_replicas
            )
            for index, partition in (() if known is None else known.sorted_partitions())
            if partition.is_reassigning and (topics is None or (name, index) in asked)
        )
        if moving:
            rows.append(OngoingTopicReassignment(name, moving))
    return ListPartitionReassignmentsResponse(ErrorCode.NONE, None, tuple(rows))


def _cursor_problem(request: DescribeTopicPartitionsRequest, cursor: TopicPartitionCursor) -> str | None:
    if cursor.partition_index < 0:
        return f"cursor: partition index {cursor.partition_index} is negative"
    if request.topics and cursor.topic_name not in request.topics:
        return f"cursor: topic {cursor.topic_name} is not among the topics asked for"
    return None


def _described_topic(
    image: MetadataImage, topic: TopicImage, partitions: list[tuple[int, PartitionRegistration]]
) -> DescribedTopic:
    elr_enabled = image.elr_enabled
    rows = tuple(
        DescribedPartition(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=leader_number(partition.leader),
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            eligible_leader_replicas=partition.elr if elr_enabled else None,
            last_known_elr=partition.last_known_elr if elr_enabled else None,
            last_known_leader=leader_number(partition.last_known_leader),
            min_isr=partition.min_isr,
            leader_recovery_state=partition.leader_recovery_state,
            offline_replicas=offline_replicas(image, PartitionId(topic.topic_id, index), partition),
        )
        for index, partition in partitions
    )
    configs = tuple(TopicConfig(name, value) for name, value in sorted(image.overrides(topic.name).items()))
    is_internal = topic.name == OFFSETS_TOPIC
    return DescribedTopic(ErrorCode.NONE, topic.name, topic.topic_id, is_internal, configs, rows)


def _missing(name: str) -> ErrorCode:
    if topic_name_problem(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def offline_replicas(
    image: MetadataImage, key: PartitionId, partition: PartitionRegistration
) -> tuple[int, ...]:
    """Replicas whose broker is fenced or not registered, or whose log dir has failed."""
    brokers = image.brokers
    return tuple(
        replica
        for replica in partition.replicas
        if replica not in brokers or brokers[replica].is_fenced or key in brokers[replica].offline_replicas
    )


def _endpoint(broker: BrokerRegistration, listener_name: str) -> ListenerEndpoint:
    # a controller is asked through a listener that brokers do not have: then their first listener is given
    return broker.endpoint(listener_name) or broker.listeners[0]
