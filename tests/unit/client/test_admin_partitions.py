"""More partitions, moves and elections: what a repetition after a lost answer means, limits (R18, R19)."""

from typing import Any

import pytest

from holdfast.client.admin import Admin
from holdfast.client.admin_partitions import NewPartitions, Reassignment
from holdfast.client.core.errors import ClientError, RowError
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from holdfast.protocol.messages.elect_leaders import (
    ElectionKind,
    ElectionPartitionResult,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from holdfast.protocol.messages.reassignments import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResult,
    ReassignableTopicResult,
)
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.client.test_admin import admin, asked, play
from tests.unit.client.test_consumer import Play

__all__ = ["admin", "play"]

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


# --- more partitions --------------------------------------------------------------------------------------


def made(code: ErrorCode, *names: str) -> CreatePartitionsResponse:
    text = None if code is ErrorCode.NONE else "why"
    rows = tuple(CreatePartitionsTopicResult(name, code, text) for name in names or ("t",))
    return CreatePartitionsResponse(0, None, rows)


async def test_topics_grow_as_asked(play: Play, admin: Admin) -> None:
    play.cluster.scripted = [made(ErrorCode.NONE, "t", "u")]
    wanted = {"t": NewPartitions(3, ((1, 2), (2, 3))), "u": NewPartitions(5)}
    assert await play.until(admin.create_partitions(wanted)) == {"t": None, "u": None}
    (request,) = asked(play, ApiKey.CREATE_PARTITIONS)
    assert [(row.name, row.count) for row in request.topics] == [("t", 3), ("u", 5)]
    by_hand = (CreatePartitionsAssignment((1, 2)), CreatePartitionsAssignment((2, 3)))
    assert [row.assignments for row in request.topics] == [by_hand, None]


async def test_topics_grow_in_portions_of_one_request(
    play: Play, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.admin_partitions.CREATIONS_PER_REQUEST", 2)
    play.cluster.scripted = [made(ErrorCode.NONE, "t", "u"), made(ErrorCode.INVALID_PARTITIONS, "v")]
    wanted = {"t": NewPartitions(3), "u": NewPartitions(3), "v": NewPartitions(3, ((1,), (2,), (3,)))}
    found = await play.until(admin.create_partitions(wanted))
    assert found == {"t": None, "u": None, "v": RowError(ErrorCode.INVALID_PARTITIONS, "why")}
    requests = asked(play, ApiKey.CREATE_PARTITIONS)
    assert [[row.name for row in request.topics] for request in requests] == [["t", "u"], ["v"]]


async def test_what_the_controller_says_nothing_about_has_not_succeeded(play: Play, admin: Admin) -> None:
    play.cluster.scripted = [made(ErrorCode.NONE)]
    with pytest.raises(ClientError, match="no answer for u; .* ask again"):
        await play.until(admin.create_partitions({"t": NewPartitions(3), "u": NewPartitions(5)}))


@pytest.mark.parametrize(
    ("there", "is_lost", "validates", "succeeds"),
    [(3, True, False, True), (5, True, False, False), (3, False, False, False), (3, True, True, False)],
)
async def test_partitions_that_are_there_count_as_made_only_by_an_earlier_attempt(
    play: Play, admin: Admin, there: int, is_lost: bool, validates: bool, succeeds: bool
) -> None:
    play.cluster.add_topic("t", there)
    play.cluster.scripted = [made(ErrorCode.NONE), made(ErrorCode.INVALID_PARTITIONS)][not is_lost :]
    play.cluster.brokers[1].answers_lost = int(is_lost)
    found = await play.until(admin.create_partitions({"t": NewPartitions(3)}, validate_only=validates))
    assert found == {"t": None if succeeds else RowError(ErrorCode.INVALID_PARTITIONS, "why")}


async def test_brokers_that_lag_behind_are_asked_again_how_many_there_are(play: Play, admin: Admin) -> None:
    play.cluster.add_topic("t", 1)
    play.cluster.scripted = [made(ErrorCode.NONE), made(ErrorCode.INVALID_PARTITIONS)]
    play.cluster.brokers[1].answers_lost = 1

    def grow() -> None:
        play.cluster.add_topic("t", 3)

    play.cluster.world.clock.call_later(200, grow)
    assert await play.until(admin.create_partitions({"t": NewPartitions(3)})) == {"t": None}


# --- moves ------------------------------------------------------------------------------------------------


def moved(*rows: tuple[str, int, ErrorCode]) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        0,
        None,
        tuple(
            ReassignableTopicResult(
                name, (ReassignablePartitionResult(index, code, "why" if code else None),)
            )
            for name, index, code in rows
        ),
    )


async def test_moves_are_asked_for_by_topic_and_answered_by_partition(play: Play, admin: Admin) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    play.cluster.scripted = [moved(("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.NONE), ("u", 0, code))]
    targets = {U0: None, T1: (3, 1), T0: (1, 2)}
    found = await play.until(admin.alter_partition_reassignments(targets, False))
    assert found == {T0: None, T1: None, U0: RowError(code, "why")}
    (request,) = asked(play, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert not request.allow_replication_factor_change
    assert [
        (topic.name, [(row.partition_index, row.replicas) for row in topic.partitions])
        for topic in request.topics
    ] == [("t", [(0, (1, 2)), (1, (3, 1))]), ("u", [(0, None)])]


async def test_more_than_a_thousand_moves_are_split(play: Play, admin: Admin) -> None:
    wanted = [TopicPartition("t", index) for index in range(1001)]
    rows = [(topic, index, ErrorCode.NONE) for topic, index in wanted]
    play.cluster.scripted = [moved(*rows[:1000]), moved(*rows[1000:])]
    found = await play.until(admin.alter_partition_reassignments(dict.fromkeys(wanted, (1, 2))))
    assert found == dict.fromkeys(wanted)
    requests = asked(play, ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert [len(request.topics[0].partitions) for request in requests] == [1000, 1]


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_move_that_an_earlier_attempt_ended_is_ended(play: Play, admin: Admin, is_lost: bool) -> None:
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    play.cluster.scripted = [moved(("t", 0, ErrorCode.NONE)), moved(("t", 0, code))][not is_lost :]
    play.cluster.brokers[1].answers_lost = int(is_lost)
    found = await play.until(admin.alter_partition_reassignments({T0: None}))
    assert found == {T0: None if is_lost else RowError(code, "why")}


async def test_running_moves_are_listed_of_all_or_of_some(play: Play, admin: Admin) -> None:
    row = OngoingPartitionReassignment(1, (2, 3, 1), (3,), (1,))
    answer = ListPartitionReassignmentsResponse(0, None, (OngoingTopicReassignment("t", (row,)),))
    play.cluster.scripted = [answer, answer]
    assert await play.until(admin.list_partition_reassignments()) == {T1: Reassignment((2, 3, 1), (3,), (1,))}
    await play.until(admin.list_partition_reassignments([U0, T1]))
    everything, some = asked(play, ApiKey.LIST_PARTITION_REASSIGNMENTS)
    assert everything.topics is None
    assert [(topic.name, topic.partition_indexes) for topic in some.topics] == [("t", (1,)), ("u", (0,))]


# --- elections --------------------------------------------------------------------------------------------


def elected(*rows: tuple[str, int, ErrorCode]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        0,
        None,
        tuple(
            ReplicaElectionResult(name, (ElectionPartitionResult(index, code, "why" if code else None),))
            for name, index, code in rows
        ),
    )


def elections(play: Play) -> list[Any]:
    return [
        None
        if request.topic_partitions is None
        else [(row.topic, row.partitions, row.desired_leaders) for row in request.topic_partitions]
        for request in asked(play, ApiKey.ELECT_LEADERS)
    ]


async def test_elections_name_their_kind_and_with_a_designation_the_leaders(play: Play, admin: Admin) -> None:
    both = elected(("t", 1, ErrorCode.NONE), ("u", 0, ErrorCode.NONE))
    play.cluster.scripted = [elected(("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.NONE)), both]
    desired = {T0: 3, T1: 2}
    found = await play.until(admin.elect_leaders(ElectionKind.DESIGNATION, [T1, T0], desired))
    assert found == {T0: None, T1: None}
    found = await play.until(admin.elect_leaders(ElectionKind.UNCLEAN, [T1, U0], desired))
    assert found == {T1: None, U0: None}
    assert elections(play) == [[("t", (0, 1), (3, 2))], [("t", (1,), None), ("u", (0,), None)]]
    kinds = [request.election_type for request in asked(play, ApiKey.ELECT_LEADERS)]
    assert kinds == [ElectionKind.DESIGNATION, ElectionKind.UNCLEAN]


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("kind", list(ElectionKind))
async def test_that_a_broker_leads_is_no_success_of_a_choice_but_it_is_of_the_preferred_replica(
    play: Play, admin: Admin, kind: ElectionKind, is_lost: bool
) -> None:
    """R19."""
    code = ErrorCode.ELECTION_NOT_NEEDED
    play.cluster.scripted = [elected(("t", 0, ErrorCode.NONE)), elected(("t", 0, code))][not is_lost :]
    play.cluster.brokers[1].answers_lost = int(is_lost)
    error = (await play.until(admin.elect_leaders(kind, [T0], {T0: 1})))[T0]
    if kind is ElectionKind.PREFERRED and is_lost:
        assert error is None
    else:
        assert error is not None
        assert error.code is code
        assert ("an earlier attempt" in error.message) is is_lost


async def test_more_than_a_thousand_elections_are_split(play: Play, admin: Admin) -> None:
    """R18."""
    wanted = [TopicPartition("t", index) for index in range(1001)]
    rows = [(topic, index, ErrorCode.NONE) for topic, index in wanted]
    play.cluster.scripted = [elected(*rows[:1000]), elected(*rows[1000:])]
    found = await play.until(admin.elect_leaders(ElectionKind.PREFERRED, wanted))
    assert found == dict.fromkeys(wanted)
    assert [len(rows[0][1]) for rows in elections(play)] == [1000, 1]


async def test_what_was_beyond_the_limit_is_asked_for_by_name(play: Play, admin: Admin) -> None:
    """R18."""
    limit = ErrorCode.REQUEST_LIMIT_REACHED
    play.cluster.scripted = [
        elected(("t", 0, ErrorCode.NONE), ("t", 1, limit), ("u", 0, limit)),
        elected(("t", 1, ErrorCode.NONE), ("u", 0, limit)),
        elected(("u", 0, limit)),
    ]
    found = await play.until(admin.elect_leaders(ElectionKind.PREFERRED))
    # a controller that serves none of them is not asked for ever
    assert found == {T0: None, T1: None, U0: RowError(limit, "why")}
    assert elections(play) == [None, [("t", (1,), None), ("u", (0,), None)], [("u", (0,), None)]]
