"""The producer's decisions without sockets: batching, requests, connections, identity, time."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.batch import Batch, Compression, ProducerIdAndEpoch
from holdfast.client.core.effects import Connect, RefreshMetadata
from holdfast.client.core.metadata_cache import LeaderAndEpoch, MetadataCache
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.sender import Sender
from holdfast.client.core.sender_effects import AskIdentity, Complete, Effect, SendBatches, SenderConfig
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from holdfast.protocol.messages.produce import ProducePartitionResponse, ProduceResponse

ID = b"\x01" * 16


class Bench:
    """A sender with a topic of six partitions, led by brokers 1, 2, 3 in turn."""

    def __init__(self, *, linger_ms: int = 0, acks: int = -1, request_size_bytes_max: int = 1 << 20) -> None:
        self.cache = MetadataCache()
        self.leaders = [(1 + index % 3, 1) for index in range(6)]
        self.topic_id = ID
        self.offset = 1
        self.tell()
        config = SenderConfig(
            acks=acks,
            idempotent=acks != 0,
            linger_ms=linger_ms,
            batch_size_bytes=1_000,
            request_size_bytes_max=request_size_bytes_max,
            compression=Compression.NONE,
            delivery_timeout_ms=10_000,
            stall_ms=500,
            retry=Backoff(20, 500),
        )
        self.sender = Sender(config, self.cache)
        self.now_ms = 0
        self.offsets = 0

    def tell(self) -> None:
        rows = tuple(
            MetadataPartition(0, i, *at, (1, 2, 3), (1, 2, 3), ()) for i, at in enumerate(self.leaders)
        )
        brokers = tuple(MetadataBroker(n, "h", n, None) for n in (1, 2, 3))
        topic = MetadataTopic(0, "t", self.topic_id, rows)
        self.cache.update(MetadataResponse("c", 101, self.offset, brokers, (topic,)))
        self.offset += 1

    def move(self, partition: int, leader_id: int) -> list[Effect]:
        self.leaders[partition] = (leader_id, self.leaders[partition][1] + 1)
        self.tell()
        return self.sender.metadata_changed(self.now_ms)

    def ready(self) -> "Bench":
        """Connections stand and there is an identity."""
        self.sender.want_identity()
        for effect in self.drain():
            if isinstance(effect, AskIdentity):
                self.sender.identity_given(ProducerIdAndEpoch(7, 0))
        for broker_id in (1, 2, 3):
            self.sender.connected(broker_id)
        return self

    def put(self, partition: int, size: int = 10) -> PartitionQueue:
        queue = self.sender.queue("t", partition)
        if self.sender.append(queue, 5, None, bytes(size), (), None) is None:
            self.sender.open_batch(queue, self.now_ms)
            assert self.sender.append(queue, 5, None, bytes(size), (), None) is not None
        return queue

    def drain(self, advance_ms: int = 0) -> list[Effect]:
        self.now_ms += advance_ms
        return self.sender.drain(self.now_ms)

    def sends(self, advance_ms: int = 0) -> list[SendBatches]:
        return [effect for effect in self.drain(advance_ms) if isinstance(effect, SendBatches)]

    def answer(
        self, sent: SendBatches, *codes: ErrorCode, leader: tuple[int, int] = (-1, -1)
    ) -> list[Effect]:
        rows = []
        for index, batch in enumerate(sent.batches):
            code = codes[index] if index < len(codes) else ErrorCode.NONE
            offset = self.offsets if code is ErrorCode.NONE else -1
            self.offsets += batch.count
            rows.append(ProducePartitionResponse(ID, batch.partition, code, "why", offset, 0, *leader))
        return self.sender.answered(sent.request_id, ProduceResponse(tuple(rows)), self.now_ms)

    def prove(self, *partitions: int) -> "Bench":
        """One acknowledged batch each, so that several may be in flight."""
        for partition in partitions:
            self.put(partition)
        for sent in self.sends():
            self.answer(sent)
        return self


def completed(effects: list[Effect]) -> list[Batch]:
    return [effect.batch for effect in effects if isinstance(effect, Complete)]


# --- batching ------------------------------------------------------------------------------------------


def test_a_batch_leaves_when_its_linger_time_is_over_and_the_timer_is_set_for_it() -> None:
    bench = Bench(linger_ms=10).ready()
    bench.put(0)
    bench.put(0)
    assert bench.sender.next_deadline_ms() == 10
    assert bench.sends(9) == []
    (sent,) = bench.sends(1)
    assert [batch.count for batch in sent.batches] == [2]


def test_a_full_batch_does_not_wait_for_the_linger_time() -> None:
    bench = Bench(linger_ms=10_000).ready()
    for _ in range(3):
        bench.put(0, 400)
    (sent,) = bench.sends()
    assert [batch.count for batch in sent.batches] == [2]


def test_while_a_partition_may_not_send_its_open_batch_keeps_growing() -> None:
    bench = Bench().ready().prove(0)
    for _ in range(5):
        bench.put(0)
        assert len(bench.sends()) == 1
    for _ in range(4):
        bench.put(0)
        assert bench.sends() == []
    assert bench.sender.queue("t", 0).open is not None
    assert bench.sender.queue("t", 0).open.count == 4  # type: ignore[union-attr]


def test_batches_of_one_broker_share_a_request_and_those_of_a_partition_keep_their_order() -> None:
    bench = Bench(linger_ms=5).ready().prove()
    for partition in (0, 3, 1):
        bench.put(partition)
    for sent in bench.sends(5):
        bench.answer(sent)
    for partition in (0, 0, 0, 0, 3, 1):
        bench.put(partition, 900)
    sends = bench.sends(5)
    assert [(s.broker_id, [b.partition for b in s.batches]) for s in sends] == [
        (1, [0, 3]),
        (1, [0]),
        (1, [0]),
        (1, [0]),
        (2, [1]),
    ]
    sequences = [b.base_sequence for s in sends for b in s.batches if b.partition == 0]
    assert sequences == sorted(sequences)


def test_a_request_stays_below_its_size_limit() -> None:
    bench = Bench(linger_ms=5, request_size_bytes_max=1_200).ready()
    for partition in (0, 3):
        bench.put(partition, 800)
    assert [len(sent.batches) for sent in bench.sends(5)] == [1, 1]


def test_buffered_bytes_are_given_back_with_the_outcome() -> None:
    bench = Bench().ready()
    bench.put(0, 500)
    assert bench.sender.buffered_bytes > 500
    (sent,) = bench.sends()
    bench.answer(sent)
    assert bench.sender.buffered_bytes == 0


# --- connections and leaders ---------------------------------------------------------------------------


def test_nothing_counts_as_sent_before_the_connection_stands() -> None:
    bench = Bench()
    bench.sender.want_identity()
    bench.drain()
    bench.sender.identity_given(ProducerIdAndEpoch(7, 0))
    bench.put(0)
    assert bench.drain() == [Connect(1)]
    assert bench.sender.queue("t", 0).in_flight == 0
    bench.sender.connected(1)
    assert len(bench.sends()) == 1


def test_a_refused_connection_asks_for_metadata_at_once_and_pauses_before_the_next_attempt() -> None:
    bench = Bench()
    bench.sender.want_identity()
    bench.drain()
    bench.sender.identity_given(ProducerIdAndEpoch(7, 0))
    bench.put(0)
    bench.drain()
    assert bench.sender.connect_failed(1, 0, "refused") == [RefreshMetadata()]
    assert bench.drain(19) == []
    assert bench.drain(1) == [Connect(1)]


def test_an_attempt_to_connect_that_hangs_is_left_when_another_leads() -> None:
    bench = Bench()
    bench.sender.want_identity()
    bench.drain()
    bench.sender.identity_given(ProducerIdAndEpoch(7, 0))
    bench.put(0)
    assert bench.drain() == [Connect(1)]
    bench.move(0, 2)
    assert bench.drain() == [Connect(2)]


def test_a_partition_that_meets_a_dead_connection_during_its_pause_still_follows_the_news() -> None:
    bench = Bench()
    bench.sender.want_identity()
    bench.drain()
    bench.sender.identity_given(ProducerIdAndEpoch(7, 0))
    bench.put(0)
    bench.drain()
    bench.sender.connect_failed(1, 0, "refused")
    bench.put(3)
    assert bench.drain() == [RefreshMetadata()]
    bench.move(3, 2)
    assert bench.drain() == [Connect(2)]


def test_a_reset_connection_returns_all_its_batches_and_counts_as_one_failure() -> None:
    bench = Bench().ready().prove(0)
    requests = []
    for _ in range(3):
        bench.put(0)
        requests += bench.sends()
    bench.sender.disconnected(1)
    effects = []
    for sent in requests:
        effects += bench.sender.request_failed(sent.request_id, 0, "reset", was_sent=True)
    assert RefreshMetadata() in effects
    queue = bench.sender.queue("t", 0)
    assert queue.in_flight == 0
    assert queue.failures == 1
    assert bench.move(0, 2) == []
    (sent,) = bench.sends()
    assert (sent.broker_id, sent.batches) == (2, requests[0].batches)


def test_a_partition_without_leader_waits_for_metadata() -> None:
    bench = Bench().ready()
    bench.leaders[0] = (-1, 2)
    bench.tell()
    bench.put(0)
    assert bench.drain() == [RefreshMetadata()]
    assert bench.sender.metadata_changed(0) == [RefreshMetadata()]
    assert not bench.sender.is_available(bench.sender.queue("t", 0))
    bench.move(0, 2)
    assert [sent.broker_id for sent in bench.sends()] == [2]


def test_a_hint_in_the_refusal_saves_the_refresh() -> None:
    bench = Bench().ready()
    bench.put(0)
    (sent,) = bench.sends()
    effects = bench.answer(sent, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(3, 2))
    assert effects == []
    assert [again.broker_id for again in bench.sends()] == [3]


def test_a_refusal_for_lack_of_replicas_waits_without_asking_for_metadata() -> None:
    bench = Bench().ready()
    bench.put(0)
    pauses = []
    for _ in range(4):
        waited_ms = 0
        while not (sends := bench.sends()):
            bench.now_ms += 1
            waited_ms += 1
        pauses.append(waited_ms)
        assert bench.answer(sends[0], ErrorCode.NOT_ENOUGH_REPLICAS) == []
    assert pauses == [0, 20, 40, 80]


def test_a_silent_request_leads_to_a_look_at_the_metadata_and_no_further() -> None:
    bench = Bench().ready()
    bench.put(0)
    bench.sends()
    assert bench.drain(499) == []
    assert bench.drain(1) == [RefreshMetadata()]
    bench.sender.metadata_changed(bench.now_ms)
    assert bench.sends() == []
    bench.move(0, 2)
    assert [sent.broker_id for sent in bench.sends()] == [2]


def test_the_old_leaders_late_success_still_counts() -> None:
    bench = Bench().ready()
    bench.put(0)
    (old,) = bench.sends()
    bench.move(0, 2)
    (new,) = bench.sends()
    assert completed(bench.answer(old))[0].outcome is DeliveryOutcome.OK
    assert completed(bench.answer(new)) == []


# --- time and outcomes ---------------------------------------------------------------------------------


def test_a_batch_that_is_too_large_is_split_and_later_ones_are_made_smaller() -> None:
    bench = Bench().ready().prove(0)
    for _ in range(5):
        bench.put(0, 100)
    buffered = bench.sender.buffered_bytes
    (whole,) = bench.sends()
    bench.put(1)  # a younger one
    oldest = bench.sender.oldest_incomplete_serial
    assert completed(bench.answer(whole, ErrorCode.MESSAGE_TOO_LARGE)) == []
    assert bench.sender.buffered_bytes == buffered + 17  # that of partition 1
    counts = []
    for _ in range(2):
        assert bench.sender.oldest_incomplete_serial == oldest
        (half,) = (sent for sent in bench.sends() if sent.batches[0].partition == 0)
        counts.append(half.batches[0].count)
        bench.answer(half)
    assert counts == [2, 3]
    assert bench.sender.oldest_incomplete_serial > oldest
    for _ in range(5):
        bench.put(0, 100)
    assert len(bench.sender.queue("t", 0).ready) == 2, "two records fill a batch now"


def test_a_single_record_that_is_too_large_fails() -> None:
    bench = Bench().ready()
    bench.put(0, 100)
    (sent,) = bench.sends()
    (ended,) = completed(bench.answer(sent, ErrorCode.MESSAGE_TOO_LARGE))
    assert (ended.outcome, ended.error) == (DeliveryOutcome.FAIL, ErrorCode.MESSAGE_TOO_LARGE)


def test_what_an_earlier_attempt_may_have_appended_is_not_split() -> None:
    bench = Bench().ready()
    bench.put(0)
    bench.put(0)
    (sent,) = bench.sends()
    bench.sender.request_failed(sent.request_id, bench.now_ms, "reset", was_sent=True)
    (again,) = bench.sends(1_000)
    (ended,) = completed(bench.answer(again, ErrorCode.MESSAGE_TOO_LARGE))
    assert (ended.outcome, ended.count) == (DeliveryOutcome.INFO, 2)


def test_each_partition_of_an_answer_is_judged_alone() -> None:
    bench = Bench(linger_ms=5).ready()
    bench.put(0)
    bench.put(3)
    (sent,) = bench.sends(5)
    effects = bench.answer(sent, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE)
    assert [batch.partition for batch in completed(effects)] == [3]


def test_expiry_is_certain_failure_before_and_unknown_after_sending() -> None:
    bench = Bench().ready().prove(0)
    bench.put(0)
    bench.sends()
    bench.leaders[1] = (-1, 2)
    bench.tell()
    bench.put(1)
    bench.drain()
    assert bench.sender.next_deadline_ms() is not None
    outcomes = {batch.partition: batch.outcome for batch in completed(bench.drain(10_000))}
    assert outcomes == {0: DeliveryOutcome.INFO, 1: DeliveryOutcome.FAIL}


def test_an_answer_after_expiry_changes_nothing() -> None:
    bench = Bench().ready()
    bench.put(0)
    (sent,) = bench.sends()
    assert len(completed(bench.drain(10_000))) == 1
    assert bench.answer(sent) == []


def test_with_acks_0_what_expires_before_it_is_written_keeps_its_outcome() -> None:
    bench = Bench(acks=0).ready()
    bench.put(0)
    (sent,) = bench.sends()
    (ended,) = completed(bench.drain(10_000))
    assert ended.outcome is DeliveryOutcome.INFO
    assert bench.sender.written(sent.request_id) == []


def test_expiry_after_sending_asks_for_a_new_epoch_and_other_partitions_go_on_meanwhile() -> None:
    bench = Bench().ready().prove(0, 1)
    bench.put(0)
    bench.sends()
    bench.drain(10_000)
    bench.put(0)
    bench.put(1)
    effects = bench.drain()
    assert AskIdentity(7, 0) in effects
    assert [s.broker_id for s in effects if isinstance(s, SendBatches)] == [2]
    bench.sender.identity_given(ProducerIdAndEpoch(7, 1))
    (sent,) = bench.sends()
    assert sent.batches[0].base_sequence == 0


def test_an_identity_that_cannot_be_had_is_asked_for_again_after_a_pause() -> None:
    bench = Bench()
    bench.sender.want_identity()
    assert bench.drain() == [AskIdentity(-1, -1)]
    bench.sender.identity_failed(0, ErrorCode.BROKER_NOT_AVAILABLE, "later")
    assert bench.sender.next_deadline_ms() == 20
    assert bench.drain(19) == []
    assert bench.drain(1) == [AskIdentity(-1, -1)]


def test_without_an_identity_for_the_whole_delivery_timeout_the_reason_is_told() -> None:
    bench = Bench()
    bench.sender.connected(1)
    bench.put(0)
    assert AskIdentity(-1, -1) in bench.drain()
    bench.sender.identity_failed(0, ErrorCode.BROKER_NOT_AVAILABLE, "no block of ids could be had")
    (lost,) = completed(bench.drain(10_000))
    assert lost.outcome is DeliveryOutcome.FAIL
    assert lost.error is ErrorCode.BROKER_NOT_AVAILABLE
    assert "no producer id: no block of ids could be had" in lost.error_text


def test_a_final_refusal_of_an_identity_ends_what_waits_for_it_and_nothing_else() -> None:
    bench = Bench(linger_ms=50)
    bench.sender.connected(1)
    for _ in range(3):
        bench.put(0, 400)
    assert AskIdentity(-1, -1) in bench.drain()
    effects = bench.sender.identity_failed(0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not for you")
    (refused,) = completed(effects)
    assert refused.outcome is DeliveryOutcome.FAIL
    assert (refused.error, refused.count) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 2)
    assert refused.error_text == "t-0: no producer id: not for you"
    assert AskIdentity(-1, -1) in bench.drain(50), "the record that lingered is due now"
    bench.sender.identity_given(ProducerIdAndEpoch(7, 0))
    (sent,) = bench.sends()
    assert [batch.count for batch in sent.batches] == [1]


def test_a_gap_at_the_head_is_healed_by_a_new_epoch_without_loss_of_order() -> None:
    bench = Bench().ready().prove(0)
    for _ in range(2):
        bench.put(0)
    (first,) = bench.sends()
    bench.put(0)
    (second,) = bench.sends()
    bench.answer(first, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert bench.sends() == []
    bench.answer(second, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert AskIdentity(7, 0) in bench.drain()
    bench.sender.identity_given(ProducerIdAndEpoch(7, 1))
    (again,) = bench.sends()
    assert again.batches == first.batches
    bench.answer(again)
    (behind,) = bench.sends()
    assert behind.batches == second.batches


def test_a_gap_behind_a_refused_batch_is_no_reason_for_a_new_epoch() -> None:
    bench = Bench().ready().prove(0)
    sends = []
    for _ in range(2):
        bench.put(0)
        sends += bench.sends()
    bench.answer(sends[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    bench.answer(sends[1], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    (again,) = bench.sends(20)
    assert again.batches == sends[0].batches
    bench.answer(again)
    (behind,) = bench.sends()
    assert behind.batches == sends[1].batches
    assert behind.batches[0].base_sequence == 2


def test_behind_batches_for_a_topic_that_was_made_again_nothing_goes_to_the_new_one() -> None:
    bench = Bench().ready().prove(0)
    bench.put(0, size=900)
    (sent,) = bench.sends()
    bench.topic_id, bench.leaders = b"\x02" * 16, [(1, 0)] * 6
    bench.tell()
    bench.sender.metadata_changed(bench.now_ms)
    bench.put(0, size=900)
    assert bench.sends() == []
    bench.answer(sent, ErrorCode.UNKNOWN_TOPIC_ID)
    (again,) = bench.sends(advance_ms=100)
    assert again.batches == sent.batches
    bench.answer(again)
    (behind,) = bench.sends()
    assert behind.batches[0].base_sequence == 2


def moved_unwritten() -> tuple[Bench, SendBatches, SendBatches]:
    """With acks 0: what was sent to the old leader, not written yet, and then to the new one."""
    bench = Bench(acks=0)
    for broker_id in (1, 2):
        bench.sender.connected(broker_id)
    bench.put(0)
    (old,) = bench.sends()
    bench.move(0, 2)
    (new,) = bench.sends()
    return bench, old, new


def test_with_acks_0_what_waits_to_be_written_to_an_old_leader_goes_to_the_new_one() -> None:
    """A frozen leader reads nothing: its connection would keep these records for the delivery timeout."""
    bench, old, new = moved_unwritten()
    assert (new.broker_id, new.batches) == (2, old.batches)
    assert bench.sender.written(old.request_id) == [], "the sender follows the old leader no more"
    (done,) = completed(bench.sender.written(new.request_id))
    assert done.outcome is DeliveryOutcome.OK1


def test_with_acks_0_a_batch_left_behind_is_done_with_when_the_old_connection_breaks_late() -> None:
    bench, old, new = moved_unwritten()
    assert bench.sender.request_failed(old.request_id, 5, "reset", was_sent=True) == []
    assert len(completed(bench.sender.written(new.request_id))) == 1
    assert bench.sends(1_000) == []


def test_a_request_refused_for_now_is_repeated_and_one_refused_for_good_ends_its_batches() -> None:
    bench = Bench().ready().prove(0, 3)
    bench.put(0)
    bench.put(3)
    (sent,) = bench.sends()
    code = ErrorCode.REQUEST_LIMIT_REACHED
    assert completed(bench.sender.request_refused(sent.request_id, 0, code, "too many")) == []
    (again,) = bench.sends(20)
    assert again.batches == sent.batches
    code = ErrorCode.UNSUPPORTED_VERSION
    ended = completed(bench.sender.request_refused(again.request_id, 20, code, "no version in common"))
    assert [(batch.partition, batch.outcome, batch.error) for batch in ended] == [
        (0, DeliveryOutcome.FAIL, code),
        (3, DeliveryOutcome.FAIL, code),
    ]


def test_a_request_that_was_never_written_proves_that_nothing_was_appended() -> None:
    bench = Bench().ready()
    bench.put(0)
    (sent,) = bench.sends()
    bench.sender.disconnected(1)
    bench.sender.request_failed(sent.request_id, 0, "gone", was_sent=False)
    (batch,) = completed(bench.drain(10_000))
    assert batch.outcome is DeliveryOutcome.FAIL


def test_what_waits_for_a_partition_that_is_gone_ends_at_once_with_the_outcome_it_deserves() -> None:
    """The topic was made again with fewer partitions; the others go on."""
    bench = Bench(linger_ms=10).ready()
    bench.put(4)
    (sent,) = bench.sends(10)
    bench.put(4)
    bench.sender.close_batch(bench.put(5))
    bench.put(1)
    bench.topic_id, bench.leaders = b"\x02" * 16, [(1, 0), (2, 0)]
    bench.tell()
    ended = completed(bench.sender.metadata_changed(bench.now_ms))
    assert [(batch.partition, batch.outcome) for batch in ended] == [
        (4, DeliveryOutcome.INFO),
        (4, DeliveryOutcome.FAIL),
        (5, DeliveryOutcome.FAIL),
    ]
    assert {batch.error for batch in ended} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert bench.answer(sent) == [], "too late"
    (going_on,) = bench.sends(10)
    assert [batch.partition for batch in going_on.batches] == [1]


def test_closing_ends_everything_with_the_outcome_it_deserves() -> None:
    bench = Bench().ready().prove(0)
    bench.put(0)
    bench.sends()
    bench.put(1)
    outcomes = [batch.outcome for batch in completed(bench.sender.give_up_all("closed"))]
    assert outcomes == [DeliveryOutcome.INFO, DeliveryOutcome.FAIL]
    assert bench.sender.buffered_bytes == 0


def test_a_late_answer_about_the_old_topic_names_no_leader_of_the_new_one() -> None:
    bench = Bench().ready().prove(0)
    bench.put(0)
    (sent,) = bench.sends()  # to broker 1, in the topic that is deleted now
    bench.topic_id, bench.leaders = b"\x02" * 16, [(3, 0)] * 6
    bench.tell()
    bench.sender.metadata_changed(bench.now_ms)
    # Broker 1 lags behind: it has just heard that 2 leads the old topic in epoch 9.
    bench.answer(sent, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader=(2, 9))
    assert bench.cache.leader("t", 0) == LeaderAndEpoch(3, 0)
    (again,) = bench.sends(advance_ms=1_000)
    assert again.broker_id == 3


def test_a_partition_that_is_gone_does_not_end_the_search_for_anothers_leader() -> None:
    bench = Bench().ready().prove(0)

    def tell_of_another(topic_id: bytes, partitions: int) -> None:
        rows = tuple(MetadataPartition(0, i, 1, 1, (1,), (1,), ()) for i in range(partitions))
        told = MetadataTopic(0, "u", topic_id, rows)
        bench.cache.update(MetadataResponse("c", 101, bench.offset, (), (told,)))
        bench.offset += 1

    bench.move(0, -1)
    bench.put(0)
    assert bench.drain() == [RefreshMetadata()]  # it waits for news of a leader
    tell_of_another(b"\x06" * 16, 2)
    queue = bench.sender.queue("u", 1)
    bench.sender.open_batch(queue, 0)
    bench.sender.append(queue, 5, None, b"v", (), None)
    tell_of_another(b"\x07" * 16, 1)
    effects = bench.sender.metadata_changed(0)
    assert [done.topic for done in completed(effects)] == ["u"]
    assert RefreshMetadata() in effects


def test_a_new_leader_gets_batches_one_by_one_until_it_has_acknowledged_one() -> None:
    bench = Bench().ready().prove(0)
    bench.move(0, 2)
    bench.put(0, size=900)
    bench.put(0, size=900)
    assert len(bench.sends()) == 1


def test_who_writes_to_another_cluster_takes_another_id() -> None:
    bench = Bench().ready().prove(0)
    assert bench.sender.identity == ProducerIdAndEpoch(7, 0)
    rows = tuple(MetadataPartition(0, i, 1, 0, (1,), (1,), ()) for i in range(6))
    brokers = tuple(MetadataBroker(n, "h", n, None) for n in (1, 2, 3))
    topic = MetadataTopic(0, "t", b"\x05" * 16, rows)
    bench.cache.update(MetadataResponse("another", 101, 1, brokers, (topic,)))
    bench.sender.metadata_changed(0)
    bench.put(0)
    effects = bench.drain()
    assert AskIdentity(-1, -1) in effects


def test_a_silent_leader_of_the_old_topic_is_left_when_the_new_one_has_another() -> None:
    bench = Bench().ready().prove(0)
    bench.put(0)
    (sent,) = bench.sends()
    bench.topic_id, bench.leaders = b"\x02" * 16, [(3, 0)] * 6
    bench.tell()
    bench.sender.metadata_changed(bench.now_ms)
    (again,) = bench.sends()
    assert (again.broker_id, again.batches) == (3, sent.batches)


def test_no_sender_asks_for_an_id_for_ever_when_it_was_refused_and_nothing_waits() -> None:
    bench = Bench()
    bench.sender.connected(1)
    bench.put(0)
    assert AskIdentity(-1, -1) in bench.drain()
    bench.sender.identity_failed(bench.now_ms, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    assert bench.sender.buffered_bytes == 0
    assert bench.drain(10_000) == []
    assert bench.sender.next_deadline_ms() is None
