"""CreateTopics and DeleteTopics: checks, placement and the records of new and removed topics (R106, R107)."""

from collections import Counter
from collections.abc import Mapping

from controller.config import ControllerConfig
from controller.draft import Draft
from controller.events import Severity
from controller.placement import place_replicas
from metadata.config_keys import TOPIC_KEY_BY_NAME
from metadata.configs import parse_value, topic_config_problem
from metadata.image import RESOURCE_TOPIC, MetadataImage, topic_name_problem
from metadata.partition import PartitionRegistration, effective_min_isr
from metadata.records import ConfigRecord, RemoveTopicRecord, TopicRecord
from protocol.errors import ErrorCode
from protocol.messages.fetch import METADATA_TOPIC_ID
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ReplicaAssignment,
)
from runtime.api import Random

NO_TOPIC_ID = bytes(16)
#: Partitions that one request may make, as in Kafka: they all go into one batch of the log.
PARTITIONS_MAX = 10_000


class _Refused(Exception):
    """The topic cannot be made."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def create_topics(
    draft: Draft, request: CreateTopicsRequest, config: ControllerConfig, random: Random
) -> CreateTopicsResponse:
    """Make the topics that can be made; the others get an error each."""
    times = Counter(topic.name for topic in request.topics)
    room = PARTITIONS_MAX
    placed_before = sum(len(topic.partitions) for topic in draft.image.topics.values())
    rows: list[CreatableTopicResult] = []
    for topic in request.topics:
        try:
            if times[topic.name] > 1:
                raise _Refused(
                    ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named twice in this request"
                )
            overrides = _checked_overrides(draft.image, topic)
            start = placed_before + PARTITIONS_MAX - room
            replica_lists = _replica_lists(draft.image, topic, config, room, start)
        except _Refused as refused:
            rows.append(CreatableTopicResult(topic.name, NO_TOPIC_ID, refused.code, refused.text, -1, -1))
            continue
        room -= len(replica_lists)
        topic_id = NO_TOPIC_ID
        if not request.validate_only:
            topic_id = _write(draft, topic.name, replica_lists, overrides, config, random)
        rows.append(
            CreatableTopicResult(
                topic.name, topic_id, ErrorCode.NONE, None, len(replica_lists), len(replica_lists[0])
            )
        )
    return CreateTopicsResponse(ErrorCode.NONE, None, tuple(rows))


def _checked_overrides(image: MetadataImage, topic: CreatableTopic) -> dict[str, str]:
    problem = topic_name_problem(topic.name)
    if problem is not None:
        raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if topic.name in image.topic_ids:
        raise _Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name} exists; choose another name")
    overrides: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            continue
        problem = topic_config_problem(config.name, config.value)
        if problem is None and config.name in overrides:
            problem = f"{config.name} is given twice"
        if problem is not None:
            raise _Refused(ErrorCode.INVALID_CONFIG, problem)
        overrides[config.name] = config.value
    return dict(sorted(overrides.items()))


def _replica_lists(
    image: MetadataImage, topic: CreatableTopic, config: ControllerConfig, room: int, start: int
) -> list[tuple[int, ...]]:
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise _Refused(
                ErrorCode.INVALID_REQUEST,
                "with replicas assigned by hand the partition count and the replication factor must be -1",
            )
        _check_count(len(topic.assignments), room)
        return _assigned_by_hand(image, topic.assignments)
    count = config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
    factor = config.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    if count < 1:
        raise _Refused(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: at least 1 is needed")
    _check_count(count, room)
    brokers = image.sorted_brokers()
    active = [(broker.broker_id, broker.rack) for broker in brokers if broker.is_acceptable_leader]
    fenced = [(broker.broker_id, broker.rack) for broker in brokers if not broker.is_acceptable_leader]
    if not 1 <= factor <= len(brokers):
        raise _Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: there are {len(brokers)} brokers; start more or ask for fewer",
        )
    if not active:
        raise _Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced; wait until one is ready"
        )
    return place_replicas(active, fenced, partition_count=count, replication_factor=factor, start=start)


def _check_count(count: int, room: int) -> None:
    if count > room:
        raise _Refused(
            ErrorCode.POLICY_VIOLATION,
            f"more than {PARTITIONS_MAX} partitions in one request; split it",
        )


def _assigned_by_hand(
    image: MetadataImage, assignments: tuple[ReplicaAssignment, ...]
) -> list[tuple[int, ...]]:
    by_index = {assignment.partition_index: assignment.broker_ids for assignment in assignments}
    if sorted(by_index) != list(range(len(assignments))):
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition indices must be 0, 1, 2, ..., each once"
        )
    lists = [by_index[index] for index in range(len(by_index))]
    for index, replicas in enumerate(lists):
        problem = None
        unknown = [replica for replica in replicas if replica not in image.brokers]
        if not replicas:
            problem = "has no replicas"
        elif len(set(replicas)) != len(replicas):
            problem = "has a replica twice"
        elif unknown:
            problem = f"names broker {unknown[0]}, which is not registered"
        elif len(replicas) != len(lists[0]):
            problem = f"has {len(replicas)} replicas and partition 0 has {len(lists[0])}"
        elif not any(map(image.is_active, replicas)):
            problem = "has no broker that is ready"
        if problem is not None:
            raise _Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index} {problem}")
    return lists


def _write(
    draft: Draft,
    name: str,
    replica_lists: list[tuple[int, ...]],
    overrides: Mapping[str, str],
    config: ControllerConfig,
    random: Random,
) -> bytes:
    image = draft.image
    topic_id = random.uuid()
    while topic_id in image.topics or topic_id in (NO_TOPIC_ID, METADATA_TOPIC_ID):
        topic_id = random.uuid()
    draft.write(TopicRecord(name, topic_id))
    for key, value in overrides.items():
        draft.write(ConfigRecord(RESOURCE_TOPIC, name, key, value))
    if "min.insync.replicas" in overrides:
        key_row = TOPIC_KEY_BY_NAME["min.insync.replicas"]
        configured = parse_value(key_row, overrides["min.insync.replicas"])
    else:
        configured = image.topic_config(name, "min.insync.replicas", config.static)
    assert isinstance(configured, int)
    for index, replicas in enumerate(replica_lists):
        # R106: the ISR may start below min_isr, with nobody eligible
        active = [replica for replica in replicas if image.is_active(replica)]
        registration = PartitionRegistration(
            replicas=replicas,
            isr=tuple(sorted(active)),
            leader=active[0],
            leader_epoch=0,
            partition_epoch=0,
            min_isr=effective_min_isr(configured, len(replicas)),
        )
        draft.write(registration.to_record(topic_id, index))
    factor = len(replica_lists[0])
    text = f"topic {name} made: {len(replica_lists)} partitions, replication factor {factor}"
    if factor == 1 or configured == 1:
        draft.note(
            f"{text}, min ISR {configured}: one lost disk loses acknowledged records", Severity.WARNING
        )
    else:
        draft.note(f"{text}, min ISR {configured}")
    return topic_id


def delete_topics(draft: Draft, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Remove the topics; a name that is unknown, or comes again, gets UNKNOWN_TOPIC_OR_PARTITION."""
    rows: list[DeletableTopicResult] = []
    for name in request.names:
        topic = draft.image.topic(name)
        if topic is None:
            text = f"there is no topic {name}"
            rows.append(DeletableTopicResult(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
            continue
        draft.write(RemoveTopicRecord(topic.topic_id))
        draft.note(f"topic {name} deleted")
        rows.append(DeletableTopicResult(name, topic.topic_id, ErrorCode.NONE, None))
    return DeleteTopicsResponse(ErrorCode.NONE, None, tuple(rows))
