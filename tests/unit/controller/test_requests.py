"""Requests of operators: one batch each, all or nothing, limits, rows (R17-R19, R104, R108)."""

from typing import Any

import pytest

from holdfast.controller.core.answers import WRITES, refusal
from holdfast.controller.core.operators import requests
from holdfast.controller.core.operators.operations import (
    OPERATIONS,
    AlterConfig,
    ElectionType,
    ElectLeader,
    OperationResult,
    Reassign,
    UpdateFeature,
)
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_BROKER, RESOURCE_TOPIC
from holdfast.metadata.records import ELR_FEATURE, METADATA_VERSION, NoOpRecord, decode_record
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.broker_registration import FeatureRange
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from holdfast.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionTopicPartitions,
    ElectLeadersRequest,
)
from holdfast.protocol.messages.features import FeatureUpdate, UpdateFeaturesRequest, UpgradeType
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.unit.controller.harness import NODE_ID, Quorum, make_config
from tests.unit.controller.test_topics import create, topic

TOPIC = (RESOURCE_TOPIC, "t")
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
NONE = ErrorCode.NONE


@pytest.fixture
def quorum() -> Quorum:
    """Topics t with partitions 0 to 2, and u with one; min ISR 2."""
    made = Quorum(make_config(min_insync_replicas="2", unclean_recovery_manager_enabled="false"))
    made.start_brokers(1, 2, 3, 4)
    create(made, "t", -1, -1, (1, 2, 3), (2, 3, 1), (3, 1, 2))
    create(made, "u", -1, -1, (1, 2, 3))
    made.appends.clear()
    return made


def names(rows: Any) -> list[str]:
    """The errors of rows, each with a sentence."""
    for row in rows:
        assert (row.error_message is None) == (row.error_code == NONE)
    return [ErrorCode(row.error_code).name for row in rows]


# --- every request ---------------------------------------------------------------------------------------


def test_every_write_of_the_wire_can_be_refused_as_a_whole() -> None:
    of_the_wire = [request for request in WRITES if request not in OPERATIONS]
    responses = {api.request: api.response for api in APIS.values()}
    for request in of_the_wire:
        answer: Any = refusal(object.__new__(request), ErrorCode.NOT_CONTROLLER, "ask another")
        assert type(answer).__name__ == responses[request].__name__
        assert (answer.error_code, answer.error_message) == (ErrorCode.NOT_CONTROLLER, "ask another")


def reassign_all(quorum: Quorum) -> AlterPartitionReassignmentsRequest:
    return reassignment({("t", 0): (4, 2, 3), ("t", 1): (4, 3, 1), ("u", 0): (1, 2, 4)})


@pytest.mark.parametrize(
    "make",
    [
        reassign_all,
        lambda _: configs(TOPIC, ("min.insync.replicas", SET, "3"), ("retention.ms", SET, "5")),
        lambda _: CreatePartitionsRequest(
            0, False, (CreatePartitionsTopic("t", 9, None), CreatePartitionsTopic("u", 4, None))
        ),
        lambda _: UpdateFeaturesRequest(
            0, False, (FeatureUpdate(ELR_FEATURE, 0, UpgradeType.SAFE_DOWNGRADE),)
        ),
        lambda _: UnregisterBrokerRequest(3),
    ],
)
def test_a_request_is_one_atomic_batch(quorum: Quorum, make: Any) -> None:
    answer = quorum.request(make(quorum))
    assert answer.error_code == NONE
    assert len(quorum.appends) == 1
    assert len(quorum.appends[0].values) > 1 or isinstance(make(quorum), UpdateFeaturesRequest)


@pytest.mark.parametrize(
    "request_",
    [
        IncrementalAlterConfigsRequest(
            True, (AlterConfigsResource(*TOPIC, (AlterableConfig("retention.ms", SET, "5"),)),)
        ),
        CreatePartitionsRequest(0, True, (CreatePartitionsTopic("t", 9, None),)),
        UpdateFeaturesRequest(0, True, (FeatureUpdate(ELR_FEATURE, 0, UpgradeType.SAFE_DOWNGRADE),)),
    ],
)
def test_validation_alone_writes_nothing_and_says_the_same(quorum: Quorum, request_: Any) -> None:
    before = quorum.image
    assert quorum.request(request_).error_code == NONE
    assert (quorum.appends, quorum.image) == ([], before)


IS_SO_ALREADY = [
    IncrementalAlterConfigsRequest(
        False, (AlterConfigsResource(*TOPIC, (AlterableConfig("retention.ms", DELETE, None),)),)
    ),
    UpdateFeaturesRequest(0, False, (FeatureUpdate(ELR_FEATURE, 1, UpgradeType.UPGRADE),)),
    AlterPartitionReassignmentsRequest(
        0, True, (ReassignableTopic("t", (ReassignablePartition(0, (1, 2, 3)),)),)
    ),
    ElectLeadersRequest(ElectionKind.PREFERRED, (ElectionTopicPartitions("t", (0, 1), None),), 0),
    ElectLeadersRequest(ElectionKind.PREFERRED, None, 0),
    AlterConfig(CLUSTER_RESOURCE, "min.insync.replicas", "2"),
    UpdateFeature(ELR_FEATURE, 1),
    Reassign("t", 0, (1, 2, 3)),
    ElectLeader(ElectionType.UNCLEAN, "t", 0),
]


@pytest.mark.parametrize("request_", IS_SO_ALREADY, ids=lambda request: type(request).__name__)
def test_what_is_so_already_is_said_once_a_record_of_that_moment_is_committed(
    quorum: Quorum, request_: Any
) -> None:
    """K20: a deposed controller that does not know it yet would say so of what another one has changed."""
    quorum.is_held = True
    number = quorum.start_request(request_)
    assert number not in quorum.answers
    (append,) = quorum.appends
    assert [decode_record(value) for value in append.values] == [NoOpRecord()]
    quorum.commit()
    assert number in quorum.answers


@pytest.mark.parametrize("request_", IS_SO_ALREADY, ids=lambda request: type(request).__name__)
def test_a_deposed_controller_does_not_say_that_it_is_so_already(quorum: Quorum, request_: Any) -> None:
    """K20, K23."""
    quorum.is_held = True
    number = quorum.start_request(request_)
    quorum.lose(NODE_ID + 1)
    assert quorum.answers[number].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_an_older_record_does_not_prove_that_it_is_so_already(quorum: Quorum) -> None:
    """K20: the acknowledgements of records from before the request may have been on their way for long."""
    quorum.is_held = True
    quorum.start_request(Reassign("t", 0, (1, 2, 4)))
    older = quorum.end_offset
    number = quorum.start_request(AlterConfig(CLUSTER_RESOURCE, "min.insync.replicas", "2"))
    quorum.commit(older)
    assert number not in quorum.answers
    quorum.commit()
    assert quorum.answers[number] == OperationResult()


@pytest.mark.parametrize(
    "request_",
    [
        DeleteTopicsRequest(0, ("x",)),
        UnregisterBrokerRequest(9),
        AlterPartitionReassignmentsRequest(
            0, True, (ReassignableTopic("t", (ReassignablePartition(0, None),)),)
        ),
        Reassign("t", 0, None),
        CreateTopicsRequest(0, False, (topic("t", 1, 1),)),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_refusal_that_tools_take_for_done_waits_for_a_record_of_that_moment(
    quorum: Quorum, request_: Any
) -> None:
    """K20: after a lost answer `client.admin` takes these for an echo of its own success. A deposed
    controller that does not know it yet must not say so of what another one has made, or ended, since."""
    quorum.is_held = True
    number = quorum.start_request(request_)
    assert number not in quorum.answers
    (append,) = quorum.appends
    assert [decode_record(value) for value in append.values] == [NoOpRecord()]
    quorum.lose(NODE_ID + 1)
    assert quorum.answers[number].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_request_that_writes_needs_no_further_record(quorum: Quorum) -> None:
    quorum.request(configs(TOPIC, ("retention.ms", DELETE, None), ("flush.ms", SET, "5")))
    (append,) = quorum.appends
    assert len(append.values) == 1


@pytest.mark.parametrize(
    "request_",
    [
        AlterConfig(TOPIC, "flush.ms", "often"),
        Reassign("t", 0, (8,)),
        ElectLeader(ElectionType.DESIGNATED, "x", 0, 1),
        IncrementalAlterConfigsRequest(
            True, (AlterConfigsResource(*TOPIC, (AlterableConfig("retention.ms", DELETE, None),)),)
        ),
        UpdateFeaturesRequest(0, True, (FeatureUpdate(ELR_FEATURE, 1, UpgradeType.UPGRADE),)),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_refusal_and_a_validation_wait_for_nothing(quorum: Quorum, request_: Any) -> None:
    """They say of nothing that it is done."""
    quorum.is_held = True
    assert quorum.start_request(request_) in quorum.answers
    assert quorum.appends == []


def test_what_waits_while_the_leadership_is_lost_is_undecided_for_an_operator(quorum: Quorum) -> None:
    """It may be in the log of the next controller: to call it undone would make its repetition a failure."""
    quorum.is_held = True
    numbers = [
        quorum.start_request(CreateTopicsRequest(0, False, (topic("v", 1, 1),))),
        quorum.start_request(UnregisterBrokerRequest(4)),
        quorum.start_request(configs(TOPIC, ("retention.ms", SET, "5"))),
    ]
    quorum.is_held = False
    quorum.lose(NODE_ID + 1)
    assert {quorum.answers[number].error_code for number in numbers} == {ErrorCode.REQUEST_TIMED_OUT}
    assert quorum.request(UnregisterBrokerRequest(4)).error_code == ErrorCode.NOT_CONTROLLER


# --- configuration ---------------------------------------------------------------------------------------


def configs(
    resource: tuple[int, str], *changes: tuple[str, int, str | None]
) -> IncrementalAlterConfigsRequest:
    rows = tuple(AlterableConfig(*change) for change in changes)
    return IncrementalAlterConfigsRequest(False, (AlterConfigsResource(*resource, rows),))


@pytest.mark.parametrize(
    ("resource", "change", "error", "says"),
    [
        (TOPIC, ("min.insync.replicas", SET, "0"), "INVALID_CONFIG", "an integer in [1, 2147483647]"),
        (TOPIC, ("min.insync.replica", SET, "1"), "INVALID_CONFIG", "did you mean min.insync.replicas?"),
        (TOPIC, ("min.insync.replica", DELETE, None), "INVALID_CONFIG", "no dynamic key"),
        (TOPIC, ("retention.ms", SET, None), "INVALID_REQUEST", "setting it needs a value"),
        (TOPIC, ("retention.ms", 7, "1"), "INVALID_REQUEST", "expected 0 (set) or 1 (delete)"),
        (TOPIC, ("retention.ms", ConfigOperation.APPEND, "1"), "INVALID_REQUEST", "set the whole value"),
        ((RESOURCE_TOPIC, "x"), ("retention.ms", SET, "1"), "UNKNOWN_TOPIC_OR_PARTITION", "no topic x"),
        ((RESOURCE_BROKER, "1"), ("min.insync.replicas", SET, "1"), "INVALID_CONFIG", "cluster"),
        # F14
        (CLUSTER_RESOURCE, ("min.insync.replicas", DELETE, None), "INVALID_CONFIG", "cannot be removed"),
        ((9, "t"), ("retention.ms", SET, "1"), "INVALID_REQUEST", "only topics, brokers and"),
    ],
)
def test_one_bad_change_leaves_all_of_its_resource_as_it_was(
    quorum: Quorum, resource: tuple[int, str], change: tuple[str, int, str | None], error: str, says: str
) -> None:
    before = quorum.image
    good = ("unclean.leader.election.enable", SET, "true")
    for changes in ((good, change), (change, good)):
        (row,) = quorum.request(configs(resource, *changes)).responses
        assert names([row]) == [error]
        assert says in row.error_message
        assert quorum.image == before


def test_one_brokers_min_isr_is_refused_in_favour_of_the_clusters(quorum: Quorum) -> None:
    """F14: the promise of the ELR needs one value for all."""
    request = configs((RESOURCE_BROKER, "1"), ("min.insync.replicas", SET, "1"))
    (row,) = quorum.request(request).responses
    assert names([row]) == ["INVALID_CONFIG"]
    assert "set the cluster's" in row.error_message
    downgrade = FeatureUpdate(ELR_FEATURE, 0, UpgradeType.SAFE_DOWNGRADE)
    quorum.request(UpdateFeaturesRequest(0, False, (downgrade,)))
    assert names(quorum.request(request).responses) == ["INVALID_CONFIG"]


def test_a_resource_that_does_not_exist_is_told_also_without_changes(quorum: Quorum) -> None:
    assert names(quorum.request(configs((RESOURCE_TOPIC, "x"))).responses) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert names(quorum.request(configs(TOPIC)).responses) == ["NONE"]


def test_each_resource_stands_for_itself(quorum: Quorum) -> None:
    def resource(name: str, value: str) -> AlterConfigsResource:
        return AlterConfigsResource(RESOURCE_TOPIC, name, (AlterableConfig("retention.ms", SET, value),))

    asked = (resource("u", "5"), resource("t", "x"), resource("x", "1"))
    answer = quorum.request(IncrementalAlterConfigsRequest(False, asked))
    assert [row.resource_name for row in answer.responses] == ["u", "t", "x"]
    assert names(answer.responses) == ["NONE", "INVALID_CONFIG", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert dict(quorum.image.overrides("u")) == {"retention.ms": "5"}
    twice = quorum.request(IncrementalAlterConfigsRequest(False, (resource("t", "5"), resource("t", "6"))))
    assert names(twice.responses) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    (row,) = quorum.request(configs(TOPIC, ("flush.ms", SET, "5"), ("flush.ms", DELETE, None))).responses
    assert names([row]) == ["INVALID_REQUEST"]
    assert not quorum.image.overrides("t")


def test_the_same_value_again_is_a_success_that_changes_nothing(quorum: Quorum) -> None:
    """Operators that set it in a loop must not be refused (Strimzi)."""
    same = configs(CLUSTER_RESOURCE, ("min.insync.replicas", SET, "2"))
    gone = configs(TOPIC, ("retention.ms", DELETE, "passed over"))
    before = quorum.image
    for request in (same, gone):
        assert names(quorum.request(request).responses) == ["NONE"]
    assert (quorum.image.configs, quorum.image.topics) == (before.configs, before.topics)


NEWEST = FeatureRange(METADATA_VERSION, 0, 1)

# --- features --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "error", "says"),
    [
        (FeatureUpdate(ELR_FEATURE, 0, UpgradeType.UPGRADE), "INVALID_UPDATE_VERSION", "as a downgrade"),
        (FeatureUpdate(ELR_FEATURE, 2, UpgradeType.UPGRADE), "INVALID_UPDATE_VERSION", "levels 0 to 1"),
        (FeatureUpdate(ELR_FEATURE, -1, UpgradeType.UNSAFE_DOWNGRADE), "INVALID_UPDATE_VERSION", "levels"),
        (FeatureUpdate("x", 1, UpgradeType.UPGRADE), "INVALID_UPDATE_VERSION", ELR_FEATURE),
        (FeatureUpdate(ELR_FEATURE, 1, 9), "INVALID_REQUEST", "expected 1, 2 or 3"),
    ],
)
def test_a_bad_feature_update_changes_nothing(
    quorum: Quorum, update: FeatureUpdate, error: str, says: str
) -> None:
    """R108. The first row's error is the whole request's."""
    answer = quorum.request(UpdateFeaturesRequest(0, False, (update,)))
    assert names([answer, *answer.results]) == [error, error]
    assert says in answer.error_message
    assert quorum.appends == []


@pytest.mark.parametrize("old", [(FeatureRange(ELR_FEATURE, 0, 0), NEWEST), (NEWEST,)])
def test_a_level_that_some_broker_does_not_support_is_refused(old: tuple[FeatureRange, ...]) -> None:
    """R108: one that does not know the feature was let in at level 0, and would not be at another."""
    quorum = Quorum(make_config(eligible_leader_replicas_enabled="false"))
    assert quorum.register(1).error_code == quorum.register(2, features=old).error_code == NONE
    upgrade = FeatureUpdate(ELR_FEATURE, 1, UpgradeType.UPGRADE)
    answer = quorum.request(UpdateFeaturesRequest(0, False, (upgrade,)))
    assert names([answer]) == ["INVALID_UPDATE_VERSION"]
    assert answer.error_message.endswith("levels 0 to 0 on all brokers, not 1: upgrade broker 2 first")


def test_features_are_updated_all_or_none(quorum: Quorum) -> None:
    good = FeatureUpdate(ELR_FEATURE, 0, UpgradeType.SAFE_DOWNGRADE)
    answer = quorum.request(UpdateFeaturesRequest(0, False, (good, FeatureUpdate("x", 1, 1))))
    assert names(answer.results) == ["FEATURE_UPDATE_FAILED", "INVALID_UPDATE_VERSION"]
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    twice = quorum.request(UpdateFeaturesRequest(0, False, (good, good)))
    assert names(twice.results) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    assert quorum.image.elr_enabled
    assert names([quorum.request(UpdateFeaturesRequest(0, False, (good,)))]) == ["NONE"]
    assert not quorum.image.elr_enabled
    again = quorum.request(UpdateFeaturesRequest(0, False, (FeatureUpdate(ELR_FEATURE, 0, 1),)))
    assert names(again.results) == ["NONE"]


def test_no_downgrade_of_any_kind_leaves_a_partition_that_no_replica_could_lead(quorum: Quorum) -> None:
    """B8."""
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    for upgrade_type in (UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        request = UpdateFeaturesRequest(0, False, (FeatureUpdate(ELR_FEATURE, 0, upgrade_type),))
        assert "has an empty ISR" in quorum.request(request).error_message


# --- reassignments ---------------------------------------------------------------------------------------


def reassignment(
    targets: dict[tuple[str, int], tuple[int, ...] | None], *, allow: bool = True
) -> AlterPartitionReassignmentsRequest:
    topics = tuple(
        ReassignableTopic(name, (ReassignablePartition(index, target),))
        for (name, index), target in targets.items()
    )
    return AlterPartitionReassignmentsRequest(0, allow, topics)


def reassign(quorum: Quorum, *rows: ReassignablePartition, allow: bool = True) -> list[str]:
    request = AlterPartitionReassignmentsRequest(0, allow, (ReassignableTopic("t", rows),))
    (answered,) = quorum.request(request).responses
    assert [row.partition_index for row in answered.partitions] == [row.partition_index for row in rows]
    return names(answered.partitions)


def test_partitions_of_a_request_move_each_for_itself(quorum: Quorum) -> None:
    rows = (
        ReassignablePartition(2, (4, 1, 2)),
        ReassignablePartition(0, (1, 9, 2)),
        ReassignablePartition(7, (1,)),
        ReassignablePartition(1, None),
    )
    assert reassign(quorum, *rows) == [
        "NONE",
        "INVALID_REPLICA_ASSIGNMENT",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NO_REASSIGNMENT_IN_PROGRESS",
    ]
    moving = quorum.partition("t", 2)
    assert (moving.adding_replicas, moving.removing_replicas) == ((4,), (3,))
    # a repetition after a lost answer, then the end of it
    assert reassign(quorum, ReassignablePartition(2, (4, 1, 2))) == ["NONE"]
    assert quorum.partition("t", 2) == moving
    assert reassign(quorum, ReassignablePartition(2, None)) == ["NONE"]
    assert quorum.partition("t", 2).replicas == (3, 1, 2)


def test_the_replication_factor_changes_only_when_that_is_allowed(quorum: Quorum) -> None:
    """R104: what was there before all moves counts, also while one runs."""
    for _ in range(2):
        for target in ((1, 2), (1, 2, 3, 4)):
            shorter = ReassignablePartition(0, target)
            assert reassign(quorum, shorter, allow=False) == ["INVALID_REPLICATION_FACTOR"]
        assert reassign(quorum, ReassignablePartition(0, (4, 2, 3)), allow=False) == ["NONE"]
    assert reassign(quorum, ReassignablePartition(0, None), allow=False) == ["NONE"]
    assert reassign(quorum, ReassignablePartition(0, (1, 2)), allow=True) == ["NONE"]


def test_a_partition_that_is_named_twice_does_not_move(quorum: Quorum) -> None:
    row = ReassignablePartition(0, (4, 2, 3))
    assert reassign(quorum, row, row) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    topics = (ReassignableTopic("t", (row,)), ReassignableTopic("t", (row,)))
    answer = quorum.request(AlterPartitionReassignmentsRequest(0, True, topics))
    assert [names(found.partitions) for found in answer.responses] == [["INVALID_REQUEST"]] * 2
    assert quorum.appends == []


# --- elections -------------------------------------------------------------------------------------------


def elect(
    quorum: Quorum, kind: int, *asked: tuple[str, tuple[int, ...], tuple[int, ...] | None]
) -> list[tuple[str, int, str]]:
    request = ElectLeadersRequest(kind, tuple(ElectionTopicPartitions(*row) for row in asked), 0)
    return rows_of(quorum.request(request))


def elect_all(quorum: Quorum, kind: ElectionKind) -> list[tuple[str, int, str]]:
    return rows_of(quorum.request(ElectLeadersRequest(kind, None, 0)))


def rows_of(answer: Any) -> list[tuple[str, int, str]]:
    assert answer.error_code == NONE
    return [
        (found.topic, row.partition_id, error)
        for found in answer.replica_election_results
        for row, error in zip(found.partition_results, names(found.partition_results), strict=True)
    ]


def lose_preferred_leaders(quorum: Quorum) -> None:
    """Broker 1 goes and comes back into every ISR, but leads nothing."""
    quorum.vanish(1)
    quorum.heartbeat(1)
    for name, count in (("t", 3), ("u", 1)):
        for index in range(count):
            quorum.alter(name, (1, 2, 3), index)


def test_named_partitions_have_a_row_each_and_of_all_only_those_that_need_one(quorum: Quorum) -> None:
    """R17."""
    lose_preferred_leaders(quorum)
    asked = [("u", (0,), None), ("t", (2, 0, 8), None)]
    quorum.appends.clear()
    found = elect(quorum, ElectionKind.PREFERRED, *asked)
    assert found == [
        ("u", 0, "NONE"),
        ("t", 2, "ELECTION_NOT_NEEDED"),
        ("t", 0, "NONE"),
        ("t", 8, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert len(quorum.appends) == 1
    assert [quorum.partition(name).leader for name in ("t", "u")] == [1, 1]
    assert elect_all(quorum, ElectionKind.PREFERRED) == []
    lose_preferred_leaders(quorum)
    assert elect_all(quorum, ElectionKind.PREFERRED) == [("t", 0, "NONE"), ("u", 0, "NONE")]


def test_a_preferred_replica_that_is_not_there_has_a_row_also_when_all_were_asked_for(quorum: Quorum) -> None:
    quorum.vanish(1)
    unavailable = "PREFERRED_LEADER_NOT_AVAILABLE"
    assert elect_all(quorum, ElectionKind.PREFERRED) == [("t", 0, unavailable), ("u", 0, unavailable)]


@pytest.mark.parametrize("kind", [kind for kind in ElectionKind if kind is not ElectionKind.PREFERRED])
def test_all_but_preferred_are_for_partitions_without_a_leader(quorum: Quorum, kind: ElectionKind) -> None:
    desired = (1,) if kind is ElectionKind.DESIGNATION else None
    assert elect(quorum, kind, ("u", (0,), desired)) == [("u", 0, "ELECTION_NOT_NEEDED")]
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    quorum.register(1)
    quorum.heartbeat(1)
    assert quorum.partition("u").leader is None
    # the recovery manager is off here: logs cannot be compared
    compares = kind in (ElectionKind.LONGEST_LOG_AGGRESSIVE, ElectionKind.LONGEST_LOG_BALANCED)
    error = "INVALID_REQUEST" if compares else "NONE"
    assert elect(quorum, kind, ("u", (0,), desired)) == [("u", 0, error)]
    assert quorum.partition("u").leader == (None if compares else 1)


def test_logs_are_compared_when_the_recovery_manager_is_on(quorum: Quorum) -> None:
    quorum.request(configs(CLUSTER_RESOURCE, ("unclean.recovery.manager.enabled", SET, "true")))
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    kind = ElectionKind.LONGEST_LOG_AGGRESSIVE
    assert elect(quorum, kind, ("u", (0,), None)) == [("u", 0, "NONE")]
    assert any(stated.topic_name == "u" for stated in quorum.stated)


@pytest.mark.parametrize(
    ("kind", "desired", "says"),
    [
        (ElectionKind.DESIGNATION, None, "needs a desired leader"),
        (ElectionKind.DESIGNATION, (1,), "1 desired leaders for 2 partitions"),
        (ElectionKind.DESIGNATION, (1, 2, 3), "3 desired leaders for 2 partitions"),
        (ElectionKind.UNCLEAN, (1, 2), "not for UNCLEAN"),
    ],
)
def test_desired_leaders_that_do_not_fit_elect_no_leader(
    quorum: Quorum, kind: ElectionKind, desired: tuple[int, ...] | None, says: str
) -> None:
    """R18."""
    request = ElectLeadersRequest(kind, (ElectionTopicPartitions("t", (0, 1), desired),), 0)
    (found,) = quorum.request(request).replica_election_results
    assert names(found.partition_results) == ["INVALID_REQUEST", "INVALID_REQUEST"]
    assert says in found.partition_results[0].error_message


def test_desired_leaders_go_by_place(quorum: Quorum) -> None:
    """KIP-966: the entry matches the one in partitions by index."""
    for broker_id in (1, 2, 3):
        quorum.vanish(broker_id)
    quorum.register(1)
    quorum.register(2)
    quorum.heartbeat(1)
    quorum.heartbeat(2)
    assert [quorum.partition("t", index).leader for index in range(3)] == [None] * 3
    found = elect(quorum, ElectionKind.DESIGNATION, ("t", (2, 0), (2, 1)))
    assert [error for _, _, error in found] == ["NONE", "NONE"]
    assert (quorum.partition("t", 2).leader, quorum.partition("t", 0).leader) == (2, 1)
    # R19: a replica leads; it is not said that it is the one of this request
    again = elect(quorum, ElectionKind.DESIGNATION, ("t", (2, 0), (1, 1)))
    assert [error for _, _, error in again] == ["ELECTION_NOT_NEEDED", "ELECTION_NOT_NEEDED"]


def test_an_election_that_cannot_be_meant_is_refused_as_a_whole(quorum: Quorum) -> None:
    for request in (ElectLeadersRequest(9, None, 0), ElectLeadersRequest(ElectionKind.DESIGNATION, None, 0)):
        answer = quorum.request(request)
        assert names([answer]) == ["INVALID_REQUEST"]
        assert answer.replica_election_results == ()


def test_a_partition_that_is_named_twice_is_not_elected(quorum: Quorum) -> None:
    """R18."""
    lose_preferred_leaders(quorum)
    found = elect(quorum, ElectionKind.PREFERRED, ("t", (0, 0), None), ("u", (0,), None), ("u", (0,), None))
    assert [error for _, _, error in found] == ["INVALID_REQUEST"] * 4


def test_a_thousand_elections_a_request_and_the_rest_is_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """R18, with a smaller thousand."""
    assert requests.ELECTIONS_MAX == 1000
    monkeypatch.setattr(requests, "ELECTIONS_MAX", 2)
    quorum = Quorum(make_config())
    quorum.start_brokers(1, 2)
    create(quorum, "a", -1, -1, (2, 1), (1, 2))
    create(quorum, "b", -1, -1, (1, 2), (1, 2), (1, 2))
    quorum.vanish(1)
    quorum.heartbeat(1)
    for name, index in (("a", 1), ("b", 0), ("b", 1), ("b", 2)):
        quorum.alter(name, (1, 2), index)
    limit = "REQUEST_LIMIT_REACHED"
    named = elect(quorum, ElectionKind.PREFERRED, ("a", (0,), None), ("b", (2, 0), None))
    assert named == [("a", 0, "ELECTION_NOT_NEEDED"), ("b", 2, "NONE"), ("b", 0, limit)]
    # of all, only what is elected counts, and what needs nothing has no row beyond the limit either
    assert elect_all(quorum, ElectionKind.PREFERRED) == [("a", 1, "NONE"), ("b", 0, "NONE"), ("b", 1, limit)]
    assert elect_all(quorum, ElectionKind.PREFERRED) == [("b", 1, "NONE")]


def test_beyond_the_limit_partitions_with_a_leader_have_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """R17, R18."""
    monkeypatch.setattr(requests, "ELECTIONS_MAX", 1)
    quorum = Quorum(make_config())
    quorum.start_brokers(1, 2, 3)
    create(quorum, "a", -1, -1, (1, 2), (1, 2))
    create(quorum, "b", -1, -1, (3, 1), (1, 2))
    for broker_id in (1, 2):
        quorum.vanish(broker_id)
    quorum.heartbeat(1)
    found = elect_all(quorum, ElectionKind.UNCLEAN)
    assert found == [
        ("a", 0, "NONE"),
        ("a", 1, "REQUEST_LIMIT_REACHED"),
        ("b", 1, "REQUEST_LIMIT_REACHED"),
    ]


def test_comparisons_of_all_go_on_behind_those_that_wait_for_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """R18: a comparison that was asked for elects no leader before the logs are there; it counts once."""
    monkeypatch.setattr(requests, "ELECTIONS_MAX", 2)
    quorum = Quorum(make_config(min_insync_replicas="2"))
    quorum.start_brokers(1, 2)
    create(quorum, "t", -1, -1, *[(1, 2)] * 5)
    for broker_id in (1, 2):
        quorum.vanish(broker_id)
    kind, limit = ElectionKind.LONGEST_LOG_AGGRESSIVE, "REQUEST_LIMIT_REACHED"
    for served in (2, 4):
        found = [error for _, _, error in elect_all(quorum, kind)]
        assert found == ["NONE"] * served + [limit] * (5 - served)
    assert [error for _, _, error in elect_all(quorum, kind)] == ["NONE"] * 5
    # a refusal is no election: all five hear that complete replicas are away
    other = [error for _, _, error in elect_all(quorum, ElectionKind.LONGEST_LOG_BALANCED)]
    assert other == ["ELIGIBLE_LEADERS_NOT_AVAILABLE"] * 5


# --- brokers ---------------------------------------------------------------------------------------------


def test_an_unregistered_broker_is_gone_and_a_second_time_there_is_none(quorum: Quorum) -> None:
    """R28."""
    quorum.vanish(3)
    assert names([quorum.request(UnregisterBrokerRequest(3))]) == ["NONE"]
    assert 3 not in quorum.image.brokers
    assert names([quorum.request(UnregisterBrokerRequest(3))]) == ["BROKER_ID_NOT_REGISTERED"]
