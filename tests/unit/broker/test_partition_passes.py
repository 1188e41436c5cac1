"""Passes over all partitions of a broker: an event makes some visits, and the next event follows at once."""

import pytest

from holdfast.broker.core.events import ConfigureLog
from holdfast.broker.core.replicas import partition_passes, replica_manager
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.partition_passes import PartitionPasses
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest
from tests.unit.broker.core_harness import TOPIC, CoreHarness, batch, partition

PARTITIONS, SLICE = 5, 2
SILENT_MS = 3_000
KEYS = [PartitionId(TOPIC, index) for index in range(PARTITIONS)]


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> CoreHarness:
    """Five partitions that broker 1 leads; an event visits two."""
    made = CoreHarness().join(*(partition(1, index=index) for index in range(PARTITIONS)))
    made.tick()  # the first look at all of them
    monkeypatch.setattr(partition_passes, "LOOKS_MAX", SLICE)
    monkeypatch.setattr(replica_manager, "CONFIGURED_MAX", SLICE)
    return made


class Visits:
    """The partitions that one pass visits."""

    def __init__(self, harness: CoreHarness) -> None:
        self.passes = PartitionPasses(harness.core.partitions)
        self.seen: list[int] = []
        self.ends = 0

    def visit(self, visited: Partition, now_ms: int) -> None:
        self.seen.append(visited.key.partition_index)

    def begin(self, *indexes: int) -> None:
        keys = [KEYS[index] for index in indexes]
        self.passes.begin(self.visit, keys, 0, then=self._ended)

    def go_on(self) -> list[int]:
        """What one slice visits."""
        del self.seen[:]
        self.passes.go_on(0)
        return [*self.seen]

    def _ended(self, now_ms: int) -> None:
        self.ends += 1


@pytest.fixture
def visits(harness: CoreHarness) -> Visits:
    return Visits(harness)


def test_a_pass_visits_each_partition_once_in_as_many_events_as_it_takes(visits: Visits) -> None:
    visits.begin(*range(PARTITIONS))
    assert (visits.seen, visits.passes.is_due) == ([0, 1], True)
    assert (visits.go_on(), visits.ends) == ([2, 3], 0)
    assert (visits.go_on(), visits.ends, visits.passes.is_due) == ([4], 1, False)
    assert visits.go_on() == []


def test_a_pass_that_begins_anew_comes_first_to_what_was_left(visits: Visits) -> None:
    """However often it begins, every partition has its turn."""
    visits.begin(*range(PARTITIONS))
    visits.begin(*range(PARTITIONS))
    assert visits.seen == [0, 1, 2, 3]
    assert [visits.go_on() for _ in range(2)] == [[4, 0], [1]]


def test_a_partition_that_is_gone_is_left_out(harness: CoreHarness, visits: Visits) -> None:
    visits.begin(*range(PARTITIONS))
    del harness.core.partitions[KEYS[3]]
    assert visits.go_on() == [2]


def test_a_pass_that_is_ended_visits_nothing_more(visits: Visits) -> None:
    visits.begin(*range(PARTITIONS))
    assert visits.passes.is_under_way(visits.visit)
    visits.passes.end(visits.visit)
    assert (visits.go_on(), visits.passes.is_under_way(visits.visit)) == ([], False)


# --- what the broker does so -----------------------------------------------------------------------------


def per_event(harness: CoreHarness, count: int) -> list[int]:
    """How many logs get their settings in each of the next events; the first has been handled."""
    found = []
    for _ in range(count):
        found.append(sum(type(effect) is ConfigureLog for effect in harness.others))
        harness.others.clear()
        harness.tick()
    return found


def test_logs_get_new_settings_a_slice_an_event(harness: CoreHarness) -> None:
    harness.others.clear()
    harness.metadata(harness.topic_config("flush.messages", "1"))
    assert per_event(harness, 4) == [2, 2, 1, 0]
    assert all(one.counts_flushed for one in harness.core.partitions.values())


def fetch_all(harness: CoreHarness, replica_id: int, offset: int, number: int) -> None:
    last_epoch = 0 if offset else -1
    rows = tuple(FetchPartition(TOPIC, i, 0, offset, last_epoch, offset, 1 << 20) for i in range(PARTITIONS))
    harness.request(FetchRequest(None, replica_id, replica_id - 2, 500, 1, 10 << 20, rows, 1, number))


def fall_silent(harness: CoreHarness) -> None:
    """Broker 3 has nothing of the record that broker 2 has, in each partition."""
    for replica_id in (2, 3):
        fetch_all(harness, replica_id, 0, 0)
    for index in range(PARTITIONS):
        harness.produce(batch(), acks=1, index=index)
    fetch_all(harness, 2, 1, 1)
    for number in range(2, 8):
        harness.fetch(2, None, number=number)
        harness.tick(SILENT_MS // 6)


def test_a_silent_follower_leaves_isrs_a_slice_an_event(harness: CoreHarness) -> None:
    """R115."""
    fall_silent(harness)
    shrunk = [harness.core.counts.isr_shrinks]
    for _ in range(2):
        assert harness.core.next_deadline_ms() == 0
        harness.tick()
        shrunk.append(harness.core.counts.isr_shrinks)
    assert shrunk == [2, 4, 5]


def test_a_follower_that_asks_between_two_slices_stays(harness: CoreHarness) -> None:
    fall_silent(harness)
    harness.fetch(3, None, number=1)
    for _ in range(3):
        harness.tick()
    assert harness.core.counts.isr_shrinks == 2
