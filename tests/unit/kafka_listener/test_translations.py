"""Each API in each version: a Kafka request becomes ours, our response becomes Kafka's, errors included."""

from dataclasses import replace
from typing import Any

import pytest
from immutables import Map
from kio.serial import entity_reader

from holdfast.kafka_listener.core.api_table import KafkaApi, request_type, response_type
from holdfast.kafka_listener.core.apis import group_offsets
from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.schema_reader import Cursor, read_message
from holdfast.kafka_listener.core.schema_writer import write_message
from holdfast.kafka_listener.core.translation import Ask, HangUp
from holdfast.kafka_listener.core.translations import TRANSLATIONS
from holdfast.metadata.offsets_topic import OFFSETS_TOPIC_CONFIGS
from holdfast.metadata.questions import Asked, answer_question
from holdfast.metadata.records import ELR_FEATURE, METADATA_VERSION
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import API_OF_REQUEST
from holdfast.protocol.messages.committed_offsets import (
    CommittedOffset,
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetPartition,
)
from holdfast.protocol.messages.configs import (
    AlterConfigsResult,
    ConfigOperation,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest
from holdfast.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.groups import (
    Coordinator,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupProtocol,
    LeaveGroupResponse,
    LeftMember,
)
from holdfast.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from holdfast.protocol.messages.metadata import MetadataRequest
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from holdfast.protocol.messages.produce import ProducePartitionResponse, ProduceRequest, ProduceResponse
from holdfast.protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.kafka_listener.cluster_view import STATIC, VIEW
from tests.unit.kafka_listener.samples import SERVED, kafka_sample, plain, served_id
from tests.unit.metadata.test_delta import T, U
from tests.unit.protocol.samples import sample

every_version = pytest.mark.parametrize(("api", "version"), SERVED, ids=served_id)
BATCH = encode_batch([Record(0, 1, b"k", b"v")], base_offset=0, leader_epoch=0)
#: Id of a topic that was deleted.
NO_TOPIC = b"?" * 16
NONE, UNKNOWN_TOPIC, NOT_LEADER, UNKNOWN_ID = 0, 3, 6, 100


def request_of(api: KafkaApi, version: int, fields: dict[str, Any]) -> Request:
    """A request with these fields, as it is read from its bytes."""
    schema = request_type(api, version)
    data = memoryview(b"".join(write_message(schema, fields)))
    return Request(api, version, 1, "test", read_message(schema, Cursor(data)))


def asks(api: KafkaApi, version: int, fields: dict[str, Any]) -> Ask:
    outcome = TRANSLATIONS[api](request_of(api, version, fields), VIEW)
    assert isinstance(outcome, Ask)
    return outcome


def answer_of(question: Any) -> Any:
    """A broker's answer to ours: from its image, or made up with a row for each that was asked about."""
    match question:
        case ProduceRequest():
            rows = [
                ProducePartitionResponse(p.topic_id, p.partition_index, 0, None, 5, 3, 1, 4)
                for p in question.partitions
            ]
            return ProduceResponse(tuple(rows))
        case FetchRequest():
            some = [
                FetchPartitionResponse(
                    p.topic_id, p.partition_index, 0, 9, 3, -1, None, 1, 4, memoryview(BATCH)
                )
                for p in question.partitions[:1]
            ]
            return FetchResponse(0, None, tuple(some))
        case ListOffsetsRequest():
            offsets = [
                ListOffsetsPartitionResponse(p.topic_id, p.partition_index, 0, -1, 5, 4)
                for p in question.partitions
            ]
            return ListOffsetsResponse(0, None, tuple(offsets))
        case OffsetForLeaderEpochRequest():
            ends = [
                EpochPartitionResponse(p.topic_id, p.partition_index, 0, 4, 5) for p in question.partitions
            ]
            return OffsetForLeaderEpochResponse(0, None, tuple(ends))
        case DeleteTopicsRequest():
            gone = [DeletableTopicResult(name, T, 0, None) for name in question.names]
            return DeleteTopicsResponse(0, None, tuple(gone))
        case DescribeConfigsRequest():
            found = [
                DescribeConfigsResult(0, None, r.resource_type, r.resource_name, ())
                for r in question.resources
            ]
            return DescribeConfigsResponse(0, None, tuple(found))
        case FindCoordinatorRequest():
            places = [Coordinator(one, 0, None, 1, "kafka", 9192) for one in question.group_ids]
            return FindCoordinatorResponse(0, None, tuple(places))
        case OffsetCommitRequest():
            committed = [
                OffsetCommitPartitionResponse(p.topic_id, p.partition_index, 0) for p in question.partitions
            ]
            return OffsetCommitResponse(0, None, tuple(committed))
        case OffsetFetchRequest():
            read = [
                CommittedOffset(p.topic_id, p.partition_index, 42, 4, "m")
                for p in question.partitions or (OffsetPartition(T, 1), OffsetPartition(NO_TOPIC, 0))
            ]
            return OffsetFetchResponse(0, None, tuple(read))
        case OffsetDeleteRequest():
            dropped = [
                OffsetDeletePartitionResponse(p.topic_id, p.partition_index, 0) for p in question.partitions
            ]
            return OffsetDeleteResponse(0, None, tuple(dropped))
        case DeleteGroupsRequest():
            return DeleteGroupsResponse(
                0, None, tuple(DeletedGroup(one, 68, "has members") for one in question.group_ids)
            )
    response = sample(API_OF_REQUEST[type(question)].response)
    return replace(response, error_code=0) if hasattr(response, "error_code") else response


def written(request: Request, fields: Any) -> dict[str, Any]:
    """The response as kio reads it from the bytes."""
    schema = response_type(request.api, request.version)
    data = b"".join(write_message(schema, fields))
    entity, size = entity_reader(schema)(data, 0)
    assert size == len(data)
    found: dict[str, Any] = plain(entity)
    return found


def outcomes(request: Request, *, refused: bool) -> Any:
    """What comes of a request when the broker answers, or refuses, each question."""
    outcome = TRANSLATIONS[request.api](request, VIEW)
    while isinstance(outcome, Ask):
        if refused:
            outcome = outcome.refused(ErrorCode.BROKER_NOT_AVAILABLE, "try again")
            refused = False
        else:
            outcome = outcome.answer(answer_of(outcome.message))
    return outcome


@every_version
@pytest.mark.parametrize("salt", [1, 2, 3])
def test_every_request_is_answered_in_its_version_also_when_the_broker_refuses_it(
    api: KafkaApi, version: int, salt: int
) -> None:
    read = plain(kafka_sample(request_type(api, version), salt))
    request = request_of(api, version, read)
    for refused in (False, True):
        outcome = outcomes(request, refused=refused)
        assert isinstance(outcome, HangUp) or written(request, outcome)


# --- rows ----------------------------------------------------------------------------------------------


def produce_fields(acks: int = -1, **more: Any) -> dict[str, Any]:
    rows = [
        {"index": 0, "records": BATCH},
        {"index": 1, "records": None},
        {"index": 2, "records": b"\0" * 61},
    ]
    topics = [
        {"name": "t", "topic_id": T, "partition_data": rows},
        {"name": "missing", "topic_id": bytes(15) + b"x", "partition_data": [{"index": 0, "records": BATCH}]},
    ]
    return {"acks": acks, "timeout": 100, "transactional_id": None, "topic_data": topics, **more}


@pytest.mark.parametrize(("version", "unknown"), [(3, UNKNOWN_TOPIC), (9, UNKNOWN_TOPIC), (13, UNKNOWN_ID)])
def test_a_batch_goes_through_untouched_and_bad_rows_are_refused_beside_it(
    version: int, unknown: int
) -> None:
    request = request_of(KafkaApi.PRODUCE, version, produce_fields())
    ask = asks(KafkaApi.PRODUCE, version, produce_fields())
    (row,) = ask.message.partitions
    assert (row.topic_id, row.partition_index, row.records) == (T, 0, BATCH)
    answer = written(request, ask.answer(answer_of(ask.message)))
    codes = [[row["error_code"] for row in topic["partition_responses"]] for topic in answer["responses"]]
    assert codes == [[NONE, ErrorCode.INVALID_RECORD, 43], [unknown]]
    assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 5


def test_a_leader_that_has_moved_is_named_to_the_producer() -> None:
    ask = asks(KafkaApi.PRODUCE, 10, produce_fields())
    row = ProducePartitionResponse(T, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved", -1, -1, 2, 9)
    request = request_of(KafkaApi.PRODUCE, 10, produce_fields())
    answer = written(request, ask.answer(ProduceResponse((row,))))
    found = answer["responses"][0]["partition_responses"][0]
    assert (found["error_code"], found["current_leader"]) == (NOT_LEADER, {"leader_id": 2, "leader_epoch": 9})


def test_a_partition_that_lies_on_another_broker_is_not_unknown() -> None:
    for index, code in ((0, NOT_LEADER), (77, UNKNOWN_TOPIC)):
        fields = produce_fields()
        fields["topic_data"] = [{"name": "t", "partition_data": [{"index": index, "records": BATCH}]}]
        row = ProducePartitionResponse(T, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "", -1, -1, -1, -1)
        answer: Any = asks(KafkaApi.PRODUCE, 9, fields).answer(ProduceResponse((row,)))
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == code


def test_a_refused_write_without_an_answer_ends_the_connection() -> None:
    fields = produce_fields(acks=0)
    outcome = asks(KafkaApi.PRODUCE, 9, fields).answer(ProduceResponse(()))
    assert isinstance(outcome, HangUp)


def test_a_transactional_write_is_refused_with_a_code_that_is_not_tried_again() -> None:
    request = request_of(KafkaApi.PRODUCE, 9, produce_fields(transactional_id="x"))
    answer = written(request, TRANSLATIONS[KafkaApi.PRODUCE](request, VIEW))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 53


def test_the_group_protocol_of_kip_848_is_refused_with_a_sentence_and_a_code_that_ends_a_consumer() -> None:
    fields = {"group_id": "g", "member_id": "", "member_epoch": 0, "topic_partitions": None}
    for version in (0, 1):
        request = request_of(KafkaApi.CONSUMER_GROUP_HEARTBEAT, version, fields)
        answer = written(request, TRANSLATIONS[KafkaApi.CONSUMER_GROUP_HEARTBEAT](request, VIEW))
        assert answer["error_code"] == 35
        assert "use group.protocol=classic" in answer["error_message"]


def fetch_fields(**more: Any) -> dict[str, Any]:
    rows = [
        {"partition": index, "fetch_offset": 5, "partition_max_bytes": 100, "log_start_offset": -1}
        for index in (0, 1)
    ]
    return {
        "replica_id": 2,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "session_id": 0,
        "session_epoch": 0,
        "rack_id": "",
        "topics": [{"topic": "t", "topic_id": T, "partitions": rows}],
        "forgotten_topics_data": (),
        **more,
    }


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_a_fetch_is_a_consumers_and_every_partition_has_a_row(version: int) -> None:
    request = request_of(KafkaApi.FETCH, version, fetch_fields())
    ask = asks(KafkaApi.FETCH, version, fetch_fields())
    assert ask.message.replica_id == -1
    assert ask.message.max_wait_ms == 500
    answer = written(request, ask.answer(answer_of(ask.message)))
    rows = answer["responses"][0]["partitions"]
    # partition 1 has no news: it has the offsets that this broker knows
    assert [(row["partition_index"], row["high_watermark"], row["records"]) for row in rows] == [
        (0, 9, BATCH),
        (1, 7, b""),
    ]
    assert [row["last_stable_offset"] for row in rows] == [9, 7]


def test_a_fetch_with_an_unknown_topic_is_answered_at_once() -> None:
    fields = fetch_fields()
    fields["topics"].append({"topic": "x", "partitions": fields["topics"][0]["partitions"]})
    ask = asks(KafkaApi.FETCH, 12, fields)
    assert ask.message.max_wait_ms == 0
    answer: Any = ask.answer(answer_of(ask.message))
    assert [row["error_code"] for row in answer["responses"][1]["partitions"]] == [UNKNOWN_TOPIC] * 2


@pytest.mark.parametrize("version", [4, 12, 13, 18])
@pytest.mark.parametrize("code", [ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_LIMIT_REACHED])
def test_a_broker_that_starts_or_stops_lets_a_consumer_look_for_another_leader(
    code: ErrorCode, version: int
) -> None:
    """LEADER_NOT_AVAILABLE, which every other request gets, ends Java's consumer with an exception."""
    ask = asks(KafkaApi.FETCH, version, fetch_fields())
    request = request_of(KafkaApi.FETCH, version, fetch_fields())
    answer = written(request, ask.refused(code, "try again"))
    rows = answer["responses"][0]["partitions"]
    assert [row["error_code"] for row in rows] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_a_fetch_of_a_session_begins_anew_without_one() -> None:
    request = request_of(KafkaApi.FETCH, 12, fetch_fields(session_id=5, session_epoch=2))
    answer = written(request, TRANSLATIONS[KafkaApi.FETCH](request, VIEW))
    assert (answer["error_code"], answer["session_id"]) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_a_diverging_reader_hears_where_to_truncate() -> None:
    ask = asks(KafkaApi.FETCH, 12, fetch_fields())
    row = FetchPartitionResponse(T, 0, 0, 9, 3, -1, EpochEndOffset(2, 4), 1, 4, memoryview(b""))
    request = request_of(KafkaApi.FETCH, 12, fetch_fields())
    found = written(request, ask.answer(FetchResponse(0, None, (row,))))["responses"][0]["partitions"][0]
    assert found["diverging_epoch"] == {"epoch": 2, "end_offset": 4}


@pytest.mark.parametrize(
    ("timestamp", "asked", "offset", "code"),
    [
        (-1, -1, 5, NONE),
        (-2, -2, 5, NONE),
        (-3, -3, 5, NONE),
        (-4, -2, 5, NONE),
        (-5, None, -1, NONE),
        (-6, None, -1, NONE),
        (-7, None, -1, ErrorCode.INVALID_REQUEST),
        (1_000, 1_000, 5, NONE),
    ],
)
def test_offsets_are_asked_for_as_kafka_numbers_them(
    timestamp: int, asked: int | None, offset: int, code: int
) -> None:
    rows = [{"partition_index": 0, "current_leader_epoch": 4, "timestamp": timestamp}]
    request = request_of(
        KafkaApi.LIST_OFFSETS,
        11,
        {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}], "timeout": 5},
    )
    outcome = TRANSLATIONS[KafkaApi.LIST_OFFSETS](request, VIEW)
    if isinstance(outcome, Ask):
        assert [row.timestamp for row in outcome.message.partitions] == [asked]
        outcome = outcome.answer(answer_of(outcome.message))
    else:
        assert asked is None
    (row,) = written(request, outcome)["topics"][0]["partitions"]
    assert (row["offset"], row["error_code"]) == (offset, code)


def test_the_largest_timestamp_is_asked_for_since_version_7() -> None:
    rows = [{"partition_index": 0, "current_leader_epoch": 4, "timestamp": -3}]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
    request = request_of(KafkaApi.LIST_OFFSETS, 6, fields)
    answer = written(request, TRANSLATIONS[KafkaApi.LIST_OFFSETS](request, VIEW))
    assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.UNSUPPORTED_VERSION


# --- metadata ------------------------------------------------------------------------------------------

NO_OPERATIONS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
ASKED = Asked("KAFKA", "test", 101, 5, 100, STATIC)


def described(api: KafkaApi, version: int, fields: dict[str, Any]) -> dict[str, Any]:
    ask = asks(api, version, fields)
    return written(
        request_of(api, version, fields), ask.answer(answer_question(VIEW.image, ask.message, ASKED))
    )


def test_only_live_brokers_with_the_listener_are_named_at_its_port() -> None:
    answer = described(KafkaApi.METADATA, 12, {"topics": None, **NO_OPERATIONS})
    assert [(row["node_id"], row["host"], row["port"]) for row in answer["brokers"]] == [(1, "kafka", 9192)]
    assert answer["controller_id"] == 1
    assert [topic["name"] for topic in answer["topics"]] == ["t", "u"]
    rows = answer["topics"][0]["partitions"]
    assert [(row["leader_id"], row["error_code"]) for row in rows] == [(1, 0), (1, 0), (-1, 5)]


def test_a_leader_without_the_listener_is_not_named() -> None:
    view = replace(VIEW, image=replace(VIEW.image, brokers=VIEW.image.brokers.delete(1)))
    for version, code in ((12, 72), (5, ErrorCode.LEADER_NOT_AVAILABLE)):
        request = request_of(KafkaApi.METADATA, version, {"topics": None, **NO_OPERATIONS})
        ask: Any = TRANSLATIONS[KafkaApi.METADATA](request, view)
        answer = written(request, ask.answer(answer_question(view.image, ask.message, ASKED)))
        row = answer["topics"][0]["partitions"][0]
        assert (row["leader_id"], row["error_code"], answer["controller_id"]) == (-1, code, -1)


def test_topics_are_found_by_name_and_by_id() -> None:
    missing = bytes(15) + b"x"
    topics = [
        {"topic_id": U, "name": None},
        {"topic_id": missing, "name": None},
        {"topic_id": bytes(16), "name": "gone"},
    ]
    answer = described(KafkaApi.METADATA, 12, {"topics": topics, **NO_OPERATIONS})
    found = {topic["name"]: (topic["error_code"], topic["topic_id"]) for topic in answer["topics"]}
    assert found == {"u": (0, U), "gone": (UNKNOWN_TOPIC, None), None: (UNKNOWN_ID, missing)}


def test_version_0_asks_for_all_topics_with_an_empty_list() -> None:
    assert asks(KafkaApi.METADATA, 0, {"topics": ()}).message == MetadataRequest(None)
    assert asks(KafkaApi.METADATA, 1, {"topics": ()}).message == MetadataRequest(())


@pytest.mark.parametrize(
    ("in_file", "allowed", "creates"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_missing_topic_is_created_on_demand_where_broker_and_client_want_it(
    in_file: bool, allowed: bool, creates: bool
) -> None:
    view = replace(VIEW, static={**STATIC, "auto.create.topics.enable": in_file})
    fields = {
        **NO_OPERATIONS,
        "topics": [{"name": "new"}, {"name": "t"}],
        "allow_auto_topic_creation": allowed,
    }
    request = request_of(KafkaApi.METADATA, 9, fields)
    ask: Any = TRANSLATIONS[KafkaApi.METADATA](request, view)
    assert isinstance(ask.message, CreateTopicsRequest) == creates
    if creates:
        assert [topic.name for topic in ask.message.topics] == ["new"]
        ask = ask.answer(CreateTopicsResponse(0, None, (CreatableTopicResult("new", T, 0, None, 1, 1, 1),)))
    answer = written(request, ask.answer(answer_question(view.image, ask.message, ASKED)))
    codes = {topic["name"]: topic["error_code"] for topic in answer["topics"]}
    # it has no leader yet as far as this broker knows: the client looks again
    assert codes == {"new": ErrorCode.LEADER_NOT_AVAILABLE if creates else UNKNOWN_TOPIC, "t": 0}


def test_the_cluster_has_the_brokers_that_can_be_reached() -> None:
    fields = {"include_cluster_authorized_operations": False, "endpoint_type": 1}
    answer = described(KafkaApi.DESCRIBE_CLUSTER, 2, {**fields, "include_fenced_brokers": True})
    assert [(row["broker_id"], row["port"], row["is_fenced"]) for row in answer["brokers"]] == [
        (1, 9192, False),
        (3, 9192, True),
    ]
    for endpoint_type, code in ((2, 114), (9, 115)):
        asked = {**fields, "endpoint_type": endpoint_type, "include_fenced_brokers": False}
        request = request_of(KafkaApi.DESCRIBE_CLUSTER, 2, asked)
        refused = written(request, TRANSLATIONS[KafkaApi.DESCRIBE_CLUSTER](request, VIEW))
        assert refused["error_code"] == code


def test_eligible_leader_replicas_are_shown() -> None:
    fields = {"topics": (), "response_partition_limit": 2, "cursor": None}
    answer = described(KafkaApi.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    rows = answer["topics"][0]["partitions"]
    assert [row["eligible_leader_replicas"] for row in rows] == [(2,), (2,)]
    assert answer["next_cursor"] == {"topic_name": "t", "partition_index": 2}
    fields = {**fields, "cursor": {"topic_name": "t", "partition_index": 2}}
    (row, *_) = described(KafkaApi.DESCRIBE_TOPIC_PARTITIONS, 0, fields)["topics"][0]["partitions"]
    assert (row["leader_id"], row["last_known_elr"]) == (-1, (1, 2))


# --- the rest ------------------------------------------------------------------------------------------


def test_every_api_that_is_served_is_listed() -> None:
    request = request_of(
        KafkaApi.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "b"}
    )
    answer = written(request, TRANSLATIONS[KafkaApi.API_VERSIONS](request, VIEW))
    listed = {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}
    assert listed == {int(api): (api.min_version, api.max_version) for api in KafkaApi}
    assert [(row["name"], row["max_version_level"]) for row in answer["finalized_features"]] == [
        (ELR_FEATURE, 1),
        (METADATA_VERSION, 1),
    ]


@pytest.mark.parametrize(
    ("key_type", "code", "node_id"),
    [(0, 0, 1), (1, 53, -1), (2, 42, -1)],
    ids=["of a group", "of a transactional id", "of a share"],
)
def test_a_group_has_a_coordinator_and_for_a_transactional_id_no_client_tries_again(
    key_type: int, code: int, node_id: int
) -> None:
    for version in (1, 6):
        fields = {"key": "g", "key_type": key_type, "coordinator_keys": ("g",)}
        request = request_of(KafkaApi.FIND_COORDINATOR, version, fields)
        answer = written(request, outcomes(request, refused=False))
        found = answer["coordinators"][0] if version == 6 else answer
        assert (found["error_code"], found["node_id"]) == (code, node_id)


# --- groups --------------------------------------------------------------------------------------------


def test_offsets_are_committed_by_topic_id_and_unknown_topics_are_refused_beside_them() -> None:
    partition = {"partition_index": 1, "committed_offset": 7, "committed_metadata": "m"}
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": 3,
        "member_id": "a",
        "retention_time": -1,
        "topics": [{"name": "t", "partitions": [partition]}, {"name": "none", "partitions": [partition]}],
    }
    request = request_of(KafkaApi.OFFSET_COMMIT, 7, fields)
    question = asks(KafkaApi.OFFSET_COMMIT, 7, fields)
    assert question.message == OffsetCommitRequest(
        "g", 3, "a", None, (OffsetCommitPartition(T, 1, 7, -1, "m"),)
    )
    answer = written(request, outcomes(request, refused=False))
    assert [topic["partitions"][0]["error_code"] for topic in answer["topics"]] == [0, 3]


def test_all_offsets_of_a_group_are_named_by_topic_and_those_of_deleted_topics_are_left_out() -> None:
    request = request_of(KafkaApi.OFFSET_FETCH, 5, {"group_id": "g", "topics": None})
    answer = written(request, outcomes(request, refused=False))
    (topic,) = answer["topics"]
    (row,) = topic["partitions"]
    assert (topic["name"], row["partition_index"], row["committed_offset"]) == ("t", 1, 42)


def test_groups_of_one_request_are_asked_one_after_the_other() -> None:
    group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0, 1)}]}
    fields = {"groups": [group, {"group_id": "h", "topics": None}], "require_stable": False}
    request = request_of(KafkaApi.OFFSET_FETCH, 8, fields)
    answer = written(request, outcomes(request, refused=False))
    assert [one["group_id"] for one in answer["groups"]] == ["g", "h"]
    assert [row["committed_offset"] for row in answer["groups"][0]["topics"][0]["partitions"]] == [42, 42]
    refused = written(request, outcomes(request, refused=True))
    assert [one["error_code"] for one in refused["groups"]] == [16, 0]


def test_all_offsets_of_many_groups_are_bounded_in_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is named a thousand times would make a broker hold a thousand copies."""
    monkeypatch.setattr(group_offsets, "_OFFSETS_MAX", 3)
    some = {"group_id": "h", "topics": [{"name": "t", "partition_indexes": (0, 1)}]}
    fields = {"groups": [{"group_id": "g", "topics": None}] * 5 + [some], "require_stable": False}
    request = request_of(KafkaApi.OFFSET_FETCH, 8, fields)
    answer = written(request, outcomes(request, refused=False))
    found = [(one["group_id"], one["error_code"], len(one["topics"])) for one in answer["groups"]]
    assert found == [("g", 0, 1)] * 3 + [("g", ErrorCode.INVALID_REQUEST, 0)] * 2 + [("h", 0, 1)]


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, 69)])
def test_only_newer_clients_hear_that_a_group_is_not_there(version: int, code: int) -> None:
    fields = {"groups": ("g",), "include_authorized_operations": False}
    request = request_of(KafkaApi.DESCRIBE_GROUPS, version, fields)
    question = asks(KafkaApi.DESCRIBE_GROUPS, version, fields)
    missing = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, "there is none", "g", "Dead", "", "", ())
    answer = written(request, question.answer(DescribeGroupsResponse(0, None, (missing,))))
    assert (answer["groups"][0]["error_code"], answer["groups"][0]["group_state"]) == (code, "Dead")


@pytest.mark.parametrize(("version", "needs"), [(3, False), (4, True)])
def test_newer_clients_join_with_an_id_that_they_were_given(version: int, needs: bool) -> None:
    fields = {
        "group_id": "g",
        "session_timeout": 6000,
        "rebalance_timeout": 9000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"s"}],
    }
    ours = asks(KafkaApi.JOIN_GROUP, version, fields).message
    assert ours.requires_known_member_id is needs
    assert (ours.session_timeout_ms, ours.rebalance_timeout_ms) == (6000, 9000)
    assert ours.protocols == (JoinGroupProtocol("range", b"s"),)


def test_a_client_of_the_first_version_that_leaves_hears_the_code_of_its_own_row() -> None:
    fields = {"group_id": "g", "member_id": "a"}
    request = request_of(KafkaApi.LEAVE_GROUP, 2, fields)
    question = asks(KafkaApi.LEAVE_GROUP, 2, fields)
    left = LeaveGroupResponse(0, None, (LeftMember("a", None, ErrorCode.UNKNOWN_MEMBER_ID),))
    assert written(request, question.answer(left))["error_code"] == 25


# --- topics --------------------------------------------------------------------------------------------


def test_a_topic_is_deleted_by_name_or_id_and_not_by_both() -> None:
    ask = asks(KafkaApi.DELETE_TOPICS, 1, {"topic_names": ("t", "u"), "timeout": 1})
    assert ask.message.names == ("t", "u")
    topics = [
        {"name": None, "topic_id": U},
        {"name": None, "topic_id": bytes(15) + b"x"},
        {"name": "t", "topic_id": bytes(16)},
        {"name": "t", "topic_id": U},
    ]
    fields = {"topics": topics, "timeout": 1}
    ask = asks(KafkaApi.DELETE_TOPICS, 6, fields)
    assert ask.message.names == ("u", "t")
    answer = written(request_of(KafkaApi.DELETE_TOPICS, 6, fields), ask.answer(answer_of(ask.message)))
    assert [(row["name"], row["error_code"]) for row in answer["responses"]] == [
        ("u", 0),
        (None, UNKNOWN_ID),
        ("t", 0),
        ("t", ErrorCode.INVALID_REQUEST),
    ]


def test_what_may_have_been_carried_out_has_another_code_than_what_surely_was_not() -> None:
    fields = {
        "topics": [{"name": "t", "count": 9, "assignments": None}],
        "timeout": 1,
        "validate_only": False,
    }
    ask = asks(KafkaApi.CREATE_PARTITIONS, 3, fields)
    assert isinstance(ask.message, CreatePartitionsRequest)
    codes = {
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE: ErrorCode.NOT_CONTROLLER,
    }
    for ours, theirs in codes.items():
        answer: Any = ask.refused(ours, "because")
        assert [(row["error_code"], row["error_message"]) for row in answer["results"]] == [
            (theirs, "because")
        ]


def test_a_broker_is_described_as_the_cluster_is() -> None:
    resources = [
        {"resource_type": 4, "resource_name": "1", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "2", "configuration_keys": None},
        {"resource_type": 2, "resource_name": "t", "configuration_keys": ("retention.ms",)},
        {"resource_type": 32, "resource_name": "g", "configuration_keys": None},
        {"resource_type": 4, "resource_name": "99", "configuration_keys": None},
    ]
    fields = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    answer = described(KafkaApi.DESCRIBE_CONFIGS, 4, fields)
    one, two, topic, *others = answer["results"]
    assert one["configs"] == two["configs"] != ()
    assert [(row["name"], row["value"], row["config_source"]) for row in topic["configs"]] == [
        ("retention.ms", "5", 1)
    ]
    assert [row["source"] for row in topic["configs"][0]["synonyms"]] == [1, 5]
    assert [other["error_code"] for other in others] == [ErrorCode.INVALID_REQUEST] * 2


def altered(*resources: tuple[int, str, int, str]) -> Any:
    """The outcome of (kind, name, operation, key) of each resource."""
    rows = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "config_operation": operation, "value": None}],
        }
        for kind, name, operation, key in resources
    ]
    request = request_of(KafkaApi.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": rows, "validate_only": False})
    return TRANSLATIONS[KafkaApi.INCREMENTAL_ALTER_CONFIGS](request, VIEW)


def test_to_remove_the_throttle_of_log_dirs_succeeds_though_there_is_none() -> None:
    """Kafka's tool removes them from all brokers and topics once a reassignment is complete."""
    topic, broker, delete = 2, 4, 1
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    alone = altered((broker, "1", delete, rate))
    assert [(row["resource_name"], row["error_code"]) for row in alone["responses"]] == [("1", 0)]
    mixed = altered((broker, "1", delete, rate), (topic, "t", delete, rate), (broker, "2", delete, "other"))
    question = mixed.message
    assert isinstance(question, IncrementalAlterConfigsRequest)
    assert [(row.resource_name, len(row.configs)) for row in question.resources] == [("t", 0), ("2", 1)]
    rows = tuple(
        AlterConfigsResult(0, None, row.resource_type, row.resource_name) for row in question.resources
    )
    answer = mixed.answer(IncrementalAlterConfigsResponse(0, None, rows))
    assert [row["resource_name"] for row in answer["responses"]] == ["t", "2", "1"]


def test_the_values_of_a_topic_are_replaced_as_a_whole() -> None:
    """The topic has retention.ms of its own; what the old request does not name is removed."""
    rows = [
        {"resource_type": 2, "resource_name": "t", "configs": [{"name": "flush.ms", "value": "9"}]},
        {"resource_type": 2, "resource_name": "u", "configs": [{"name": "retention.ms", "value": None}]},
        {"resource_type": 4, "resource_name": "", "configs": []},
    ]
    fields = {"resources": rows, "validate_only": True}
    for version in (0, 2):
        ask = asks(KafkaApi.ALTER_CONFIGS, version, fields)
        question = ask.message
        assert isinstance(question, IncrementalAlterConfigsRequest)
        assert question.validate_only
        set_, delete = ConfigOperation.SET, ConfigOperation.DELETE
        assert [
            (row.resource_name, [(one.name, one.config_operation, one.value) for one in row.configs])
            for row in question.resources
        ] == [
            ("t", [("flush.ms", set_, "9"), ("retention.ms", delete, None)]),
            ("u", [("retention.ms", set_, None)]),
            ("", []),
        ]
        response: Any = ask.refused(ErrorCode.INVALID_CONFIG, "why")
        assert [row["resource_name"] for row in response["responses"]] == ["t", "u", ""]


def test_what_the_topic_of_the_offsets_always_has_is_not_removed() -> None:
    """Kafka's old tools name the values that they know of; the controller would refuse the whole change."""
    values = Map({**OFFSETS_TOPIC_CONFIGS, "segment.bytes": "1000"})
    configs = VIEW.image.configs.set((2, OFFSETS_TOPIC), values)
    view = replace(VIEW, image=replace(VIEW.image, configs=configs))
    rows = [{"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configs": []}]
    request = request_of(KafkaApi.ALTER_CONFIGS, 2, {"resources": rows, "validate_only": False})
    ask: Any = TRANSLATIONS[KafkaApi.ALTER_CONFIGS](request, view)
    (resource,) = ask.message.resources
    removed = [(one.name, one.config_operation) for one in resource.configs]
    assert removed == [(key, ConfigOperation.DELETE) for key in ("max.message.bytes", "segment.bytes")]


@pytest.mark.parametrize("version", [0, 2])
def test_no_value_is_removed_twice_by_one_request(version: int) -> None:
    """Five bytes that name a topic again would be a change of each of its values again."""
    again = [{"resource_type": 2, "resource_name": "t", "configs": []}] * 2
    answer: Any = TRANSLATIONS[KafkaApi.ALTER_CONFIGS](
        request_of(KafkaApi.ALTER_CONFIGS, version, {"resources": again, "validate_only": False}), VIEW
    )
    rows = [(row["resource_name"], row["error_code"], row["error_message"]) for row in answer["responses"]]
    assert rows == [("t", ErrorCode.INVALID_REQUEST, "it is named twice in this request")] * 2


def test_a_request_removes_a_bounded_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.kafka_listener.core.apis.configs.REMOVALS_MAX", 0)
    rows = [
        {"resource_type": 2, "resource_name": "u", "configs": []},
        {"resource_type": 2, "resource_name": "t", "configs": []},
    ]
    ask = asks(KafkaApi.ALTER_CONFIGS, 2, {"resources": rows, "validate_only": False})
    question = ask.message
    assert isinstance(question, IncrementalAlterConfigsRequest)
    assert [row.resource_name for row in question.resources] == ["u"]
    answer: Any = ask.refused(ErrorCode.NOT_CONTROLLER, "why")
    assert [row["resource_name"] for row in answer["responses"]] == ["u", "t"]


@pytest.mark.parametrize("api", [KafkaApi.ALTER_CONFIGS, KafkaApi.INCREMENTAL_ALTER_CONFIGS])
def test_a_number_that_is_ours_is_no_resource_of_a_kafka_client(api: KafkaApi) -> None:
    """The quotas of clients have an API of their own."""
    rows = [{"resource_type": 100, "resource_name": "", "configs": []}]
    request = request_of(api, 1, {"resources": rows, "validate_only": False})
    answer: Any = TRANSLATIONS[api](request, VIEW)
    assert [row["error_code"] for row in answer["responses"]] == [ErrorCode.INVALID_REQUEST]


def test_throttles_are_the_controllers_to_set_and_to_remove() -> None:
    rate = "leader.replication.throttled.rate"
    question = altered((4, "1", 0, rate), (4, "2", 1, rate)).message
    assert [(row.resource_name, len(row.configs)) for row in question.resources] == [("1", 1), ("2", 1)]


def test_log_dirs_have_the_sizes_of_their_partitions() -> None:
    for topics, expected in (
        (None, {"t": (0, 1), "u": (0,)}),
        ([{"topic": "t", "partitions": (1,)}], {"t": (1,)}),
    ):
        request = request_of(KafkaApi.DESCRIBE_LOG_DIRS, 4, {"topics": topics})
        good, bad = written(request, TRANSLATIONS[KafkaApi.DESCRIBE_LOG_DIRS](request, VIEW))["results"]
        found = {
            topic["name"]: tuple(row["partition_index"] for row in topic["partitions"])
            for topic in good["topics"]
        }
        assert found == expected
        assert (good["error_code"], bad["error_code"]) == (0, ErrorCode.KAFKA_STORAGE_ERROR)
        # of the device; -1 where it is not known
        sizes = [(row["total_bytes"], row["usable_bytes"]) for row in (good, bad)]
        assert sizes == [(1000, 400), (-1, -1)]
