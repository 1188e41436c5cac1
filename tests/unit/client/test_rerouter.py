"""What news from metadata mean for what waits and what is on its way (D9, R91)."""

from holdfast.client.core.batch import Batch, ProducerIdAndEpoch
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.core.partition_queue import PartitionQueue
from holdfast.client.core.produce_packing import Part, Request
from holdfast.client.core.producer_identity import ProducerIdentity
from holdfast.client.core.record_accumulator import RecordAccumulator
from holdfast.client.core.rerouter import Rerouter
from holdfast.client.core.sender_effects import Complete, Effect
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from tests.unit.client.test_record_accumulator import CONFIG

OLD, NEW = b"\x01" * 16, b"\x02" * 16


class Bench:
    """A topic of two partitions, led by brokers 1 and 2 in epoch 1, with a batch in each queue."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.offset = 0
        self.identity = ProducerIdentity(CONFIG.retry)
        self.identity.newest = ProducerIdAndEpoch(7, 0)
        self.box = RecordAccumulator(CONFIG, self.identity)
        self.rerouter = Rerouter(self.cache, self.box, self.identity)
        self.tell((1, 1), (2, 1))
        self.effects: list[Effect] = []
        self.queues = [self.box.queue("t", 0), self.box.queue("t", 1)]
        self.batches = [self._batch(queue) for queue in self.queues]

    def _batch(self, queue: PartitionQueue) -> Batch:
        batch = self.box.open_batch(queue, 0)
        self.box.buffered_bytes += batch.append(5, None, b"v", ())
        queue.due = True
        return batch

    def tell(self, *leaders: tuple[int, int], topic_id: bytes = OLD, cluster_id: str = "c") -> None:
        self.offset += 1
        rows = tuple(MetadataPartition(0, i, *at, (1, 2, 3), (1, 2, 3), ()) for i, at in enumerate(leaders))
        brokers = tuple(MetadataBroker(n, "h", n, None) for n in (1, 2, 3))
        topic = MetadataTopic(0, "t", topic_id, rows)
        self.cache.update(MetadataResponse(cluster_id, 101, self.offset, brokers, (topic,)))

    def send(self, index: int) -> Request:
        """That queue's batch is on its way to the leader."""
        queue = self.queues[index]
        leader = self.cache.leader("t", index)
        queue.go_to(OLD)
        batch = queue.next_batch(0, self.identity.newest, leader.leader_epoch)
        assert batch is not None
        return Request(leader.broker_id, 0, (Part(queue, batch, batch.attempt),))

    def follow(self) -> bool:
        return self.rerouter.follow(self.effects)

    def take_back(self, request: Request) -> bool:
        """True when the batch waits to be sent again."""
        self.rerouter.take_back([request], self.effects)
        return request.parts[0].queue.in_flight == 0

    def ended(self) -> list[Batch]:
        return [effect.batch for effect in self.effects if isinstance(effect, Complete)]


def test_who_waited_for_a_leader_goes_on_with_a_later_one() -> None:
    bench = Bench()
    queue = bench.queues[0]
    bench.box.waiting_for_leader[queue] = None
    queue.stale_epoch, queue.hold_until_ms = 1, 99
    bench.tell((3, 2), (2, 1))
    assert not bench.follow()
    assert (bench.box.waiting_for_leader, list(bench.box.ready)) == ({}, [queue])
    assert (queue.stale_epoch, queue.hold_until_ms) == (-1, 0)


def test_without_news_it_goes_on_waiting_and_tries_the_old_leader_which_may_be_back() -> None:
    bench = Bench()
    for queue in bench.queues:
        bench.box.waiting_for_leader[queue] = None
        queue.stale_epoch = 1
    bench.tell((1, 1), (-1, 2))
    assert bench.follow()
    assert list(bench.box.waiting_for_leader) == bench.queues
    assert list(bench.box.ready) == bench.queues[:1]


def test_who_has_nothing_to_send_waits_for_no_leader() -> None:
    bench = Bench()
    idle = bench.box.queue("t", 9)
    bench.box.waiting_for_leader[idle] = None
    assert not bench.follow()
    assert bench.box.waiting_for_leader == {}


def test_what_is_for_a_partition_that_is_gone_ends() -> None:
    bench = Bench()
    bench.tell((1, 1), topic_id=NEW)
    bench.follow()
    assert bench.ended() == [bench.batches[1]]
    assert bench.batches[1].outcome is DeliveryOutcome.FAIL
    assert bench.batches[1].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "made again with 1 partitions, without 1" in bench.batches[1].error_text


def test_in_another_cluster_no_id_of_the_former_one_is_used() -> None:
    """R91: it is another producer's there, so what was sent under it has an unknown fate."""
    bench = Bench()
    bench.follow()
    request = bench.send(0)
    bench.queues[0].returned(bench.batches[0], 1, refused=False)
    bench.tell((1, 1), (2, 1), cluster_id="another")
    bench.follow()
    assert bench.identity.newest is None
    assert bench.ended() == [request.parts[0].batch]
    assert bench.batches[0].outcome is DeliveryOutcome.INFO
    bench.effects.clear()
    bench.identity.newest = ProducerIdAndEpoch(8, 0)
    bench.follow()
    assert bench.identity.newest == (8, 0)


def test_the_first_cluster_heard_of_is_no_other_one() -> None:
    bench = Bench()
    bench.send(0)
    bench.follow()
    assert bench.identity.newest == (7, 0)
    assert not bench.queues[0].retired


def test_what_is_on_its_way_to_a_former_leader_is_taken_back_once_there_is_another() -> None:
    bench = Bench()
    request = bench.send(0)
    assert not bench.take_back(request)
    bench.tell((-1, 2), (2, 1))
    assert not bench.take_back(request)  # no leader to send it to
    bench.tell((1, 3), (2, 1))
    assert not bench.take_back(request)  # it leads again, and will answer
    bench.tell((3, 4), (2, 1))
    assert bench.take_back(request)
    assert list(bench.box.ready) == bench.queues[:1]


def test_what_is_on_its_way_to_the_former_topic_is_taken_back_at_any_leader_epoch() -> None:
    bench = Bench()
    request = bench.send(0)
    bench.tell((2, 0), (2, 0), topic_id=NEW)
    assert bench.take_back(request)


def test_an_attempt_that_is_not_the_last_one_is_left_alone() -> None:
    bench = Bench()
    first = bench.send(0)
    bench.queues[0].returned(bench.batches[0], 1, refused=False)
    bench.send(0)
    bench.tell((3, 2), (2, 1))
    assert not bench.take_back(first)
