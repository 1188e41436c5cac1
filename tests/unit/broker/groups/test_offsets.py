"""Offsets of groups: commits that last, and what deletes them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.broker.core.groups import offsets as offsets_of_groups
from holdfast.broker.core.groups.config import GroupConfig, partition_of
from holdfast.broker.core.groups.group import Group
from holdfast.broker.core.groups.offsets import Offsets
from holdfast.broker.core.groups.records import OffsetKey, decode_group_batches
from holdfast.broker.core.groups.shard import Turn
from holdfast.broker.core.groups.subscription import subscribed_topics
from holdfast.metadata import answer_steps
from holdfast.metadata.answer_steps import in_one_go
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetPartition,
)
from holdfast.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListedGroup,
    ListGroupsRequest,
)
from holdfast.protocol.record_batch import Record, encode_batch
from tests.unit.broker.groups.play import KEY, STATIC, SUBSCRIPTION, Play, T
from tests.unit.metadata.test_describe import IMAGE

DAY_MS = 86_400_000


def deleted(play: Play, group: str = "g") -> str:
    (row,) = play.ask(DeleteGroupsRequest((group,))).groups
    return ErrorCode(row.error_code).name


# --- commits --------------------------------------------------------------------------------------------


def test_a_commit_is_answered_and_read_when_it_is_committed() -> None:
    play = Play()
    play.holds_back = True
    name = play.commit_offset(5, metadata="m")
    assert name not in play.answers
    assert play.committed() == {}
    play.commit()
    assert play.commit_code(name) == "NONE"
    (row,) = play.ask(OffsetFetchRequest("g", (OffsetPartition(T, 0),))).partitions
    assert (row.offset, row.leader_epoch, row.metadata) == (5, 3, "m")


@pytest.mark.parametrize("asked", [None, tuple(OffsetPartition(T, index) for index in range(2))])
def test_offsets_of_a_large_group_are_told_in_steps_and_as_of_one_moment(
    monkeypatch: pytest.MonkeyPatch, asked: tuple[OffsetPartition, ...] | None
) -> None:
    """A group may have a hundred thousand."""
    play = Play()
    for index in range(2):
        play.commit_offset(5, index=index)
    monkeypatch.setattr(answer_steps, "ROWS_A_STEP", 1)
    steps = play.in_steps[play.request(OffsetFetchRequest("g", asked))]
    next(steps)
    play.commit_offset(7, index=1)
    assert [row.offset for row in in_one_go(steps).partitions] == [5, 5]


def test_commits_are_answered_in_the_order_of_the_log() -> None:
    play = Play()
    play.holds_back = True
    names = [play.commit_offset(offset) for offset in (5, 6)]
    play.partition.high_watermark = 1
    play.coordinator.high_watermark_moved(KEY, play.now_ms)
    play._carry_out()
    assert (names[0] in play.answers, names[1] in play.answers) == (True, False)
    assert play.committed() == {0: 5}


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({}, "NONE"),
        ({"generation_id": 2}, "ILLEGAL_GENERATION"),
        ({"generation_id": -1}, "ILLEGAL_GENERATION"),
        ({"member_id": "stranger"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": "", "generation_id": -1}, "UNKNOWN_MEMBER_ID"),
        ({"group": "new"}, "ILLEGAL_GENERATION"),
        ({"group": "new", "member_id": "", "generation_id": -1}, "NONE"),
        ({"index": 9}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic_id": b"?" * 16}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"metadata": "m" * 4097}, "OFFSET_METADATA_TOO_LARGE"),
        ({"instance": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_only_members_of_the_generation_commit_for_a_group_that_has_members(
    how: dict[str, Any], code: str
) -> None:
    play = Play()
    (member,) = play.stable()
    name = play.commit_offset(**{"offset": 5, "member_id": member, "generation_id": 1, **how})
    assert play.commit_code(name) == code


def test_a_member_commits_while_the_others_join_again_but_not_before_it_has_its_assignment() -> None:
    play = Play()
    first, second = play.stable(2)
    waiting = [play.join()]
    assert play.commit_code(play.commit_offset(5, first, 2)) == "NONE"
    waiting += [play.join(first), play.join(second)]
    assert play.joined(waiting[0]).generation_id == 3
    assert play.commit_code(play.commit_offset(6, first, 3)) == "REBALANCE_IN_PROGRESS"


def test_a_commit_shows_that_a_member_lives() -> None:
    play = Play()
    (member,) = play.stable()
    for _ in range(4):
        play.pass_ms(6_000)
        assert play.commit_code(play.commit_offset(5, member, 1)) == "NONE"


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, "COORDINATOR_NOT_AVAILABLE"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"),
    ],
)
def test_a_commit_that_cannot_be_appended_is_refused(refusal: ErrorCode, code: str) -> None:
    play = Play()
    play.refusal = refusal
    assert play.commit_code(play.commit_offset(5)) == code
    assert play.committed() == {}


def test_a_commit_that_is_late_is_refused_and_may_be_committed_all_the_same() -> None:
    play = Play()
    play.holds_back = True
    name = play.commit_offset(5)
    play.pass_ms(5_000)
    assert play.commit_code(name) == "COORDINATOR_NOT_AVAILABLE"
    play.commit()
    assert play.committed() == {0: 5}


def test_a_group_commits_as_many_offsets_as_it_may_have_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets_of_groups, "OFFSETS_MAX", 2)
    play = Play()

    def commit(*indexes: int) -> str:
        rows = tuple(OffsetCommitPartition(T, index, 5, 3, None) for index in indexes)
        answer = play.ask(OffsetCommitRequest("g", -1, "", None, rows))
        return ErrorCode(answer.partitions[0].error_code).name

    assert [commit(0), commit(0, 1), commit(1, 0), commit(0, 2)] == [
        *["NONE"] * 3,
        "INVALID_COMMIT_OFFSET_SIZE",
    ]


# --- deletions ------------------------------------------------------------------------------------------


def test_a_group_without_members_is_deleted_with_its_offsets() -> None:
    play = Play()
    play.commit_offset(5)
    play.holds_back = True
    name = play.request(DeleteGroupsRequest(("g",)))
    assert name not in play.answers
    assert play.commit_code(play.commit_offset(6)) == "COORDINATOR_NOT_AVAILABLE"
    assert play.code(play.join()) == "COORDINATOR_NOT_AVAILABLE"
    play.commit()
    assert play.answers[name].groups[0].error_code == 0
    assert play.committed() == play.successor().committed() == {}
    assert deleted(play) == "GROUP_ID_NOT_FOUND"


def test_a_group_with_members_is_not_deleted() -> None:
    play = Play()
    play.stable()
    assert deleted(play) == "NON_EMPTY_GROUP"


def test_a_deletion_that_fails_leaves_the_group() -> None:
    play = Play()
    play.commit_offset(5)
    play.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert deleted(play) == "COORDINATOR_NOT_AVAILABLE"
    play.refusal = ErrorCode.NONE
    assert play.committed() == {0: 5}
    assert deleted(play) == "NONE"


@pytest.mark.parametrize(
    ("subscription", "code"),
    [(SUBSCRIPTION, "GROUP_SUBSCRIBED_TO_TOPIC"), (SUBSCRIPTION.replace(b"t", b"u"), "NONE")],
)
def test_offsets_of_topics_that_members_read_are_not_deleted(subscription: bytes, code: str) -> None:
    play = Play()
    (member,) = play.stable(protocols=(("range", subscription),))
    play.commit_offset(5, member, 1)
    (row,) = play.ask(OffsetDeleteRequest("g", (OffsetPartition(T, 0),))).partitions
    assert ErrorCode(row.error_code).name == code
    assert play.committed() == ({} if code == "NONE" else {0: 5})


def test_offsets_of_members_whose_subscriptions_are_not_known_are_not_deleted() -> None:
    play = Play()
    play.stable(protocols=(("range", b"?"),))
    request = OffsetDeleteRequest("g", (OffsetPartition(T, 0),))
    assert play.ask(request).error_code == ErrorCode.NON_EMPTY_GROUP
    missing = OffsetDeleteRequest("none", (OffsetPartition(T, 0),))
    assert play.ask(missing).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- retention ------------------------------------------------------------------------------------------


def test_offsets_are_kept_for_the_retention_after_the_last_member_has_left() -> None:
    play = Play()
    (member,) = play.stable(session_ms=1_800_000)
    play.commit_offset(5, member, 1)
    for _ in range(8 * 24 * 3):
        play.pass_ms(1_200_000)
        assert play.beat(member, 1) == "NONE"
    assert play.committed() == {0: 5}
    play.leave(member)
    play.pass_ms(6 * DAY_MS)
    assert play.committed() == {0: 5}
    play.pass_ms(DAY_MS + 1_200_000)
    assert play.committed() == {}
    play.pass_ms(1_200_000)
    assert play.ask(ListGroupsRequest(())).groups == ()
    assert play.successor().ask(ListGroupsRequest(())).groups == ()


def test_offsets_of_a_group_that_never_had_members_are_kept_for_the_retention_since_the_commit() -> None:
    play = Play()
    play.commit_offset(5)
    play.pass_ms(4 * DAY_MS)
    play.commit_offset(6, index=1)
    play.pass_ms(4 * DAY_MS)
    assert play.committed() == {1: 6}


def test_offsets_of_a_deleted_topic_are_gone_at_once_and_deleted_later() -> None:
    play = Play()
    play.commit_offset(5)
    image = play.image
    play.image = replace(image, topics=image.topics.delete(T), topic_ids=image.topic_ids.delete("t"))
    assert play.committed() == {}
    play.pass_ms(1_200_000)
    play.image = image
    assert play.committed() == {}


def test_a_commit_under_way_is_not_deleted_because_the_one_before_it_is_too_old() -> None:
    play = Play()
    play.commit_offset(5)
    play.pass_ms(7 * DAY_MS - 1_200_000)
    play.holds_back = True
    name = play.commit_offset(6)
    play.pass_ms(2_400_000)
    play.commit()
    assert play.commit_code(name) == "COORDINATOR_NOT_AVAILABLE", "it was late"
    assert play.committed() == play.successor().committed() == {0: 6}


def test_a_group_of_which_nothing_is_left_is_not_deleted_while_a_commit_is_under_way() -> None:
    play = Play()
    (member,) = play.stable()
    play.leave(member)
    play.pass_ms(7 * DAY_MS - 1_200_000)
    play.holds_back = True
    play.commit_offset(6)
    play.pass_ms(2_400_000)
    play.commit()
    assert play.committed() == play.successor().committed() == {0: 6}


def test_a_deletion_of_a_group_covers_commits_under_way() -> None:
    play = Play()
    play.commit_offset(5)
    play.holds_back = True
    play.commit_offset(7, index=1)
    play.request(DeleteGroupsRequest(("g",)))
    play.commit()
    assert play.committed() == play.successor().committed() == {}


def test_a_deletion_of_an_offset_covers_a_commit_under_way() -> None:
    play = Play()
    play.commit_offset(5)
    play.holds_back = True
    commit = play.commit_offset(7, index=1)
    deletion = play.request(OffsetDeleteRequest("g", (OffsetPartition(T, 1),)))
    assert deletion not in play.answers, "it is behind the commit in the log"
    play.commit()
    assert (play.commit_code(commit), play.code(deletion)) == ("NONE", "NONE")
    assert play.committed() == play.successor().committed() == {0: 5}


def test_commits_under_way_are_deleted_in_their_order() -> None:
    """Not in that of their hashes, which is another in each process."""
    play = Play()
    topic = play.image.topics[T]
    topic = replace(topic, partitions=Map(dict.fromkeys(range(20), topic.partitions[0])))
    play.image = replace(play.image, topics=play.image.topics.set(T, topic))
    play.commit_offset(5)
    play.holds_back = True
    order = [7, 3, 19, 0, 11, 2, 15, 13, 8, 1, 17, 5]
    for index in order:
        play.commit_offset(9, index=index)
    written = len(play.log.batches)
    play.request(DeleteGroupsRequest(("g",)))
    (_, batch), *_ = play.log.batches[written:]
    ((_, deletions),) = decode_group_batches(batch)
    found = [key.partition_index for key, _ in deletions if isinstance(key, OffsetKey)]
    assert found == [0, *(one for one in order if one)]


def test_subscriptions_are_looked_at_only_for_old_offsets_and_once_for_a_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Play()
    for index in (0, 1):
        play.commit_offset(5, group="g", index=index)
    (member,) = play.stable(session_ms=1_800_000, protocols=(("range", SUBSCRIPTION.replace(b"t", b"u")),))
    looks: list[str] = []
    subscribed = Group.subscribed

    def counted(group: Group) -> frozenset[str] | None:
        looks.append(group.group_id)
        return subscribed(group)

    monkeypatch.setattr(Group, "subscribed", counted)
    for _ in range(7 * 24 * 3 - 1):
        play.pass_ms(1_200_000)
        play.beat(member, 1)
    assert (looks, play.committed()) == ([], {0: 5, 1: 5})
    play.pass_ms(1_200_000)
    assert (looks, play.committed()) == (["g"], {})


def test_one_turn_looks_for_old_offsets_in_one_partition_and_not_in_too_many_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = Play().image
    turn = Turn(GroupConfig.from_static(STATIC), [])
    offsets = Offsets(turn, lambda shard, group, member_id: None)
    monkeypatch.setattr(offsets_of_groups, "OFFSETS_A_TURN", 4)
    looked: list[str] = []
    groups = [{f"{number}{name}": SimpleNamespace(offsets="..") for name in "abc"} for number in range(4)]
    shards: list[Any] = [SimpleNamespace(groups=groups[number], is_active=number != 1) for number in range(4)]
    monkeypatch.setattr(offsets, "_expire", lambda shard, group, image: looked.append(group.name))
    for shard in shards:
        for name, group in shard.groups.items():
            group.name = name
    offsets.expire_all(shards, lambda: image)
    del shards[2].groups["2b"]
    turns = [tuple(looked)]
    while (due_ms := turn.timers.next_deadline_ms()) is not None:
        looked.clear()
        turn.now_ms = due_ms
        turn.timers.run(due_ms)
        turns.append(tuple(looked))
    assert [one for one in turns if one] == [("0a", "0b"), ("0c",), ("2a", "2c"), ("3a", "3b"), ("3c",)]


# --- coordinators ---------------------------------------------------------------------------------------


def test_the_next_coordinator_knows_members_and_offsets() -> None:
    play = Play()
    first, second = play.stable(2)
    play.commit_offset(5, first, 2)
    play.commit_offset(6, first, 2)
    play.commit_offset(7, second, 2, index=1)
    heir = play.successor()
    assert heir.committed() == {0: 6, 1: 7}
    assert heir.beat(first, 2) == "NONE"
    assert heir.synced(heir.sync(second, 2)) == b"p1"
    heir.pass_ms(10_000)
    assert heir.beat(second, 2) == "UNKNOWN_MEMBER_ID", "nothing was heard of it for its session"


def test_a_coordinator_loads_before_it_answers_and_says_so() -> None:
    play = Play()
    (member,) = play.stable()
    play.commit_offset(5, member, 1)
    heir = play.successor(loads=False)
    assert not heir.reads
    assert heir.code(heir.join(member)) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert heir.commit_code(heir.commit_offset(6, member, 1)) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert heir.ask(OffsetFetchRequest("g", None)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert heir.ask(ListGroupsRequest(())).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert heir.code(heir.sync(member, 1)) == "REBALANCE_IN_PROGRESS"
    assert heir.beat(member, 1) == "NONE"
    heir.commit()
    assert heir.committed() == {0: 5}


def test_a_log_that_cannot_be_read_now_is_read_again() -> None:
    play = Play()
    play.commit_offset(5)
    heir = play.successor(loads=False)
    heir.log.batches, kept = [], heir.log.batches
    heir.commit()
    assert heir.code(heir.join()) == "COORDINATOR_LOAD_IN_PROGRESS"
    heir.log.batches = kept
    heir.pass_ms(1_000)
    assert heir.committed() == {0: 5}


def test_a_log_that_begins_later_while_it_is_replayed_is_replayed_from_there() -> None:
    """What was replayed below counts for nothing: the deletion of it cannot be read any more."""
    play = Play()
    play.commit_offset(5, group="gone")
    deleted(play, "gone")
    play.commit_offset(6)
    heir = play.successor(loads=False)
    before, after = heir.log.batches[:1], heir.log.batches[3:]
    heir.log.batches = before
    heir.commit()
    assert heir.reads[-1].start_offset == 1
    heir.log.batches, heir.partition.log.log_start_offset = after, 3
    heir.pass_ms(1_000)
    assert heir.reads[-1].start_offset == 3
    assert (heir.committed(), heir.committed("gone")) == ({0: 6}, {})


def test_a_log_with_something_unknown_costs_its_groups_and_nothing_else() -> None:
    play = Play()
    play.log.append(encode_batch([Record(0, 1, b"?", b"?")], base_offset=0, leader_epoch=0), 1)
    heir = play.successor()
    assert heir.code(heir.join()) == "COORDINATOR_NOT_AVAILABLE"


def test_a_deposed_coordinator_answers_whoever_waits_and_forgets() -> None:
    play = Play()
    (first,) = play.stable()
    play.holds_back = True
    waiting = [play.join(), play.commit_offset(5, first, 1)]
    play.depose()
    assert play.code(waiting[0]) == "NOT_COORDINATOR"
    assert play.commit_code(waiting[1]) == "NOT_COORDINATOR"
    assert play.beat(first, 1) == "NOT_COORDINATOR"
    play.pass_ms(DAY_MS)


def test_a_broker_whose_session_is_over_coordinates_nothing() -> None:
    play = Play()
    (first,) = play.stable()
    play.is_session_over = True
    assert play.beat(first, 1) == "NOT_COORDINATOR"


def test_a_coordinator_that_leads_in_a_later_epoch_reads_the_log_anew() -> None:
    play = Play()
    (first,) = play.stable()
    waiting = play.join()
    play.partition.leadership.leader_epoch = 2
    play.partition.leadership.start_offset = play.log.end
    play.coordinator.partition_changed(KEY, "__consumer_offsets")
    play._carry_out()
    assert play.code(waiting) == "NOT_COORDINATOR"
    assert play.beat(first, 1) == "NONE"


# --- where a group is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "hashed"), [("", 0), ("g", 103), ("group", 98629247), ("ü", 252), ("polygenelubricants", 0)]
)
def test_a_group_lies_where_kafka_has_it(group: str, hashed: int) -> None:
    assert partition_of(group, 1 << 31) == hashed


def test_the_leader_of_the_groups_partition_coordinates_it() -> None:
    play = Play()
    (row,) = play.ask(FindCoordinatorRequest(("g",))).coordinators
    assert (row.error_code, row.node_id, row.host) == (0, 1, "h")
    (row,) = play.ask(FindCoordinatorRequest(("",))).coordinators
    assert row.error_code == ErrorCode.INVALID_GROUP_ID


def test_the_topic_is_created_once_when_somebody_looks_for_a_coordinator() -> None:
    """A broker that is fenced now gets a replica, too: a topic with fewer would keep so few for ever."""
    play = Play()
    play.lines.clear()
    play.image = IMAGE
    (row,) = play.ask(FindCoordinatorRequest(("g",))).coordinators
    assert row.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    play.ask(FindCoordinatorRequest(("h",)))
    (effect,) = play.created
    (topic,) = effect.request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("__consumer_offsets", 50, 2)
    assert ["gets 2 replicas instead of 3" in line.text for line in play.lines] == [True]
    assert {one.name: one.value for one in topic.configs} == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(8 << 20),
        "segment.bytes": str(100 << 20),
    }


def test_groups_are_listed_and_described() -> None:
    play = Play()
    (member,) = play.stable()
    play.commit_offset(5, group="simple")
    listed = play.ask(ListGroupsRequest(())).groups
    assert listed == (ListedGroup("g", "consumer", "Stable"), ListedGroup("simple", "", "Empty"))
    assert [one.group_id for one in play.ask(ListGroupsRequest(("EMPTY",))).groups] == ["simple"]
    described, missing = play.ask(DescribeGroupsRequest(("g", "none"))).groups
    (row,) = described.members
    assert (row.member_id, row.client_id, row.client_host) == (member, "client", "10.0.0.1")
    assert (row.metadata, row.assignment, described.protocol_name) == (SUBSCRIPTION, b"p0", "range")
    assert (missing.error_code, missing.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_groups_and_offsets_are_counted() -> None:
    play = Play()
    play.stable()
    play.commit_offset(5, group="simple")
    groups, offsets, loading = play.coordinator.counted()
    assert {state.value: count for state, count in groups.items() if count} == {"Stable": 1, "Empty": 1}
    assert (offsets, loading) == (1, 0)
    assert play.successor(loads=False).coordinator.counted().loading == 1


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (SUBSCRIPTION, {"t"}),
        (b"\0\3\0\0\0\2\0\1a\0\2bc" + b"more", {"a", "bc"}),
        (b"\0\0\0\0\0\0", set()),
        (b"", None),
        (b"\0\0\0\0\0\1", None),
        (b"\0\0\x7f\xff\xff\xff", None),
        (b"\0\0\0\0\0\1\0\5ab", None),
        (b"\0\0\0\0\0\1\0\1\xff", None),
        (b"\xff\xff\0\0\0\0", None),
    ],
)
def test_what_a_consumer_subscribes_to_is_read_from_its_metadata(
    metadata: bytes, topics: set[str] | None
) -> None:
    assert subscribed_topics(metadata) == topics


def test_metrics_have_the_committed_offset_of_each_group_and_partition() -> None:
    play = Play()
    play.commit_offset(7, index=1)
    play.commit_offset(9, group="h")
    assert list(play.coordinator.committed()) == [("g", (T, 1), 7), ("h", (T, 0), 9)]
