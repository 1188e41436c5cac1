"""Mutants of the clients: what a producer takes for lost or stored, sequences, what a consumer gives out.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.client.core import record_accumulator, sender
from holdfast.client.core.batch import Batch
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.partition_fetch import PartitionFetch
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.sender import Sender
from holdfast.client.delivery import Delivery
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.sim.mutants.storage import RETRIES

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


@mutant(breaks="A-18", by="unexpected", setting=SILENCE, killed_by="unexpected@3")
def takes_silence_for_failed() -> Changes:
    """A write without an answer counts as a definite failure."""
    return begin(record_accumulator, "outcome_without_ack", "return DeliveryOutcome.FAIL")


@replacing(Sender, "_unknown", breaks="F5", by="lost", setting=RETRIES, killed_by="reordered@1")
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


@mutant(breaks="D12, R90", by="doubled reordered", setting=RETRIES, killed_by="doubled@2")
def never_idempotent() -> Changes:
    """No batch carries a producer id."""
    return begin(PartitionQueue, "__init__", "idempotent = False")


@mutant(breaks="R90, R91", by="lost doubled reordered", setting=RETRIES, killed_by="lost@1")
def all_batches_have_one_sequence() -> Changes:
    """Every batch has sequence 0."""
    return begin(Batch, "seal", "base_sequence = min(base_sequence, 0)")


@mutant(breaks="rules 9, 10", by="skipped OwnBug", setting=RETRIES, killed_by="skipped@2")
def consumer_does_not_move() -> Changes:
    """A consumer asks again for the batch with which the epoch of another leader begins."""
    return patch(
        Fetcher,
        "_keep",
        "part.fetch_offset = header.next_offset",
        "if not 0 <= part.fetch_epoch < header.leader_epoch:\n"
        "            part.fetch_offset = header.next_offset",
    )


@replacing(Fetcher, "_keep", breaks="rules 9, 10", by="skipped unseen", setting=RETRIES, killed_by="L-6@1")
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


@mutant(breaks="rules 9, 10", by="astray", setting=SEEKING, killed_by="astray@1")
def late_fetches_count() -> Changes:
    """An answer counts though the reader has gone elsewhere since it asked."""
    return patch(
        Fetcher,
        "answered",
        "part.request_id != request_id",
        "part.lookup is not None or part.position is None",
    )


@mutant(breaks="L-5", by="late L-5", setting=SILENCE, killed_by="late@3")
def gives_up_late() -> Changes:
    """A batch that no broker takes is given up three seconds after its delivery time is over."""
    return patch(
        Sender,
        "open_batch",
        "batch = self._accumulator.open_batch(queue, now_ms)",
        "batch = self._accumulator.open_batch(queue, now_ms)\n        batch.deadline_ms += 3_000",
    )


#: min ISR is missed for long
TOO_FEW = Setting(faults={"isolate_broker": 6, "kill_broker": 4, "cut_followers": 4}, gap_ms=400)
#: what was read is gone, and the log goes on elsewhere
ANOTHER_PAST = Setting(
    band="over-budget",
    faults={"crumble": 4, "kill_all_brokers": 3, "elect_unclean": 4, "power_broker": 3, "power_all": 2},
    seconds=25,
)


@mutant(breaks="L-5", by="impatient", setting=TOO_FEW, killed_by="impatient@1")
def gives_up_at_once() -> Changes:
    """A producer gives a write up for which too few replicas are in sync now."""
    return begin(sender, "reaction_to", "if code is ErrorCode.NOT_ENOUGH_REPLICAS: return Reaction.HOPELESS")


@mutant(breaks="R93, D12", by="misjudged", setting=RETRIES, killed_by="misjudged@2")
def new_epochs_keep_the_crc() -> Changes:
    """A batch that gets another epoch and sequence keeps the crc that it had: no broker ever takes it."""
    return patch(Batch, "seal", "_write_crc(self.payload)", "pass")


#: readers fall behind what is deleted
LEFT_BEHIND = Setting(
    faults={"cut_clients": 5, "clog": 4, "kill_leader": 2, "pause_leader": 2, "reset": 2},
    shape={"retention": True, "wanderers": 2},
    seconds=25,
    gap_ms=700,
)


@mutant(breaks="rules 9, 10, R83", by="rule", setting=LEFT_BEHIND, killed_by="rule@1")
def goes_to_the_end_when_something_was_deleted() -> Changes:
    """A consumer that is to go on at the beginning of what is left goes on at its end."""
    return begin(Fetcher, "_reset_out_of_range", "return self._reset(part, ResetPolicy.LATEST)")


@mutant(breaks="rule 2, F5", by="misled", setting=RETRIES, killed_by="misled@1")
def deliveries_tell_where_their_batch_begins() -> Changes:
    """Every record of a batch is told the offset of the first one."""
    return patch(Delivery, "result", "batch.base_offset + self._index", "batch.base_offset")


@mutant(breaks="R81, R88", by="mended", setting=ANOTHER_PAST, killed_by="mended@9")
def reads_on_in_any_past() -> Changes:
    """A consumer does not say of which epoch it has read last, so no broker tells it that this is gone."""
    return begin(PartitionFetch, "fetch_epoch", "return -1")


@mutant(breaks="R55, D9", by="troubled", setting=SILENCE, killed_by="troubled@2")
def tells_of_every_trouble() -> Changes:
    """A consumer tells its application of errors that another question would mend."""
    return patch(Fetcher, "_refused", "not code.is_retriable", "True")
