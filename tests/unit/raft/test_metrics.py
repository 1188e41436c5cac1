from holdfast.raft.core.member import Snapshot
from holdfast.raft.core.metrics import RaftMetrics
from holdfast.runtime.stats import HistogramValue

NODE = Snapshot(2, "Leader", 7, 2, 2, 30, 40, 35, 7)


def observed(metrics: RaftMetrics, name: str) -> tuple[int, float]:
    """(count, sum) of a histogram."""
    (family,) = (family for family in metrics.families(NODE, 3) if family.name == name)
    value = family.samples[0].value
    assert isinstance(value, HistogramValue)
    return sum(count for _, count in value.buckets), value.sum


def test_commit_latency_runs_from_append_to_commit() -> None:
    metrics = RaftMetrics()
    metrics.appended(2, 10, now_ns=1_000_000_000)
    metrics.appended(1, 11, now_ns=1_500_000_000)
    metrics.committed(10, now_ns=2_000_000_000)
    assert observed(metrics, "kafka_raft_commit_latency_seconds") == (1, 1.0)


def test_election_latency_runs_while_no_leader_is_known() -> None:
    metrics = RaftMetrics()
    metrics.leader_changed(None, now_ns=1_000_000_000)
    metrics.leader_changed(None, now_ns=2_000_000_000)
    metrics.leader_changed(3, now_ns=3_000_000_000)
    metrics.leader_changed(1, now_ns=9_000_000_000)
    assert observed(metrics, "kafka_raft_election_latency_seconds") == (1, 2.0)


def test_state_is_that_of_the_snapshot() -> None:
    metrics = RaftMetrics()
    metrics.appended(2, 10, now_ns=0)
    values = {family.name: family.samples[0].value for family in metrics.families(NODE, 3)}
    assert values["kafka_raft_current_epoch"] == 7
    assert values["kafka_raft_number_of_voters"] == 3
    assert values["kafka_raft_high_watermark"] == 30
    assert values["kafka_raft_append_records_total"] == 2
    (states,) = (family for family in metrics.families(NODE, 3) if family.name == "kafka_raft_current_state")
    assert {sample.labels[0][1]: sample.value for sample in states.samples} == {
        "candidate": 0,
        "follower": 0,
        "leader": 1,
        "prospective": 0,
        "resigned": 0,
        "unattached": 0,
    }
