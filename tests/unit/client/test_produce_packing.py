"""Which batch goes into which request to a broker."""

from holdfast.client.core.batch import Batch, Compression, ProducerIdAndEpoch
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.produce_packing import Packing

ID = ProducerIdAndEpoch(7, 0)


def queue_of(partition: int, batches: int) -> PartitionQueue:
    """A queue with so many batches that may all be sent."""
    queue = PartitionQueue("t", partition, idempotent=False)
    for serial in range(batches):
        batch = Batch("t", partition, serial, 10_000, Compression.NONE, 0, 1_000)
        assert batch.append(5, None, bytes(100), ())
        queue.ready.append(batch)
    return queue


def packed(limit_bytes: int, *queues: PartitionQueue) -> list[list[tuple[int, int]]]:
    """(partition, serial) of what is in each request."""
    packing = Packing(limit_bytes)
    for queue in queues:
        packing.take(queue, 0, ID, 1)
    return [[(part.batch.partition, part.batch.serial) for part in parts] for parts in packing.requests()]


def test_batches_of_a_partition_go_into_different_requests_in_their_order() -> None:
    assert packed(10_000, queue_of(0, 3), queue_of(1, 2)) == [
        [(0, 0), (1, 0)],
        [(0, 1), (1, 1)],
        [(0, 2)],
    ]


def test_a_full_request_is_passed_over() -> None:
    """A batch here has 61 + 110 bytes or so: one fits into 300, two do not."""
    assert packed(300, queue_of(0, 1), queue_of(1, 2)) == [[(0, 0)], [(1, 0)], [(1, 1)]]


def test_a_batch_larger_than_the_limit_goes_alone() -> None:
    assert packed(1, queue_of(0, 1), queue_of(1, 1)) == [[(0, 0)], [(1, 0)]]


def test_without_anything_to_send_there_is_no_request() -> None:
    assert packed(10_000, queue_of(0, 0)) == []
