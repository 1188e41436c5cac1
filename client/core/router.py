"""To which partition a record goes: the one that was named, that of its key, or the one whose turn it is.

Owns how many partitions each topic has as far as this producer goes by it, and the partition that records
without key stick to until its batch is full (KIP-480). A topic that was not sent to for long is known as it
was, so that who does not wait can go on (KAFKA-8904).
"""

from holdfast.client.core.errors import ClientError
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.partitioner import partition_of_key
from holdfast.client.core.sender import Sender
from holdfast.client.core.wanted_topics import WantedTopics

#: About what a record takes besides key, value and headers.
_RECORD_OVERHEAD = 32


class _Topic:
    """Queues of one topic by partition, and the one that keyless records go to."""

    __slots__ = ("queues", "sticky")

    def __init__(self, queues: list[PartitionQueue]) -> None:
        self.queues = queues
        self.sticky = queues[0]


class Router:
    """Of one producer."""

    __slots__ = ("_idle", "_sender", "topics")

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        #: those whose number of partitions is known and kept fresh. Read only
        self.topics: dict[str, _Topic] = {}
        #: those whose metadata are not asked for any more
        self._idle: dict[str, _Topic] = {}

    def learn(self, topic: str, partition_count: int) -> None:
        """Metadata were waited for: records go to these from now on."""
        if topic not in self.topics:
            self.topics[topic] = _Topic(self._queues(topic, partition_count))
            self._idle.pop(topic, None)

    def metadata_changed(self, cache: MetadataCache, wanted: WantedTopics) -> None:
        """A metadata answer was merged into the cache, or none could be had."""
        for topic, known in list(self.topics.items()):
            if topic not in wanted:
                self._idle[topic] = self.topics.pop(topic)
                continue
            view = cache.topic(topic)
            if view is not None and len(view.leaders) != len(known.queues):
                # More were added, or the topic was made again.
                known.queues = self._queues(topic, len(view.leaders))
                if known.sticky not in known.queues:
                    known.sticky = known.queues[0]

    def route(self, topic: str, key: bytes | None, partition: int | None, size: int) -> PartitionQueue:
        """Where a record of about `size` bytes goes. Raises: ClientError."""
        known = self.topics.get(topic) or self._wake(topic)
        queues = known.queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise ClientError(f"{topic} has partitions 0 to {len(queues) - 1}, not {partition}")
            return queues[partition]
        if key is not None:
            return queues[partition_of_key(key, len(queues))]
        queue = known.sticky
        batch = queue.open
        if batch is None or batch.size_bytes + size + _RECORD_OVERHEAD > queue.batch_size_bytes:
            self._sender.close_batch(queue)
            # A batch's worth for each partition in turn, past those without a leader that answers.
            start = queue.partition + 1
            turn = [queues[(start + step) % len(queues)] for step in range(len(queues))]
            queue = known.sticky = next((q for q in turn if self._sender.is_available(q)), turn[0])
        return queue

    def _wake(self, topic: str) -> _Topic:
        # Who does not wait goes by the partitions of then, and the records wait for a leader.
        known = self._idle.pop(topic, None)
        if known is None:
            raise ClientError(f"await partition_count({topic!r}) before send_nowait")
        self.topics[topic] = known
        return known

    def _queues(self, topic: str, partition_count: int) -> list[PartitionQueue]:
        return [self._sender.queue(topic, partition) for partition in range(partition_count)]
