"""Members of a group, as Kafka's coordinator of the classic protocol treats them."""

from typing import Any

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import encode_frame
from holdfast.protocol.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupMember,
    JoinGroupProtocol,
    JoinGroupRequest,
)
from holdfast.protocol.schema.fields import Attachment, encode_message
from tests.unit.broker.groups.play import SUBSCRIPTION, Play


def state(play: Play) -> str:
    found: str = play.ask(DescribeGroupsRequest(("g",))).groups[0].state
    return found


def members(play: Play) -> int:
    return len(play.ask(DescribeGroupsRequest(("g",))).groups[0].members)


# --- joining --------------------------------------------------------------------------------------------


def test_the_first_member_leads_a_generation_of_its_own() -> None:
    play = Play()
    answer = play.joined(play.join())
    assert (answer.generation_id, answer.leader, answer.protocol_name) == (1, answer.member_id, "range")
    assert answer.members == (JoinGroupMember(answer.member_id, None, SUBSCRIPTION),)
    assert state(play) == "CompletingRebalance"


def test_a_new_member_gets_its_id_first_and_joins_with_it() -> None:
    play = Play()
    refused = play.answers[play.join(needs_id=True)]
    assert (refused.error_code, refused.member_id[:7]) == (79, "client-")
    assert play.joined(play.join(refused.member_id, needs_id=True)).member_id == refused.member_id


def test_a_member_that_joins_later_makes_the_others_join_again() -> None:
    play = Play()
    (first,) = play.stable()
    later = play.join()
    assert later not in play.answers
    assert play.beat(first, 1) == "REBALANCE_IN_PROGRESS"
    again = play.join(first)
    assert play.joined(again).generation_id == play.joined(later).generation_id == 2
    assert [one.member_id for one in play.joined(again).members] == [first, play.joined(later).member_id]
    assert play.joined(later).members == ()


def test_an_empty_group_waits_for_further_members_and_longer_when_some_come() -> None:
    play = Play(group_initial_rebalance_delay_ms=3000)
    names = [play.join()]
    play.pass_ms(2000)
    names.append(play.join())
    play.pass_ms(1000)
    assert not play.answers, "one came meanwhile"
    names.append(play.join())
    play.pass_ms(3000)
    assert not play.answers, "one came meanwhile"
    play.pass_ms(3000)
    assert {play.joined(name).generation_id for name in names} == {1}


def test_a_group_waits_for_further_members_no_longer_than_for_its_members() -> None:
    play = Play(group_initial_rebalance_delay_ms=3000)
    names = []
    for _ in range(10):
        names.append(play.join(rebalance_ms=10_000))
        play.pass_ms(1000)
    assert names[0] in play.answers


def test_who_has_an_id_but_has_not_joined_is_waited_for_until_its_session_ends() -> None:
    play = Play()
    (first,) = play.stable()
    play.join(needs_id=True, session_ms=10_000)
    again = play.join(first)
    assert again not in play.answers
    play.pass_ms(10_000)
    assert play.joined(again).generation_id == 2


def test_members_that_do_not_join_again_in_time_are_removed() -> None:
    play = Play()
    first, second, third = play.stable(3, rebalance_ms=5_000)
    names = [play.join(first, rebalance_ms=5_000, protocols=(("range", b"new"),)), play.join(third)]
    play.pass_ms(4_999)
    assert not play.answers.keys() & set(names)
    play.pass_ms(1)
    assert play.joined(names[0]).generation_id == 3
    assert [one.member_id for one in play.joined(names[0]).members] == [first, third]
    assert play.beat(second, 3) == "UNKNOWN_MEMBER_ID"


def test_another_leader_is_found_when_the_former_does_not_join_again() -> None:
    play = Play()
    first, second = play.stable(2, rebalance_ms=5_000)
    play.join(rebalance_ms=5_000)
    again = play.join(second, rebalance_ms=5_000)
    play.pass_ms(5_000)
    assert play.joined(again).leader == second
    assert play.beat(first, 3) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(
    ("lists", "chosen"),
    [
        ([["a", "b"], ["b", "a"], ["b", "a"]], "b"),
        ([["a", "b"], ["a", "b"], ["b"]], "b"),
        ([["x", "c"], ["y", "c"]], "c"),
    ],
    ids=["most votes", "known by all", "the only common one"],
)
def test_the_protocol_is_one_that_all_know_and_most_prefer(lists: list[list[str]], chosen: str) -> None:
    play = Play(group_initial_rebalance_delay_ms=10)
    names = [play.join(protocols=tuple((name, name.encode()) for name in one)) for one in lists]
    play.pass_ms(10_000)
    assert {play.joined(name).protocol_name for name in names} == {chosen}
    assert {one.metadata for one in play.joined(names[0]).members} == {chosen.encode()}


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"member_id": "stranger"}, "UNKNOWN_MEMBER_ID"),
        ({"protocols": (("other", b""),)}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"kind": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"group": "new", "protocols": ()}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"group": "new", "kind": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"group": "new", "member_id": "stranger"}, "UNKNOWN_MEMBER_ID"),
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"group": "g" * 1025}, "INVALID_GROUP_ID"),
        ({"session_ms": 5_999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"member_id": "stranger", "instance": "i"}, "UNKNOWN_MEMBER_ID"),
        ({"protocols": (("range", b"x" * (512 * 1024 + 1)),)}, "INVALID_REQUEST"),
        ({"protocols": (("r" * 1025, b""),)}, "INVALID_REQUEST"),
        ({"protocols": tuple((f"{n:01024}", b"") for n in range(512))}, "INVALID_REQUEST"),
        ({"protocols": (("r", b""),) * 10_000}, "INVALID_REQUEST"),
    ],
)
def test_a_join_that_is_refused_leaves_the_group_alone(how: dict[str, Any], code: str) -> None:
    play = Play()
    (first,) = play.stable()
    assert play.code(play.join(**how)) == code
    assert play.beat(first, 1) == "NONE"
    assert next(iter(play.coordinator.shards.values())).groups.keys() == {"g"}


def test_a_full_group_takes_no_further_member() -> None:
    play = Play(group_max_size=2)
    play.stable(2)
    assert play.code(play.join()) == "GROUP_MAX_SIZE_REACHED"
    assert play.code(play.join(needs_id=True)) == "GROUP_MAX_SIZE_REACHED"


@pytest.mark.parametrize(
    "protocols",
    [(("range", b"x" * (500 << 10)),), (("range", b""), *((f"{n:01024}", b"") for n in range(450)))],
    ids=["metadata", "names"],
)
def test_a_group_whose_members_say_too_much_takes_no_further_member(
    protocols: tuple[tuple[str, bytes], ...],
) -> None:
    play = Play(group_initial_rebalance_delay_ms=10)
    names = [play.join(protocols=protocols) for _ in range(7)]
    play.pass_ms(30)
    assert [play.code(name) for name in names] == ["NONE"] * 6 + ["GROUP_MAX_SIZE_REACHED"]
    again = play.join(play.joined(names[0]).member_id, protocols=protocols)
    assert play.joined(again).generation_id == 1


def test_the_largest_group_fits_a_batch_of_the_topic_and_a_frame() -> None:
    """What no batch can have would never be committed: each rebalance would end in an error."""
    play = Play(group_initial_rebalance_delay_ms=10)
    names = [play.join(protocols=(("range", b"x" * (500 << 10)),)) for _ in range(6)]
    play.pass_ms(30)
    first, *others = (play.joined(name).member_id for name in names)
    given = dict.fromkeys((first, *others), b"y" * (500 << 10))
    assert play.code(play.sync(first, 1, {**given, "one more": b"z" * (500 << 10)})) == "INVALID_REQUEST"
    assert play.synced(play.sync(first, 1, given)) == given[first]
    described = play.ask(DescribeGroupsRequest(("g",)))
    assert encode_frame(encode_message(described, 1, Attachment()))


def test_an_answer_that_was_not_heard_is_given_again() -> None:
    play = Play(group_initial_rebalance_delay_ms=10)
    names = [play.join(), play.join()]
    play.pass_ms(30)
    first, second = (play.joined(name).member_id for name in names)
    assert play.joined(play.join(first)).members == play.joined(names[0]).members
    play.sync(first, 1, {first: b"a", second: b"b"})
    assert play.joined(play.join(second)).generation_id == 1


def test_a_leader_that_joins_again_wants_a_rebalance() -> None:
    play = Play()
    (first,) = play.stable()
    assert play.joined(play.join(first)).generation_id == 2


def test_a_second_join_replaces_the_one_that_waits() -> None:
    play = Play()
    first, second = play.stable(2)
    names = [play.join(first), play.join(first)]
    assert play.code(names[0]) == "REBALANCE_IN_PROGRESS"
    play.join(second)
    assert play.joined(names[1]).generation_id == 3


# --- assignments ----------------------------------------------------------------------------------------


def test_members_get_their_assignments_when_they_are_committed() -> None:
    play = Play(group_initial_rebalance_delay_ms=10)
    waiting = [play.join(), play.join()]
    play.pass_ms(30)
    first, second = (play.joined(name).member_id for name in waiting)
    play.holds_back = True
    names = [play.sync(second, 1), play.sync(first, 1, {first: b"a", second: b"b"})]
    assert not play.answers.keys() & set(names)
    assert state(play) == "CompletingRebalance"
    play.commit()
    assert [play.synced(name) for name in names] == [b"b", b"a"]
    assert state(play) == "Stable"
    assert play.synced(play.sync(second, 1)) == b"b"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"member_id": "stranger"}, "UNKNOWN_MEMBER_ID"),
        ({"generation_id": 2}, "ILLEGAL_GENERATION"),
        ({"generation_id": 0}, "ILLEGAL_GENERATION"),
        ({"kind": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol": "other"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"instance": "i"}, "UNKNOWN_MEMBER_ID"),
        ({"assignments": {"m": b"x" * (512 * 1024 + 1)}}, "INVALID_REQUEST"),
    ],
)
def test_a_sync_that_does_not_fit_the_generation_is_refused(how: dict[str, Any], code: str) -> None:
    play = Play()
    (first,) = play.stable()
    assert play.code(play.sync(**{"member_id": first, "generation_id": 1, **how})) == code


def test_a_sync_during_a_rebalance_is_refused() -> None:
    play = Play()
    (first,) = play.stable()
    play.join()
    assert play.code(play.sync(first, 1)) == "REBALANCE_IN_PROGRESS"


def test_members_that_wait_for_assignments_hear_of_a_rebalance() -> None:
    play = Play(group_initial_rebalance_delay_ms=10)
    waiting = [play.join(), play.join()]
    play.pass_ms(30)
    name = play.sync(play.joined(waiting[1]).member_id, 1)
    play.join()
    assert play.code(name) == "REBALANCE_IN_PROGRESS"


def test_members_that_never_ask_for_their_assignment_are_removed() -> None:
    play = Play(group_initial_rebalance_delay_ms=10)
    waiting = [play.join(rebalance_ms=8_000), play.join(rebalance_ms=8_000)]
    play.pass_ms(30)
    first, second = (play.joined(name).member_id for name in waiting)
    play.sync(first, 1, {})
    play.pass_ms(4_000)
    assert [play.beat(one, 1) for one in (first, second)] == ["NONE", "NONE"]
    play.pass_ms(4_000)
    assert [play.beat(one, 1) for one in (first, second)] == ["REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"]


def test_without_enough_replicas_there_is_no_assignment_and_the_members_join_again() -> None:
    play = Play()
    member_id = play.joined(play.join()).member_id
    play.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert play.code(play.sync(member_id, 1, {member_id: b"a"})) == "COORDINATOR_NOT_AVAILABLE"
    assert state(play) == "PreparingRebalance"


def test_an_assignment_that_is_not_committed_in_time_is_refused() -> None:
    play = Play()
    member_id = play.joined(play.join()).member_id
    play.holds_back = True
    name = play.sync(member_id, 1, {member_id: b"a"})
    play.pass_ms(5_000)
    assert play.code(name) == "COORDINATOR_NOT_AVAILABLE"
    play.commit()
    assert state(play) == "PreparingRebalance"


def test_a_late_write_of_an_old_generation_does_not_let_a_leader_share_twice() -> None:
    play = Play()
    play.holds_back = True
    member_id = play.joined(play.join()).member_id
    play.sync(member_id, 1, {member_id: b"old"})
    play.joined(play.join(member_id, protocols=(("range", b"new"),)))
    name = play.sync(member_id, 2, {member_id: b"new"})
    first_end, last_end = (offset + 1 for offset, _ in play.log.batches)
    play.commit(first_end)
    again = play.sync(member_id, 2, {member_id: b"another"})
    assert play.log.end == last_end, "it is being written already"
    play.commit()
    assert (play.code(name), play.synced(again)) == ("REBALANCE_IN_PROGRESS", b"new")


# --- heartbeats and leaves ------------------------------------------------------------------------------


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    play = Play()
    first, second = play.stable(2)
    for _ in range(3):
        play.pass_ms(5_000)
        play.beat(first, 2)
    assert play.beat(second, 2) == "UNKNOWN_MEMBER_ID"
    assert play.beat(first, 2) == "REBALANCE_IN_PROGRESS"
    assert play.joined(play.join(first)).generation_id == 3


def test_a_silent_member_is_waited_for_a_whole_session_by_each_coordinator() -> None:
    """None can know when it was last heard: with another coordinator every few seconds the group waits for as
    long as that goes on. It does so with Kafka's coordinator, too."""
    play = Play()
    play.stable(session_ms=10_000)
    for _ in range(5):
        play = play.successor()
        play.join()
        play.pass_ms(9_999)
        assert state(play) == "PreparingRebalance"
    play.pass_ms(1)
    assert (state(play), members(play)) == ("CompletingRebalance", 1)


def test_a_member_that_waits_for_the_others_needs_no_heartbeat() -> None:
    play = Play()
    first, second = play.stable(2)
    again = play.join(first)
    for _ in range(5):
        play.pass_ms(6_000)
        play.beat(second, 2)
    assert again not in play.answers
    play.join(second)
    assert play.joined(again).generation_id == 3


@pytest.mark.parametrize(
    ("member_id", "generation_id", "instance", "code"),
    [
        ("stranger", 1, None, "UNKNOWN_MEMBER_ID"),
        (None, 2, None, "ILLEGAL_GENERATION"),
        (None, 1, "i", "UNKNOWN_MEMBER_ID"),
        (None, 1, None, "NONE"),
    ],
)
def test_a_heartbeat_says_whether_the_member_may_go_on(
    member_id: str | None, generation_id: int, instance: str | None, code: str
) -> None:
    play = Play()
    (first,) = play.stable()
    assert play.beat(member_id or first, generation_id, instance) == code


def test_when_a_member_leaves_the_others_rebalance_at_once() -> None:
    play = Play()
    first, second = play.stable(2)
    assert play.leave(second) == "NONE"
    assert play.leave(second) == "UNKNOWN_MEMBER_ID"
    assert play.joined(play.join(first)).generation_id == 3


def test_when_the_last_member_leaves_the_group_is_empty_in_another_generation() -> None:
    play = Play()
    (first,) = play.stable()
    play.leave(first)
    assert state(play) == "Empty"
    assert play.joined(play.join()).generation_id == 3


def test_who_was_given_an_id_can_leave_and_is_waited_for_no_more() -> None:
    play = Play()
    (first,) = play.stable()
    pending = play.answers[play.join(needs_id=True)].member_id
    again = play.join(first)
    assert play.leave(pending) == "NONE"
    assert play.joined(again).generation_id == 2


def test_a_new_member_that_is_never_heard_of_is_removed() -> None:
    play = Play()
    (first,) = play.stable(rebalance_ms=600_000)
    name = play.join()
    for _ in range(60):
        play.pass_ms(5_000)
        play.beat(first, 1)
    assert play.code(name) == "UNKNOWN_MEMBER_ID"


# --- static members -------------------------------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance_and_its_former_process_is_fenced() -> None:
    play = Play()
    (former,) = play.stable(instance="i")
    again = play.joined(play.join(instance="i"))
    assert (again.generation_id, again.leader) == (1, former)
    assert again.member_id != former
    assert play.synced(play.sync(again.member_id, 1, instance="i")) == b"p0"
    assert play.beat(former, 1, "i") == "FENCED_INSTANCE_ID"
    assert play.code(play.sync(former, 1, instance="i")) == "FENCED_INSTANCE_ID"
    assert play.code(play.join(former, instance="i")) == "FENCED_INSTANCE_ID"
    assert play.leave(former, "i") == "FENCED_INSTANCE_ID"
    assert play.commit_code(play.commit_offset(5, former, 1, instance="i")) == "FENCED_INSTANCE_ID"


def test_a_static_member_is_answered_when_its_own_process_is_committed() -> None:
    play = Play()
    play.stable(instance="i")
    play.holds_back = True
    names = [play.join(instance="i"), play.join(instance="i")]
    first_end = play.log.batches[-2][0] + 1
    play.commit(first_end)
    assert play.code(names[0]) == "FENCED_INSTANCE_ID"
    assert names[1] not in play.answers, "a coordinator after this one would not know it"
    play.commit()
    assert play.joined(names[1]).generation_id == 1


def test_a_static_leader_of_a_newer_client_comes_back_as_leader_and_shares_nothing() -> None:
    play = Play()
    play.stable(instance="i")
    again = play.joined(play.join(instance="i", skips=True))
    assert (again.leader, again.skip_assignment) == (again.member_id, True)
    assert [one.member_id for one in again.members] == [again.member_id]


def test_a_static_member_that_comes_back_is_known_to_the_next_coordinator() -> None:
    play = Play()
    play.stable(instance="i")
    again = play.joined(play.join(instance="i")).member_id
    heir = play.successor()
    assert heir.beat(again, 1, "i") == "NONE"


def test_a_static_member_with_another_protocol_makes_a_rebalance() -> None:
    play = Play()
    (first,) = play.stable(instance="i", protocols=(("a", b""), ("b", b"")))
    again = play.joined(play.join(instance="i", protocols=(("b", b""),)))
    assert (again.generation_id, again.protocol_name) == (2, "b")
    assert play.beat(first, 2, "i") == "FENCED_INSTANCE_ID"


def test_who_waits_in_a_static_members_place_is_fenced_by_the_next() -> None:
    play = Play()
    play.stable(2)
    name = play.join(instance="i")
    later = play.join(instance="i")
    assert play.code(name) == "FENCED_INSTANCE_ID"
    assert later not in play.answers


def test_a_static_member_leaves_by_its_name_alone() -> None:
    play = Play()
    play.stable(instance="i")
    assert play.leave("", "none") == "UNKNOWN_MEMBER_ID"
    assert play.leave("", "i") == "NONE"
    assert state(play) == "Empty"


def test_static_members_keep_their_places_through_a_rebalance_until_their_sessions_end() -> None:
    play = Play()
    (first,) = play.stable(instance="i", session_ms=30_000, rebalance_ms=6_000)
    name = play.join(session_ms=30_000, rebalance_ms=6_000)
    play.pass_ms(6_000)
    assert play.joined(name).generation_id == 2
    assert members(play) == 2
    assert play.beat(first, 2, "i") == "NONE"


def test_a_member_without_a_rebalance_timeout_has_that_of_its_session() -> None:
    play = Play()
    row = JoinGroupProtocol("range", b"")
    play.request(JoinGroupRequest("g", 7_000, -1, "", None, "consumer", (row,), False, False))
    (shard,) = play.coordinator.shards.values()
    assert shard.groups["g"].rebalance_timeout_ms == 7_000
