"""Where queued batches go when what they were meant for is elsewhere: the leader, the topic, the cluster.

Owns what news from metadata mean for a producer's queues: who waited for a leader goes on, what is on its
way to a former one is taken back, what has no partition any more ends, and no id of another cluster is kept.
Which leader is the newest, `client.core.metadata_cache` says. Rules: R91 (another cluster), D9.
"""

from collections.abc import Iterable

from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.produce_packing import Request
from holdfast.client.core.producer_identity import ProducerIdentity
from holdfast.client.core.record_accumulator import RecordAccumulator
from holdfast.client.core.sender_effects import Effect
from holdfast.protocol.errors import ErrorCode


class Rerouter:
    """Of one producer."""

    __slots__ = ("_cache", "_cluster_id", "_identity", "_accumulator")

    def __init__(
        self, cache: MetadataCache, accumulator: RecordAccumulator, identity: ProducerIdentity
    ) -> None:
        self._cache = cache
        self._accumulator = accumulator
        self._identity = identity
        #: whose ids of producers these are; empty before the first answer
        self._cluster_id = cache.cluster_id

    def follow(self, effects: list[Effect]) -> bool:
        """Metadata may have changed: send what waits to where it belongs now. True when some queue goes on
        waiting for news."""
        if self._cache.cluster_id != self._cluster_id:
            if self._cluster_id:
                self._leave_cluster(effects)
            self._cluster_id = self._cache.cluster_id
        self._end_homeless(effects)
        return self._find_leaders()

    def _leave_cluster(self, effects: list[Effect]) -> None:
        # Another one at the same addresses: it gives the ids of the former one to others.
        self._identity.forget()
        for queue in self._accumulator.queues.values():
            if queue.leave_identity():
                self._accumulator.settle(queue, effects)
                self._accumulator.look_again(queue)

    def _end_homeless(self, effects: list[Effect]) -> None:
        # Partitions only ever vanish with their topic: it was made again with fewer, and no leader will come.
        for batch in list(self._accumulator.incomplete):
            view = self._cache.topic(batch.topic)
            if batch.is_done or view is None or batch.partition < len(view.leaders):
                continue
            queue = self._accumulator.queue_of(batch)
            text = (
                f"{queue.topic} was made again with {len(view.leaders)} partitions, without {queue.partition}"
            )
            self._accumulator.give_up(queue, batch, effects, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            self._accumulator.settle(queue, effects)
            self._accumulator.look_again(queue)

    def _find_leaders(self) -> bool:
        accumulator = self._accumulator
        is_waiting = False
        for queue in list(accumulator.waiting_for_leader):
            if queue.is_idle:
                del accumulator.waiting_for_leader[queue]
                continue
            leader = self._cache.leader(queue.topic, queue.partition)
            if leader.broker_id >= 0 and leader.leader_epoch > queue.stale_epoch:
                del accumulator.waiting_for_leader[queue]
                queue.stale_epoch = -1
                queue.hold_until_ms = 0
                accumulator.look_again(queue)
            else:
                # Also when the old leader is all there is: it may have come back.
                if leader.broker_id >= 0:
                    accumulator.ready[queue] = None
                is_waiting = True
        return is_waiting

    def take_back(self, requests: Iterable[Request], effects: list[Effect]) -> None:
        """Queue again what is on its way to a broker that leads it no more. Not for producers that would
        write twice by that: those with acks and without idempotence."""
        # The leader's silence ends here: it cannot commit any more, and the sequence makes repeating safe.
        # With acks 0 nothing does, but nothing was promised, and the socket of a frozen leader takes no more.
        for request in requests:
            for queue, batch, attempt in request.parts:
                leader = self._cache.leader(queue.topic, queue.partition)
                view = self._cache.topic(queue.topic)
                is_of_another = view is not None and view.topic_id != batch.sent_topic_id
                if (
                    batch.attempt == attempt
                    and batch.in_flight
                    and (is_of_another or leader.leader_epoch > batch.sent_epoch)
                    and leader.broker_id not in (-1, request.broker_id)
                    and queue.returned(batch, attempt, refused=False)
                ):
                    self._accumulator.returned(queue, effects)
