"""Partitions of a broker: roles from metadata (N-2), logs that come and go, settings."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.core.events import (
    ConfigureLog,
    ControllerChanged,
    DeleteLog,
    FetchFailed,
    Flush,
    ForgetTopic,
    LogsLoaded,
    LogsOffline,
    Started,
    Stop,
)
from holdfast.broker.core.replicas.ceilings import CEILINGS_WAIT_MS
from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import CLUSTER_RESOURCE, RESOURCE_TOPIC
from holdfast.metadata.records import (
    ConfigRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest
from holdfast.rpc.core.failures import CallFailure
from holdfast.scenario.partition import MemoryLog
from tests.unit.broker.core_harness import (
    KEY,
    TOPIC,
    CoreHarness,
    batch,
    change,
    partition,
    register,
)

#: of the topic of the same name that comes after it
OTHER_TOPIC = b"n" * 16
OTHER_KEY = PartitionId(OTHER_TOPIC, 0)
REGISTERED = BrokerRegistrationResponse(ErrorCode.NONE, None, 4, True)


def registered(isr: tuple[int, ...], partition_epoch: int) -> AlterPartitionResponse:
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.NONE, 1, 0, isr, 0, partition_epoch, 2)
    return AlterPartitionResponse(ErrorCode.NONE, None, (row,))


def sent(harness: CoreHarness, kind: type) -> list[object]:
    return [call.request for call in harness.calls if type(call.request) is kind]


# --- roles -------------------------------------------------------------------------------------------------


def test_no_role_before_the_own_registration_record_was_replayed() -> None:
    """N-2: what older metadata says about us is about an incarnation that may have held more."""
    harness = CoreHarness()
    harness.post(Started(), LogsLoaded({}, {}, {}), ControllerChanged(101, 1))
    harness.answer_call(REGISTERED)
    harness.metadata(register(2, 0), register(3, 1), TopicRecord("t", TOPIC), partition(1))
    assert harness.core.partitions == {}
    assert not harness.core.has_roles
    assert all(call.request.want_fence for call in harness.calls)
    harness.calls.clear()
    harness.metadata(register(1, 4))
    assert harness.partition.role is Role.LEADER
    assert harness.core.has_roles


def test_the_role_is_the_one_of_the_image_at_the_registration() -> None:
    """N-2: led before, removed by the registration."""
    harness = CoreHarness()
    harness.post(Started(), LogsLoaded({}, {}, {}), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 6, False))
    former = register(1, 2)
    harness.metadata(register(2, 0), register(3, 1), former, TopicRecord("t", TOPIC), partition(1))
    assert harness.core.partitions == {}
    harness.metadata(change(leader=2, isr=(2, 3)), register(1, 6))
    assert harness.partition.role is Role.FOLLOWER
    assert harness.partition.leader_epoch == 1


def test_no_role_before_the_logs_are_loaded() -> None:
    harness = CoreHarness()
    harness.post(Started(), ControllerChanged(101, 1))
    harness.answer_call(REGISTERED)
    harness.metadata(register(2, 0), register(3, 1), TopicRecord("t", TOPIC), partition(1), register(1, 4))
    assert not harness.core.has_roles
    harness.logs[KEY] = MemoryLog(7, 0)
    harness.post(LogsLoaded(harness.logs, {KEY: 5}, {}))
    assert harness.core.has_roles
    assert harness.partition.high_watermark == 5


def test_lost_registration_drops_all_roles_until_the_next_one() -> None:
    """R24, N-2."""
    harness = CoreHarness().join(partition(1))
    waiting = harness.produce(batch(), timeout_ms=10_000)
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    assert not harness.core.has_roles
    assert harness.core.fetchers.broker_epoch == -1, "no fetches without a registration"
    assert harness.row(waiting)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert harness.row(harness.produce(batch(), acks=1))[0] == "NOT_LEADER_OR_FOLLOWER"
    harness.tick(1000)
    (request,) = sent(harness, BrokerRegistrationRequest)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == -1
    epoch = harness.core.image.offset
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    assert not harness.core.has_roles
    harness.metadata(register(1, epoch))
    assert harness.core.has_roles


def test_topic_that_is_deleted_while_the_registration_is_lost_leaves_nothing_behind() -> None:
    harness = CoreHarness().join(partition(1))
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    harness.tick(1000)
    harness.metadata(RemoveTopicRecord(TOPIC))
    epoch = harness.core.image.offset
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    harness.metadata(register(1, epoch))
    assert harness.core.partitions == {}
    assert DeleteLog(KEY) in harness.others
    assert harness.row(harness.produce(batch()))[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_new_leader_forgets_followers_and_old_fetches() -> None:
    """R54, R55."""
    harness = CoreHarness().join(partition(1))
    harness.fetch(2, 0)
    harness.metadata(change(leader=1))
    assert harness.fetch_rows(harness.fetch(2, 0, session=2, epoch=0))[0][0] == "FENCED_LEADER_EPOCH"


def test_unknown_partition_of_this_broker_gets_a_log() -> None:
    harness = CoreHarness().join(partition(1))
    harness.metadata(partition(2, index=4))
    assert PartitionId(TOPIC, 4) in harness.logs


def test_deleted_topic_takes_its_log_along() -> None:
    harness = CoreHarness().join(partition(1))
    waiting = harness.produce(batch())
    harness.metadata(RemoveTopicRecord(TOPIC))
    assert DeleteLog(KEY) in harness.others
    assert harness.row(waiting)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert harness.row(harness.produce(batch()))[0] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_what_was_counted_of_a_topic_goes_when_the_topic_goes() -> None:
    """Names that come and go leave nothing behind."""
    harness = CoreHarness().join(partition(1))
    harness.produce(batch())
    counts = harness.core.counts
    assert list(counts.messages_in) == list(counts.bytes_in) == ["t"]
    harness.metadata(RemoveTopicRecord(TOPIC))
    assert (counts.messages_in, counts.bytes_in) == ({}, {})
    assert ForgetTopic("t") in harness.others


def test_log_of_a_topic_that_was_deleted_meanwhile_goes_when_the_broker_is_back() -> None:
    harness = CoreHarness()
    stray = PartitionId(b"old" + bytes(13), 0)
    harness.logs[stray] = MemoryLog(10, 0)
    was_here = replace(partition(1), topic_id=stray.topic_id)
    old = (TopicRecord("old", stray.topic_id), was_here, RemoveTopicRecord(stray.topic_id))
    harness.join(partition(1), *old)
    assert DeleteLog(stray) in harness.others


def test_a_log_of_a_topic_that_metadata_never_had_stays_and_the_broker_ends() -> None:
    """The controllers' metadata was lost, or is an older copy."""
    harness = CoreHarness()
    stray = PartitionId(b"old" + bytes(13), 0)
    harness.logs[stray] = MemoryLog(10, 0)
    harness.join(partition(1))
    (stop,) = harness.others
    assert isinstance(stop, Stop)
    assert stop.is_failure
    assert stray in harness.logs
    assert not harness.core.has_roles
    assert not harness.core.lifecycle.is_registered


def test_topic_settings_reach_the_log_and_the_rules() -> None:
    """D6: from the next moment on flushed offsets count."""
    harness = CoreHarness().join(partition(1))
    harness.metadata(harness.topic_config("flush.messages", "1"))
    assert harness.flushes == [Flush(KEY)]
    configured = harness.others[-1]
    assert isinstance(configured, ConfigureLog)
    assert configured.config.flush_messages == 1
    assert harness.partition.counts_flushed


class CountedWalks(dict[PartitionId, Partition]):
    """Counts how often all partitions are walked."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_settings_of_many_topics_are_given_in_their_order_in_one_walk() -> None:
    """A thousand topics configured in one batch would be a thousand walks over all partitions."""
    others = {name: name.encode() * 16 for name in "czab"}
    records = [(TopicRecord(name, id), replace(partition(2), topic_id=id)) for name, id in others.items()]
    harness = CoreHarness().join(partition(1), *(record for pair in records for record in pair))
    replica_manager = harness.core._replica_manager
    counted = replica_manager.partitions = CountedWalks(replica_manager.partitions)
    assert len(counted) == 5
    harness.others.clear()
    harness.metadata(*(ConfigRecord(RESOURCE_TOPIC, name, "retention.ms", "5") for name in "zbta"))
    configured = [effect.key.topic_id for effect in harness.others if isinstance(effect, ConfigureLog)]
    assert configured == [others["a"], others["b"], TOPIC, others["z"]]
    assert counted.walks == 1
    harness.others.clear()
    harness.metadata(ConfigRecord(*CLUSTER_RESOURCE, "log.retention.ms", "7"))
    configured = [effect.key.topic_id for effect in harness.others if isinstance(effect, ConfigureLog)]
    assert configured == [key.topic_id for key in counted]


def test_leader_flushes_before_an_append_counts() -> None:
    """D6, A-21."""
    harness = CoreHarness().join(partition(1, (1,), min_isr=1))
    harness.metadata(harness.topic_config("flush.messages", "1"))
    name = harness.produce(batch(2))
    assert name not in harness.answers
    assert harness.partition.high_watermark == 0
    harness.finish_flushes()
    assert harness.row(name) == ("NONE", 0)


# --- replicas come and go (R100-R105) ----------------------------------------------------------------------


def test_removed_replica_stops_fetching_and_deletes_its_log() -> None:
    """R102."""
    harness = CoreHarness().join(partition(2))
    harness.logs[KEY].append(5, 0)
    assert harness.core.fetchers.partition_count == 1
    harness.metadata(change(replicas=(2, 3), isr=(2, 3), leader=2))
    assert DeleteLog(KEY) in harness.others
    assert harness.core.partitions == {}
    assert harness.core.fetchers.partition_count == 0


def test_leader_that_is_removed_drops_its_role_and_deletes_its_log() -> None:
    """R102: a client that waits hears of it at once, and what the leader asked the controller for is void."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    produced = harness.produce(batch(), timeout_ms=10_000)
    fetched = harness.fetch(3, 1)
    harness.metadata(change(replicas=(2, 3), isr=(2, 3), leader=2))
    assert DeleteLog(KEY) in harness.others
    assert harness.row(produced)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert harness.fetch_rows(fetched)[0][0] == "UNKNOWN_TOPIC_OR_PARTITION"
    row = AlterPartitionPartitionResponse(TOPIC, 0, ErrorCode.NEW_LEADER_ELECTED, -1, -1, (), 0, -1, -1)
    harness.answer_call(AlterPartitionResponse(ErrorCode.NONE, None, (row,)))
    assert harness.core.partitions == {}


@pytest.mark.parametrize(
    "records",
    [
        pytest.param((change(index=1, replicas=(2, 3), isr=(2, 3), leader=2),), id="removed"),
        pytest.param((change(index=1, leader=2, isr=(2, 3)),), id="follows"),
        pytest.param((FenceBrokerRecord(3, 1), change(index=1, isr=(1,))), id="another ISR"),
    ],
)
def test_proposal_that_waits_is_not_sent_when_its_time_is_over(records: tuple[MetadataRecord, ...]) -> None:
    """R44, R45: one request is under way, and what waits behind it has become void."""
    harness = CoreHarness().join(partition(1, (1, 2)), partition(1, (1, 2), index=1))
    harness.fetch(3, 0)
    row = FetchPartition(TOPIC, 1, 0, 0, -1, 0, 1 << 20)
    harness.request(FetchRequest(None, 3, 1, 500, 1, 10 << 20, (row,), 1, 1))
    harness.metadata(*records)
    harness.answer_call(AlterPartitionResponse(ErrorCode.NONE, None, ()))
    assert sent(harness, AlterPartitionRequest) == []


def test_next_replica_is_proposed_as_soon_as_one_is_in() -> None:
    """R45: an idle follower lists nothing new."""
    harness = CoreHarness().join(partition(1, (1,)))
    harness.fetch(2, 0)
    harness.fetch(3, 0)
    harness.answer_call(registered((1, 2), 1))
    (request,) = sent(harness, AlterPartitionRequest)
    assert isinstance(request, AlterPartitionRequest)
    assert [member.broker_id for member in request.partitions[0].new_isr] == [1, 2, 3]


def test_replica_that_is_removed_and_added_again_starts_with_an_empty_log() -> None:
    """Of the same topic id; the high watermark of its former life counts for nothing."""
    harness = CoreHarness().join(partition(2))
    harness.logs[KEY].append(5, 0)
    harness.metadata(change(replicas=(2, 3), isr=(2, 3), leader=2))
    harness.metadata(change(replicas=(2, 3, 1), adding=(1,), original=(2, 3)))
    assert harness.logs[KEY].log_end_offset == 0
    assert harness.partition.role is Role.FOLLOWER
    assert harness.partition.high_watermark == 0
    assert harness.core.fetchers.partition_count == 1


def test_log_of_a_partition_that_was_moved_away_meanwhile_goes_when_the_broker_is_back() -> None:
    """R102: the broker was down while the reassignment completed without it."""
    harness = CoreHarness()
    harness.logs[KEY] = MemoryLog(10, 0)
    kept = PartitionId(TOPIC, 1)
    harness.logs[kept] = MemoryLog(10, 0)
    moved = change(replicas=(2, 3), isr=(2, 3), leader=2)
    harness.join(partition(2), partition(2, index=1), moved)
    assert DeleteLog(KEY) in harness.others
    assert list(harness.core.partitions) == [kept]


def test_partition_that_is_moved_away_while_the_registration_is_lost_leaves_nothing_behind() -> None:
    harness = CoreHarness().join(partition(1))
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    harness.tick(1000)
    harness.metadata(change(replicas=(2, 3), isr=(2, 3), leader=2))
    epoch = harness.core.image.offset
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    harness.metadata(register(1, epoch))
    assert harness.core.partitions == {}
    assert DeleteLog(KEY) in harness.others


def test_replica_that_goes_while_its_log_is_opening_leaves_nothing_behind() -> None:
    harness = CoreHarness().join()
    harness.opens_slowly = True
    harness.metadata(partition(2))
    harness.metadata(change(replicas=(2, 3), isr=(2, 3), leader=2))
    harness.finish_opens()
    assert harness.core.partitions == {}
    assert harness.others[-1] == DeleteLog(KEY)
    assert harness.logs == {}


def test_replica_that_goes_and_comes_while_its_log_is_opening_gets_that_log() -> None:
    """A second opening could end with a log that is being deleted by then."""
    harness = CoreHarness().join()
    harness.opens_slowly = True
    harness.metadata(partition(2))
    harness.metadata(change(replicas=(2, 3), isr=(2, 3), leader=2))
    harness.metadata(change(replicas=(2, 3, 1), adding=(1,), original=(2, 3)))
    harness.finish_opens()
    assert harness.partition.log is harness.logs[KEY]
    assert harness.partition.role is Role.FOLLOWER


def test_topic_of_the_same_name_waits_until_the_log_of_the_one_before_is_opened_and_deleted() -> None:
    """R107: the second opening found the folder of the first one, and the broker ended itself."""
    harness = CoreHarness().join()
    harness.opens_slowly = True
    harness.metadata(partition(2))
    harness.metadata(RemoveTopicRecord(TOPIC))
    harness.metadata(TopicRecord("t", OTHER_TOPIC), replace(partition(2), topic_id=OTHER_TOPIC))
    assert harness.finish_opens() == [KEY]
    assert harness.finish_opens() == [OTHER_KEY]
    assert set(harness.core.partitions) == set(harness.logs) == {OTHER_KEY}


def test_topic_of_the_same_name_has_its_log_made_when_that_of_the_one_before_could_not_be() -> None:
    """R107, R27."""
    harness = CoreHarness().join()
    harness.opens_slowly = True
    harness.metadata(partition(2))
    harness.metadata(RemoveTopicRecord(TOPIC))
    harness.metadata(TopicRecord("t", OTHER_TOPIC), replace(partition(2), topic_id=OTHER_TOPIC))
    harness.post(LogsOffline((KEY,)))
    assert OTHER_KEY in harness.finish_opens()
    assert set(harness.core.partitions) == {OTHER_KEY}


def test_role_is_the_latest_one_when_the_log_is_open() -> None:
    """A new partition's leader cannot serve yet; elections go on meanwhile."""
    harness = CoreHarness().join()
    harness.opens_slowly = True
    harness.metadata(partition(1))
    assert harness.row(harness.produce(batch()))[0] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert harness.fetch_rows(harness.fetch(2, 0))[0][0] == "UNKNOWN_TOPIC_OR_PARTITION"
    harness.metadata(change(leader=2))
    harness.metadata(change(leader=1, isr=(1, 3)))
    harness.finish_opens()
    assert harness.partition.is_serving
    assert harness.partition.leader_epoch == 2
    assert harness.row(harness.produce(batch(), acks=1)) == ("NONE", 0)


def test_log_that_opens_while_the_registration_is_lost_waits_for_the_next_one() -> None:
    """N-2."""
    harness = CoreHarness().join()
    harness.opens_slowly = True
    harness.metadata(partition(1))
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    harness.finish_opens()
    assert harness.core.partitions == {}
    harness.tick(1000)
    epoch = harness.core.image.offset + 1
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    harness.metadata(change(leader=2, isr=(2, 3)), register(1, epoch))
    assert harness.partition.role is Role.FOLLOWER


def test_adding_replica_fetches_and_joins_as_any_other() -> None:
    """R100, F3: it is asked for once it has all, and counts from then on."""
    harness = CoreHarness().join(partition(1, (1, 2), replicas=(1, 2)))
    harness.produce(batch(3), acks=1)
    assert harness.fetch_rows(harness.fetch(3, 0))[0][0] == "UNKNOWN_LEADER_EPOCH"
    harness.metadata(change(replicas=(1, 2, 3), adding=(3,), original=(1, 2)))
    harness.fetch(3, 0, session=2)
    assert sent(harness, AlterPartitionRequest) == []
    harness.fetch(2, 3)
    assert harness.partition.high_watermark == 3
    harness.fetch(3, 3, session=2, number=1)
    (request,) = sent(harness, AlterPartitionRequest)
    assert isinstance(request, AlterPartitionRequest)
    assert [member.broker_id for member in request.partitions[0].new_isr] == [1, 2, 3]
    harness.produce(batch(), acks=1)
    harness.fetch(2, 4, number=1)
    assert harness.partition.high_watermark == 3


# --- other brokers -----------------------------------------------------------------------------------------


def test_broker_that_is_unregistered_fetches_nothing_any_more() -> None:
    """B10: sessions are kept for registered brokers only."""
    harness = CoreHarness().join(partition(1))
    harness.metadata(UnregisterBrokerRecord(3, 1))
    answer = harness.answers[harness.fetch(3, 0)]
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_broker_that_reads_that_it_was_unregistered_has_no_role_from_there_on() -> None:
    """N-2, I-2: it does not wait until a heartbeat tells it so."""
    harness = CoreHarness().join(partition(1))
    harness.metadata(UnregisterBrokerRecord(1, harness.core.lifecycle.broker_epoch))
    assert not harness.core.has_roles
    assert harness.partition.role is Role.NONE
    harness.tick(5_000)
    request = sent(harness, BrokerRegistrationRequest)[-1]
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.previous_broker_epoch == -1


def test_leader_that_comes_back_at_another_address_is_found_there() -> None:
    """Before it leads again, and while it leads on."""
    harness = CoreHarness().join(partition(2))
    harness.metadata(register(2, harness.metadata_offset, port=7777))
    session = harness.fetches[-1]
    harness.post(
        FetchFailed(
            2, session.request.session_id, session.request.session_epoch, CallFailure.DISCONNECTED, "gone"
        )
    )
    assert harness.fetches[-1] is not session
    assert harness.fetches[-1].port == 7777


# --- settings ----------------------------------------------------------------------------------------------


def test_topic_settings_that_change_while_the_registration_is_lost_count() -> None:
    harness = CoreHarness().join(partition(1))
    harness.tick(2000)
    harness.answer_call(BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, "who?", False, True, False))
    harness.tick(1000)
    harness.metadata(harness.topic_config("flush.messages", "1"))
    epoch = harness.core.image.offset
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, epoch, False))
    harness.metadata(register(1, epoch))
    assert harness.partition.counts_flushed


def test_records_count_at_once_when_they_need_not_be_flushed_any_more() -> None:
    """D6."""
    harness = CoreHarness().join(partition(1, (1,), min_isr=1))
    harness.metadata(harness.topic_config("flush.messages", "1"))
    name = harness.produce(batch())
    harness.metadata(harness.topic_config("flush.messages", "2"))
    assert harness.row(name) == ("NONE", 0)


# --- ceilings (R68) ----------------------------------------------------------------------------------------

TEN = {"holdfast.ceiling.records": "10"}


def promised(harness: CoreHarness) -> list[tuple[int, int]]:
    """(partition, offset) of each promise that is on its way to the disk."""
    return [(row.key.partition_index, row.offset) for effect in harness.ceilings for row in effect.rows]


def test_replicas_that_begin_together_promise_in_one_write() -> None:
    harness = CoreHarness(**TEN)
    harness.stores_slowly = True
    harness.join(
        partition(1, (1,), index=0, min_isr=1), partition(2, index=1), partition(1, (1,), index=2, min_isr=1)
    )
    assert len(harness.ceilings) == 1
    assert sorted(promised(harness)) == [(0, 10), (1, 10), (2, 10)]


def test_nothing_is_acknowledged_before_a_ceiling_above_it_is_stored() -> None:
    harness = CoreHarness(**TEN)
    harness.stores_slowly = True
    harness.join(partition(1, (1,), min_isr=1))
    first = harness.produce(batch(2))
    assert (harness.partition.high_watermark, first in harness.answers) == (0, False)
    harness.finish_ceilings()
    assert harness.row(first) == ("NONE", 0)
    beyond = harness.produce(batch(20))
    assert beyond not in harness.answers
    # what came in since the last one was promised is the traffic to be expected
    assert promised(harness) == [(0, 22 + 22)]
    harness.finish_ceilings()
    assert harness.row(beyond) == ("NONE", 2)


def test_a_ceiling_that_is_near_waits_for_others() -> None:
    harness = CoreHarness(**TEN)
    harness.join(*(partition(1, (1,), index=index, min_isr=1) for index in range(2)))
    harness.stores_slowly = True
    harness.produce(batch(6))
    harness.tick(CEILINGS_WAIT_MS - 1)
    harness.produce(batch(6), index=1)
    assert harness.ceilings == []
    assert harness.core.next_deadline_ms() <= harness.now_ms + 1
    harness.tick(1)
    assert len(harness.ceilings) == 1
    assert [row[0] for row in promised(harness)] == [0, 1]


def test_a_promise_for_traffic_that_did_not_come_is_lowered() -> None:
    harness = CoreHarness(**TEN)
    harness.join(partition(1, (1,), min_isr=1))
    harness.produce(batch(500))
    harness.stores_slowly = True
    harness.tick(20_000)
    assert promised(harness) == [(0, 510)]
    harness.finish_ceilings()
    harness.tick(20_000)
    assert harness.ceilings == []


def test_nothing_is_promised_of_a_partition_that_is_gone() -> None:
    harness = CoreHarness(**TEN)
    harness.join(partition(1, (1,), min_isr=1))
    harness.stores_slowly = True
    harness.produce(batch(6))
    harness.metadata(RemoveTopicRecord(TOPIC))
    harness.tick(CEILINGS_WAIT_MS)
    assert harness.ceilings == []


def test_what_a_former_process_promised_is_kept_while_the_replica_is_out_of_sync() -> None:
    """It may be all that is known of what the log has lost."""
    harness = CoreHarness(**TEN)
    harness.logs[KEY] = MemoryLog(100, 0)
    harness.stores_slowly = True
    harness.post(Started(), LogsLoaded(harness.logs, {}, {KEY: 900}), ControllerChanged(101, 1))
    harness.answer_call(BrokerRegistrationResponse(ErrorCode.NONE, None, 4, False))
    harness.metadata(
        register(2, 0), register(3, 1), TopicRecord("t", TOPIC), partition(2, (2, 3)), register(1, 4)
    )
    harness.tick(20_000)
    assert harness.ceilings == []
    harness.metadata(change(isr=(1, 2, 3)))
    harness.tick(20_000)
    assert promised(harness) == [(0, 110)]
