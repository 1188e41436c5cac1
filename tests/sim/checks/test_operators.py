"""What operators are told: a history that breaks it, and those beside it that do not."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from holdfast.client.admin_configs import Resource
from holdfast.controller.core.decisions import Cause, CauseKind, Decision, DecisionEntry
from holdfast.controller.core.operators import requests
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.image import RESOURCE_TOPIC
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionPartitionResult,
    ElectionTopicPartitions,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResult,
    ReassignableTopic,
    ReassignableTopicResult,
)
from holdfast.protocol.topic_names import TopicPartition
from holdfast.sim.checks.properties.operators import DoneIsCommitted, OnlyTheNamedAreElected, RefusalsAreDue
from holdfast.sim.load import operators
from holdfast.sim.load.operators import set_config
from tests.sim.checks.histories import TOPIC_ID, Scene, image, row

KEY = "flush.messages"


def configured(value: str | None) -> Map[tuple[int, str], Map[str, str]]:
    """A cluster in which the topic has this value."""
    return Map({(RESOURCE_TOPIC, "t"): Map({KEY: value})}) if value else Map()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([], True, id="nothing was committed"),
        pytest.param(["8"], True, id="another value was committed"),
        pytest.param(["7"], False, id="it was committed"),
        pytest.param(["7", "8"], False, id="it was committed, and then what was asked for earlier"),
    ],
)
def test_what_operators_are_told_was_committed_while_they_waited_k20(
    values: list[str], expected: bool
) -> None:
    one = DoneIsCommitted()
    scene = Scene(one)
    act = set_config(Resource.topic("t"), KEY, "7")
    scene.world.operator_queue.under_way = "flush", act

    def tell() -> None:
        one.metadata_committed(scene.seen)
        for value in values:
            scene.set_image(replace(image(), configs=configured(value)))
            one.metadata_committed(scene.seen)
        one.act_succeeded(scene.seen, "flush", act)

    said = scene.violation(tell)
    assert (said is not None) is expected
    assert said is None or said.startswith("K20")


def is_due(request: Any, response: Any, *, fenced: Sequence[int] = (), **partition: Any) -> bool:
    """Whether the property takes that for a good answer about t-0 of brokers 1 to 3."""
    one = RefusalsAreDue()
    scene = Scene(one)
    before = image(fenced, row=row(**partition))
    said = scene.violation(lambda: one.operators_refused(scene.seen, request, response, before))
    assert said is None or said.startswith("R103")
    return said is None


def move(
    replicas: tuple[int, ...] | None, code: ErrorCode, *, topic: str = "t"
) -> tuple[AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse]:
    """A move of partition 0 that was refused."""
    asked = ReassignableTopic(topic, (ReassignablePartition(0, replicas),))
    told = ReassignableTopicResult(topic, (ReassignablePartitionResult(0, code, "no"),))
    return (
        AlterPartitionReassignmentsRequest(1_000, True, (asked,)),
        AlterPartitionReassignmentsResponse(0, None, (told,)),
    )


BAD_LIST = ErrorCode.INVALID_REPLICA_ASSIGNMENT
#: 2 leaves for 3, which is the only one in sync
LEAVING = {
    "replicas": (1, 3, 2),
    "original_replicas": (1, 2),
    "adding_replicas": (3,),
    "removing_replicas": (2,),
}


@pytest.mark.parametrize(
    ("asked", "partition", "expected"),
    [
        pytest.param(move((1, 2), BAD_LIST), {}, False, id="all are in sync"),
        pytest.param(move((1, 2), BAD_LIST), {"isr": (1,), "elr": (2,)}, False, id="no replica is cut off"),
        pytest.param(move((1, 4), BAD_LIST), {}, True, id="4 is not known"),
        pytest.param(move((1, 1), BAD_LIST), {}, True, id="1 is named twice"),
        pytest.param(move((), BAD_LIST), {}, True, id="no replica is named"),
        pytest.param(move(None, BAD_LIST), {**LEAVING, "isr": (1, 3)}, True, id="1 alone would stay in sync"),
        pytest.param(move(None, BAD_LIST), {**LEAVING, "isr": (1, 2, 3)}, False, id="two would stay in sync"),
        pytest.param(move((1, 2), BAD_LIST), {**LEAVING, "isr": (1, 3)}, True, id="home, and 3 is needed"),
        pytest.param(move((1, 2), BAD_LIST), {**LEAVING, "isr": (1,)}, False, id="home, and 3 is not"),
        pytest.param(
            move((1, 2), BAD_LIST),
            {**LEAVING, "isr": (1,), "last_known_elr": (3,)},
            True,
            id="home, and what 3 has may be needed",
        ),
        pytest.param(move(None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), {}, True, id="none runs"),
        pytest.param(
            move(None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            {**LEAVING, "isr": (1, 2)},
            False,
            id="one runs",
        ),
        pytest.param(move((1, 2), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS), {}, False, id="none is ended"),
        pytest.param(
            move((1, 2), ErrorCode.INVALID_REQUEST), {}, False, id="nothing is wrong with the request"
        ),
        pytest.param(move((1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), {}, False, id="it is known"),
        pytest.param(
            move((1, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="u"), {}, True, id="it is not known"
        ),
    ],
)
def test_a_move_is_refused_only_for_what_is_so_r103_r104(
    asked: tuple[Any, Any], partition: dict[str, Any], expected: bool
) -> None:
    assert is_due(*asked, **partition) is expected


NOT_READY, NOT_NEEDED = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED
NOT_PREFERRED = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
PREFERRED, UNCLEAN, DESIGNATION = ElectionKind.PREFERRED, ElectionKind.UNCLEAN, ElectionKind.DESIGNATION
LEADERLESS = {"leader": None, "isr": (), "last_known_leader": 1}


@pytest.mark.parametrize(
    ("kind", "code", "leader", "given", "expected"),
    [
        pytest.param(PREFERRED, NOT_PREFERRED, None, {"leader": 2}, False, id="the preferred is in sync"),
        pytest.param(PREFERRED, NOT_PREFERRED, None, {"leader": 2, "isr": (2, 3)}, True, id="it is not"),
        pytest.param(PREFERRED, NOT_PREFERRED, None, {"leader": 2, "fenced": (1,)}, True, id="it is fenced"),
        pytest.param(PREFERRED, NOT_NEEDED, None, {}, True, id="it leads"),
        pytest.param(PREFERRED, NOT_NEEDED, None, {"leader": 2}, False, id="another leads"),
        pytest.param(UNCLEAN, NOT_NEEDED, None, {}, True, id="a broker leads"),
        pytest.param(UNCLEAN, NOT_NEEDED, None, LEADERLESS, False, id="no broker leads"),
        pytest.param(UNCLEAN, NOT_READY, None, LEADERLESS, False, id="all are ready"),
        pytest.param(UNCLEAN, NOT_READY, None, {**LEADERLESS, "fenced": (1, 2, 3)}, True, id="none is ready"),
        pytest.param(DESIGNATION, NOT_READY, 2, {**LEADERLESS, "fenced": (2,)}, True, id="2 is not ready"),
        pytest.param(DESIGNATION, NOT_READY, 3, {**LEADERLESS, "fenced": (2,)}, False, id="3 is ready"),
        pytest.param(DESIGNATION, ErrorCode.INVALID_REQUEST, 4, LEADERLESS, True, id="4 has no replica"),
        pytest.param(DESIGNATION, ErrorCode.INVALID_REQUEST, 2, LEADERLESS, False, id="2 has one"),
        pytest.param(UNCLEAN, ErrorCode.INVALID_REQUEST, None, LEADERLESS, False, id="nothing is wrong"),
    ],
)
def test_an_election_is_refused_only_for_what_is_so_r17(
    kind: ElectionKind, code: ErrorCode, leader: int | None, given: dict[str, Any], expected: bool
) -> None:
    asked = ElectionTopicPartitions("t", (0,), None if leader is None else (leader,))
    told = ReplicaElectionResult("t", (ElectionPartitionResult(0, code, "no"),))
    request = ElectLeadersRequest(kind, (asked,), 1_000)
    assert is_due(request, ElectLeadersResponse(0, None, (told,)), **given) is expected


@pytest.mark.parametrize("count", [1, 2])
def test_an_election_beyond_the_limit_of_a_request_is_asked_for_again_r18(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ELECTIONS_MAX", 1)
    request = ElectLeadersRequest(PREFERRED, None, 1_000)
    rows = tuple(ElectionPartitionResult(0, ErrorCode.REQUEST_LIMIT_REACHED, "no") for _ in range(count))
    answer = ElectLeadersResponse(0, None, (ReplicaElectionResult("t", rows),))
    assert is_due(request, answer, leader=2) is (count > 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"replicas": (3, 1, 2)}, True, id="it was moved"),
        pytest.param({"replicas": (3, 1, 2, 4), "removing_replicas": (4,)}, True, id="4 is to leave"),
        pytest.param({"replicas": (1, 2, 3)}, False, id="another one is preferred"),
        pytest.param({"replicas": (3, 1, 4)}, False, id="they are others"),
    ],
)
def test_a_move_is_done_in_the_order_that_was_asked_for_r100(given: dict[str, Any], expected: bool) -> None:
    act = operators.move(TopicPartition("t", 0), (3, 1, 2))
    assert act.is_done(image(row=row(**given))) is expected


@pytest.mark.parametrize(
    ("named", "kind", "index", "expected"),
    [
        pytest.param((0,), CauseKind.UNCLEAN_ASKED, 1, True, id="another partition"),
        pytest.param((0,), CauseKind.PREFERRED_ASKED, 1, True, id="another one, preferred"),
        pytest.param((0, 1), CauseKind.UNCLEAN_ASKED, 1, False, id="one of several"),
        pytest.param(None, CauseKind.UNCLEAN_ASKED, 1, False, id="all are asked for"),
        pytest.param((0,), CauseKind.LOGS_COMPARED, 1, False, id="no operator has asked for it"),
    ],
)
def test_only_what_is_named_is_elected_r17(
    named: tuple[int, ...] | None, kind: CauseKind, index: int, expected: bool
) -> None:
    one = OnlyTheNamedAreElected()
    scene = Scene(one)
    asked = None if named is None else (ElectionTopicPartitions("t", named, None),)
    request = ElectLeadersRequest(ElectionKind.UNCLEAN, asked, 1_000)
    decision = Decision(Cause(kind), None, (), SetsRule.KEPT_BELOW_MIN_ISR)
    made = [DecisionEntry(100, TOPIC_ID, "t", index, row(), row(), decision)]
    said = scene.violation(lambda: one.elections_asked_for(scene.seen, request, made))
    assert said is None or said.startswith(one.name)
    assert bool(said) is expected
