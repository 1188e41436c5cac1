"""What a broker shows of itself (docs/metrics.md)."""

from holdfast.broker.core.telemetry import families
from holdfast.metadata.records import FenceBrokerRecord, ReplicasOfflineRecord
from holdfast.runtime.stats import Labels
from tests.unit.broker.core_harness import TOPIC, CoreHarness, batch, partition


def samples(harness: CoreHarness) -> dict[tuple[str, Labels], object]:
    """{(name, labels): value}."""
    found = families(harness.core, {"t": 7}, {})
    return {(family.name, sample.labels): sample.value for family in found for sample in family.samples}


def test_counts_of_leaders_and_of_what_came_in() -> None:
    harness = CoreHarness().join(partition(1, (1, 2)), partition(2, index=1))
    harness.produce(batch(3), acks=1)
    found = samples(harness)
    topic = (("topic", "t"),)
    assert found["kafka_server_partitions", ()] == 2
    assert found["kafka_server_leader_partitions", ()] == 1
    assert found["kafka_server_under_replicated_partitions", ()] == 1
    assert found["kafka_server_at_min_isr_partitions", ()] == 1
    assert found["kafka_server_messages_in_total", topic] == 3
    assert found["kafka_server_bytes_in_total", topic] == len(batch(3))
    assert found["kafka_server_bytes_out_total", topic] == 7
    assert found["kafka_server_broker_state", (("state", "RUNNING"),)] == 1


def test_records_hidden_by_min_isr_are_shown_as_blocked() -> None:
    """F4: acknowledged with acks 1, invisible until the ISR is back."""
    harness = CoreHarness().join(partition(1, (1,)))
    harness.produce(batch(4), acks=1)
    labels = (("topic", "t"), ("partition", "0"))
    assert samples(harness)["kafka_server_partition_hwm_blocked_records", labels] == 4
    assert samples(harness)["kafka_server_under_min_isr_partitions", ()] == 1


def test_partition_series_can_be_left_out() -> None:
    harness = CoreHarness(holdfast_metrics_partition_level="false").join(partition(1))
    assert not any(name.startswith("kafka_server_partition_") for name, _ in samples(harness))


def test_replicas_on_fenced_brokers_are_counted_by_the_leader() -> None:
    harness = CoreHarness().join(partition(1, (1, 2)), partition(2, index=1))
    assert samples(harness)["kafka_server_offline_replicas", ()] == 0
    harness.metadata(ReplicasOfflineRecord(2, 0, TOPIC, (0, 1)))
    assert samples(harness)["kafka_server_offline_replicas", ()] == 1
    harness.metadata(FenceBrokerRecord(3, 1))
    assert samples(harness)["kafka_server_offline_replicas", ()] == 2


def test_every_partition_has_a_series_of_truncated_records_before_anything_is_cut() -> None:
    """A counter that appears above 0 shows no increase, and the alert on it would stay silent."""
    harness = CoreHarness().join(partition(1, (1, 2)))
    labels = (("topic", "t"), ("partition", "0"))
    name = "kafka_server_truncated_records_total"
    assert samples(harness)[name, (*labels, ("range", "below_hwm"))] == 0
    harness.core.fetchers.truncated["gone", 3] = [5, 2]
    gone = (("topic", "gone"), ("partition", "3"))
    assert samples(harness)[name, (*gone, ("range", "above_hwm"))] == 5
    assert samples(harness)[name, (*gone, ("range", "below_hwm"))] == 2
    coarse = CoreHarness(holdfast_metrics_partition_level="false").join(partition(1))
    coarse.core.fetchers.truncated["gone", 3] = [5, 2]
    assert samples(coarse)[name, (("range", "below_hwm"),)] == 2


def test_rests_of_clients_over_their_quota_are_counted_by_their_requests() -> None:
    harness = CoreHarness()
    quota = harness.core.client_quotas.fetch
    quota.configure({}, 1_000)
    quota.count("c", 11_500, 0)
    found = samples(harness)
    for request, number, seconds in (("produce", 0, 0), ("fetch", 1, 1.5)):
        labels = (("request", request),)
        assert found["kafka_server_client_throttled_requests_total", labels] == number
        assert found["kafka_server_client_throttle_seconds_total", labels] == seconds
