"""Properties of answers that no other property hears: to producers with acks=1 or without an id, to consumers
for which there is something, and to questions about offsets, which the load of a run never asks.

Owns the questions too: a leader is asked between two of its steps, which changes nothing of it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.events import AnswerFetch, AnswerOffsets, Respond
from holdfast.broker.core.requests.producer_ids import EPOCH_MAX
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from holdfast.protocol.messages.offset_for_leader_epoch import (
    EpochPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from holdfast.protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Property, ReplicaView
from holdfast.sim.cluster.nodes import SimBroker

_leader_epoch = attrgetter("leader_epoch")


class LeaderAckIsInLog(Property):
    """D6: who sent with acks=1 is told so once the batch is in the leader's log as it was written, and on its
    disk where every write is flushed. It may be cut off later, by another leader."""

    name = "D6 LeaderAckIsInLog"

    def acknowledged_by_leader(
        self, seen: Observer, view: ReplicaView, base_offset: int, leader_epoch: int
    ) -> None:
        leadership = view.leadership
        if view.survives is not None or view.history.start_offset or leadership is None:
            return
        batch = next((one for one in reversed(view.history.batches) if one.base_offset == base_offset), None)
        if batch is None or batch.leader_epoch != leader_epoch:
            # A request of several partitions waits for the slowest; meanwhile another may have led.
            if leadership.leader_epoch == leader_epoch:
                story = (
                    f"{view.broker.name} acknowledged {base_offset} of epoch {leader_epoch}, it has {batch}"
                )
                seen.broken(self, view.index, story)
        elif seen.counts_durable(view) and view.log.flushed_offset <= batch.last_offset:
            story = f"{view.broker.name} acknowledged {batch} and has flushed up to {view.log.flushed_offset}"
            seen.broken(self, view.index, story)


class ProducerIdsAreGivenOnce(Property):
    """D12, R93: a producer without a producer id is given one that no producer was given before, by any
    broker, under any controller; a producer with one is given the next epoch of it. An equal id and epoch
    would make logs take one producer's batches for repetitions of another's."""

    name = "D12 ProducerIdsAreGivenOnce"

    def __init__(self) -> None:
        #: {id: who gave it}
        self._given: dict[int, str] = {}

    def producer_id_given(
        self, seen: Observer, broker: SimBroker, asked: InitProducerIdRequest, given: InitProducerIdResponse
    ) -> None:
        former = self._given.get(given.producer_id)
        now = given.producer_id, given.producer_epoch
        has_one = asked.producer_id >= 0 and 0 <= asked.producer_epoch < EPOCH_MAX
        if has_one and now != (asked.producer_id, asked.producer_epoch + 1):
            seen.broken(self, None, f"{broker.name} gives {now} to {asked}")
        elif not has_one and (former is not None or given.producer_epoch != 0):
            seen.broken(self, None, f"{broker.name} gives {now} anew, given before by {former}")
        self._given.setdefault(given.producer_id, broker.process.name)


class ReadersGetWhatThereIs(Property):
    """R55: a consumer for which there is something gets a whole batch, were it larger than it has asked for,
    or hears why not: else it would ask for the same again for ever."""

    name = "R55 ReadersGetWhatThereIs"

    def consumer_answered(
        self, seen: Observer, broker: SimBroker, asked: AnswerFetch, told: FetchResponse
    ) -> None:
        is_anything = asked.max_bytes > 0 and any(row.max_bytes for row in asked.rows)
        if is_anything and not any(len(row.records) or row.error_code for row in told.partitions):
            wanted = [(row.partition_index, row.fetch_offset, row.end_offset) for row in asked.rows]
            seen.broken(self, None, f"{broker.name} gives nothing of (partition, from, below) {wanted}")


class OffsetsAreTold(Property):
    """A-6, F6, R80: a leader that is asked names as the latest offset no high watermark below the start of
    its epoch, as the earliest the start of its log, and as the end of an epoch where the next one begins."""

    name = "A-6 OffsetsAreTold"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        leadership, node = view.leadership, view.broker.node
        if leadership is None or leadership.start_offset is None or node is None or view.process.is_dead:
            return
        is_news = view.high_watermark != before.high_watermark or leadership is not before.leadership
        if not is_news or view.log.failure is not None:
            return
        core, key = node.core, view.replica.key
        earliest, latest = _offsets(core, key)
        high_watermark = view.replica.high_watermark
        wanted = high_watermark if high_watermark >= leadership.start_offset else -1
        if latest != wanted:
            story = f"{view.broker.name} tells {latest} as the latest, its epoch began at"
            seen.broken(
                self,
                view.index,
                f"{story} {leadership.start_offset}, its high watermark is {high_watermark}",
            )
        if earliest != view.log.log_start_offset:
            story = f"{view.broker.name} tells {earliest} as the earliest"
            seen.broken(self, view.index, f"{story}, its log begins at {view.log.log_start_offset}")
        if not view.history.start_offset:
            self._ask_epochs(seen, view, core)

    def _ask_epochs(self, seen: Observer, view: ReplicaView, core: Broker) -> None:
        """Of the last two epochs with batches, and of the one that no batch is of yet."""
        start_offset = view.log.log_start_offset
        batches = view.history.batches
        batches = [one for one in batches if one.last_offset >= start_offset] if start_offset else batches
        if not batches or batches[-1].last_offset + 1 != view.log.log_end_offset:
            return
        last = batches[-1].leader_epoch
        at = bisect_left(batches, last, key=_leader_epoch)
        ends = [(batches[at - 1].leader_epoch, batches[at].base_offset)] if at else []
        latest = view.log.leader_epoch_cache.latest
        is_without_data = latest is not None and latest.epoch > last
        ends.append((last, latest.start_offset if is_without_data and latest else view.log.log_end_offset))
        for epoch, end_offset in ends:
            found = _end_of(core, view.replica.key, epoch)
            if found != (epoch, end_offset):
                story = f"{view.broker.name} tells {found} as the end of epoch {epoch}"
                seen.broken(self, view.index, f"{story}, it is {end_offset}")


def _offsets(core: Broker, key: PartitionId) -> tuple[int, int]:
    """(earliest, latest) as a client would be told; -1 where they are not known."""
    asked = tuple(ListOffsetsPartition(*key, -1, stamp) for stamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP))
    answer = core.fetch_path.list_offsets(None, ListOffsetsRequest(asked))
    assert isinstance(answer, AnswerOffsets)
    earliest, latest = (row.offset if row.error_code == ErrorCode.NONE else -1 for row in answer.rows)
    return earliest, latest


def _end_of(core: Broker, key: PartitionId, epoch: int) -> tuple[int, int]:
    """(epoch, end) as a client would be told."""
    request = OffsetForLeaderEpochRequest(-1, (EpochPartition(*key, -1, epoch),))
    effect = core.fetch_path.offset_for_leader_epoch(None, request)
    assert isinstance(effect, Respond)
    assert isinstance(effect.message, OffsetForLeaderEpochResponse)
    row = effect.message.partitions[0]
    return row.leader_epoch, row.end_offset
