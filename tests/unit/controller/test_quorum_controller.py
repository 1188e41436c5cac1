"""Activation, answers that wait, renouncing, replay, and broken invariants (K20-K24, D7)."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.events import EntriesCommitted, LeaderChanged, RequestReceived, Respond
from holdfast.controller.core.operators.operations import AlterConfig, OperationResult
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.replication_control import RECOVERY_MANAGER_KEY, UNCLEAN_PASS_MAX
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    ELR_FEATURE,
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    decode_record,
    encode_record,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerHeartbeatRequest, OfflineTopic
from holdfast.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest
from holdfast.protocol.messages.topics import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
)
from holdfast.runtime.stats import Level
from tests.unit.controller.harness import NODE_ID, CountingRandom, LogEntry, Quorum, make_config
from tests.unit.controller.test_recovery_in_slices import go_on
from tests.unit.controller.test_topics import create, topic

ALLOCATE = AllocateProducerIdsRequest(1, 0)


def started(*broker_ids: int, **properties: str) -> Quorum:
    quorum = Quorum(make_config(**{"min_insync_replicas": "2", **properties}))
    quorum.start_brokers(*broker_ids)
    return quorum


def records(quorum: Quorum, after: int = 0) -> list[object]:
    return [decode_record(entry.value) for entry in quorum.entries if entry.offset >= after]


# --- activation ------------------------------------------------------------------------------------------


def test_the_first_controller_writes_features_and_one_min_isr_and_later_ones_nothing() -> None:
    """F14, K22."""
    quorum = started()
    assert dict(quorum.image.features) == {ELR_FEATURE: 1}
    assert dict(quorum.image.configs[CLUSTER_RESOURCE]) == {"min.insync.replicas": "2"}
    count = len(quorum.entries)
    quorum.fail_over()
    assert quorum.core.is_active
    assert len(quorum.entries) == count


def test_a_cluster_can_begin_without_elr() -> None:
    assert not started(eligible_leader_replicas_enabled="false").image.elr_enabled


def test_a_new_leader_claims_only_once_it_has_applied_its_whole_log() -> None:
    """K22."""
    quorum = started(1)
    core = QuorumController(quorum.config, CountingRandom())
    assert core.handle(LeaderChanged(NODE_ID, 9, quorum.end_offset + 1), 0) == []
    assert not core.is_active
    half = len(quorum.entries) // 2
    core.handle(EntriesCommitted(quorum.entries[:half], quorum.entries[half].offset), 0)
    assert not core.is_active
    core.handle(EntriesCommitted(quorum.entries[half:], quorum.end_offset + 1), 0)
    assert core.is_active
    assert core.committed.brokers == quorum.image.brokers


@pytest.mark.parametrize(
    ("leader_id", "text"),
    [
        (None, "no active controller is known"),
        (NODE_ID + 1, "controller 102 is active"),
        (NODE_ID, "try again"),
    ],
)
def test_a_controller_that_is_not_active_refuses_writes_and_says_who_is(
    leader_id: int | None, text: str
) -> None:
    core = QuorumController(make_config(), CountingRandom())
    core.handle(LeaderChanged(leader_id, 3, 5), 0)
    for message in (
        ALLOCATE,
        CreateTopicsRequest(0, False, ()),
        DeleteTopicsRequest(0, ()),
        AlterPartitionRequest(1, 0, ()),
    ):
        (effect,) = core.handle(RequestReceived(1, 0, "C", message), 0)
        assert isinstance(effect, Respond)
        assert effect.message.error_code == ErrorCode.NOT_CONTROLLER
        assert text in effect.message.error_message


def test_any_controller_answers_questions_from_what_is_committed() -> None:
    quorum = started(1)
    create(quorum, "t", 1, 1)
    quorum.lose(NODE_ID + 1)
    assert quorum.request(MetadataRequest(None)).controller_id == NODE_ID + 1
    assert [row.broker_id for row in quorum.request(DescribeClusterRequest()).brokers] == [1]
    described = quorum.request(DescribeTopicPartitionsRequest((), 10, None))
    assert [row.name for row in described.topics] == ["t"]


# --- answers wait ----------------------------------------------------------------------------------------


def allocate(quorum: Quorum) -> AllocateProducerIdsRequest:
    return AllocateProducerIdsRequest(1, quorum.image.brokers[1].broker_epoch)


def test_an_answer_waits_for_the_commit_of_its_records() -> None:
    """K20; readers see the committed state only."""
    quorum = started(1)
    quorum.is_held = True
    before = quorum.image
    first = quorum.start_request(allocate(quorum))
    middle = quorum.end_offset
    second = quorum.start_request(allocate(quorum))
    assert quorum.image is before
    assert quorum.core.latest.next_producer_id == 2000
    quorum.commit(middle)
    assert quorum.answers[first].producer_id_start == 0
    assert second not in quorum.answers
    quorum.commit()
    assert (quorum.answers[second].producer_id_start, quorum.answers[second].producer_id_length) == (
        1000,
        1000,
    )
    assert quorum.image.next_producer_id == 2000


def test_an_answer_that_was_decided_on_uncommitted_state_waits_for_that_state() -> None:
    quorum = started(1)
    quorum.is_held = True
    quorum.start_request(CreateTopicsRequest(0, False, (topic("t", 1, 1),)))
    again = quorum.start_request(CreateTopicsRequest(0, False, (topic("t", 1, 1),)))
    assert again not in quorum.answers
    quorum.commit()
    assert quorum.answers[again].topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_an_answer_without_records_of_its_own_waits_for_what_it_was_judged_by() -> None:
    """K20: what was decided before it may be lost."""
    quorum = started(1)
    quorum.is_held = True
    quorum.start_request(allocate(quorum))
    appended = quorum.end_offset
    answered = quorum.start_request(beat(quorum, 1))
    assert quorum.end_offset == appended
    assert answered not in quorum.answers
    quorum.commit()
    assert quorum.answers[answered].error_code == ErrorCode.NONE


def test_more_requests_than_may_wait_for_the_quorum_are_refused_until_some_are_through() -> None:
    """queued.max.requests."""
    quorum = started(1, queued_max_requests="2")
    quorum.is_held = True
    waiting = [quorum.start_request(allocate(quorum)) for _ in range(2)]
    end_offset = quorum.end_offset
    refused = quorum.answers[quorum.start_request(allocate(quorum))]
    assert refused.error_code == ErrorCode.REQUEST_LIMIT_REACHED
    assert quorum.end_offset == end_offset
    quorum.commit()
    assert [quorum.answers[request].error_code for request in waiting] == [ErrorCode.NONE] * 2
    quorum.is_held = False
    assert quorum.request(allocate(quorum)).error_code == ErrorCode.NONE


def test_stale_brokers_get_no_producer_ids() -> None:
    quorum = started(1)
    stale = quorum.request(AllocateProducerIdsRequest(1, 0))
    assert (stale.error_code, stale.producer_id_start) == (ErrorCode.STALE_BROKER_EPOCH, -1)


def test_losing_the_leadership_refuses_what_waits_and_forgets_what_was_not_committed() -> None:
    """K23."""
    quorum = started(1)
    quorum.is_held = True
    waiting = quorum.start_request(allocate(quorum))
    quorum.is_held = False
    quorum.lose(NODE_ID + 1)
    assert quorum.answers[waiting].error_code == ErrorCode.NOT_CONTROLLER
    assert quorum.core.latest is quorum.core.committed
    assert quorum.core.latest.next_producer_id == 0
    assert quorum.core.next_deadline_ms() is None
    assert quorum.request(allocate(quorum)).error_code == ErrorCode.NOT_CONTROLLER
    quorum.elect()
    assert quorum.request(allocate(quorum)).producer_id_start == 0


def test_what_an_old_leader_left_uncommitted_may_still_be_committed_by_the_next() -> None:
    quorum = started(1)
    quorum.is_held = True
    waiting = quorum.start_request(allocate(quorum))
    entries, end_offset = list(quorum.entries), quorum.end_offset
    quorum.handle(LeaderChanged(NODE_ID + 1, 7, end_offset))
    assert quorum.answers[waiting].error_code == ErrorCode.NOT_CONTROLLER
    quorum.handle(EntriesCommitted(entries[-1:], end_offset))
    assert quorum.image.next_producer_id == 1000
    assert quorum.core.latest is quorum.core.committed


def test_a_commit_inside_a_batch_is_not_lost_when_the_leadership_is() -> None:
    quorum = started(1)
    quorum.is_held = True
    start = quorum.end_offset
    quorum.start_request(CreateTopicsRequest(0, False, (topic("t", 3, 1),)))
    quorum.commit(start + 2)
    assert quorum.image.offset == start
    quorum.handle(LeaderChanged(NODE_ID + 1, 7, quorum.end_offset))
    assert quorum.image.offset == start + 2
    assert len(quorum.topic("t").partitions) == 1


# --- one batch -------------------------------------------------------------------------------------------


def test_a_huge_event_is_cut_into_batches_that_raft_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """K21: in an order in which every part is safe; the offsets go on without a gap."""
    quorum = started(1, 2)
    assert create(quorum, "t", 70, 2).error_code == ErrorCode.NONE
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 500)
    quorum.appends.clear()
    quorum.vanish(1)
    assert len(quorum.appends) > 5
    assert all(sum(map(len, append.values)) <= 500 for append in quorum.appends)
    assert {partition.leader for _, partition in quorum.topic("t").sorted_partitions()} == {2}
    assert quorum.image == quorum.core.latest == quorum.replayed()


def lose_all_but_the_first_batch(quorum: Quorum, message: Any) -> Any:
    """The leader dies once its first batch is on a majority; returns its answer."""
    quorum.is_held = True
    quorum.appends.clear()
    number = quorum.start_request(message)
    first = quorum.appends[0]
    quorum.commit(first.base_offset + len(first.values))
    quorum.lose()
    quorum.is_held = False
    quorum.fail_over()
    return quorum.answers[number]


def test_each_topic_of_a_huge_request_is_made_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """K21, R106: one without partitions could neither be written nor made."""
    quorum = started(1, 2, 3)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    overrides: dict[str, str | None] = {"flush.ms": "100", "retention.ms": "600000"}
    asked = tuple(topic(f"t{number:02d}", 3, 3, configs=overrides) for number in range(20))
    answer = lose_all_but_the_first_batch(quorum, CreateTopicsRequest(0, False, asked))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(quorum.appends) > 3
    made = list(quorum.image.sorted_topics())
    assert 0 < len(made) < 20
    assert {len(one.partitions) for one in made} == {3}
    for one in made:
        assert dict(quorum.image.configs[RESOURCE_TOPIC, one.name]) == overrides


def test_min_isr_and_its_partitions_are_changed_together_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R109, K21: who asks again hears that it is so already, and no partition would change any more."""
    quorum = Quorum(make_config(min_insync_replicas="1"))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", 50, 3)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    wanted = AlterConfig(CLUSTER_RESOURCE, "min.insync.replicas", "2")
    lose_all_but_the_first_batch(quorum, wanted)
    assert quorum.request(wanted) == OperationResult()
    assert quorum.image.cluster_config("min.insync.replicas") == 2
    assert {partition.min_isr for _, partition in quorum.topic("t").sorted_partitions()} == {2}


def test_what_must_be_written_at_once_and_is_too_large_for_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = Quorum(make_config(min_insync_replicas="1"))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", 50, 3)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.BATCH_MAX_BYTES", 1000)
    before = quorum.image
    refused = quorum.request(AlterConfig(CLUSTER_RESOURCE, "min.insync.replicas", "2"))
    assert refused.error_code is ErrorCode.POLICY_VIOLATION
    assert "at most 1000" in refused.error_message
    assert quorum.image == before == quorum.core.latest


# --- what another controller has left half done ---------------------------------------------------------


def leaders(quorum: Quorum) -> set[int | None]:
    return {partition.leader for _, partition in quorum.topic("t").sorted_partitions()}


def beat(quorum: Quorum, broker_id: int, want_shutdown: bool = False) -> BrokerHeartbeatRequest:
    """A heartbeat to be sent while commits are held."""
    epoch = quorum.image.brokers[broker_id].broker_epoch
    return BrokerHeartbeatRequest(broker_id, epoch, quorum.committed_offset, False, want_shutdown)


def test_a_controlled_shutdown_that_was_cut_goes_on_with_the_next_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K21, R22: nothing else would take from it what it still leads, and it would wait for ever."""
    quorum = started(1, 2, 3)
    create(quorum, "t", -1, -1, *[(1, 2, 3)] * 60)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    lose_all_but_the_first_batch(quorum, beat(quorum, 1, want_shutdown=True))
    assert quorum.image.brokers[1].in_controlled_shutdown
    assert leaders(quorum) == {2}
    assert all(partition.isr == (2, 3) for partition in quorum.topic("t").partitions.values())
    cause = Cause(CauseKind.CONTROLLED_SHUTDOWN, 1)
    assert {entry.decision.cause for entry in quorum.core.decisions} == {cause}
    assert quorum.core.latest == quorum.image == quorum.replayed()


def test_a_shutdown_that_goes_on_waits_until_the_new_leaders_know_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R22, R26."""
    quorum = started(1, 2)
    create(quorum, "t", -1, -1, *[(1, 2)] * 60)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    before = len(quorum.entries)
    lose_all_but_the_first_batch(quorum, beat(quorum, 1, want_shutdown=True))
    taken_over = next(entry for entry in quorum.entries[before:] if entry.raft_epoch == quorum.raft_epoch)
    quorum.heartbeat(2, metadata_offset=taken_over.offset)
    assert not quorum.heartbeat(1, want_shutdown=True).should_shut_down
    quorum.heartbeat(2)
    assert quorum.heartbeat(1, want_shutdown=True).should_shut_down


def test_what_a_controller_took_over_and_was_cut_again_goes_on_with_the_one_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = started(1, 2)
    create(quorum, "t", -1, -1, *[(1, 2)] * 60)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    quorum.is_held = True
    quorum.start_request(beat(quorum, 1, want_shutdown=True))
    for _ in range(3):
        quorum.commit(quorum.committed_offset + 20)
        quorum.lose()
        assert leaders(quorum) == {1, 2}
        quorum.elect()
        quorum.commit()
    quorum.commit()
    assert leaders(quorum) == {2}


def test_the_elections_of_an_unfencing_that_was_cut_are_made_by_the_next_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """K21, R21: else a partition waits, with its eligible replica there, until another broker is unfenced."""
    quorum = started(1, 2)
    create(quorum, "t", -1, -1, *[(1, 2)] * 60)
    for broker_id in (2, 1):
        quorum.vanish(broker_id)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    lose_all_but_the_first_batch(quorum, beat(quorum, 1))
    assert leaders(quorum) == {1}
    assert list(quorum.core.decisions)[-1].decision.cause == Cause(CauseKind.TAKEOVER)


def test_many_elections_that_were_left_are_made_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are answered in between, and the controller after this one begins anew."""
    quorum = started(1, 2)
    create(quorum, "t", -1, -1, *[(1, 2)] * 60)
    for broker_id in (2, 1):
        quorum.vanish(broker_id)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.SLICE_RECORDS_MAX", 10)
    lose_all_but_the_first_batch(quorum, beat(quorum, 1))
    assert leaders(quorum) == {1, None}
    assert quorum.core.next_deadline_ms() == 0
    assert not quorum.heartbeat(1).is_fenced
    quorum.fail_over()
    assert leaders(quorum) == {1, None}
    assert go_on(quorum) > 1
    assert leaders(quorum) == {1}


def test_a_fence_that_was_cut_is_finished_when_the_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """K21, R26: its own record is the last, so to the next controller it is a broker that lives."""
    quorum = started(1, 2)
    create(quorum, "t", -1, -1, *[(1, 2)] * 60)
    monkeypatch.setattr("holdfast.controller.core.quorum_controller.APPEND_BYTES_MAX", 1000)
    quorum.is_held = True
    end_offset = quorum.end_offset
    quorum.vanish(1)
    quorum.commit(end_offset + 20)
    quorum.lose()
    quorum.is_held = False
    quorum.fail_over()
    assert leaders(quorum) == {1, 2}
    quorum.now_ms += quorum.config.session_timeout_ms - 1
    quorum.heartbeat(2)
    quorum.fire_timer(quorum.now_ms + 1)
    assert quorum.image.brokers[1].is_fenced
    assert leaders(quorum) == {2}


def wait_for_the_last_known_leader(quorum: Quorum) -> None:
    """Broker 1 led last, lost the end of its log, and is back; broker 2 is not."""
    create(quorum, "t", -1, -1, (1, 2))
    for broker_id in (2, 1):
        quorum.vanish(broker_id)
    for broker_id in (1, 2):
        quorum.register(broker_id)
    quorum.heartbeat(1)
    waiting = quorum.partition("t")
    assert (waiting.leader, waiting.electable, waiting.last_known_leader) == (None, (), 1)


@pytest.mark.parametrize("manager", ["true", "false"])
@pytest.mark.parametrize("switched", [None, "true"])
def test_a_controller_whose_file_has_the_manager_off_elects_last_known_leaders_that_are_there(
    manager: str, switched: str | None
) -> None:
    """F40, R69: what the metadata log says counts more than a file."""
    quorum = started(1, 2)
    if switched is not None:
        quorum.request(AlterConfig(CLUSTER_RESOURCE, RECOVERY_MANAGER_KEY, switched))
    wait_for_the_last_known_leader(quorum)
    quorum.config = make_config(unclean_recovery_manager_enabled=manager)
    quorum.fail_over()
    is_elected = manager == "false" and switched is None
    assert quorum.partition("t").leader == (1 if is_elected else None)
    assert quorum.core.counts.elections[ElectionReason.LAST_KNOWN_LEADER] == is_elected


def test_a_controller_that_takes_over_elects_no_replica_in_a_log_dir_that_failed() -> None:
    """R27."""
    quorum = started(1, 2)
    wait_for_the_last_known_leader(quorum)
    topic_id = quorum.topic("t").topic_id
    quorum.heartbeat(1, offline=(OfflineTopic(topic_id, (0,)),))
    quorum.config = make_config(unclean_recovery_manager_enabled="false")
    quorum.fail_over()
    assert quorum.partition("t").leader is None


def test_a_controller_that_takes_over_leaves_unclean_elections_to_the_pass() -> None:
    """F38: its file allows them, those before it did not."""
    quorum = started(1, 2, 3)
    create(quorum, "t", -1, -1, (1, 2))
    for broker_id in (2, 1):
        quorum.vanish(broker_id)
    quorum.register(2)
    quorum.heartbeat(2)
    quorum.config = make_config(
        unclean_recovery_manager_enabled="false", unclean_leader_election_enable="true"
    )
    quorum.fail_over()
    for _ in until_next_pass(quorum, 2, 3):
        assert quorum.partition("t").leader is None
    assert quorum.partition("t").leader == 2


# --- D7 --------------------------------------------------------------------------------------------------


def broken_partition(quorum: Quorum) -> None:
    """Put a registration into the log that no change can repair: its leader is not in its ISR."""
    value = PartitionRegistration((1, 2), (2,), 2, 0, 0, 2, elr=(1,), last_known_elr=(1,))
    topic_id = quorum.random.uuid()
    quorum.inject(TopicRecord("broken", topic_id), value.to_record(topic_id, 0))


def test_a_committed_record_that_does_not_fit_is_told_and_counted_and_stops_no_node() -> None:
    quorum = started(1, 2)
    broken_partition(quorum)
    assert quorum.core.counts.replay_violations >= 1
    assert any(note.level is Level.ERROR for note in quorum.notes)
    assert quorum.core.is_active


def test_a_change_that_breaks_an_invariant_is_not_written_and_the_controller_resigns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = started(1, 2)
    create(quorum, "t", 1, 2)
    partition = quorum.partition("t")
    end_offset = quorum.end_offset
    isr_without_leader = tuple(r for r in partition.replicas if r != partition.leader)
    # a bug, planted: the checks of R41 let everything through
    monkeypatch.setattr(
        "holdfast.controller.core.partitions.replication_control._proposal_error",
        lambda *arguments: ErrorCode.NONE,
    )
    answer = quorum.alter("t", (*isr_without_leader, 77))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert quorum.end_offset == end_offset
    assert len(quorum.resignations) == 1
    assert not quorum.core.is_active
    assert any("invariant broken" in note.text for note in quorum.notes)


# --- timers ----------------------------------------------------------------------------------------------


def test_a_no_op_is_written_only_while_a_broker_has_yet_to_show_the_last_change() -> None:
    """K24: an idle cluster's log does not grow."""
    quorum = started(1)
    create(quorum, "t", 1, 1)
    before = quorum.end_offset
    quorum.fire_timer(quorum.now_ms + 499)
    assert quorum.end_offset == before
    quorum.fire_timer(quorum.now_ms + 1)
    assert records(quorum, before) == [NoOpRecord()]
    quorum.heartbeat(1)
    for _ in range(5):
        quorum.fire_timer(quorum.now_ms + 500)
    assert quorum.end_offset == before + 1


def test_a_broker_that_cannot_follow_gets_no_ops_for_one_session_and_again_once_it_moves() -> None:
    """K29: it sends heartbeats for ever, and applies nothing."""
    quorum = started(2)
    stuck = quorum.end_offset
    create(quorum, "t", 1, 1)

    def no_ops_of_a_minute(reported: int) -> int:
        begin = quorum.end_offset
        for tick in range(120):
            if tick % 4 == 0:
                quorum.heartbeat(1)
                quorum.heartbeat(2, want_fence=True, metadata_offset=reported)
            quorum.fire_timer(quorum.now_ms + 500)
        return sum(record == NoOpRecord() for record in records(quorum, begin))

    assert no_ops_of_a_minute(stuck) in range(1, 19)
    create(quorum, "u", 1, 1)
    assert no_ops_of_a_minute(stuck) == 0
    assert no_ops_of_a_minute(stuck + 1) in range(1, 19)


def test_no_ops_can_be_switched_off() -> None:
    quorum = started(1, metadata_max_idle_interval_ms="0")
    create(quorum, "t", 1, 1)
    before = quorum.end_offset
    quorum.fire_timer(quorum.now_ms + 5000)
    assert quorum.end_offset == before


def until_next_pass(quorum: Quorum, *alive: int) -> Iterator[None]:
    """Let the time go by until the next unclean pass was made; yields before each step."""
    pass_ms = (quorum.now_ms // 300_000 + 1) * 300_000
    while quorum.now_ms < pass_ms:
        yield
        quorum.now_ms = min(quorum.now_ms + 2000, pass_ms)
        for broker_id in alive:
            quorum.heartbeat(broker_id)
        quorum.fire_timer(quorum.now_ms)


def test_one_unclean_pass_makes_a_thousand_elections_and_the_next_one_goes_on() -> None:
    """F38: a batch of the log and the time of others have their bounds."""
    quorum = started(1, 2, unclean_recovery_manager_enabled="false")
    create(quorum, "t", -1, -1, *[(1, 2)] * (UNCLEAN_PASS_MAX + 1))
    for broker_id in (2, 1):
        quorum.vanish(broker_id)
        while quorum.core.next_deadline_ms() == 0:  # the other slices
            quorum.fire_timer(quorum.now_ms)
    assert quorum.unfenced() == []
    assert quorum.register(2).error_code is ErrorCode.OPERATION_NOT_ATTEMPTED
    assert go_on(quorum) > 1  # it leaves the ELR in slices
    assert quorum.register(2).error_code is ErrorCode.NONE
    quorum.heartbeat(2)
    quorum.inject(ConfigRecord(RESOURCE_TOPIC, "t", "unclean.leader.election.enable", "true"))
    led = []
    for _ in range(2):
        list(until_next_pass(quorum, 2))
        led.append(sum(partition.leader == 2 for partition in quorum.topic("t").partitions.values()))
    assert led == [UNCLEAN_PASS_MAX, UNCLEAN_PASS_MAX + 1]


def test_the_unclean_pass_elects_where_the_topic_allows_it() -> None:
    """R16, F38: at every multiple of its interval, with the recovery manager off."""
    quorum = started(1, 2, 3, unclean_recovery_manager_enabled="false")
    for name in ("lossy", "safe"):
        create(quorum, name, -1, -1, (1, 2))
        quorum.alter(name, (1,))
    quorum.vanish(2)
    quorum.vanish(1)
    quorum.register(2)  # unclean: it leaves the ELR, and may lead only uncleanly
    quorum.heartbeat(2)
    quorum.inject(ConfigRecord(RESOURCE_TOPIC, "lossy", "unclean.leader.election.enable", "true"))
    for _ in until_next_pass(quorum, 2, 3):
        assert quorum.partition("lossy").leader is None
    assert quorum.partition("lossy").leader == 2
    assert quorum.partition("safe").leader is None
    assert quorum.core.counts.elections[ElectionReason.UNCLEAN_RANDOM] == 1


# --- replay ----------------------------------------------------------------------------------------------

BROKERS = (1, 2, 3, 4)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["vanish", "return", "unclean", "clean", "stop", "alter", "create", "delete", "failover"]
        ),
        st.sampled_from(BROKERS),
        st.sets(st.sampled_from(BROKERS)),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(MOVES, st.sampled_from(["true", "false"]), st.sampled_from(["true", "false"]))
def test_the_log_alone_leads_to_the_state_of_the_active_controller(
    moves: list[tuple[str, int, set[int]]], elr: str, unclean: str
) -> None:
    """Random lives of a cluster: image from the log == committed == latest, and nothing breaks."""
    quorum = started(*BROKERS, eligible_leader_replicas_enabled=elr, unclean_leader_election_enable=unclean)
    create(quorum, "t", 3, 3)
    for kind, broker, others in moves:
        registered = quorum.image.brokers[broker]
        if kind == "vanish":
            quorum.vanish(broker)
        elif kind == "return":
            quorum.heartbeat(broker)
        elif kind == "stop":
            quorum.heartbeat(broker, want_shutdown=True)
        elif kind in ("unclean", "clean"):
            quorum.register(broker, registered.broker_epoch if kind == "clean" else -1)
        elif kind == "create":
            create(quorum, f"n{broker}", 2, 2)
        elif kind == "delete":
            quorum.request(DeleteTopicsRequest(0, (f"n{broker}",)))
        elif kind == "failover":
            quorum.fail_over()
        elif quorum.partition("t", broker % 3).leader is not None:
            leader = quorum.partition("t", broker % 3).leader
            quorum.alter("t", tuple(sorted(others | {leader or 0})), broker % 3)
        assert quorum.resignations == []
        assert quorum.image == quorum.core.latest == quorum.replayed()
    image = quorum.image
    for topic_image in image.sorted_topics():
        for _, partition in topic_image.sorted_partitions():
            assert partition.leader is None or image.is_active(partition.leader)
            if elr == "true":
                assert all(image.is_active(replica) for replica in partition.isr), "I-5"


def test_records_carry_the_epochs_that_they_are_replayed_with() -> None:
    quorum = started(1)
    assert any(isinstance(record, UnfenceBrokerRecord) for record in records(quorum))
    assert quorum.image.raft_epoch == 1
    entry: Any = LogEntry(quorum.end_offset, 5, encode_record(NoOpRecord()))
    quorum.lose(NODE_ID + 1)
    quorum.handle(EntriesCommitted([entry], entry.offset + 1))
    assert quorum.image.raft_epoch == 5
    assert PartitionChangeRecord not in {type(record) for record in records(quorum)}
