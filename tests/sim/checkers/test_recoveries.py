"""The second opinion on recoveries: which there should be, how, and when they are over (R60-R65, R69)."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from controller.events import RecoveryElected, RecoveryStated, RequestArrived, TimerFired
from controller.unclean_recovery import LogReply, Recovery, Strategy, _Forced
from metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from protocol.messages.elect_leaders import ElectionKind, ElectionTopicPartitions, ElectLeadersRequest
from sim.checkers.recoveries import Recoveries
from tests.sim.checkers.histories import TOPIC_ID, image, row

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
    forced: Strategy | None = None,
    is_active: bool = True,
    partition: dict[str, Any] | None = None,
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
        config=SimpleNamespace(recovery_manager_enabled=manager, recovery_timeout_ms=TIMEOUT_MS),
        recovery=SimpleNamespace(
            _recoveries={} if one is None else {KEY: one},
            _forced={} if forced is None else {KEY: _Forced(forced, Strategy.BALANCED)},
        ),
    )


def wrong_with(one: Recovery | None, *, event: Any = None, **given: Any) -> str:
    """What is said of such a controller at once."""
    return "; ".join(Recoveries(controller(one, **given)).differs(event or TimerFired(), (), 0))


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
        ({"forced": Strategy.AGGRESSIVE}, Strategy.AGGRESSIVE),
        ({"forced": Strategy.AGGRESSIVE, "configs": {OF_TOPIC: {STRATEGY: "None"}}}, None),
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
        "nobody is known, and one is away",
        "nobody is known, and all are there",
        "who is there is enough",
        "not all that are there",
        "nobody is there",
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
        "whoever has answered is enough",
        "nobody has",
        "who has is away",
        "those who are needed have",
        "one that is needed has not",
        "one that is needed is away",
        "nobody is needed",
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
    assert not recoveries.differs(TimerFired(), (), 10)
    assert not recoveries.differs(TimerFired(), (), 9 + TIMEOUT_MS)
    said = recoveries.differs(TimerFired(), (), 10 + TIMEOUT_MS)
    assert ["should have a leader by now" in one for one in said] == [True] * is_over


def test_time_runs_anew_once_all_are_there_who_are_needed_r64() -> None:
    one, partition = recovery(answered=(1, 2)), {"last_known_elr": (1, 2)}
    core = controller(one, partition=partition, fenced=(2,))
    recoveries = Recoveries(core)
    assert not recoveries.differs(TimerFired(), (), 0)
    core.latest = controller(one, partition=partition).latest
    assert not recoveries.differs(TimerFired(), (), TIMEOUT_MS)
    assert not recoveries.differs(TimerFired(), (), 2 * TIMEOUT_MS - 1)
    assert recoveries.differs(TimerFired(), (), 2 * TIMEOUT_MS)


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
def test_nobody_is_elected_by_its_log_while_others_are_waited_for_r64_r65(
    answered: tuple[int, ...], known: tuple[int, ...], elected_ms: int, missing: str
) -> None:
    one = recovery()
    core = controller(one, partition={"last_known_elr": known})
    recoveries = Recoveries(core)
    assert not recoveries.differs(TimerFired(), (), 0)
    one.replies |= recovery(answered=answered).replies
    over = controller(None, partition=LED)
    core.latest, core.recovery = over.latest, over.recovery
    elected = RecoveryStated("t", *KEY, RecoveryElected(answered[0]))
    said = recoveries.differs(TimerFired(), (elected,), elected_ms)
    assert ("decided" in "; ".join(said)) is bool(missing)
    assert missing in "; ".join(said)
    assert "was not recovered" in "; ".join(recoveries.differs(TimerFired(), (elected,), elected_ms))


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
    asked = ElectLeadersRequest(kind, (ElectionTopicPartitions("t", (0, 7), None),), 1_000)
    event = RequestArrived(5, 7, "CONTROLLER", asked)
    forced = None if one is None or one.strategy is Strategy.BALANCED else one.strategy
    said = wrong_with(one, event=event, forced=forced, partition=partition)
    assert ("as asked" in said) is is_wrong
