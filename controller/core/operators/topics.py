"""CreateTopics, CreatePartitions and DeleteTopics: checks, placement, and the records (R106, R107)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.placement import Candidate, place_more, place_replicas
from holdfast.metadata.configs import topic_config_problem
from holdfast.metadata.image import RESOURCE_TOPIC, MetadataImage, TopicImage
from holdfast.metadata.offsets_topic import OFFSETS_TOPIC_CONFIGS, offsets_topic_problem
from holdfast.metadata.partition import PartitionRegistration, effective_min_isr
from holdfast.metadata.records import ConfigRecord, RemoveTopicRecord, TopicRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from holdfast.protocol.messages.fetch import METADATA_TOPIC_ID
from holdfast.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ReplicaAssignment,
)
from holdfast.protocol.topic_names import OFFSETS_TOPIC, topic_name_problem
from holdfast.runtime.api import Random
from holdfast.runtime.stats import Level

NO_TOPIC_ID = bytes(16)
#: Partitions that one request may create, as in Kafka.
PARTITIONS_MAX = 10_000


class _Refused(Exception):
    """The topic cannot be created."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def create_topics(
    draft: Draft, request: CreateTopicsRequest, config: ControllerConfig, random: Random
) -> CreateTopicsResponse:
    """Create the topics that can be created; each of the others gets an error."""
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
            # after a lost answer, tools take this error for success (K20)
            draft.confirms |= refused.code is ErrorCode.TOPIC_ALREADY_EXISTS and not request.validate_only
            rows.append(CreatableTopicResult(topic.name, NO_TOPIC_ID, refused.code, refused.text, -1, -1, -1))
            continue
        room -= len(replica_lists)
        topic_id, min_isr = NO_TOPIC_ID, -1
        if not request.validate_only:
            with draft.whole():
                topic_id, min_isr = _write(draft, topic.name, replica_lists, overrides, config, random)
        rows.append(
            CreatableTopicResult(
                topic.name,
                topic_id,
                ErrorCode.NONE,
                None,
                len(replica_lists),
                len(replica_lists[0]),
                min_isr,
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
        problem = problem or offsets_topic_problem(topic.name, config.name, config.value)
        if problem is None and config.name in overrides:
            problem = f"{config.name} is given twice"
        if problem is not None:
            raise _Refused(ErrorCode.INVALID_CONFIG, problem)
        overrides[config.name] = config.value
    defaults = OFFSETS_TOPIC_CONFIGS if topic.name == OFFSETS_TOPIC else {}
    return dict(sorted({**defaults, **overrides}.items()))


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
    active, fenced = _brokers(image, factor)
    return place_replicas(active, fenced, partition_count=count, replication_factor=factor, start=start)


def _brokers(image: MetadataImage, factor: int) -> tuple[list[Candidate], list[Candidate]]:
    """Active brokers and the others, enough for this many replicas. Raises: _Refused."""
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
            ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is active; wait until one is unfenced"
        )
    return active, fenced


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
    _check_lists(image, lists, 0, len(lists[0]))
    return lists


def _check_lists(image: MetadataImage, lists: Sequence[tuple[int, ...]], first: int, factor: int) -> None:
    """Refuse replica lists of partitions from index `first` on that cannot be. Raises: _Refused."""
    for index, replicas in enumerate(lists, first):
        problem = None
        unknown = [replica for replica in replicas if replica not in image.brokers]
        if not replicas:
            problem = "has no replicas"
        elif len(set(replicas)) != len(replicas):
            problem = "has a replica twice"
        elif unknown:
            problem = f"names broker {unknown[0]}, which is not registered"
        elif len(replicas) != factor:
            problem = f"has {len(replicas)} replicas and partition 0 has {factor}"
        elif not any(map(image.is_active, replicas)):
            problem = "has no active broker"
        if problem is not None:
            raise _Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {index} {problem}")


def _write(
    draft: Draft,
    name: str,
    replica_lists: list[tuple[int, ...]],
    overrides: Mapping[str, str],
    config: ControllerConfig,
    random: Random,
) -> tuple[bytes, int]:
    """Write the records of a new topic; returns its id and its effective min ISR."""
    image = draft.image
    topic_id = random.uuid()
    while topic_id in image.topics or topic_id in (NO_TOPIC_ID, METADATA_TOPIC_ID):
        topic_id = random.uuid()
    draft.write(TopicRecord(name, topic_id))
    for key, value in overrides.items():
        draft.write(ConfigRecord(RESOURCE_TOPIC, name, key, value))
    configured = _write_partitions(draft, name, topic_id, replica_lists, 0, config)
    factor = len(replica_lists[0])
    min_isr = effective_min_isr(configured, factor)
    text = f"topic {name} created: {len(replica_lists)} partitions, replication factor {factor}"
    if min_isr == 1:
        draft.note(f"{text}, min ISR {configured}: one lost disk loses acknowledged records", Level.WARNING)
    else:
        draft.note(f"{text}, min ISR {configured}")
    return topic_id, min_isr


def _write_partitions(
    draft: Draft,
    name: str,
    topic_id: bytes,
    replica_lists: list[tuple[int, ...]],
    first: int,
    config: ControllerConfig,
) -> int:
    """Write the records of partitions from index `first` on; returns the configured min ISR."""
    image = draft.image
    configured = image.topic_config(name, "min.insync.replicas", config.static)
    assert isinstance(configured, int)
    known: dict[tuple[int, ...], PartitionRegistration] = {}
    for index, replicas in enumerate(replica_lists, first):
        registration = known.get(replicas)
        if registration is None:
            # R106: the ISR may start below min ISR, with no eligible replica
            active = [replica for replica in replicas if image.is_active(replica)]
            registration = known[replicas] = PartitionRegistration(
                replicas=replicas,
                isr=tuple(sorted(active)),
                leader=active[0],
                leader_epoch=0,
                partition_epoch=0,
                min_isr=effective_min_isr(configured, len(replicas)),
            )
        draft.write(registration.to_record(topic_id, index))
    return configured


def create_partitions(
    draft: Draft, request: CreatePartitionsRequest, config: ControllerConfig
) -> CreatePartitionsResponse:
    """Create the missing partitions of each topic; a topic that cannot have them gets an error."""
    times = Counter(topic.name for topic in request.topics)
    room = PARTITIONS_MAX
    rows: list[CreatePartitionsTopicResult] = []
    for asked in request.topics:
        try:
            if times[asked.name] > 1:
                raise _Refused(
                    ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in this request"
                )
            topic = draft.image.topic(asked.name)
            if topic is None:
                raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name}")
            if asked.name == OFFSETS_TOPIC:
                text = f"{OFFSETS_TOPIC} keeps its partitions: with more, groups would lose their offsets"
                raise _Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
            replica_lists = _more_replica_lists(draft.image, topic, asked, room)
        except _Refused as refused:
            rows.append(CreatePartitionsTopicResult(asked.name, refused.code, refused.text))
            continue
        room -= len(replica_lists)
        if not request.validate_only:
            first = len(topic.partitions)
            with draft.whole():
                _write_partitions(draft, topic.name, topic.topic_id, replica_lists, first, config)
            draft.note(f"topic {topic.name} has {asked.count} partitions instead of {first}")
        rows.append(CreatePartitionsTopicResult(asked.name, ErrorCode.NONE, None))
    return CreatePartitionsResponse(ErrorCode.NONE, None, tuple(rows))


def _more_replica_lists(
    image: MetadataImage, topic: TopicImage, asked: CreatePartitionsTopic, room: int
) -> list[tuple[int, ...]]:
    existing = [partition for _, partition in topic.sorted_partitions()]
    count = asked.count - len(existing)
    if count < 1:
        raise _Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {len(existing)} partitions; ask for more than those, it cannot shrink",
        )
    _check_count(count, room)
    factor = len(existing[0].target_replicas)
    if asked.assignments is None:
        active, fenced = _brokers(image, factor)
        preferred = [partition.replicas[0] for partition in existing]
        return place_more(active, fenced, preferred, partition_count=count, replication_factor=factor)
    if len(asked.assignments) != count:
        raise _Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(asked.assignments)} assignments for {count} new partitions; give one for each",
        )
    lists = [assignment.broker_ids for assignment in asked.assignments]
    _check_lists(image, lists, len(existing), factor)
    return lists


def delete_topics(draft: Draft, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete the topics; a name that is unknown, or repeated, gets UNKNOWN_TOPIC_OR_PARTITION."""
    rows: list[DeletableTopicResult] = []
    for name in request.names:
        topic = draft.image.topic(name)
        if topic is None:
            draft.confirms = True  # after a lost answer, tools take this error for success (K20)
            text = f"there is no topic {name}"
            rows.append(DeletableTopicResult(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text))
            continue
        draft.write(RemoveTopicRecord(topic.topic_id))
        draft.note(f"topic {name} deleted")
        rows.append(DeletableTopicResult(name, topic.topic_id, ErrorCode.NONE, None))
    return DeleteTopicsResponse(ErrorCode.NONE, None, tuple(rows))
