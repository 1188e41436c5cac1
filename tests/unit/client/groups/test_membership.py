"""A member of a group: what it does with each answer, and that a group of them shares what there is."""

from itertools import chain
from typing import Any

import pytest

from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.errors import CommitFailed, TimedOut
from holdfast.client.core.groups.effects import Coordinator, Phase, Position, Send
from holdfast.client.core.groups.membership import Membership
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from holdfast.protocol.messages.groups import (
    GroupHeartbeatRequest,
    GroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.client.groups.play import HERE, Group, Member, config, metadata


@pytest.fixture
def group() -> Group:
    return Group()


def share(*members: Member) -> list[list[int]]:
    return [sorted(member.reads) for member in members]


# --- a group that shares -----------------------------------------------------------------------------------


def test_the_first_member_reads_everything_from_where_the_group_has_come_to(group: Group) -> None:
    group.broker.commit_offset(7, index=1)
    (member,) = group.stable(1)
    assert member.reads == {0: 0, 1: 7, 2: 0}
    assert member.steps == [("assigned", [0, 1, 2])]


def test_an_eager_member_lets_go_of_everything_before_it_joins_again(group: Group) -> None:
    (first,) = group.stable(1)
    second = group.join()
    group.pass_ms(3_000)
    assert share(first, second) == [[0, 1], [2]]
    assert first.steps[1:] == [("revoked", [0, 1, 2]), ("assigned", [0, 1])]


def test_a_cooperative_member_reads_on_and_lets_go_of_what_moves_alone(group: Group) -> None:
    (first,) = group.stable(1, assignors=("cooperative-sticky",))
    first.reads = dict.fromkeys(first.reads, 5)
    second = group.join(assignors=("cooperative-sticky",))
    group.pass_ms(5_000)
    assert share(first, second) == [[0, 1], [2]]
    assert first.steps[1:] == [("revoked", [2]), ("assigned", [])]
    assert first.reads == {0: 5, 1: 5}
    assert second.steps == [("assigned", []), ("assigned", [2])]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_those_that_stay_take_over_from_one_that_leaves(group: Group, assignor: str) -> None:
    first, second, third = group.stable(3, assignors=(assignor,))
    second.leave()
    group.pass_ms(3_000)
    assert "left" in second.settled
    assert sorted(index for one in (first, third) for index in one.reads) == [0, 1, 2]


def test_a_member_that_does_not_poll_keeps_its_partitions_until_it_is_too_long(group: Group) -> None:
    first, second = group.stable(2)
    second.is_busy = True
    group.pass_ms(25_000)
    assert share(first) == [[0, 1]]
    group.pass_ms(8_000)
    assert share(first) == [[0, 1, 2]]
    assert isinstance(second.sent[-1], LeaveGroupRequest)
    second.is_busy = False
    group.pass_ms(5_000)
    assert second.steps[-2:] == [("lost", [2]), ("assigned", [2])]


def test_an_application_that_is_asked_to_poll_between_records_is_not_too_long(group: Group) -> None:
    (member,) = group.stable(1)
    member.is_busy = True
    for _ in range(50):
        group.pass_ms(1_000)
        if member.core.wants_attention(group.now_ms):
            member.poll()
    assert not any(isinstance(request, LeaveGroupRequest) for request in member.sent)


def test_a_static_member_comes_back_to_its_partitions_and_does_not_leave(group: Group) -> None:
    first = group.stable(2)
    second = group.join(group_instance_id="i")
    group.pass_ms(3_000)
    before = share(*first, second)
    second.leave()
    group.members.remove(second)
    again = group.join(group_instance_id="i")
    group.pass_ms(3_000)
    assert share(*first, again) == before
    assert not any(isinstance(request, LeaveGroupRequest) for request in second.sent)


def test_a_static_member_whose_place_another_process_took_is_fenced_for_good(group: Group) -> None:
    former = group.join(group_instance_id="i")
    group.pass_ms(3_000)
    group.join(group_instance_id="i")
    group.pass_ms(5_000)
    assert former.steps[-1] == ("lost", [0, 1, 2])
    assert len(former.errors) > 2, "each poll says so"
    assert {error.code for error in former.errors} == {ErrorCode.FENCED_INSTANCE_ID}
    sent = len(former.sent)
    group.pass_ms(5_000)
    assert len(former.sent) == sent


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_added_partitions_are_shared_and_read_from_their_first_record(group: Group, assignor: str) -> None:
    first, second = group.stable(2, assignors=(assignor,))
    group.change_topics(5)
    group.pass_ms(5_000)
    assert sorted(share(first, second)[0] + share(first, second)[1]) == [0, 1, 2, 3, 4]
    assert {one.partition for one in first.core.is_late} == {3, 4}


def test_another_subscription_is_shared_at_once(group: Group) -> None:
    (member,) = group.stable(1)
    group.change_topics(3, u=1)
    member.post(lambda now: member.core.subscribe(("u",), now))
    group.pass_ms(2_000)
    assert [one.topic for one in member.core.owned] == ["u"]


def test_the_leader_waits_for_the_metadata_of_topics_that_others_read(group: Group) -> None:
    (leader,) = group.stable(1)
    other = Member(group)
    other.cache.update(metadata(1, 3, u=2))
    group.members.append(other)
    other.post(lambda now: other.core.subscribe(("u",), now))
    group.pass_ms(1_000)
    assert leader.core.phase is Phase.SHARING
    assert "u" in leader.core._sharing.topics
    group.change_topics(3, u=2)
    group.pass_ms(500)
    assert [(one.topic, one.partition) for one in other.core.owned] == [("u", 0), ("u", 1)]


def test_a_member_reads_added_partitions_once_it_has_heard_of_them_itself(group: Group) -> None:
    """Until then it does not know that they are late, and would read them from the end under "latest"."""
    leader, other = group.stable(2)
    assert share(leader, other) == [[0, 1], [2]]
    group.members.remove(other)
    group.change_topics(6)
    group.members.append(other)
    group.pass_ms(5_000)
    assert share(leader, other) == [[0, 1, 2], []]
    group.change_topics(6)
    group.pass_ms(500)
    assert share(leader, other) == [[0, 1, 2], [3, 4, 5]]
    assert {one.partition for one in other.core.is_late} == {3, 4, 5}


def test_one_broker_that_does_not_know_a_topic_makes_no_member_ignore_its_commits() -> None:
    member = Alone()
    member.cache.update_all(metadata(2, 0))
    member.joined()
    member.synced()
    assert member.core.next_step() is None
    assert RefreshMetadata() in member.others
    member.cache.update(metadata(3, 2))
    member.take([])
    member.answer(OffsetFetchRequest, OffsetFetchResponse(ErrorCode.NONE, None, ()))
    assert member.core.next_step() is not None


def test_a_topic_that_stays_unknown_for_three_seconds_is_gone() -> None:
    member = Alone()
    member.cache.update_all(metadata(2, 0))
    member.joined()
    member.synced()
    member.pass_ms(2_999)
    assert member.core.next_step() is None
    assert member.core.next_deadline_ms(member.now_ms) == member.now_ms + 1
    member.pass_ms(1)
    step = member.core.next_step()
    assert step is not None
    assert step.offsets == {TopicPartition("t", 0): None}


# --- coordinators that die ---------------------------------------------------------------------------------


def test_members_go_on_in_their_generation_with_another_coordinator(group: Group) -> None:
    members = group.stable(2)
    steps = [list(one.steps) for one in members]
    generation = members[0].core.generation_id
    group.succeed()
    group.pass_ms(15_000)
    assert [one.steps for one in members] == steps
    assert members[0].core.generation_id == generation
    assert members[0].core.coordinator.known == Coordinator(2, "broker", 2)


def test_a_commit_survives_the_coordinator_and_is_repeated_at_the_next(group: Group) -> None:
    (member,) = group.stable(1)
    group.where = None
    token = member.commit(9)
    group.pass_ms(1_000)
    assert token not in member.settled
    group.succeed()
    group.pass_ms(2_000)
    assert member.settled[token] is None
    assert group.broker.committed() == {0: 9, 1: 9, 2: 9}


def test_a_coordinator_that_dies_in_a_rebalance_is_looked_for_although_it_says_nothing(group: Group) -> None:
    first, second = group.stable(2)
    second.is_busy = True  # the rebalance waits for it
    third = group.join()
    group.pass_ms(2_000)
    assert third.core.phase is Phase.JOINING
    for member in group.members:
        member._waiting.clear()  # a dead host: no answer, no end of the connection
    group.succeed()
    second.is_busy = False
    group.pass_ms(12_000)
    assert sorted(chain(*share(first, second, third))) == [0, 1, 2]


def test_a_member_that_was_cut_off_for_longer_than_its_session_has_lost_its_partitions(group: Group) -> None:
    first, second = group.stable(2)
    second.is_cut_off = True
    group.pass_ms(15_000)
    assert share(first) == [[0, 1, 2]]
    second.is_cut_off = False
    group.pass_ms(5_000)
    assert ("lost", [2]) in second.steps
    assert share(first, second) == [[0, 1], [2]]


# --- commits -----------------------------------------------------------------------------------------------


def test_a_commit_of_a_generation_that_is_over_is_refused(group: Group) -> None:
    first, second = group.stable(2)
    second.is_cut_off = True
    late = second.commit(50, 2)
    group.pass_ms(4_000)
    second.is_cut_off = False
    first.commit(3, 0)
    group.broker.leave(second.core.member_id)  # an operator, say
    group.pass_ms(3_000)
    assert isinstance(second.settled[late], CommitFailed)
    assert group.broker.committed() == {0: 3}


def test_commits_go_one_after_the_other(group: Group) -> None:
    (member,) = group.stable(1)
    group.broker.holds_back = True
    first, second = member.commit(1), member.commit(2)
    group.settle()
    assert sum(isinstance(request, OffsetCommitRequest) for request in member.sent) == 1
    group.broker.holds_back = False
    group.broker.commit()
    group.settle()
    assert (member.settled[first], member.settled[second]) == (None, None)
    assert group.broker.committed() == {0: 2, 1: 2, 2: 2}


def test_many_partitions_are_asked_for_and_committed_in_portions(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.core.groups.offset_requests.ROWS_MAX", 2)
    group.broker.commit_offset(7, index=2)
    (member,) = group.stable(1)
    assert member.reads == {0: 0, 1: 0, 2: 7}
    group.broker.holds_back = True
    first, second = member.commit(8), member.commit(9)
    group.settle()
    group.broker.commit()  # of two partitions
    group.settle()
    assert (first in member.settled, group.broker.committed()) == (False, {0: 8, 1: 8, 2: 7})
    group.succeed()
    group.pass_ms(5_000)
    assert (member.settled[first], member.settled[second]) == (None, None)
    assert group.broker.committed() == {0: 9, 1: 9, 2: 9}
    commits = [request for request in member.sent if isinstance(request, OffsetCommitRequest)]
    rows = [[(row.partition_index, row.offset) for row in commit.partitions] for commit in commits]
    assert [rows[0], *rows[-3:]] == [[(0, 8), (1, 8)], [(2, 8)], [(0, 9), (1, 9)], [(2, 9)]]


def test_a_commit_that_no_coordinator_takes_ends_with_its_time(group: Group) -> None:
    (member,) = group.stable(1)
    group.where = None
    token = member.commit(1)
    group.pass_ms(6_000)
    assert isinstance(member.settled[token], TimedOut)


def test_automatic_commits_send_what_has_moved(group: Group) -> None:
    (member,) = group.stable(1, enable_auto_commit=True)
    group.pass_ms(3_000)
    assert member.core.is_auto_commit_due(group.now_ms)
    moved = {one: Position(5) for one in member.core.owned}
    for _ in range(2):  # the second time nothing has moved
        member.post(lambda now: member.core.auto_commit(moved, now))
        group.settle()
    assert sum(isinstance(request, OffsetCommitRequest) for request in member.sent) == 1
    assert group.broker.committed() == {0: 5, 1: 5, 2: 5}


def test_committed_offsets_are_asked_for(group: Group) -> None:
    group.broker.commit_offset(7, index=1)
    (member,) = group.stable(1)
    member.post(lambda now: member.core.fetch_committed("all", member.core.owned, now + 1_000))
    group.settle()
    found = {one.partition: at and (at.offset, at.leader_epoch) for one, at in member.settled["all"].items()}
    assert found == {0: None, 1: (7, 3), 2: None}


# --- one answer at a time ----------------------------------------------------------------------------------


class Alone:
    """A member whose answers the test gives, in one phase."""

    def __init__(self, **given: Any) -> None:
        self.cache = MetadataCache()
        self.cache.update(metadata(1, 2))
        self.core = Membership(config(**given), self.cache)
        self.now_ms = 1_000
        self.sent: list[Send] = []
        self.others: list[Any] = []
        self.take(self.core.subscribe(("t",), self.now_ms))
        self.take(self.core.coordinator_found(HERE, self.now_ms))

    def take(self, effects: list[Any]) -> None:
        for effect in [*effects, *self.core.plan(self.now_ms)]:
            (self.sent if isinstance(effect, Send) else self.others).append(effect)

    def last(self, kind: type) -> Send:
        return next(send for send in reversed(self.sent) if isinstance(send.request, kind))

    def answer(self, kind: type, response: Any) -> None:
        self.take(self.core.answered(self.last(kind).request_id, response, self.now_ms))

    def joined(self, code: ErrorCode = ErrorCode.NONE, member_id: str = "m", generation: int = 4) -> None:
        self.answer(
            JoinGroupRequest,
            JoinGroupResponse(code, "why", generation, "consumer", "range", "leader", False, member_id, ()),
        )

    def synced(self, code: ErrorCode = ErrorCode.NONE) -> None:
        assignment = bytes.fromhex("0000 00000001 0001 74 00000001 00000000 ffffffff")  # t-0
        self.answer(SyncGroupRequest, SyncGroupResponse(code, "why", "consumer", "range", assignment))

    def beaten(self, code: ErrorCode) -> None:
        self.pass_ms(1_000)
        self.answer(GroupHeartbeatRequest, GroupHeartbeatResponse(code, "why"))

    def read(self) -> None:
        """It reads t-0."""
        self.joined()
        self.synced()
        self.answer(OffsetFetchRequest, OffsetFetchResponse(ErrorCode.NONE, None, ()))
        step = self.core.next_step()
        assert step is not None
        self.take(self.core.done(step, self.now_ms))

    @property
    def commit_request(self) -> int:
        """The id of a commit that is under way."""
        positions = {TopicPartition("t", 0): Position(1)}
        self.take(self.core.commit("token", positions, self.now_ms + 5_000))
        return self.last(OffsetCommitRequest).request_id

    def pass_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.take([])

    def state(self) -> tuple[str, int, bool, bool, bool]:
        """Member id, generation, whether it has lost what it read, whether it looks for another coordinator,
        whether the application hears of an error."""
        core = self.core
        step = core.next_step()
        is_lost = step is not None and step.kind.value == "lost"
        error = core.take_error()
        return core.member_id, core.generation_id, is_lost, core.coordinator.known is None, error is not None


E = ErrorCode
#: {error: state afterwards}, of a member m in generation 4 that reads a partition
AFTER_A_HEARTBEAT = {
    E.NONE: ("m", 4, False, False, False),
    E.REBALANCE_IN_PROGRESS: ("m", 4, False, False, False),
    E.COORDINATOR_LOAD_IN_PROGRESS: ("m", 4, False, False, False),
    E.NOT_COORDINATOR: ("m", 4, False, True, False),
    E.COORDINATOR_NOT_AVAILABLE: ("m", 4, False, True, False),
    E.ILLEGAL_GENERATION: ("m", -1, True, False, False),
    E.UNKNOWN_MEMBER_ID: ("", -1, True, False, False),
    E.FENCED_INSTANCE_ID: ("m", -1, True, False, True),
    E.INVALID_REQUEST: ("m", -1, True, False, True),
}
#: of a member that has joined once before and reads nothing now
AFTER_A_JOIN = {
    E.NONE: ("m", 4, False, False, False),
    E.MEMBER_ID_REQUIRED: ("m", -1, False, False, False),
    E.REBALANCE_IN_PROGRESS: ("", -1, False, False, False),
    E.COORDINATOR_LOAD_IN_PROGRESS: ("", -1, False, False, False),
    E.NOT_COORDINATOR: ("", -1, False, True, False),
    E.COORDINATOR_NOT_AVAILABLE: ("", -1, False, True, False),
    E.UNKNOWN_MEMBER_ID: ("", -1, False, False, False),
    E.FENCED_INSTANCE_ID: ("", -1, False, False, True),
    E.INCONSISTENT_GROUP_PROTOCOL: ("", -1, False, False, True),
    E.INVALID_SESSION_TIMEOUT: ("", -1, False, False, True),
    E.GROUP_MAX_SIZE_REACHED: ("", -1, False, False, True),
    E.INVALID_GROUP_ID: ("", -1, False, False, True),
}
AFTER_A_SYNC = {
    E.NONE: ("m", 4, False, False, False),
    E.REBALANCE_IN_PROGRESS: ("m", 4, False, False, False),
    E.NOT_COORDINATOR: ("m", 4, False, True, False),
    E.COORDINATOR_NOT_AVAILABLE: ("m", 4, False, True, False),
    E.ILLEGAL_GENERATION: ("m", -1, False, False, False),
    E.UNKNOWN_MEMBER_ID: ("", -1, False, False, False),
    E.FENCED_INSTANCE_ID: ("m", -1, False, False, True),
    E.INCONSISTENT_GROUP_PROTOCOL: ("m", -1, False, False, True),
}


@pytest.mark.parametrize(("code", "expected"), AFTER_A_HEARTBEAT.items())
def test_what_a_heartbeat_says(code: ErrorCode, expected: tuple[str, int, bool, bool, bool]) -> None:
    member = Alone()
    member.read()
    member.beaten(code)
    assert member.state()[2:] == expected[2:]
    assert (member.core.member_id, member.core.generation_id) == expected[:2]


@pytest.mark.parametrize(("code", "expected"), AFTER_A_JOIN.items())
def test_what_a_join_says(code: ErrorCode, expected: tuple[str, int, bool, bool, bool]) -> None:
    member = Alone()
    member.joined(code)
    assert member.state() == expected


@pytest.mark.parametrize(("code", "expected"), AFTER_A_SYNC.items())
def test_what_a_sync_says(code: ErrorCode, expected: tuple[str, int, bool, bool, bool]) -> None:
    member = Alone()
    member.joined()
    member.synced(code)
    assert member.state() == expected


@pytest.mark.parametrize("code", [code for code in AFTER_A_JOIN if code is not E.FENCED_INSTANCE_ID])
def test_after_every_error_but_fencing_the_member_joins_again(code: ErrorCode) -> None:
    member = Alone()
    member.joined(code)
    member.core.take_error()
    if member.core.coordinator.known is None:
        member.pass_ms(1_000)
        member.take(member.core.coordinator_found(HERE, member.now_ms))
    member.pass_ms(1_000)
    joins = sum(isinstance(send.request, JoinGroupRequest) for send in member.sent)
    assert joins == (1 if code is E.NONE else 2)


def test_an_answer_of_a_coordinator_that_was_left_changes_nothing() -> None:
    member = Alone()
    member.read()
    member.pass_ms(1_000)
    late = member.last(GroupHeartbeatRequest)
    member.take(member.core.failed(member.commit_request, None, member.now_ms))
    elsewhere = Coordinator(2, "broker", 2)
    member.take(member.core.coordinator_found(elsewhere, member.now_ms))
    refusal = GroupHeartbeatResponse(E.NOT_COORDINATOR, "why")
    member.take(member.core.answered(late.request_id, refusal, member.now_ms))
    assert late.coordinator == HERE
    assert member.core.coordinator.known == elsewhere
    assert member.last(GroupHeartbeatRequest).coordinator == elsewhere


def test_who_answers_a_join_coordinates_though_another_request_to_it_has_failed() -> None:
    member = Alone()
    member.read()
    member.beaten(E.REBALANCE_IN_PROGRESS)
    step = member.core.next_step()
    assert step is not None
    member.take(member.core.done(step, member.now_ms))
    member.take(member.core.failed(member.commit_request, None, member.now_ms))
    assert member.core.coordinator.known is None
    member.joined(generation=5)
    assert member.last(SyncGroupRequest).coordinator == HERE


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"assignors": ("sticky",)}, "sticky"),
        ({"assignors": ()}, "expected some of"),
        ({"assignors": ("range", "cooperative-sticky")}, "does not mix"),
        ({"heartbeat_interval_ms": 10_000}, "heartbeat_interval_ms"),
        ({"group_id": ""}, "group_id"),
        ({"group_instance_id": ""}, "group_instance_id"),
        ({"max_poll_interval_ms": 0}, "max_poll_interval_ms"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        config(**given)
