"""Dynamic configuration and features beyond the scenario files: checks, one batch, what is left alone."""

import pytest

from holdfast.controller.core.operators.operations import AlterConfig, OperationResult, UpdateFeature
from holdfast.metadata.image import (
    CLUSTER_RESOURCE,
    DEFAULT_CLIENT,
    RESOURCE_CLIENT,
    RESOURCE_TOPIC,
    MetadataImage,
    TopicImage,
)
from holdfast.metadata.records import ELR_FEATURE, NoOpRecord, decode_record
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import OFFSETS_TOPIC
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create

TOPIC = (RESOURCE_TOPIC, "t")
CLIENT = (RESOURCE_CLIENT, "c")


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2", unclean_recovery_manager_enabled="false"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, (1, 2, 3), (2, 3, 1))
    create(made, "u", -1, -1, (1, 2, 3))
    return made


def alter(quorum: Quorum, resource: tuple[int, str], name: str, value: str | None) -> OperationResult:
    outcome: OperationResult = quorum.request(AlterConfig(resource, name, value))
    return outcome


def switch_elr(quorum: Quorum, level: int, name: str = ELR_FEATURE) -> ErrorCode:
    outcome: OperationResult = quorum.request(UpdateFeature(name, level))
    return outcome.error_code


def test_value_and_partition_records_stand_in_one_batch(quorum: Quorum) -> None:
    """R109: no node can see one without the others."""
    quorum.appends.clear()
    assert alter(quorum, TOPIC, "min.insync.replicas", "3") == OperationResult()
    (append,) = quorum.appends
    names = [type(decode_record(value)).__name__ for value in append.values]
    assert names == ["ConfigRecord", "PartitionChangeRecord", "PartitionChangeRecord"]
    assert [quorum.partition("t", index).min_isr for index in (0, 1)] == [3, 3]


def test_the_clusters_value_counts_for_topics_without_their_own(quorum: Quorum) -> None:
    alter(quorum, TOPIC, "min.insync.replicas", "2")
    alter(quorum, CLUSTER_RESOURCE, "min.insync.replicas", "1")
    assert (quorum.partition("t").min_isr, quorum.partition("u").min_isr) == (2, 1)
    alter(quorum, TOPIC, "min.insync.replicas", None)
    assert quorum.partition("t").min_isr == 1


def test_a_topics_min_isr_looks_at_no_other_topic(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of them in one request would look at all topics a thousand times."""

    def refuse(image: MetadataImage) -> list[TopicImage]:
        raise AssertionError("all topics were walked")

    monkeypatch.setattr(MetadataImage, "sorted_topics", refuse)
    assert alter(quorum, TOPIC, "min.insync.replicas", "1") == OperationResult()
    assert [quorum.partition("t", index).min_isr for index in (0, 1)] == [1, 1]


@pytest.mark.parametrize("value", ["604800000", None])
@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes"])
def test_no_retention_deletes_committed_offsets(quorum: Quorum, name: str, value: str | None) -> None:
    create(quorum, OFFSETS_TOPIC, 1, 3)
    resource = (RESOURCE_TOPIC, OFFSETS_TOPIC)
    outcome = alter(quorum, resource, name, value)
    assert outcome.error_code is ErrorCode.INVALID_CONFIG
    assert "stays -1" in (outcome.error_message or "")
    assert alter(quorum, resource, name, "-1") == alter(quorum, resource, "segment.bytes", "2000")
    assert quorum.image.overrides(OFFSETS_TOPIC)[name] == "-1"


@pytest.mark.parametrize(
    ("resource", "name", "value", "error"),
    [
        (TOPIC, "min.insync.replicas", "0", ErrorCode.INVALID_CONFIG),
        (TOPIC, "min.insync.replica", "1", ErrorCode.INVALID_CONFIG),
        (TOPIC, "unclean.recovery.strategy", "Bold", ErrorCode.INVALID_CONFIG),
        (CLUSTER_RESOURCE, "segment.bytes", "2000", ErrorCode.INVALID_CONFIG),
        # F14: the promise of the ELR needs one value for all
        (CLUSTER_RESOURCE, "min.insync.replicas", None, ErrorCode.INVALID_CONFIG),
        ((RESOURCE_TOPIC, "x"), "min.insync.replicas", "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((4, "1"), "min.insync.replicas", "1", ErrorCode.INVALID_CONFIG),
        ((4, "1"), "log.retention.ms", "1", ErrorCode.INVALID_CONFIG),
        ((4, "1"), "unclean.recovery.manager.enabled", "false", ErrorCode.INVALID_CONFIG),
        ((4, "1"), "leader.replication.throttled.rate", "0", ErrorCode.INVALID_CONFIG),
        ((4, "99"), "leader.replication.throttled.rate", "1", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (TOPIC, "leader.replication.throttled.rate", "1", ErrorCode.INVALID_CONFIG),
        (TOPIC, "leader.replication.throttled.replicas", "0", ErrorCode.INVALID_CONFIG),
        (TOPIC, "follower.replication.throttled.replicas", "0:1,*", ErrorCode.INVALID_CONFIG),
        # brokers read numbers from it, and no number is read from thousands of digits
        (TOPIC, "follower.replication.throttled.replicas", "0:12345678901", ErrorCode.INVALID_CONFIG),
        (CLIENT, "producer_byte_rate", "0", ErrorCode.INVALID_CONFIG),
        (CLIENT, "producer_byte_rate", "1.5", ErrorCode.INVALID_CONFIG),
        (CLIENT, "request_percentage", "5", ErrorCode.INVALID_CONFIG),
        ((RESOURCE_CLIENT, "x" * 256), "producer_byte_rate", "5", ErrorCode.INVALID_REQUEST),
        (TOPIC, "producer_byte_rate", "5", ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_set_is_refused_without_a_record(
    quorum: Quorum, resource: tuple[int, str], name: str, value: str | None, error: ErrorCode
) -> None:
    before = quorum.image
    outcome = alter(quorum, resource, name, value)
    assert outcome.error_code is error
    assert outcome.error_message
    assert quorum.image == before


def test_quotas_are_set_for_any_client_and_for_all_others(quorum: Quorum) -> None:
    assert alter(quorum, CLIENT, "producer_byte_rate", "5") == OperationResult()
    assert alter(quorum, DEFAULT_CLIENT, "consumer_byte_rate", "7") == OperationResult()
    assert quorum.image.client_quotas() == {"": {"consumer_byte_rate": 7}, "c": {"producer_byte_rate": 5}}
    assert alter(quorum, CLIENT, "producer_byte_rate", None) == OperationResult()
    assert list(quorum.image.client_quotas()) == [""]


@pytest.mark.parametrize("value", ["proactive", "Aggressive", "balanced", "manual", "None"])
def test_strategies_are_known_by_both_of_their_names(quorum: Quorum, value: str) -> None:
    """D8."""
    assert alter(quorum, TOPIC, "unclean.recovery.strategy", value) == OperationResult()


def test_the_same_value_again_changes_nothing(quorum: Quorum) -> None:
    """What is written is the proof that it is so (K20)."""
    alter(quorum, TOPIC, "retention.ms", "5")
    quorum.appends.clear()
    assert alter(quorum, TOPIC, "retention.ms", "5") == OperationResult()
    assert alter(quorum, TOPIC, "retention.bytes", None) == OperationResult()
    assert [decode_record(value) for append in quorum.appends for value in append.values] == [
        NoOpRecord()
    ] * 2


def test_a_change_of_min_isr_elects_no_leader_uncleanly(quorum: Quorum) -> None:
    """F38: with the recovery manager off that happens on fencing and unfencing, and in the pass."""
    for broker_id in (3, 2, 1):
        quorum.vanish(broker_id)
    quorum.heartbeat(3)
    alter(quorum, TOPIC, "unclean.leader.election.enable", "true")
    alter(quorum, TOPIC, "min.insync.replicas", "1")
    assert quorum.partition("t").leader is None
    quorum.fire_timer(quorum.config.unclean_election_interval_ms)
    assert quorum.partition("t").leader == 3


def test_without_elr_the_clusters_min_isr_may_go_and_comes_back_with_elr(quorum: Quorum) -> None:
    """F14."""
    assert switch_elr(quorum, 0) is ErrorCode.NONE
    assert alter(quorum, CLUSTER_RESOURCE, "min.insync.replicas", None) == OperationResult()
    assert CLUSTER_RESOURCE not in quorum.image.configs
    assert switch_elr(quorum, 1) is ErrorCode.NONE
    assert quorum.image.configs[CLUSTER_RESOURCE]["min.insync.replicas"] == "2"


def test_the_min_isr_that_comes_with_elr_counts_for_partitions_at_once(quorum: Quorum) -> None:
    """F14, R109: the active controller's file has it, and may have been edited since they were made."""
    switch_elr(quorum, 0)
    alter(quorum, CLUSTER_RESOURCE, "min.insync.replicas", None)
    quorum.config = make_config(min_insync_replicas="3", unclean_recovery_manager_enabled="false")
    quorum.fail_over()
    assert quorum.partition("t").min_isr == 2
    quorum.appends.clear()
    assert switch_elr(quorum, 1) is ErrorCode.NONE
    assert len(quorum.appends) == 1
    assert [quorum.partition(name).min_isr for name in ("t", "u")] == [3, 3]


def test_other_features_and_levels_are_refused(quorum: Quorum) -> None:
    """R108."""
    assert switch_elr(quorum, 2) is ErrorCode.INVALID_UPDATE_VERSION
    assert switch_elr(quorum, 1, "group.version") is ErrorCode.INVALID_UPDATE_VERSION
    assert switch_elr(quorum, 1) is ErrorCode.NONE
