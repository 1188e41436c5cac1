"""Throttled replicas: those that are not in sync are sent within the rate, others never wait."""

import pytest

from holdfast.broker.core.byte_rate import RateWindows
from holdfast.broker.core.events import AnswerFetch, RowsOmitted, ThrottledSent
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.broker.core.requests import fetch_path
from holdfast.metadata.config_keys import LONG_MAX
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.records import ConfigRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchPartition, FetchRequest
from tests.unit.broker.core_harness import KEY, TOPIC, CoreHarness, batch, partition

RATE, REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"


def quota(limit: int, *replicas: str) -> ReplicationQuota:
    made = ReplicationQuota(1, RateWindows(11, 1_000))
    made.set_replicas("t", replicas)
    made.set_rate(limit, 0)
    return made


@pytest.mark.parametrize(
    ("replicas", "throttled"),
    [(("*",), {0, 1, 2}), (("0:1", "1:2", "2:1"), {0, 2}), (("0:2",), set()), ((), set())],
)
def test_the_replicas_of_this_broker_are_throttled(replicas: tuple[str, ...], throttled: set[int]) -> None:
    one = quota(1_000, *replicas)
    assert {index for index in range(3) if one.is_throttled("t", index)} == throttled
    assert one.is_on == bool(throttled)
    assert not one.is_throttled("u", 0)


def test_a_large_batch_at_a_small_rate_makes_a_wait_longer_than_all_windows() -> None:
    one = quota(1_000, "*")
    one.count(100_000, 0)
    assert one.resume_ms == 90_000
    one.count(1, 20_000)
    assert one.resume_ms == 90_000


def test_a_higher_rate_ends_the_wait() -> None:
    one = quota(1_000, "*")
    one.count(100_000, 0)
    one.set_rate(100_000, 5)
    assert not one.is_exceeded(5)
    one.set_rate(LONG_MAX, 6)
    assert not one.is_on


def leader(isr: tuple[int, ...]) -> CoreHarness:
    """Broker 1 leads, its throttled bytes are far above the rate."""
    harness = CoreHarness().join(partition(1, isr))
    harness.metadata(ConfigRecord(4, "1", RATE, "1000"), harness.topic_config(REPLICAS, "0:1"))
    harness.post(ThrottledSent(20_000))
    return harness


def test_a_follower_that_is_not_in_sync_waits_until_the_rate_is_back_at_the_limit() -> None:
    harness = leader((1, 3))
    harness.produce(batch(3), acks=1)
    name = harness.fetch(2, 0, wait_ms=20_000)
    assert name not in harness.answers
    harness.tick(9_999)
    assert name not in harness.answers
    harness.tick(1)
    assert harness.fetch_rows(name) == [("NONE", 0, 0, 3)]


def test_a_follower_in_sync_does_not_wait() -> None:
    harness = leader((1, 2, 3))
    harness.produce(batch(3), acks=1)
    assert harness.fetch_rows(harness.fetch(2, 0)) == [("NONE", 0, 0, 3)]


@pytest.mark.parametrize(
    "change", [ConfigRecord(4, "1", RATE, None), ConfigRecord(2, "t", REPLICAS, None)], ids=str
)
def test_a_throttle_that_is_removed_holds_back_no_follower(change: ConfigRecord) -> None:
    harness = leader((1, 3))
    harness.produce(batch(3), acks=1)
    name = harness.fetch(2, 0, wait_ms=20_000)
    assert name not in harness.answers
    harness.metadata(change)
    assert harness.fetch_rows(name) == [("NONE", 0, 0, 3)]


def test_a_follower_that_joins_waits_no_longer() -> None:
    """The leader counts it for the high watermark as soon as it proposes it."""
    harness = leader((1, 3))
    name = harness.fetch(2, 0, wait_ms=20_000)
    harness.produce(batch(3), acks=1)
    assert harness.fetch_rows(name) == [("NONE", 0, 0, 3)]


def test_others_of_the_same_session_do_not_wait() -> None:
    harness = CoreHarness().join(partition(1, (1, 3)), partition(1, (1, 3), index=1))
    harness.metadata(ConfigRecord(4, "1", RATE, "1000"), harness.topic_config(REPLICAS, "1:1"))
    harness.post(ThrottledSent(20_000))
    harness.produce(batch(3), acks=1, index=1)
    harness.produce(batch(3), acks=1)
    assert harness.fetch_rows(harness.fetch(2, 0)) == [("NONE", 0, 0, 3)]


def in_turn(count: int, throttled: str = "*") -> CoreHarness:
    """Broker 1 leads `count` partitions with records; what one window allows is less than a batch."""
    harness = CoreHarness().join(*(partition(1, (1, 3), index=index) for index in range(count)))
    harness.metadata(ConfigRecord(4, "1", RATE, "10"), harness.topic_config(REPLICAS, throttled))
    for index in range(count):
        harness.produce(batch(3), acks=1, index=index)
    return harness


def fetch(harness: CoreHarness, number: int, *indexes: int) -> AnswerFetch:
    """The answer to broker 2, which lists these partitions from offset 0 on."""
    rows = tuple(FetchPartition(TOPIC, index, 0, 0, -1, 0, 1 << 20) for index in indexes)
    answer = harness.answers[harness.request(FetchRequest(None, 2, 0, 500, 1, 1 << 20, rows, 1, number))]
    assert isinstance(answer, AnswerFetch)
    return answer


def indexes(answer: AnswerFetch) -> list[int]:
    return [row.partition_index for row in answer.rows if row.max_bytes]


def test_throttled_rows_have_their_turns_in_order() -> None:
    """One window is all that an answer has for them; who is answered lists the row again, behind others."""
    harness = in_turn(4, "0:1,1:1,2:1")
    assert indexes(fetch(harness, 0, 0, 1, 2, 3)) == [3, 0]
    assert indexes(fetch(harness, 1, 3, 0)) == [3, 1]
    assert indexes(fetch(harness, 2, 1)) == [2]
    assert indexes(fetch(harness, 3)) == [0]
    assert indexes(fetch(harness, 4)) == [1]


def test_a_throttled_row_that_had_no_room_is_first_in_the_next_answer() -> None:
    harness = in_turn(3)
    first = fetch(harness, 0, 0, 1, 2)
    assert indexes(first) == [0]
    harness.post(RowsOmitted(first.session, (KEY,)))
    assert indexes(fetch(harness, 1)) == [0]
    assert indexes(fetch(harness, 2)) == [1]


def test_an_answer_looks_at_so_many_rows_and_the_next_ones_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_path, "THROTTLE_ROWS_MAX", 2)
    harness = in_turn(6, "0:1,1:1,2:1,3:1,4:1")
    assert indexes(fetch(harness, 0, *range(6))) == [0]
    assert indexes(fetch(harness, 1)) == [5, 1]


def test_throttled_rows_leave_half_an_answer_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_path, "ANSWER_ROWS_MAX", 4)
    harness = in_turn(8, "0:1,1:1,2:1,3:1")
    harness.metadata(ConfigRecord(4, "1", RATE, "1000000"))
    assert indexes(fetch(harness, 0, *range(8))) == [4, 5, 0, 1]
    assert indexes(fetch(harness, 1)) == [6, 7, 2, 3]


@pytest.mark.parametrize(
    ("throttled", "bytes_max"), [("1:1", [(0, (1 << 20) - 10), (1, 10)]), ("1:3", [(0, 1 << 20)])]
)
def test_a_backlog_that_fills_answers_leaves_a_window_to_throttled_rows(
    throttled: str, bytes_max: list[tuple[int, int]]
) -> None:
    """Also where a window is less than the backlog's last row may take; without a throttle it takes all."""
    harness = in_turn(2, throttled)
    for _ in range(2 * fetch_path.SIZES_KEPT):  # its size is not remembered
        harness.produce(batch(3), acks=1)
    sent = fetch(harness, 0, 0, 1)
    assert [(row.partition_index, row.max_bytes) for row in sent.rows if row.max_bytes] == bytes_max


def test_rows_whose_turn_is_not_now_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many thousand rows may wait, and an answer is made in one turn of the loop."""
    monkeypatch.setattr(fetch_path, "ANSWER_ROWS_MAX", 4)
    harness = in_turn(40)
    fetch(harness, 0, *range(40))
    looked: list[PartitionId] = []
    check = Partition.check_leader

    def checked(one: Partition, leader_epoch: int) -> ErrorCode:
        looked.append(one.key)
        return check(one, leader_epoch)

    monkeypatch.setattr(Partition, "check_leader", checked)
    assert indexes(fetch(harness, 1)) == [1]
    assert len(set(looked)) <= 4
