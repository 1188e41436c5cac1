"""The second opinion on recoveries: which there should be, how, and when they are over (R60-R65, R69)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.controller.core.events import (
    AskBroker,
    RecoveryElected,
    RecoveryStated,
    RequestReceived,
    Respond,
    Tick,
)
from holdfast.controller.core.partitions.unclean_recovery import LogReply, Recovery, Strategy
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionPartitionResult,
    ElectionTopicPartitions,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from holdfast.protocol.messages.replica_log_info import GetReplicaLogInfoRequest, LogInfoTopic
from holdfast.sim.checks.opinions.recoveries import Recoveries
from tests.sim.checks.histories import TOPIC_ID, image, row

KEY = (TOPIC_ID, 0)
TIMEOUT_MS = 800
LEADERLESS = {"leader": None, "isr": (), "last_known_leader": 1}
LED = {"leader": 1, "isr": (1,), "last_known_leader": None}
STRATEGY, MANAGER = "unclean.recovery.strategy", "unclean.recovery.manager.enabled"
OLD_KEY = "unclean.leader.election.enable"


def recovery(
    strategy: Strategy = Strategy.BALANCED, answered: tuple[int, ...] = (), **given: Any
) -> Recovery:
    """Of t-0, with good answers of these."""
    usual: dict[str, Any] = {"leader_epoch": 5, "partition_epoch": 20}
    replies = {one: LogReply(one, 1, 10) for one in answered}
    return Recovery("t", strategy=strategy, started_ms=0, replies=replies, **{**usual, **given})


def controller(
    one: Recovery | None,
    *,
    manager: bool = True,
    elr: bool = True,
    fenced: tuple[int, ...] = (),
    configs: dict[tuple[int, str], dict[str, str]] | None = None,
    is_active: bool = True,
    partition: dict[str, Any] | None = None,
    next_turn_ms: int | None = None,
) -> Any:
    """One that has this recovery of t-0, without a leader and min ISR members."""
    registration = row(**{**LEADERLESS, **(partition or {})})
    latest = replace(
        image(fenced, elr=elr, row=registration),
        configs=Map({resource: Map(values) for resource, values in (configs or {}).items()}),
        leaderless=Map({KEY: None} if registration.leader is None else {}),
    )
    return SimpleNamespace(
        latest=latest,
        is_active=is_active,
        config=SimpleNamespace(
            recovery_manager_enabled=manager,
            recovery_timeout_ms=TIMEOUT_MS,
            recovery_request_timeout_ms=500,
            recovery_retry_backoff_ms=50,
        ),
        recovery=SimpleNamespace(
            _recoveries={} if one is None else {KEY: one},
            _dirty={} if next_turn_ms is None else {KEY: None},
            next_deadline_ms=lambda: next_turn_ms,
        ),
    )


def election(kind: ElectionKind, *indexes: int) -> RequestReceived:
    """Operators ask for one of these partitions of t; of all without any."""
    rows = (ElectionTopicPartitions("t", indexes, None),) if indexes else None
    return RequestReceived(5, 7, "CONTROLLER", ElectLeadersRequest(kind, rows, 1_000))


def wrong_with(
    one: Recovery | None, *, event: Any = None, asked: ElectionKind | None = None, **given: Any
) -> str:
    """What is said of such a controller at once; with `asked` operators have asked for that before."""
    recoveries = Recoveries(controller(one, **given))
    if asked is not None:
        recoveries.differs(election(asked, 0), (), 0)
    return "; ".join(recoveries.differs(event or Tick(), (), 0))


@pytest.mark.parametrize(("next_turn_ms", "expected"), [(None, "should be"), (0, ""), (1, "wait for a turn")])
def test_a_partition_that_is_beyond_the_limit_of_a_turn_has_the_next_one_at_once(
    next_turn_ms: int | None, expected: str
) -> None:
    told = wrong_with(None, next_turn_ms=next_turn_ms)
    assert expected in told
    assert bool(expected) == bool(told)


OF_TOPIC, OF_CLUSTER = (RESOURCE_TOPIC, "t"), CLUSTER_RESOURCE


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Strategy.BALANCED),
        ({"manager": False}, None),
        ({"manager": False, "configs": {OF_CLUSTER: {MANAGER: "true"}}}, Strategy.BALANCED),
        ({"configs": {OF_CLUSTER: {MANAGER: "false"}}}, None),
        ({"elr": False}, None),
        ({"partition": {"elr": (2,)}}, None),
        ({"partition": {"isr": (2,)}}, None),
        ({"configs": {OF_TOPIC: {STRATEGY: "Aggressive"}}}, Strategy.AGGRESSIVE),
        ({"configs": {OF_TOPIC: {STRATEGY: "Aggressive"}}, "partition": {"isr": (2,)}}, Strategy.AGGRESSIVE),
        ({"configs": {OF_TOPIC: {STRATEGY: "None"}}}, None),
        ({"configs": {OF_CLUSTER: {STRATEGY: "None"}}}, None),
        (
            {"configs": {OF_TOPIC: {STRATEGY: "Balanced"}, OF_CLUSTER: {STRATEGY: "None"}}},
            Strategy.BALANCED,
        ),
        ({"configs": {OF_TOPIC: {OLD_KEY: "true"}}}, Strategy.AGGRESSIVE),
        ({"configs": {OF_TOPIC: {OLD_KEY: "false"}, OF_CLUSTER: {OLD_KEY: "true"}}}, Strategy.BALANCED),
        ({"configs": {OF_CLUSTER: {OLD_KEY: "true"}}}, Strategy.AGGRESSIVE),
        ({"configs": {OF_TOPIC: {OLD_KEY: "true", STRATEGY: "None"}}}, None),
        ({"asked": ElectionKind.LONGEST_LOG_AGGRESSIVE}, Strategy.AGGRESSIVE),
        ({"asked": ElectionKind.LONGEST_LOG_AGGRESSIVE, "partition": {"isr": (2,)}}, Strategy.AGGRESSIVE),
        ({"asked": ElectionKind.LONGEST_LOG_BALANCED, "partition": {"isr": (2,)}}, None),
        ({"asked": ElectionKind.UNCLEAN}, Strategy.BALANCED),
        ({"partition": LED}, None),
    ],
)
def test_a_partition_is_recovered_if_and_as_it_should_be_r69(
    given: dict[str, Any], expected: Strategy | None
) -> None:
    for strategy in (None, Strategy.BALANCED, Strategy.AGGRESSIVE):
        one = None if strategy is None else recovery(strategy)
        assert bool(wrong_with(one, **given)) is (strategy is not expected)


@pytest.mark.parametrize(
    ("strategy", "answered", "fenced", "known", "is_over"),
    [
        (Strategy.BALANCED, (1, 2, 3), (), (1, 2), True),
        (Strategy.BALANCED, (1, 2), (), (1, 2), False),
        (Strategy.BALANCED, (1, 2), (3,), (1, 2), True),
        (Strategy.BALANCED, (1, 3), (2,), (1, 2), False),
        (Strategy.BALANCED, (1, 2), (3,), (), False),
        (Strategy.BALANCED, (1, 2, 3), (), (), True),
        (Strategy.AGGRESSIVE, (1,), (2, 3), (1, 2), True),
        (Strategy.AGGRESSIVE, (1,), (2,), (1, 2), False),
        (Strategy.AGGRESSIVE, (), (1, 2, 3), (), False),
    ],
    ids=[
        "all have answered",
        "one that is there has not",
        "one that is away need not",
        "one that is needed is away",
        "none is known, and one is away",
        "none is known, and all are there",
        "who is there is enough",
        "not all that are there",
        "no replica is there",
    ],
)
def test_a_recovery_is_over_when_those_have_answered_who_must_r64_r65(
    strategy: Strategy,
    answered: tuple[int, ...],
    fenced: tuple[int, ...],
    known: tuple[int, ...],
    is_over: bool,
) -> None:
    configs = {OF_TOPIC: {STRATEGY: strategy.value}}
    said = wrong_with(
        recovery(strategy, answered), configs=configs, fenced=fenced, partition={"last_known_elr": known}
    )
    assert bool(said) is is_over
    assert not is_over or "should have a leader by now" in said


@pytest.mark.parametrize(
    ("strategy", "answered", "fenced", "known", "is_over"),
    [
        (Strategy.AGGRESSIVE, (2,), (), (), True),
        (Strategy.AGGRESSIVE, (), (), (), False),
        (Strategy.AGGRESSIVE, (2,), (2,), (), False),
        (Strategy.BALANCED, (1, 2), (), (1, 2), True),
        (Strategy.BALANCED, (1, 3), (), (1, 2), False),
        (Strategy.BALANCED, (1, 2), (2,), (1, 2), False),
        (Strategy.BALANCED, (3,), (), (), True),
    ],
    ids=[
        "the answers that are there are enough",
        "no replica has answered",
        "who has is away",
        "those who are needed have",
        "one that is needed has not",
        "one that is needed is away",
        "no replica is needed",
    ],
)
def test_a_recovery_whose_time_is_over_ends_with_what_there_is_r64_r65(
    strategy: Strategy,
    answered: tuple[int, ...],
    fenced: tuple[int, ...],
    known: tuple[int, ...],
    is_over: bool,
) -> None:
    configs = {OF_TOPIC: {STRATEGY: strategy.value}}
    core = controller(
        recovery(strategy, answered), configs=configs, fenced=fenced, partition={"last_known_elr": known}
    )
    recoveries = Recoveries(core)
    assert not recoveries.differs(Tick(), (), 10)
    assert not recoveries.differs(Tick(), (), 9 + TIMEOUT_MS)
    said = recoveries.differs(Tick(), (), 10 + TIMEOUT_MS)
    assert ["should have a leader by now" in one for one in said] == [True] * is_over


def test_time_runs_anew_once_all_are_there_who_are_needed_r64() -> None:
    one, partition = recovery(answered=(1, 2)), {"last_known_elr": (1, 2)}
    core = controller(one, partition=partition, fenced=(2,))
    recoveries = Recoveries(core)
    assert not recoveries.differs(Tick(), (), 0)
    core.latest = controller(one, partition=partition).latest
    assert not recoveries.differs(Tick(), (), TIMEOUT_MS)
    assert not recoveries.differs(Tick(), (), 2 * TIMEOUT_MS - 1)
    assert recoveries.differs(Tick(), (), 2 * TIMEOUT_MS)


@pytest.mark.parametrize(
    ("answered", "known", "elected_ms", "missing"),
    [
        ((1, 2, 3), (1, 2), 10, ""),
        ((1, 2), (1, 2), 10, "without [3]"),
        ((1, 2), (1, 2), TIMEOUT_MS, ""),
        ((1, 3), (1, 2), TIMEOUT_MS, "without [2]"),
        ((3,), (), TIMEOUT_MS, ""),
        ((3,), (), 10, "without [1, 2]"),
    ],
)
def test_no_replica_is_elected_by_its_log_while_others_are_waited_for_r64_r65(
    answered: tuple[int, ...], known: tuple[int, ...], elected_ms: int, missing: str
) -> None:
    one = recovery()
    core = controller(one, partition={"last_known_elr": known})
    recoveries = Recoveries(core)
    assert not recoveries.differs(Tick(), (), 0)
    one.replies |= recovery(answered=answered).replies
    over = controller(None, partition=LED)
    core.latest, core.recovery = over.latest, over.recovery
    elected = RecoveryStated("t", *KEY, RecoveryElected(answered[0]))
    said = recoveries.differs(Tick(), (elected,), elected_ms)
    assert ("decided" in "; ".join(said)) is bool(missing)
    assert missing in "; ".join(said)
    assert "was not recovered" in "; ".join(recoveries.differs(Tick(), (elected,), elected_ms))


def test_an_answer_of_another_incarnation_is_none_r63() -> None:
    one = recovery(answered=(1, 2, 3))
    one.replies[2] = replace(one.replies[2], broker_epoch=1)
    assert not wrong_with(one, partition={"last_known_elr": (1, 2)})


@pytest.mark.parametrize("one", [recovery(leader_epoch=4), recovery(partition_epoch=19)])
def test_a_recovery_ends_when_its_partition_changes_r60(one: Recovery) -> None:
    assert "has changed" in wrong_with(one)


def test_nothing_is_asked_of_a_controller_that_is_not_active() -> None:
    assert not wrong_with(None, is_active=False)


@pytest.mark.parametrize(
    ("kind", "one", "partition", "is_wrong"),
    [
        (ElectionKind.LONGEST_LOG_AGGRESSIVE, recovery(Strategy.AGGRESSIVE), {}, False),
        (ElectionKind.LONGEST_LOG_AGGRESSIVE, recovery(), {}, True),
        (ElectionKind.LONGEST_LOG_BALANCED, recovery(), {}, False),
        (ElectionKind.UNCLEAN, recovery(), {}, False),
        (
            ElectionKind.LONGEST_LOG_AGGRESSIVE,
            None,
            LED,
            False,
        ),
    ],
    ids=["as asked", "not as asked", "as it is", "another election", "it has a leader"],
)
def test_what_operators_ask_to_compare_is_compared_r17(
    kind: ElectionKind, one: Recovery | None, partition: dict[str, Any], is_wrong: bool
) -> None:
    said = wrong_with(one, event=election(kind, 0, 7), partition=partition)
    assert ("as asked" in said) is is_wrong


@pytest.mark.parametrize(
    "ends", ["led", "led, and others are not", "configured", "switched off", "not active"]
)
def test_what_operators_have_asked_for_holds_until_there_is_a_leader_or_it_is_taken_back_r69(
    ends: str,
) -> None:
    core = controller(recovery(Strategy.AGGRESSIVE))
    recoveries = Recoveries(core)
    assert not recoveries.differs(election(ElectionKind.LONGEST_LOG_AGGRESSIVE), (), 0)
    given: dict[str, dict[str, Any]] = {
        "led": {"partition": LED},
        "led, and others are not": {"partition": LED},
        "configured": {"configs": {OF_TOPIC: {STRATEGY: "None"}}},
        "switched off": {"manager": False},
        "not active": {"is_active": False},
    }
    for state in (given[ends], {}):
        other = controller(None if state else recovery(Strategy.AGGRESSIVE), **state)
        core.latest, core.recovery = other.latest, other.recovery
        core.is_active, core.config = other.is_active, other.config
        if state and ends == "led, and others are not":
            core.recovery._recoveries[TOPIC_ID, 1] = recovery()
        said = "; ".join(recoveries.differs(Tick(), (), 1))
        assert ("AGGRESSIVE instead of BALANCED" in said) is (not state)


@pytest.mark.parametrize(
    ("manager", "error", "partition", "is_wrong"),
    [
        (False, ErrorCode.NONE, {}, True),
        (False, ErrorCode.INVALID_REQUEST, {}, False),
        (False, ErrorCode.NONE, LED, False),
        (True, ErrorCode.NONE, {}, False),
    ],
)
def test_no_client_is_promised_a_comparison_where_none_are_made_r17(
    manager: bool, error: ErrorCode, partition: dict[str, Any], is_wrong: bool
) -> None:
    row_of_it = ElectionPartitionResult(0, error, None)
    told = ElectLeadersResponse(ErrorCode.NONE, None, (ReplicaElectionResult("t", (row_of_it,)),))
    one = recovery(Strategy.AGGRESSIVE) if manager else None
    recoveries = Recoveries(controller(one, manager=manager, partition=partition))
    said = recoveries.differs(
        election(ElectionKind.LONGEST_LOG_AGGRESSIVE, 0), (Respond(5, told),) if is_wrong else (), 0
    )
    said += recoveries.differs(Tick(), (Respond(5, told),), 1)
    assert any("as operators are told" in one for one in said) is is_wrong


@pytest.mark.parametrize(
    ("asked_ms", "step_ms", "answered", "fenced", "is_wrong"),
    [
        ((0,), 100, (), (), True),
        ((0, 3_000, 6_000), 100, (), (), False),
        ((0,), 1_500, (), (), False),
        ((0,), 100, (3,), (), False),
        ((0,), 100, (), (3,), False),
    ],
    ids=["once", "again and again", "it may have stood still", "it has answered", "it is away"],
)
def test_whose_answer_is_waited_for_is_asked_again_r62(
    asked_ms: tuple[int, ...],
    step_ms: int,
    answered: tuple[int, ...],
    fenced: tuple[int, ...],
    is_wrong: bool,
) -> None:
    one = recovery(answered=answered)
    core = controller(one, partition={"last_known_elr": (3,)}, fenced=(1, 2, *fenced))
    core.config.recovery_timeout_ms = 60_000
    recoveries, said = Recoveries(core), []
    topics = (LogInfoTopic(TOPIC_ID, (0,)),)
    question = AskBroker(3, 1, "b3", 9092, GetReplicaLogInfoRequest(3, topics), 500)
    for now_ms in range(0, 9_000, step_ms):
        said += recoveries.differs(Tick(), (question,) if now_ms in asked_ms else (), now_ms)
    assert any("is not asked" in one for one in said) is is_wrong
