"""Which partitions a subscription finds, and when it says that a topic is not there."""

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.subscription import Subscription
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import MetadataPartition, MetadataResponse, MetadataTopic


class Bench:
    """A subscription to `t` and `u`, and what nodes say of topics."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.subscription = Subscription(["t", "u", "t"], Backoff(20, 500), now_ms=0)
        self.offset = 0

    def tell(self, name: str, partitions: int, topic_id: int = 1) -> list[tuple[str, int, bool]]:
        """Nodes describe a topic; its new partitions as (topic, index, is_late)."""
        self.offset += 1
        rows = tuple(MetadataPartition(0, index, 1, 1, (1,), (1,), ()) for index in range(partitions))
        topic = MetadataTopic(0, name, topic_id.to_bytes(16, "big"), rows)
        self.cache.update(MetadataResponse("c", 101, self.offset, (), (topic,)))
        return [(*new.topic_partition, new.is_late) for new in self.subscription.news(self.cache)]

    def deny(self, name: str) -> None:
        """Nodes say that there is no such topic."""
        self.offset += 1
        topic = MetadataTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, bytes(16), ())
        self.cache.update(MetadataResponse("c", 101, self.offset, (), (topic,)))
        assert self.subscription.news(self.cache) == []


def test_each_partition_is_new_once() -> None:
    bench = Bench()
    assert bench.subscription.topics == ("t", "u")
    assert bench.tell("t", 2) == [("t", 0, False), ("t", 1, False)]
    assert bench.tell("t", 2) == []
    assert not bench.subscription.is_complete
    assert bench.tell("u", 1) == [("u", 0, False)]
    assert bench.subscription.is_complete


def test_partitions_that_turn_up_after_their_topic_was_met_are_late() -> None:
    bench = Bench()
    bench.tell("t", 1)
    assert bench.tell("t", 3) == [("t", 1, True), ("t", 2, True)]


def test_a_topic_made_again_with_fewer_partitions_may_grow_again() -> None:
    bench = Bench()
    bench.tell("t", 3)
    assert bench.tell("t", 1, topic_id=2) == []
    assert bench.tell("t", 2, topic_id=2) == [("t", 1, True)]


def test_a_topic_that_is_deleted_stays_met() -> None:
    bench = Bench()
    bench.tell("t", 1)
    bench.tell("u", 1)
    bench.deny("t")
    assert bench.subscription.is_complete
    assert bench.subscription.problem(bench.cache, 10_000) is None


def test_a_topic_that_was_deleted_and_made_again_is_late_as_a_whole() -> None:
    bench = Bench()
    bench.tell("t", 2)
    bench.deny("t")
    assert bench.tell("t", 1, topic_id=2) == [("t", 0, True)]
    assert bench.tell("t", 1, topic_id=2) == []


def test_a_topic_that_was_never_there_is_a_problem_after_three_seconds_and_again_later() -> None:
    bench = Bench()
    bench.tell("t", 1)
    assert bench.subscription.problem(bench.cache, 60_000) is None, "no node has said anything"
    bench.deny("u")
    assert bench.subscription.problem(bench.cache, 2_999) is None
    problem = bench.subscription.problem(bench.cache, 3_000)
    assert str(problem) == "topic u: UNKNOWN_TOPIC_OR_PARTITION; create it first"
    assert bench.subscription.problem(bench.cache, 5_999) is None
    assert bench.subscription.problem(bench.cache, 6_000) is not None
    bench.tell("u", 1)
    assert bench.subscription.problem(bench.cache, 60_000) is None


def test_a_missing_topic_is_asked_for_again_with_growing_pauses() -> None:
    bench = Bench()
    asked = [now_ms for now_ms in range(2_000) if bench.subscription.wants_metadata(now_ms)]
    assert asked == [0, 20, 60, 140, 300, 620, 1_120, 1_620]
    assert bench.subscription.next_deadline_ms() is not None
    bench.tell("t", 1)
    bench.tell("u", 1)
    assert not bench.subscription.wants_metadata(10_000)
    assert bench.subscription.next_deadline_ms() is None
