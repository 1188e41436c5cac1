"""Mutants of the clients: what a producer takes for lost or stored, sequences, what a consumer gives out.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.client.consumer import Consumer
from holdfast.client.core import record_accumulator, sender
from holdfast.client.core.batch import Batch
from holdfast.client.core.errors import ClientError
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import ResetPolicy
from holdfast.client.core.outcomes import DeliveryOutcome, Reaction
from holdfast.client.core.partition_fetch import PartitionFetch
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.record_accumulator import RecordAccumulator
from holdfast.client.core.sender import Sender
from holdfast.client.delivery import Delivery
from holdfast.client.producer import Producer
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.mutants.mutant import Setting, mutant
from holdfast.sim.mutants.storage import FLAPPING, RETRIES

#: no broker answers for longer than a delivery may take
SILENCE = Setting(
    faults={
        "isolate_leader": 6,
        "pause_leader": 4,
        "kill_broker": 3,
        "split": 4,
        "cut_clients": 4,
        "hang_disk": 3,
    },
    gap_ms=400,
)


#: the log loses its producers with its tail while many batches are on their way
LOSING_PRODUCERS = Setting(
    band="over-budget",
    faults={"forget_producers": 1},
    shape={"producers": 8, "min_isr": 3, "partitions": 1, "every_write": False},
    seconds=20,
    gap_ms=4_000,
)


@mutant(
    PartitionQueue,
    "returned",
    breaks="A-18",
    by="L-5 unexpected doubled",
    setting=SILENCE,
    killed_by="L-5@2",
)
def takes_unknown_for_failed(original: Any, self: Any, batch: Any, attempt: int, *, refused: bool) -> Any:
    """An attempt whose effect is unknown counts as refused before the append."""
    return original(self, batch, attempt, refused=True)


@mutant(
    record_accumulator,
    "outcome_without_ack",
    breaks="A-18",
    by="unexpected",
    setting=SILENCE,
    killed_by="unexpected@3",
)
def takes_silence_for_failed(original: Any, unanswered_attempts: int) -> Any:
    """A write without an answer counts as a definite failure."""
    return DeliveryOutcome.FAIL


@mutant(Sender, "_unknown", breaks="F5", by="lost", setting=RETRIES, killed_by="reordered@1")
def takes_silence_for_stored(
    original: Any,
    self: Any,
    queue: Any,
    batch: Any,
    attempt: int,
    now_ms: int,
    effects: Any,
    text: str,
) -> Any:
    """A request whose connection broke counts as acknowledged."""
    queue.acknowledged(batch)
    self._accumulator.finish(
        batch, DeliveryOutcome.OK if self._config.acks == -1 else DeliveryOutcome.OK1, effects
    )
    self._accumulator.returned(queue, effects)


@mutant(
    PartitionQueue,
    "__init__",
    breaks="D12, R90",
    by="doubled reordered",
    setting=RETRIES,
    killed_by="doubled@2",
)
def never_idempotent(
    original: Any,
    self: Any,
    topic: str,
    partition: int,
    *,
    idempotent: bool,
    in_flight_max: int = 5,
    batch_size_bytes: int = 0,
) -> Any:
    """No batch carries a producer id."""
    original(
        self,
        topic,
        partition,
        idempotent=False,
        in_flight_max=in_flight_max,
        batch_size_bytes=batch_size_bytes,
    )


@mutant(
    PartitionQueue,
    "settle",
    breaks="R93",
    by="doubled",
    setting=LOSING_PRODUCERS,
    masked="a new leader gets one batch at a time, so nothing that may be stored is behind a gap; the pair "
    "is proof-outlives-leaders (seed 1: doubled)",
)
def repeats_unknown_under_new_epoch(original: Any, self: Any) -> Any:
    """After a gap, batches that may be stored are sent again under the next epoch."""
    for batch in self.sent:
        batch.unanswered = 0
    return original(self)


@mutant(Batch, "seal", breaks="R90, R91", by="lost doubled reordered", setting=RETRIES, killed_by="lost@1")
def all_batches_have_one_sequence(original: Any, self: Any, identity: Any, base_sequence: int) -> Any:
    """Every batch has sequence 0."""
    return original(self, identity, min(base_sequence, 0))


@mutant(
    PartitionQueue,
    "next_batch",
    breaks="R93",
    by="reordered doubled",
    setting=FLAPPING,
    masked="a log that forgot no producer refuses one that does not begin at 0 (R93); the pair is "
    "producers-begin-anywhere",
)
def fills_pipeline_before_proof(
    original: Any, self: Any, now_ms: int, identity: Any, leader_epoch: int
) -> Any:
    """A new epoch of the producer has five batches in flight before the first is acknowledged."""
    self._proven = True
    return original(self, now_ms, identity, leader_epoch)


@mutant(
    PartitionQueue,
    "next_batch",
    breaks="R93, R95",
    by="reordered doubled",
    setting=LOSING_PRODUCERS,
    gap="a leader that does not know the producer refuses its first batch for another reason, and not the "
    "second: a unit test of the producer has that order",
)
def proof_outlives_leaders(original: Any, self: Any, now_ms: int, identity: Any, leader_epoch: int) -> Any:
    """A leader of which nothing is known yet gets five batches at once."""
    self._leader_epoch = leader_epoch
    return original(self, now_ms, identity, leader_epoch)


@mutant(
    PartitionQueue,
    "gave_up",
    breaks="R92, R93",
    by="lost reordered",
    setting=SILENCE,
    masked="the log refuses the gap (R92), and what follows from that refusal begins a new epoch",
)
def keeps_epoch_after_giving_up(original: Any, self: Any, batch: Any) -> Any:
    """A batch that was given up leaves a gap in the sequences, and the epoch goes on."""
    original(self, batch)
    self.retired = False


@mutant(Fetcher, "_keep", breaks="rules 9, 10", by="skipped OwnBug", setting=RETRIES, killed_by="skipped@2")
def consumer_does_not_move(
    original: Any, self: Any, part: Any, header: Any, data: Any, high_watermark: int
) -> Any:
    """A consumer asks again for the batch with which the epoch of another leader begins."""
    offset, epoch = part.fetch_offset, part.fetch_epoch
    original(self, part, header, data, high_watermark)
    if 0 <= epoch < header.leader_epoch:
        part.fetch_offset = offset


@mutant(Fetcher, "_keep", breaks="rules 9, 10", by="skipped unseen", setting=RETRIES, killed_by="L-6@1")
def consumer_skips_batches(
    original: Any, self: Any, part: Any, header: Any, data: Any, high_watermark: int
) -> Any:
    """A consumer passes over a batch that it finds while it has moved to another leader."""
    if part.failures == 0 and part.fetch_epoch >= 0 and header.leader_epoch > part.fetch_epoch:
        part.fetch_offset, part.fetch_epoch = header.next_offset, header.leader_epoch
        return
    original(self, part, header, data, high_watermark)


#: a reader that seeks, and its fetches come late
SEEKING = Setting(
    faults={
        "kill_leader": 3,
        "isolate_leader": 3,
        "reset": 4,
        "clog": 5,
        "cut_clients": 2,
        "pause_leader": 2,
    },
    shape={"wanderers": 3},
)


@mutant(Fetcher, "answered", breaks="rules 9, 10", by="astray", setting=SEEKING, killed_by="astray@1")
def late_fetches_count(original: Any, self: Any, request_id: Any, response: Any, now_ms: Any) -> Any:
    """An answer counts though the reader has gone elsewhere since it asked."""
    for part in self._requests[request_id].parts:
        if part.lookup is None and part.position is not None:
            part.request_id = request_id
    return original(self, request_id, response, now_ms)


@mutant(Fetcher, "found", breaks="rules 9, 10", by="astray", setting=SEEKING, killed_by="astray@2")
def late_lookups_count(original: Any, self: Any, request_id: Any, offsets: Any) -> None:
    """So does an offset that was looked up."""
    for topic_partition in offsets:
        part = self._parts.get(topic_partition)
        if part is not None:
            part.request_id = request_id
    original(self, request_id, offsets)


@mutant(Consumer, "_forget_decoded", breaks="rules 9, 10", by="astray", setting=SEEKING, killed_by="astray@2")
def seeks_keep_what_is_decoded(original: Any, self: Any, partition: Any) -> None:
    """Records that were decoded before a seek are given out behind it."""


@mutant(Fetcher, "_reset", breaks="rule 9", by="astray", setting=SEEKING, killed_by="astray@1")
def ends_are_beginnings(original: Any, self: Any, part: Any, policy: Any) -> None:
    """Who asks for the end begins anew."""
    original(self, part, ResetPolicy.EARLIEST if policy is ResetPolicy.LATEST else policy)


@mutant(Sender, "open_batch", breaks="L-5", by="late L-5", setting=SILENCE, killed_by="late@3")
def gives_up_late(original: Any, self: Any, queue: Any, now_ms: Any) -> None:
    """A batch that no broker takes is given up three seconds after its delivery time is over."""
    original(self, queue, now_ms)
    queue.open.deadline_ms += 3_000


#: min ISR is missed for long
TOO_FEW = Setting(faults={"isolate_broker": 6, "kill_broker": 4, "cut_followers": 4}, gap_ms=400)
#: what was read is gone, and the log goes on elsewhere
ANOTHER_PAST = Setting(
    band="over-budget",
    faults={"crumble": 4, "kill_all_brokers": 3, "elect_unclean": 4, "power_broker": 3, "power_all": 2},
    seconds=25,
)


@mutant(sender, "reaction_to", breaks="L-5", by="impatient", setting=TOO_FEW, killed_by="impatient@1")
def gives_up_at_once(original: Any, code: Any) -> Any:
    """A producer gives a write up for which too few replicas are in sync now."""
    return Reaction.HOPELESS if code is ErrorCode.NOT_ENOUGH_REPLICAS else original(code)


@mutant(Batch, "seal", breaks="R93, D12", by="misjudged", setting=RETRIES, killed_by="misjudged@2")
def new_epochs_keep_the_crc(original: Any, self: Any, identity: Any, base_sequence: int) -> None:
    """A batch that gets another epoch and sequence keeps the crc that it had: no broker ever takes it."""
    crc = None if self.payload is None else bytes(self.payload[17:21])
    original(self, identity, base_sequence)
    if crc is not None:
        self.payload[17:21] = crc


#: readers fall behind what is deleted
LEFT_BEHIND = Setting(
    faults={"cut_clients": 5, "clog": 4, "kill_leader": 2, "pause_leader": 2, "reset": 2},
    shape={"retention": True, "wanderers": 2},
    seconds=25,
    gap_ms=700,
)


@mutant(
    Fetcher,
    "_reset_out_of_range",
    breaks="rules 9, 10, R83",
    by="rule",
    setting=LEFT_BEHIND,
    killed_by="rule@1",
)
def goes_to_the_end_when_something_was_deleted(
    original: Any, self: Any, part: Any, log_start_offset: int
) -> None:
    """A consumer that is to go on at the beginning of what is left goes on at its end."""
    self._reset(part, ResetPolicy.LATEST)


@mutant(Sender, "_unknown", breaks="L-5, D9", by="L-5", setting=SILENCE, killed_by="L-5@1")
def nobody_looks_again_after_silence(
    original: Any,
    self: Any,
    queue: Any,
    batch: Any,
    attempt: int,
    now_ms: int,
    effects: Any,
    text: str,
) -> None:
    """A batch whose request got no answer is sent again when the next record comes, whenever that is."""
    if queue.returned(batch, attempt, refused=False):
        batch.error, batch.error_text = ErrorCode.NETWORK_EXCEPTION, text


@mutant(RecordAccumulator, "finish", breaks="L-5", by="L-5", setting=SILENCE, killed_by="L-5@1")
def bytes_of_failures_stay_in_the_buffer(
    original: Any,
    self: Any,
    batch: Any,
    outcome: Any,
    effects: Any,
    error: Any = None,
    error_text: str = "",
    *,
    base_offset: int = -1,
    leader_epoch: int = -1,
) -> None:
    """What was given up counts as buffered for ever: after 32 MiB of it the producer may not send."""
    kept = self.buffered_bytes
    original(
        self, batch, outcome, effects, error, error_text, base_offset=base_offset, leader_epoch=leader_epoch
    )
    if outcome not in (DeliveryOutcome.OK, DeliveryOutcome.OK1):
        self.buffered_bytes = kept


@mutant(Delivery, "result", breaks="rule 2, F5", by="misled", setting=RETRIES, killed_by="misled@1")
def deliveries_tell_where_their_batch_begins(original: Any, self: Any) -> Any:
    """Every record of a batch is told the offset of the first one."""
    told = original(self)
    return told._replace(offset=self._batch.base_offset)


@mutant(
    PartitionFetch, "fetch_epoch", breaks="R81, R88", by="mended", setting=ANOTHER_PAST, killed_by="mended@9"
)
def reads_on_in_any_past(original: Any, self: Any) -> int:
    """A consumer does not say of which epoch it has read last, so no broker tells it that this is gone."""
    return -1


@mutant(
    PartitionFetch,
    "end_of_epoch",
    breaks="R81, R88",
    by="mended",
    setting=ANOTHER_PAST,
    gap="a consumer must have read in two later epochs than the one whose log is elected",
)
def believes_the_end_it_is_told(original: Any, self: Any, epoch: int) -> int:
    """A consumer that is told where logs part looks at the leader's end only, not at what it has read."""
    end: int = self.fetch_offset + 1_000_000
    return end


@mutant(Fetcher, "_refused", breaks="R55, D9", by="troubled", setting=SILENCE, killed_by="troubled@1")
def tells_of_every_trouble(
    original: Any,
    self: Any,
    part: Any,
    code: Any,
    now_ms: int,
    effects: Any,
    log_start_offset: int = -1,
) -> None:
    """A consumer tells its application of errors that another question would mend."""
    if code.is_retriable:
        part.error = ClientError(f"{part.topic_partition}: {code.name}", code)
        return
    original(self, part, code, now_ms, effects, log_start_offset)


@mutant(Producer, "_answered", breaks="D9", by="OwnBug", killed_by="OwnBug@1")
def fails_behind_each_answer(original: Any, self: Any, effect: Any, answer: Any) -> None:
    """A callback of the producer raises; what it was there for is done."""
    original(self, effect, answer)
    raise RuntimeError("what no task awaits has failed")
