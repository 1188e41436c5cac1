"""Properties of producers between two of their steps: what waits is waited for, what is kept is counted.

Owns a second opinion on state that shows outside only when a delivery takes long, or when the buffer is full.
"""

from holdfast.client.core.batch import Batch, Compression
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.sender import Sender
from holdfast.client.producer import Producer
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property

_HEADER_BYTES = Batch("", -1, 0, 1, Compression.NONE, 0, 0).size_bytes


class QueuesAreLookedAtAgain(Property):
    """L-5, D9: all that a producer has to send is on its way, or something is under way by which its queue is
    looked at again: a pause, news of a leader, a connection, an identity. It waits for no other record."""

    name = "L-5 QueuesAreLookedAtAgain"

    def producer_stepped(self, seen: Observer, producer: Producer) -> None:
        sender = producer._sender
        for queue in sender._accumulator.queues.values():
            if not queue.is_idle and not queue.in_flight and _is_forgotten(sender, queue):
                story = (
                    f"{producer.identity} has {len(queue.sent)} batches of {queue.topic}-{queue.partition}"
                )
                story = f"{story} to repeat and {len(queue.ready)} to send, and waits for nothing"
                seen.broken(self, None, story)


def _is_forgotten(sender: Sender, queue: PartitionQueue) -> bool:
    """It has something to send, and the producer will not look at it."""
    is_due = queue.open is not None and queue.due
    if queue.broken or not (queue.sent or queue.ready or is_due):
        return False
    accumulator = sender._accumulator
    waits = (accumulator.ready, accumulator.held, accumulator.waiting_for_leader, sender._identity.waiting)
    links = (broker.waiting for broker in sender._brokers.values())
    return not any(queue in one for one in (*waits, *links))


class BufferedIsIncomplete(Property):
    """L-5: the bytes that a producer counts as buffered are those of the batches without outcome: what has
    ended keeps no room from what comes."""

    name = "L-5 BufferedIsIncomplete"

    def producer_stepped(self, seen: Observer, producer: Producer) -> None:
        accumulator = producer._sender._accumulator
        kept = sum(batch.size_bytes - _HEADER_BYTES for batch in accumulator.incomplete)
        if kept != accumulator.buffered_bytes:
            story = (
                f"{producer.identity} counts {accumulator.buffered_bytes} bytes as buffered, there are {kept}"
            )
            seen.broken(self, None, story)
