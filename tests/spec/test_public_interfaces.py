"""KIP-966, "Public Interfaces": records, requests, files, tools, configuration, errors, metrics."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.core.requests.log_info import answer_log_info
from holdfast.cli.leader_election import command as leader_election
from holdfast.cli.partition_files import read_elections
from holdfast.cli.topic_view import describe_lines
from holdfast.client.admin import Admin
from holdfast.metadata.config_keys import CLUSTER_KEYS, COMMON_KEYS, CONTROLLER_KEYS, TOPIC_KEY_BY_NAME
from holdfast.metadata.describe import describe_topic_partitions_response
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import PartitionChangeRecord, PartitionRecord, decode_record, encode_record
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
)
from holdfast.protocol.messages.replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopic,
)
from holdfast.protocol.messages.topics import (
    DescribedPartition,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicPartitionCursor,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.memory.machine import memory_runtime, settle
from holdfast.scenario.controller_commands import Scenario
from holdfast.storage import clean_shutdown
from tests.spec.builders import run_script
from tests.spec.test_other_behaviors import gauges
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_consumer import Play

TOPIC_ID = b"t" * 16
LOST = """
    broker 1 2 3
    partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
    partition t-1 replicas=(1,2,3) min_isr=2 isr=(1) elr=(2)
    partition u-0 replicas=(1,2,3) min_isr=2
"""


def static_default(name: str) -> Any:
    return {key.name: key.default for key in COMMON_KEYS + CONTROLLER_KEYS}[name]


# --- records ---------------------------------------------------------------------------------------------


def test_partition_change_record_says_what_changed_and_leaves_out_what_did_not() -> None:
    """PartitionChangeRecord: null for sets that did not change, else the new ELR and LastKnownELR (F15).

    Kept in metadata.records, controller.core.partitions.partition_change.
    """
    scenario = run_script(LOST)
    start = len(scenario.quorum.entries)
    run_script("fence 2\nregister 2 unclean", scenario)
    changes = [
        record
        for entry in scenario.quorum.entries[start:]
        if isinstance(record := decode_record(entry.value), PartitionChangeRecord)
    ]
    assert [(change.isr, change.elr, change.last_known_elr) for change in changes] == [
        ((1, 3), None, None),
        (None, (), (2,)),
    ]


def test_partition_change_record_carries_the_last_known_leader() -> None:
    """PartitionChangeRecord: the last known leader, -1 when none needs to be tracked (F10).

    Kept in metadata.records, controller.core.partitions.partition_change.
    """
    scenario = run_script("broker 1 2\npartition t-0 replicas=(1,2) min_isr=1 isr=(1)")
    start = len(scenario.quorum.entries)
    run_script("fence 1\nunfence 1", scenario)
    known = [
        record.last_known_leader
        for entry in scenario.quorum.entries[start:]
        if isinstance(record := decode_record(entry.value), PartitionChangeRecord)
    ]
    assert known == [1, -1]


def test_partition_record_carries_elr_last_known_elr_and_last_known_leader() -> None:
    """PartitionRecord: ELR, LastKnownELR and the last known leader, -1 for none (F15).

    Kept in metadata.records.
    """
    scenario = run_script("""
        broker 1
        partition t-0 replicas=(2,3) min_isr=2 leader=none isr=() elr=(2) last_known_elr=(3)
        partition t-1 replicas=(2,3) min_isr=2 leader=none isr=() last_known_leader=3
    """)
    found = []
    for index in (0, 1):
        record = scenario.quorum.partition("t", index).to_record(TOPIC_ID, index)
        again = decode_record(encode_record(record))
        assert isinstance(again, PartitionRecord)
        found.append((again.elr, again.last_known_elr, again.last_known_leader))
    assert found == [((2,), (3,), -1), ((), (), 3)]


def test_registration_without_a_proof_says_minus_one() -> None:
    """BrokerRegistration API: the epoch before a clean shutdown, -1 by default (F22).

    Kept in controller.core.brokers.cluster_control.
    """
    quorum = run_script("broker 1 2\npartition t-0 replicas=(1,2) min_isr=2\nfence 2").quorum
    assert not quorum.register(2).clean_shutdown
    assert quorum.partition("t").last_known_elr == (2,)


# --- DescribeTopicPartitions -----------------------------------------------------------------------------


def describe(
    scenario: Scenario, *topics: str, limit: int = 100, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    place = None if cursor is None else TopicPartitionCursor(*cursor)
    answer: DescribeTopicPartitionsResponse = scenario.quorum.request(
        DescribeTopicPartitionsRequest(topics, limit, place)
    )
    return answer


def rows(answer: DescribeTopicPartitionsResponse) -> list[str]:
    return [f"{topic.name}-{row.partition_index}" for topic in answer.topics for row in topic.partitions]


def test_described_are_the_topics_listed_or_all() -> None:
    """DescribeTopicPartitionsRequest: the topics listed, or all of them with an empty list (R110).

    Kept in metadata.describe.
    """
    scenario = run_script(LOST)
    assert rows(describe(scenario, "u")) == ["u-0"]
    assert rows(describe(scenario)) == ["t-0", "t-1", "u-0"]


def test_caller_limits_the_partitions_of_an_answer() -> None:
    """DescribeTopicPartitionsRequest, pagination: the caller can give the maximum number of partitions
    (R112).

    Kept in metadata.describe.
    """
    assert rows(describe(run_script(LOST), limit=2)) == ["t-0", "t-1"]


def test_cursor_names_the_first_partition_that_was_left_out() -> None:
    """DescribeTopicPartitionsRequest, pagination: beyond the limit nothing is sent, the cursor is set (R112).

    Kept in metadata.describe.
    """
    scenario = run_script(LOST)
    answer = describe(scenario, limit=1)
    assert rows(answer) == ["t-0"]
    assert answer.next_cursor == TopicPartitionCursor("t", 1)
    assert describe(scenario, limit=3).next_cursor is None


def test_next_request_goes_on_at_the_cursor() -> None:
    """DescribeTopicPartitionsRequest, pagination: the caller can include the cursor in the next request
    (R112).

    Kept in metadata.describe.
    """
    assert rows(describe(run_script(LOST), cursor=("t", 1))) == ["t-1", "u-0"]


def test_server_limits_the_partitions_of_an_answer() -> None:
    """DescribeTopicPartitionsRequest, note: max.request.partition.size.limit of the server counts too (F51).

    Kept in metadata.describe, metadata.config_keys.
    """
    assert static_default("max.request.partition.size.limit") == 2000
    image = run_script(LOST).quorum.image
    request = DescribeTopicPartitionsRequest((), 2000, None)
    assert rows(describe_topic_partitions_response(image, request, partition_limit=2)) == ["t-0", "t-1"]


def test_pages_are_of_the_state_at_their_own_time() -> None:
    """DescribeTopicPartitionsRequest, note: there is no consistency between requests (R112).

    Kept in metadata.describe.
    """
    scenario = run_script(LOST)
    cursor = describe(scenario, limit=2).next_cursor
    assert cursor is not None
    run_script("delete u", scenario)
    assert rows(describe(scenario, cursor=(cursor.topic_name, cursor.partition_index))) == []


def test_topics_are_described_by_name() -> None:
    """DescribeTopicPartitionsRequest, note: it is for admin clients, topic ids are not supported (R110).

    Kept in protocol.messages.topics.
    """
    assert set(DescribeTopicPartitionsRequest.__annotations__) == {
        "topics",
        "response_partition_limit",
        "cursor",
    }
    assert describe(run_script(LOST), "x").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_description_tells_elr_and_last_known_elr() -> None:
    """DescribeTopicsResponse: leader, epoch, replicas, ISR, ELR, LastKnownELR and offline replicas (R114).

    Kept in metadata.describe.
    """
    scenario = run_script(LOST + "fence 2")
    first, second = describe(scenario, "t").topics[0].partitions
    assert (first.leader_id, first.isr, first.last_known_elr) == (-1, (), (2, 3))
    assert (second.leader_id, second.leader_epoch, second.replicas) == (1, 0, (1, 2, 3))
    assert (second.isr, second.eligible_leader_replicas, second.offline_replicas) == ((1,), (2,), (2,))
    assert first.error_code == second.error_code == ErrorCode.NONE


def test_description_has_no_elr_without_the_feature() -> None:
    """DescribeTopicsResponse: ELR and LastKnownELR are nullable (F54).

    Kept in metadata.describe.
    """
    scenario = run_script("cluster elr=off\nbroker 1\npartition t-0 replicas=(1) min_isr=1")
    row = describe(scenario).topics[0].partitions[0]
    assert (row.eligible_leader_replicas, row.last_known_elr) == (None, None)


# --- files -----------------------------------------------------------------------------------------------


def test_clean_shutdown_file_is_json_with_a_version_and_the_epoch() -> None:
    """CleanShutdownFile: a JSON file, version 0, with the broker epoch (F20).

    Kept in storage.clean_shutdown.
    """
    mark = clean_shutdown.Mark(7, b"d" * 16)
    content = json.loads(clean_shutdown.encode(mark))
    assert (content["version"], content["brokerEpoch"]) == (0, 7)
    assert clean_shutdown.decode(json.dumps(content)) == mark
    assert clean_shutdown.decode(json.dumps({**content, "version": 9})) is None


# --- ElectLeaders ----------------------------------------------------------------------------------------


def elect(
    scenario: Scenario, kind: ElectionKind, partitions: Mapping[int, int], topic: str = "t"
) -> list[ErrorCode]:
    desired = tuple(partitions.values()) if kind is ElectionKind.DESIGNATION else None
    named = (ElectionTopicPartitions(topic, tuple(partitions), desired),)
    answer = scenario.quorum.request(ElectLeadersRequest(kind, named, 60_000))
    return [ErrorCode(row.error_code) for row in answer.replica_election_results[0].partition_results]


def test_elect_leaders_is_api_43() -> None:
    """ElectLeadersRequest: api key 43 (D3).

    Kept in protocol.api_keys.
    """
    assert ApiKey.ELECT_LEADERS.value == 43


def test_elect_leaders_serves_the_first_thousand() -> None:
    """ElectLeadersRequest: only the first 1000 partitions are served, others get REQUEST_LIMIT_REACHED (R18).

    Kept in controller.core.operators.requests.
    """
    codes = elect(run_script(LOST), ElectionKind.PREFERRED, dict.fromkeys(range(1002), 0))
    assert codes[0] is not ErrorCode.REQUEST_LIMIT_REACHED
    assert [at for at, code in enumerate(codes) if code is ErrorCode.REQUEST_LIMIT_REACHED] == [1000, 1001]


def test_desired_leaders_match_the_partitions_by_index() -> None:
    """ElectLeadersRequest: each desired leader belongs to the partition at the same place (R18).

    Kept in controller.core.operators.requests, controller.core.partitions.leader_elections.
    """
    scenario = run_script(
        LOST + "partition t-2 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)"
    )
    assert elect(scenario, ElectionKind.DESIGNATION, {2: 3, 0: 1}) == [ErrorCode.NONE] * 2
    assert (scenario.quorum.partition("t", 0).leader, scenario.quorum.partition("t", 2).leader) == (1, 3)


# --- the tool --------------------------------------------------------------------------------------------


def test_tool_knows_the_five_types_of_election() -> None:
    """kafka-leader-election.sh: preferred, unclean, longest log in two modes, designation (F35).

    Kept in cli.leader_election.
    """
    option = next(one for one in leader_election.params if one.name == "kind")
    assert option.metavar == "PREFERRED|UNCLEAN|LONGEST_LOG_AGGRESSIVE|LONGEST_LOG_BALANCED|DESIGNATION"
    assert option.required


def test_preferred_election_is_for_partitions_that_another_replica_leads() -> None:
    """kafka-leader-election.sh: preferred only if the current leader is not the preferred one (R17).

    Kept in controller.core.partitions.leader_elections.
    """
    run_script("""
        broker 1 2
        partition t-0 replicas=(1,2) min_isr=1 leader=2
        elect preferred t-0
        => t-0 leader=1@1
        elect preferred t-0
        => t-0 error=ELECTION_NOT_NEEDED
    """)


@pytest.mark.parametrize("kind", ["longest_log_aggressive", "longest_log_balanced", "designated"])
def test_comparison_and_designation_are_for_partitions_without_a_leader(kind: str) -> None:
    """kafka-leader-election.sh: longest log and designation only if there is no leader (R18).

    Kept in controller.core.partitions.leader_elections.
    """
    leader = " leader=2" if kind == "designated" else ""
    run_script(LOST + f"elect {kind} u-0{leader}\n=> u-0 error=ELECTION_NOT_NEEDED")


def test_file_of_the_tool_names_topic_partition_and_desired_leader(tmp_path: Path) -> None:
    """kafka-leader-election.sh: the JSON file, desiredLeader is for designation only (R18).

    Kept in cli.partition_files.
    """
    path = tmp_path / "elections.json"
    path.write_text(
        '{"partitions": [{"topic": "foo", "partition": 1, "desiredLeader": 0},'
        ' {"topic": "bar", "partition": 2}]}'
    )
    assert read_elections(str(path)) == {TopicPartition("foo", 1): 0, TopicPartition("bar", 2): None}


# --- configuration and errors ----------------------------------------------------------------------------


def test_elr_can_be_switched_off_for_a_new_cluster() -> None:
    """Config changes: eligible.leader.replicas.enabled, whether ELR is recorded and the ISR can be empty
    (F63).

    Kept in controller.core.quorum_controller, metadata.config_keys.
    """
    text = "broker 1 2\npartition t-0 replicas=(1,2) min_isr=2\nfence 2\nfence 1\nshow t-0\n"
    run_script("cluster elr=off\n" + text + "=> t-0 isr=(1) elr=()")
    run_script("cluster elr=on\n" + text + "=> t-0 isr=() elr=(1,2)")


def test_balanced_is_the_strategy_unless_another_is_set() -> None:
    """Config changes: unclean.recovery.strategy, Balanced by default (R69).

    Kept in controller.core.partitions.unclean_recovery, metadata.config_keys.
    """
    run_script("""
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=() last_known_elr=(2,3)
        => t-0 leader=none@0
        => t-0 recovery: wait (3)
    """)
    assert TOPIC_KEY_BY_NAME["unclean.recovery.strategy"].choices == ("Aggressive", "Balanced", "None")


def test_recovery_manager_can_be_switched() -> None:
    """Config changes: unclean.recovery.manager.enabled, false means the unclean election as before (R69, D8).

    Kept in controller.core.partitions.replication_control, metadata.config_keys.
    """
    assert "unclean.recovery.manager.enabled" in {key.name for key in CLUSTER_KEYS}
    run_script("""
        cluster manager=off unclean=true
        broker 1 2
        partition t-0 replicas=(1,2,3) min_isr=2 leader=2 isr=(2)
        fence 2
        => t-0 leader=1@1 isr=(1) recovering
    """)


def test_recovery_waits_five_minutes_for_answers() -> None:
    """Config changes: unclean.recovery.timeout.ms, 5 min by default (R64).

    Kept in metadata.config_keys, controller.core.partitions.unclean_recovery.
    """
    assert static_default("unclean.recovery.timeout.ms") == 300_000
    run_script(
        LOST + "log_info 2 t-0 last_epoch=1 end_offset=1\nlog_info 3 t-0 last_epoch=1 end_offset=2\n"
        "advance 299999\n=> ok\nadvance 1\n=> t-0 leader=3@1\n=> t-0 recovery: elected 3"
    )


# --- GetReplicaLogInfo -----------------------------------------------------------------------------------


def log_info(*indices: int) -> GetReplicaLogInfoResponse:
    """What a broker answers that knows no such topic: one row an index all the same."""
    request = GetReplicaLogInfoRequest(1, (LogInfoTopic(TOPIC_ID, indices),))
    return answer_log_info(request, MetadataImage(), 1, 77, lambda key: None)


def test_log_info_is_asked_in_numbers_and_what_is_beyond_the_limit_is_named() -> None:
    """GetReplicaLogInfo Request: api key 70; the first 1000, then REQUEST_LIMIT_REACHED (R61, B23).

    Kept in protocol.messages.replica_log_info, broker.core.requests.log_info.
    """
    assert int(ApiKey.GET_REPLICA_LOG_INFO) == 70
    rows = log_info(*range(1001)).topics[0].partitions
    limit = ErrorCode.REQUEST_LIMIT_REACHED
    assert [row.partition for row in rows if row.error_code == limit] == [1000]


def test_log_info_carries_the_broker_epoch_and_a_row_a_partition() -> None:
    """GetReplicaLogInfo Response: broker epoch, and a row for each partition (R61, R62).

    Kept in protocol.messages.replica_log_info, broker.core.requests.log_info.
    """
    answer = log_info(4, 2)
    assert answer.broker_epoch == 77
    assert [row.partition for row in answer.topics[0].partitions] == [4, 2]


def test_unclean_recovery_is_measured() -> None:
    """Metrics, Unclean Recovery: partitions under recovery, finished, and for the operator.

    Kept in controller.core.metrics, controller.core.partitions.unclean_recovery.
    """
    scenario = run_script(LOST + "log_info 2 t-0 last_epoch=1 end_offset=1\n=> ok")
    names = ("unclean_recovery_partitions_count", "unclean_recovery_finished_count")
    seen = gauges(scenario)
    assert [seen[f"kafka_controller_{name}"] for name in names] == [1, 0]
    assert seen["kafka_controller_manual_leader_election_required_partition_count"] == 0


def test_request_over_the_limit_may_be_sent_again() -> None:
    """New Errors: REQUEST_LIMIT_REACHED is retriable (F36).

    Kept in protocol.errors.
    """
    assert ErrorCode.REQUEST_LIMIT_REACHED.is_retriable


# --- admin client ----------------------------------------------------------------------------------------


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    yield Play(cluster)
    await settle()
    await world.tasks.cancel_all()


async def test_admin_client_follows_the_cursor_until_all_is_described(play: Play) -> None:
    """Admin API/Client changes 1, 2: the client asks piece by piece, and again while there is a cursor (F54).

    Kept in client.admin.
    """
    play.cluster.add_topic("a", 5)
    play.cluster.add_topic("b", 1)
    admin = Admin(play.cluster.bootstrap_servers, runtime=play.cluster.runtime)
    described = await play.until(admin.describe_topics(partitions_per_answer=2))
    await admin.close()
    asked = [
        message
        for broker in play.cluster.brokers.values()
        for message in broker.asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    ]
    assert [len(topic.partitions) for topic in described] == [5, 1]
    assert len(asked) >= 3
    assert any(request.cursor is not None for request in asked)


def test_topic_description_of_the_tools_shows_the_elr() -> None:
    """Admin API/Client changes 3: the output of the topic description has the fields of the ELR (F54).

    Kept in cli.topic_view.
    """
    answer = describe(run_script(LOST), "t")
    text = "\n".join(describe_lines(answer.topics[0]))
    assert "Elr: 2" in text
    assert "LastKnownElr: 2,3" in text


def test_described_partition_has_the_fields_of_the_elr() -> None:
    """Admin API/Client changes 4: what the client gives of a partition includes ELR and LastKnownELR (F54).

    Kept in protocol.messages.topics.
    """
    assert {"eligible_leader_replicas", "last_known_elr"} <= set(DescribedPartition.__annotations__)


# --- metrics ---------------------------------------------------------------------------------------------


def test_partitions_below_min_isr_are_counted() -> None:
    """Metrics: global_under_min_isr_partition_count, partitions with an ISR smaller than min ISR (F16).

    Kept in controller.core.metrics.
    """
    assert gauges(run_script(LOST))["kafka_controller_global_under_min_isr_partition_count"] == 2
