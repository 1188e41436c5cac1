"""To which partition a record goes; seen from the application, test_producer says the same."""

import pytest

from holdfast.client.core.errors import ClientError
from holdfast.client.core.partitioner import partition_of_key
from holdfast.client.core.router import Router
from holdfast.client.core.wanted_topics import METADATA_MAX_IDLE_MS, WantedTopics
from tests.unit.client.test_sender import Bench as SenderBench


class Bench(SenderBench):
    """A topic of six partitions whose leaders answer, and who sends to it."""

    def __init__(self) -> None:
        super().__init__(linger_ms=10)
        self.router = Router(self.sender)
        self.wanted = WantedTopics()
        self.wanted.use("t", 0)
        self.router.learn("t", 6)

    def route(self, *, key: bytes | None = None, partition: int | None = None, size: int = 10) -> int:
        """Puts a record there, too."""
        index = self.router.route("t", key, partition, size).partition
        self.put(index, size)
        return index

    def told(self) -> None:
        self.router.metadata_changed(self.cache, self.wanted)


def test_a_topic_is_known_once_metadata_were_waited_for() -> None:
    router = Router(Bench().sender)
    assert "t" not in router.topics
    with pytest.raises(ClientError, match="await partition_count"):
        router.route("t", None, 0, 10)
    router.learn("t", 2)
    assert "t" in router.topics
    assert router.route("t", None, 1, 10).partition == 1


def test_who_names_a_partition_gets_it_or_hears_which_there_are() -> None:
    bench = Bench()
    assert [bench.route(partition=index, key=b"k") for index in (5, 0)] == [5, 0]
    for index in (-1, 6):
        with pytest.raises(ClientError, match="partitions 0 to 5"):
            bench.route(partition=index)


def test_records_of_one_key_go_to_one_partition() -> None:
    bench = Bench()
    for key in (b"a", b"b", b""):
        assert {bench.route(key=key) for _ in range(3)} == {partition_of_key(key, 6)}


def test_without_key_a_batch_is_filled_and_the_next_one_goes_to_the_next_partition() -> None:
    bench = Bench()
    assert [bench.route(size=300) for _ in range(6)] == [1, 1, 2, 2, 3, 3]
    assert bench.sender.queue("t", 1).open is None


def test_a_partition_without_a_leader_has_no_turn_unless_none_has_one() -> None:
    bench = Bench()
    bench.leaders[1:4] = [(-1, 2)] * 3
    bench.tell()
    assert bench.route() == 4
    bench.leaders = [(-1, 3)] * 6
    bench.tell()
    assert bench.route(size=900) == 5


def test_partitions_that_were_added_are_used_and_those_that_are_gone_are_not() -> None:
    bench = Bench()
    assert bench.route() == 1
    bench.leaders.append((1, 1))
    bench.tell()
    bench.told()
    assert bench.route(partition=6) == 6
    assert bench.route() == 1
    bench.topic_id, bench.leaders = b"\x02" * 16, [(1, 1)]
    bench.tell()
    bench.told()
    assert bench.route() == 0
    with pytest.raises(ClientError, match="partitions 0 to 0"):
        bench.route(partition=1)


def test_a_topic_that_was_forgotten_is_learnt_anew_and_serves_meanwhile_who_does_not_wait() -> None:
    """KAFKA-8904."""
    bench = Bench()
    assert bench.route() == 1
    assert bench.wanted.forget_idle(METADATA_MAX_IDLE_MS, ()) == ["t"]
    bench.cache.forget("t")
    bench.told()
    assert "t" not in bench.router.topics
    assert bench.router.route("t", None, None, 10).partition == 1
    assert "t" in bench.router.topics
    bench.told()
    assert "t" not in bench.router.topics
    bench.router.learn("t", 2)
    with pytest.raises(ClientError, match="partitions 0 to 1"):
        bench.router.route("t", None, 5, 10)


def test_metadata_that_do_not_know_a_topic_change_nothing() -> None:
    """It was deleted: what is sent to it waits for its time-out, or for another one of its name."""
    bench = Bench()
    bench.cache.forget("t")
    bench.told()
    assert bench.route(partition=5) == 5
