"""Throttled replicas that this broker fetches: those that are not in sync wait for the rate, others never."""

import pytest

from holdfast.broker.core.replicas.follower_throttle import RequestWindow
from holdfast.metadata.records import ConfigRecord, MetadataRecord, RemoveTopicRecord
from tests.unit.broker.core_harness import TOPIC, CoreHarness, change, fetched_batch, partition
from tests.unit.broker.test_fetcher import answer, fail, row, take

FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


def follower(isr: tuple[int, ...], high_watermark: int = 9_000) -> CoreHarness:
    """Broker 1 follows broker 2 in two partitions, and has fetched far above the rate of the first one."""
    harness = CoreHarness().join(
        partition(2, isr, leader_epoch=5), partition(2, (2, 3), leader_epoch=5, index=1)
    )
    harness.metadata(
        ConfigRecord(4, "", FOLLOWER_RATE, "1000"), harness.topic_config(FOLLOWER_REPLICAS, "0:1")
    )
    (sent,) = (
        one for one in harness.fetches if any(not row.partition_index for row in one.request.partitions)
    )
    harness.fetches.clear()
    answer(harness, sent, row(fetched_batch(0, 3_000, 5), high_watermark=high_watermark, end=9_000))
    return harness


def listed(harness: CoreHarness) -> list[tuple[int, int]]:
    """(partition, offset) of each row that was asked for since the last look."""
    sent, harness.fetches = harness.fetches, []
    return [(row.partition_index, row.fetch_offset) for one in sent for row in one.request.partitions]


def test_a_replica_that_is_not_in_sync_fetches_on_once_the_rate_is_back_at_the_limit() -> None:
    harness = follower((2, 3))
    assert listed(harness) == []
    wait_ms = harness.core.fetchers.throttle.quota.resume_ms - harness.now_ms
    assert harness.core.fetchers.next_deadline_ms() == harness.now_ms + wait_ms
    harness.tick(wait_ms - 1)
    assert harness.fetches == []
    harness.tick(1)
    (again,) = take(harness).request.partitions
    assert (again.fetch_offset, again.max_bytes) == (3_000, 1_000)


def test_others_of_the_same_leader_are_fetched_meanwhile() -> None:
    harness = follower((2, 3))
    sent = take(harness)
    answer(harness, sent, row(fetched_batch(0, 4, 5), high_watermark=4, end=4, index=1))
    assert listed(harness) == [(1, 4)]


@pytest.mark.parametrize(
    ("isr", "high_watermark"),
    [((1, 2, 3), 9_000), ((2, 3), 3_000)],
    ids=["in the ISR", "perhaps in the one that the leader proposes"],
)
def test_a_replica_that_a_write_may_wait_for_fetches_on_at_once(
    isr: tuple[int, ...], high_watermark: int
) -> None:
    assert listed(follower(isr, high_watermark)) == [(0, 3_000)]


@pytest.mark.parametrize(
    "record",
    [
        change(isr=(1, 2, 3)),
        ConfigRecord(4, "", FOLLOWER_RATE, None),
        ConfigRecord(4, "1", FOLLOWER_RATE, "1000000"),
        ConfigRecord(2, "t", FOLLOWER_REPLICAS, "1:1"),
    ],
    ids=["in sync", "any rate", "a higher rate", "other replicas"],
)
def test_what_ends_the_wait_of_a_replica(record: MetadataRecord) -> None:
    harness = follower((2, 3))
    take(harness)
    harness.metadata(record)
    assert listed(harness) == [(0, 3_000)]


def test_a_request_asks_for_one_window_of_all_replicas_that_may_wait() -> None:
    """The others are listed in the next ones, unless the rate is exceeded by then."""
    harness = CoreHarness().join(*(partition(2, (2, 3), leader_epoch=5, index=index) for index in range(4)))
    harness.metadata(
        ConfigRecord(4, "", FOLLOWER_RATE, "1000"), harness.topic_config(FOLLOWER_REPLICAS, "0:1,1:1,2:1")
    )
    sent, harness.fetches = harness.fetches[0], []
    fail(harness, sent)  # what was listed before the throttle is listed again
    harness.tick(0)
    first, second = harness.fetches
    harness.fetches = []
    assert [row.max_bytes for row in first.request.partitions if row.partition_index < 3] == [1_000]
    assert {row.partition_index for row in first.request.partitions} == {0, 3}
    assert [(row.partition_index, row.max_bytes) for row in second.request.partitions] == [(1, 1_000)]
    answer(harness, first, row(fetched_batch(0, 3_000, 5), high_watermark=9_000, end=9_000))
    assert listed(harness) == []


def test_rows_of_one_request_share_its_window() -> None:
    window = RequestWindow(1_000)
    assert [window.take(600), window.is_used_up, window.take(600), window.is_used_up] == [
        600,
        False,
        400,
        True,
    ]


def test_the_throttles_of_a_deleted_topic_go_with_it() -> None:
    harness = follower((2, 3))
    harness.metadata(RemoveTopicRecord(TOPIC))
    assert not harness.core.fetchers.throttle.quota.is_on
