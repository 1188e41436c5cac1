"""How long partitions had no leader, recoveries took and elections waited for their commit."""

import pytest

from holdfast.controller.core.durations import ASKING, TOTAL, WAITING
from holdfast.controller.core.metrics import families
from holdfast.metadata.ids import PartitionId
from holdfast.runtime.stats import Histogram, HistogramValue
from tests.unit.controller.harness import NODE_ID, Quorum, make_config
from tests.unit.controller.test_topics import create
from tests.unit.controller.test_unclean_recovery import answer, power_cut


@pytest.fixture
def quorum() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3)
    create(made, "t", -1, -1, (1, 2, 3))
    return made


def seen(histogram: Histogram) -> tuple[int, float]:
    """(how often, seconds in all)."""
    value = histogram.value()
    return sum(count for _, count in value.buckets), value.sum


def recover(quorum: Quorum, waiting_ms: int, asking_ms: int) -> None:
    """A power cut of everything; the brokers are back after the one time, their answers after the other."""
    power_cut(quorum)
    quorum.now_ms += waiting_ms
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    quorum.now_ms += asking_ms
    for broker_id in (1, 2, 3):
        answer(quorum, broker_id, 10)


def test_a_recovery_is_measured_by_phase_and_its_partition_as_leaderless(quorum: Quorum) -> None:
    recover(quorum, 3000, 500)
    durations = quorum.core.durations
    assert quorum.partition("t").leader is not None
    assert seen(durations.recovery_seconds[WAITING]) == (1, 3.0)
    assert seen(durations.recovery_seconds[ASKING]) == (1, 0.5)
    assert seen(durations.recovery_seconds[TOTAL]) == (1, 3.5)
    assert seen(durations.leaderless_seconds) == (1, 3.5)


def test_a_recovery_that_is_cancelled_counts_nowhere_but_its_partition_was_leaderless(quorum: Quorum) -> None:
    power_cut(quorum)
    quorum.now_ms += 1000
    quorum.lose(NODE_ID + 1)  # soft state goes with the leadership (R60)
    quorum.elect()
    quorum.now_ms += 200
    for broker_id in (1, 2, 3):
        quorum.heartbeat(broker_id)
    for broker_id in (1, 2, 3):
        answer(quorum, broker_id, 10)
    durations = quorum.core.durations
    # what went before this tenure is not this one's to know
    assert seen(durations.leaderless_seconds) == (1, 0.2)
    assert seen(durations.recovery_seconds[TOTAL]) == (1, 0.2)


def test_a_partition_that_is_deleted_never_got_a_leader(quorum: Quorum) -> None:
    power_cut(quorum)
    durations = quorum.core.durations
    durations.changed(quorum.image, (), quorum.now_ms)
    topic_id = quorum.topic("t").topic_id
    without = quorum.replayed().__class__()
    durations.changed(without, (PartitionId(topic_id, 0),), quorum.now_ms + 1)
    assert seen(durations.leaderless_seconds) == (0, 0.0)


def test_an_election_lasts_until_its_commit(quorum: Quorum) -> None:
    quorum.vanish(1)
    durations = quorum.core.durations
    assert seen(durations.election_seconds) == (1, 0.0)
    durations.elected(3, 1000, 1250)
    assert seen(durations.election_seconds) == (4, 0.75)


def test_comparisons_of_logs_are_told_apart_by_strategy(quorum: Quorum) -> None:
    recover(quorum, 1, 1)
    (family,) = (f for f in families(quorum.core) if f.name == "kafka_controller_leader_elections_total")
    counts = {dict(sample.labels)["reason"]: sample.value for sample in family.samples}
    assert not any(isinstance(count, HistogramValue) for count in counts.values())
    assert counts == {
        "isr": counts["isr"],
        "elr": 0,
        "preferred": 0,
        "last_known_leader": 0,
        "unclean_random": 0,
        "designation": 0,
        "longest_log_balanced": 1,
        "longest_log_aggressive": 0,
    }
