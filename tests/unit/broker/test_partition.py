"""One partition: what the scenario files do not say more clearly (R50-R56, R80-R88)."""

from dataclasses import replace

import pytest

from holdfast.broker.core.replicas.ceiling import Ceiling, Urgency
from holdfast.broker.core.replicas.leadership import AlterVerdict
from holdfast.broker.core.replicas.partition import Partition, Role, RoleChange
from holdfast.metadata.records import RECOVERING
from holdfast.protocol.errors import ErrorCode
from holdfast.scenario.partition import KEY, LAG_MS_MAX, LonePartition, MemoryLog, registration


def leader(**changes: object) -> LonePartition:
    """Broker 1 leads epoch 0 with the ISR (1,2,3), nothing appended."""
    scenario = LonePartition()
    scenario.register(replace(registration(), **changes))  # type: ignore[arg-type]
    return scenario


def test_a_leader_serves_only_after_its_log_took_the_epoch() -> None:
    """R54: the epoch's start offset must be known before anything is appended or compared."""
    scenario = LonePartition()
    scenario.register(registration(), start=False)
    assert scenario.partition.check_produce(1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scenario.fetch(2, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    scenario.start()
    assert scenario.partition.check_produce(1) is ErrorCode.NONE


def test_an_epoch_that_is_over_is_not_started() -> None:
    scenario = LonePartition()
    scenario.register(registration(), start=False)
    scenario.register(registration(leader=2, leader_epoch=1, partition_epoch=1))
    assert not scenario.partition.epoch_started(0, 0)
    assert scenario.partition.role is Role.FOLLOWER


def test_an_earlier_epoch_of_the_same_leader_is_not_started_either() -> None:
    """R54: the log took epoch 0 while epoch 1 was already known here."""
    scenario = LonePartition()
    scenario.register(registration(), start=False)
    scenario.register(registration(leader_epoch=1, partition_epoch=1), start=False)
    assert not scenario.partition.epoch_started(0, 0)
    assert not scenario.partition.is_serving


def test_a_leader_that_is_elected_again_knows_no_positions_of_its_last_epoch() -> None:
    """R54, A-5: what a follower has had may have been cut since."""
    scenario = leader()
    scenario.append(5)
    scenario.fetch(2, 5)
    scenario.register(registration(leader_epoch=1, partition_epoch=1))
    leadership = scenario.partition.leadership
    assert leadership is not None
    assert [one.position for one in leadership.progress.values()] == [-1, -1]


@pytest.mark.parametrize(("isr", "elr", "offset"), [((2,), (1,), 10), ((1, 2), (), 10), ((2,), (), None)])
def test_a_member_of_the_isr_or_of_the_elr_keeps_the_start_of_its_log(
    isr: tuple[int, ...], elr: tuple[int, ...], offset: int | None
) -> None:
    """I-8: it has had what is committed."""
    scenario = LonePartition(log=MemoryLog(20, 3, 10))
    scenario.register(registration(leader=2, leader_epoch=4, isr=isr, elr=elr))
    assert scenario.partition.truncation_offset(2, 15) == offset


def test_a_stored_high_watermark_stays_within_the_log() -> None:
    assert LonePartition(log=MemoryLog(10, 0), high_watermark=25).partition.high_watermark == 10
    assert LonePartition(log=MemoryLog(10, 0, 5), high_watermark=2).partition.high_watermark == 5


def test_what_is_known_of_the_high_watermark_outlives_the_records_below_it() -> None:
    """R68: a replica that has lost its tail, or lags, still tells how much was committed."""
    partition = LonePartition(log=MemoryLog(10, 0), high_watermark=25).partition
    assert (partition.high_watermark, partition.claimed_high_watermark) == (10, 25)
    scenario = LonePartition(log=MemoryLog(10, 0))
    scenario.register(registration(leader=2, leader_epoch=4))
    scenario.partition.leader_answered(40, -1)
    assert (scenario.partition.high_watermark, scenario.partition.claimed_high_watermark) == (10, 40)
    # the leader of a later epoch does not know it yet, then it is lower
    scenario.partition.leader_answered(-1, -1)
    assert (scenario.partition.high_watermark, scenario.partition.claimed_high_watermark) == (10, 40)
    scenario.partition.leader_answered(30, -1)
    assert scenario.partition.claimed_high_watermark == 30


def test_a_replica_that_is_still_copied_knows_where_the_leaders_records_end_once_it_has_heard() -> None:
    """Its own log ends earlier, and without a checkpoint its high watermark is 0."""
    scenario = LonePartition(log=MemoryLog(10, 0))
    assert scenario.partition.known_end is None
    scenario.register(registration(leader=2, leader_epoch=4))
    assert scenario.partition.known_end is None
    scenario.partition.leader_answered(40, 50)
    assert scenario.partition.known_end == 40
    scenario.register(registration(leader=3, leader_epoch=5, partition_epoch=1))
    assert scenario.partition.known_end is None


def test_a_leader_knows_where_its_records_end() -> None:
    scenario = LonePartition(log=MemoryLog(10, 0), high_watermark=10)
    scenario.register(registration())
    assert scenario.partition.known_end == 10


def test_an_unclean_election_ends_what_was_known_of_the_high_watermark() -> None:
    """R68, R10: that loss was told with the election; the next one must not count it again."""
    scenario = LonePartition(log=MemoryLog(10, 0), high_watermark=25)
    scenario.register(registration(leader=None, isr=(), leader_epoch=4, partition_epoch=1))
    assert scenario.partition.claimed_high_watermark == 25
    uncleanly = replace(
        registration(leader=2, isr=(2,), leader_epoch=5, partition_epoch=2), leader_recovery_state=RECOVERING
    )
    scenario.register(uncleanly)
    assert scenario.partition.claimed_high_watermark == 10


def test_what_was_stored_of_the_high_watermark_may_be_of_a_history_that_is_lost() -> None:
    """R68, R10; found by a reader: the leader elected uncleanly crashed before it stored another one, and
    no replica leads by now. The loss was told twice."""
    recovering = replace(
        registration(leader=None, isr=(), leader_epoch=5, partition_epoch=3), leader_recovery_state=RECOVERING
    )
    scenario = LonePartition(log=MemoryLog(10, 0), high_watermark=25)
    scenario.register(recovering)
    assert scenario.partition.claimed_high_watermark == 10
    # who was there has heard of the present history
    scenario = LonePartition(log=MemoryLog(10, 0))
    scenario.register(replace(recovering, leader=2, isr=(2,), leader_epoch=4, partition_epoch=2))
    scenario.partition.leader_answered(40, -1)
    scenario.register(recovering)
    assert scenario.partition.claimed_high_watermark == 40


def test_an_equal_partition_epoch_is_news_of_nothing() -> None:
    """R44: the answer and the metadata record are one commit."""
    scenario = leader()
    again = replace(registration(), elr=())
    assert scenario.partition.apply_registration(again, scenario.now_ms) is RoleChange.IGNORED


def test_a_newer_registration_of_an_older_leader_epoch_is_a_bug() -> None:
    scenario = leader()
    scenario.register(registration(leader_epoch=3, partition_epoch=3))
    with pytest.raises(AssertionError):
        scenario.register(registration(leader_epoch=2, partition_epoch=4))


def test_late_answer_of_a_former_leader_epoch_changes_nothing() -> None:
    """R44: success is ignored if the leader epoch differs."""
    scenario = leader(isr=(1, 2))
    scenario.fetch(3, 0)
    proposal = scenario.proposal
    assert proposal is not None
    scenario.register(registration(isr=(1, 2), leader_epoch=1, partition_epoch=1))
    verdict = scenario.answer((1, 2, 3), partition_epoch=1, leader_epoch=0)
    assert verdict is AlterVerdict.CLOSED
    assert scenario.partition.registration == registration(isr=(1, 2), leader_epoch=1, partition_epoch=1)


def test_an_answer_with_another_leader_epoch_waits_for_metadata() -> None:
    scenario = leader(isr=(1, 2))
    scenario.fetch(3, 0)
    assert scenario.answer((1, 2, 3), partition_epoch=2, leader_epoch=1) is AlterVerdict.WAIT
    registered = scenario.partition.registration
    assert registered is not None
    assert registered.partition_epoch == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_proposal_stays_pending_where_metadata_will_tell(code: ErrorCode) -> None:
    """R44. While it is open, maximal ISR keeps the replica (F3)."""
    scenario = leader(isr=(1, 2))
    scenario.fetch(3, 0)
    assert scenario.answer(error=code) is AlterVerdict.WAIT
    leadership = scenario.partition.leadership
    assert leadership is not None
    assert leadership.proposal is not None
    assert leadership.maximal_isr == (1, 2, 3)


def test_one_proposal_at_a_time() -> None:
    """R45."""
    scenario = LonePartition()
    scenario.register(registration(isr=(1,), min_isr=1))
    scenario.fetch(2, 0)
    first, scenario.proposal = scenario.proposal, None
    scenario.fetch(3, 0)
    assert first is not None
    assert first.isr == (1, 2)
    assert scenario.proposal is None
    scenario.proposal = first
    scenario.answer((1, 2), partition_epoch=1, min_isr=1)
    second = scenario.partition.retry_expand(scenario.now_ms)
    assert second is not None
    assert second.isr == (1, 2, 3)
    assert second.partition_epoch == 1


def test_record_of_the_state_that_an_answer_told_leaves_the_next_proposal_open() -> None:
    """F3, I-7: the controller may have granted it, so the high watermark must wait for its replica."""
    scenario = LonePartition()
    scenario.register(registration(isr=(1,), min_isr=1))
    scenario.fetch(2, 0)
    scenario.answer((1, 2), partition_epoch=1, min_isr=1)
    scenario.fetch(3, 0)
    told_again = registration(isr=(1, 2), min_isr=1, partition_epoch=1)
    assert scenario.partition.apply_registration(told_again, scenario.now_ms) is RoleChange.IGNORED
    leadership = scenario.partition.leadership
    assert leadership is not None
    assert leadership.maximal_isr == (1, 2, 3)
    assert leadership.proposal is scenario.proposal


def test_replica_joins_only_with_all_that_was_there_when_the_epoch_began() -> None:
    """A-5, R50: what an earlier leader has shown may lie between the high watermark known here and that."""
    scenario = LonePartition(log=MemoryLog(10, 0))
    scenario.register(registration(isr=(1, 3), leader_epoch=1))
    scenario.brokers.acceptable.pop(2)
    scenario.fetch(2, 10)
    scenario.fetch(2, 9)
    scenario.append(1)
    scenario.brokers.acceptable[2] = 20
    assert scenario.partition.retry_expand(scenario.now_ms) is None, "it had all, and has lost some of it"
    scenario.fetch(2, 10)
    assert scenario.proposal is not None


def test_replica_joins_only_with_all_that_is_committed() -> None:
    """R50: it was caught up lately, but what it lacks is committed by now."""
    scenario = LonePartition()
    scenario.register(registration(isr=(1, 3)))
    scenario.brokers.acceptable.pop(2)
    scenario.append(10)
    scenario.fetch(2, 10)
    scenario.append(1)
    scenario.fetch(3, 11)
    assert scenario.partition.high_watermark == 11
    scenario.brokers.acceptable[2] = 20
    assert scenario.partition.retry_expand(scenario.now_ms) is None
    scenario.fetch(2, 11)
    assert scenario.proposal is not None


def test_replica_that_was_caught_up_lately_joins_while_records_keep_coming() -> None:
    """R50: under load no follower outside the ISR ever has the last record."""
    scenario = LonePartition()
    scenario.register(registration(isr=(1,)))
    scenario.append(10)
    scenario.fetch(2, 0)
    scenario.append(10)
    scenario.fetch(2, 10)
    assert scenario.proposal is not None


def test_lag_time_that_an_epoch_begins_with_is_not_for_joining() -> None:
    """KAFKA-19996: below min ISR the high watermark stands still, so all have reached it. A member that fell
    out before it was ever caught up has to be it first."""
    scenario = leader(min_isr=3)
    scenario.append(100)
    scenario.fetch(2, 50)
    scenario.register(registration(isr=(1, 3), min_isr=3, partition_epoch=1))
    scenario.fetch(2, 60)
    assert scenario.proposal is None
    scenario.fetch(2, 100)
    assert scenario.proposal is not None


def test_member_has_the_lag_time_from_the_beginning_of_the_epoch() -> None:
    """R51, R54: a new leader knows nothing of it yet."""
    scenario = leader()
    scenario.append(5)
    scenario.tick(LAG_MS_MAX)
    assert scenario.proposal is None
    scenario.tick(1)
    assert scenario.proposal is not None
    assert scenario.proposal.isr == (1,)


def test_batch_of_a_former_epoch_is_not_acknowledged() -> None:
    """A-18: it may have been cut in between, and its answer may have waited for another partition."""
    scenario = leader()
    assert scenario.partition.check_waiting(0) is ErrorCode.NONE
    scenario.register(registration(leader=2, leader_epoch=1, partition_epoch=1))
    scenario.register(registration(leader_epoch=2, partition_epoch=2))
    assert scenario.partition.check_waiting(2) is ErrorCode.NONE
    assert scenario.partition.check_waiting(0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_proposal_names_the_broker_epochs_that_fetched() -> None:
    """R41: the controller compares them; -1 for the leader itself."""
    scenario = leader(isr=(1, 2))
    scenario.fetch(2, 0)
    scenario.fetch(3, 0)
    assert scenario.proposal is not None
    assert scenario.proposal.broker_epochs == (-1, 20, 30)


def test_caught_up_replica_outside_the_isr_holds_the_high_watermark_before_it_is_proposed() -> None:
    """F3, R52: also while another proposal stands in its way."""
    scenario = LonePartition()
    scenario.register(registration(isr=(1,), min_isr=1))
    scenario.fetch(2, 0)
    scenario.fetch(3, 0)
    scenario.append(5)
    scenario.fetch(2, 5)
    leadership = scenario.partition.leadership
    assert leadership is not None
    assert leadership.maximal_isr == (1, 2)
    assert scenario.partition.high_watermark == 0
    scenario.now_ms += LAG_MS_MAX + 1
    scenario.fetch(2, 5)
    assert scenario.partition.high_watermark == 5


def test_a_fenced_replica_outside_the_isr_does_not_hold_the_high_watermark() -> None:
    scenario = LonePartition()
    scenario.register(registration(isr=(1, 2)))
    scenario.brokers.acceptable.pop(3)
    scenario.fetch(2, 0)
    scenario.fetch(3, 0)
    scenario.append(5)
    scenario.fetch(2, 5)
    assert scenario.partition.high_watermark == 5


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_replica_that_was_asked_for_holds_the_high_watermark_even_when_it_is_fenced(code: ErrorCode) -> None:
    """F3, R44: the controller may have let it in; only its answer or metadata can say that it did not."""
    scenario = leader(isr=(1, 2))
    scenario.fetch(2, 0)
    scenario.fetch(3, 0)
    assert scenario.proposal is not None
    scenario.brokers.acceptable.pop(3)
    scenario.append(5)
    scenario.fetch(2, 5)
    assert scenario.partition.high_watermark == 0
    scenario.answer(error=code)
    assert scenario.partition.high_watermark == 5


def test_removed_member_that_never_fetched_does_not_hold_the_high_watermark() -> None:
    """A-5: it cannot join before it has proven something in this epoch."""
    scenario = leader()
    scenario.append(5)
    scenario.fetch(2, 5)
    scenario.register(registration(isr=(1, 2), partition_epoch=1))
    scenario.advance()
    assert scenario.partition.high_watermark == 5


def test_high_watermark_of_a_leader_never_moves_back() -> None:
    """R52, A-2."""
    scenario = leader()
    scenario.append(5)
    scenario.fetch(2, 5)
    scenario.fetch(3, 5)
    assert not scenario.partition.advance_high_watermark(scenario.now_ms), "it did not move"
    scenario.fetch(3, 2)
    assert scenario.partition.high_watermark == 5


def test_unassigned_replica_is_told_that_metadata_differs() -> None:
    """R55."""
    assert leader().fetch(7, 0, broker_epoch=70) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_offsets_outside_the_log_are_out_of_range() -> None:
    """R80: below the start; or above the end without an epoch to compare."""
    scenario = LonePartition(log=MemoryLog(20, 0, 10))
    scenario.register(registration())
    assert scenario.fetch(2, 9, last_epoch=0) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert scenario.fetch(2, 21, last_epoch=-1) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_epoch_older_than_all_known_ones_cannot_be_compared() -> None:
    """R80: undeterminable."""
    scenario = LonePartition(log=MemoryLog(20, 5, 10))
    scenario.register(registration(leader_epoch=6))
    assert scenario.fetch(2, 12, last_epoch=3) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_follower_without_batches_is_compared_by_offset_only() -> None:
    """An empty log has no epoch and nothing that could differ."""
    scenario = leader()
    scenario.append(5)
    assert scenario.fetch(2, 0, last_epoch=-1) is ErrorCode.NONE


def test_reassigned_replicas_are_followed_at_once() -> None:
    scenario = LonePartition()
    scenario.register(registration(isr=(1, 2), replicas=(1, 2)))
    assert scenario.fetch(3, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    scenario.register(registration(isr=(1, 2), replicas=(1, 2, 3), partition_epoch=1))
    assert scenario.fetch(3, 0) is ErrorCode.NONE


def test_dropping_the_role_forgets_what_metadata_said() -> None:
    """N-2: after our registration is over, the next image decides, with any epochs."""
    scenario = leader()
    scenario.partition.drop_role()
    assert scenario.partition.check_leader(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert scenario.partition.apply_registration(registration(), scenario.now_ms) is RoleChange.BECAME_LEADER


def test_a_shrink_waits_while_a_proposal_is_open() -> None:
    """R45."""
    scenario = leader(isr=(1, 2))
    scenario.append(5)
    scenario.fetch(3, 5)
    assert scenario.proposal is not None
    scenario.proposal = None
    scenario.tick(LAG_MS_MAX + 1)
    assert scenario.proposal is None


def test_high_watermark_waits_for_its_ceiling() -> None:
    """R68: what is committed must be known to the disk as an upper bound."""
    scenario = LonePartition()
    scenario.register(registration(), start=False)
    partition = scenario.partition
    assert partition.epoch_started(0, 0)
    scenario.log.append(5, 0)
    for replica_id in (2, 3):
        partition.follower_fetched(replica_id, 10 * replica_id, 5, 5, scenario.now_ms)
    assert not partition.advance_high_watermark(scenario.now_ms)
    offset = partition.promise_ceiling(scenario.now_ms)
    assert not partition.advance_high_watermark(scenario.now_ms), "it is on its way to the disk"
    partition.ceiling.stored(offset)
    assert partition.advance_high_watermark(scenario.now_ms)
    assert partition.high_watermark == 5


def follower(log: MemoryLog, stored: int, isr: tuple[int, ...]) -> Partition:
    """Of leader 2, in epoch 4, with a ceiling of a former process."""
    partition = Partition(
        1,
        KEY,
        "t",
        log,
        high_watermark=0,
        brokers=LonePartition().brokers,
        lag_ms_max=1000,
        ceiling=Ceiling(10, stored),
        counts_flushed=False,
    )
    partition.apply_registration(registration(leader=2, leader_epoch=4, isr=isr), 0)
    return partition


def test_a_follower_in_sync_promises_what_it_has() -> None:
    """R68: all that was committed is in its log."""
    partition = follower(MemoryLog(100, 3), 5000, (1, 2, 3))
    assert partition.ceiling_urgency() is Urgency.NOT_NOW
    assert partition.is_ceiling_too_high(0)
    assert partition.promise_ceiling(0) == 110
    partition = follower(MemoryLog(100, 3), -1, (1, 2, 3))
    assert partition.is_above_ceiling
    assert partition.ceiling_urgency() is Urgency.NOW


def test_a_follower_out_of_sync_keeps_what_it_promised() -> None:
    """R68: it has lost its tail, and its promise may be all that is known of it."""
    partition = follower(MemoryLog(100, 3), 5000, (2, 3))
    assert not partition.is_ceiling_too_high(0)
    assert not partition.is_above_ceiling
    partition.leader_answered(6000, 7000)
    assert partition.promise_ceiling(0) == 7010


def test_a_follower_out_of_sync_that_has_promised_nothing_waits_for_its_leader_to_tell() -> None:
    """R68: its disk was replaced; that nothing is there does not mean that nothing was committed."""
    partition = follower(MemoryLog(0, 0), -1, (2, 3))
    assert partition.ceiling_urgency() is Urgency.NOT_NOW
    assert not partition.is_above_ceiling
    partition.leader_answered(6000, 7000)
    assert partition.ceiling_urgency() is Urgency.NOW
    assert partition.is_above_ceiling
    assert partition.promise_ceiling(0) == 7010


def test_a_follower_believes_no_high_watermark_above_what_it_has_promised() -> None:
    """R68: elected uncleanly it would begin with that one."""
    partition = follower(MemoryLog(100, 3), 40, (2, 3))
    partition.leader_answered(90, 100)
    assert partition.high_watermark == 40
    assert partition.claimed_high_watermark == 90
    partition.ceiling_stored(partition.promise_ceiling(0))
    assert partition.high_watermark == 90
    # what it knew before another leader told it less is not believed again
    partition.leader_answered(30, 100)
    partition.ceiling_stored(partition.promise_ceiling(9000))
    assert partition.high_watermark == 30
    partition = follower(MemoryLog(100, 3), -1, (2, 3))
    partition.leader_answered(90, 100)
    assert partition.high_watermark == 90


def test_what_one_leader_told_of_its_log_says_nothing_of_the_next_ones() -> None:
    partition = follower(MemoryLog(0, 0), -1, (2, 3))
    partition.leader_answered(6000, 7000)
    partition.apply_registration(registration(leader=3, leader_epoch=5, partition_epoch=1, isr=(2, 3)), 0)
    assert partition.ceiling_urgency() is Urgency.NOT_NOW
