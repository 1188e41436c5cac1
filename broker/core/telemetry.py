"""Metrics of a broker; names and labels are Kafka's where Kafka has them.

Each scrape walks the partitions of this broker once. A partition's series come from its leader here, as a
cross-check of the controller's.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from holdfast.broker.core.broker import Broker
from holdfast.broker.core.registration.lifecycle import BrokerState
from holdfast.broker.core.replicas.partition import Partition, Role
from holdfast.runtime.stats import Labels, LazySamples, MetricFamily, MetricKind, Sample, counter, gauge


def families(
    core: Broker, bytes_out: dict[str, int], replication_bytes_out: dict[str, int]
) -> list[MetricFamily]:
    """All families as of now. `bytes_out` and `replication_bytes_out`: {topic: total}, counted by the
    shell."""
    partitions = sorted(core.partitions.values(), key=lambda p: (p.topic_name, p.key.partition_index))
    counts = core.counts
    return [
        *_life(core),
        *_traffic(
            partitions,
            ("messages_in", "Records appended for clients.", counts.messages_in),
            ("bytes_in", "Bytes appended for clients.", counts.bytes_in),
            ("bytes_out", "Bytes of records sent to consumers.", bytes_out),
            ("replication_bytes_in", "Bytes appended as follower.", counts.replication_bytes_in),
            ("replication_bytes_out", "Bytes of records sent to followers.", replication_bytes_out),
        ),
        *_leading(core, partitions),
        gauge(
            "kafka_server_delayed_produce_requests",
            "Produce requests that wait for replication or a flush.",
            core.produce_path.waiting_count,
        ),
        gauge(
            "kafka_server_delayed_fetch_requests",
            "Consumers' fetches that wait for data.",
            core.fetch_path.waiting_count,
        ),
        *_quotas(core),
        *_throttles(core),
        *_groups(core),
        counter(
            "kafka_server_metadata_violations_total",
            "Committed metadata records that contradict the image.",
            counts.metadata_violations,
        ),
        MetricFamily(
            "kafka_server_truncated_records_total",
            MetricKind.COUNTER,
            "Records truncated as follower; below_hwm > 0 means committed data was dropped here.",
            LazySamples(lambda: _truncated(core, partitions)),
        ),
        *([*_partition_families(partitions), _committed(core)] if core.config.has_partition_metrics else ()),
    ]


def _life(core: Broker) -> list[MetricFamily]:
    lifecycle = core.lifecycle
    return [
        MetricFamily(
            "kafka_server_broker_state",
            MetricKind.GAUGE,
            "1 for the broker's present state.",
            tuple(Sample(int(lifecycle.state is s), (("state", s.value),)) for s in BrokerState),
        ),
        gauge(
            "kafka_server_last_shutdown_clean",
            "1 when the last shutdown was clean.",
            lifecycle.was_clean or 0,
        ),
        gauge("kafka_server_broker_epoch", "Epoch of the registration, -1 for none.", lifecycle.broker_epoch),
        gauge("kafka_server_metadata_offset", "End of the applied metadata.", core.image.offset),
    ]


def _quotas(core: Broker) -> list[MetricFamily]:
    """How often and how long clients were over their quotas."""
    of_request = (("produce", core.client_quotas.produce), ("fetch", core.client_quotas.fetch))
    return [
        MetricFamily(
            "kafka_server_client_throttled_requests_total",
            MetricKind.COUNTER,
            "Requests that brought a client over its quota, so that its connection had to rest.",
            tuple(Sample(quota.throttled_count, (("request", name),)) for name, quota in of_request),
        ),
        MetricFamily(
            "kafka_server_client_throttle_seconds_total",
            MetricKind.COUNTER,
            "Time for which these connections had to rest.",
            tuple(Sample(quota.throttled_ms / 1000, (("request", name),)) for name, quota in of_request),
        ),
    ]


def _throttles(core: Broker) -> list[MetricFamily]:
    """How fast throttled replicas are copied, and how often they wait."""
    of_role = (("leader", core.fetch_path.quota), ("follower", core.fetchers.throttle.quota))
    return [
        MetricFamily(
            "kafka_server_replication_throttled_bytes_total",
            MetricKind.COUNTER,
            "Bytes of throttled replicas, sent as leader and fetched as follower.",
            tuple(Sample(quota.bytes_counted, (("role", name),)) for name, quota in of_role),
        ),
        MetricFamily(
            "kafka_server_replication_throttle_waits_total",
            MetricKind.COUNTER,
            "How often a throttled replica that was not in sync had to wait for the rate.",
            tuple(Sample(quota.wait_count, (("role", name),)) for name, quota in of_role),
        ),
    ]


def _groups(core: Broker) -> list[MetricFamily]:
    """Metrics of the groups that this broker coordinates."""
    counted = core.groups.counted()
    return [
        MetricFamily(
            "kafka_coordinator_groups",
            MetricKind.GAUGE,
            "Groups coordinated here by state.",
            tuple(Sample(number, (("state", state.value),)) for state, number in counted.groups.items()),
        ),
        gauge("kafka_coordinator_group_offsets", "Committed offsets of these groups.", counted.offsets),
        gauge(
            "kafka_coordinator_loading_partitions",
            "Partitions of the offsets led here whose groups are not known yet.",
            counted.loading,
        ),
    ]


def _committed(core: Broker) -> MetricFamily:
    """How far groups have read. Their lag takes the high watermark too, which another broker may have."""
    image = core.image

    def samples() -> Iterator[Sample]:
        for group_id, (topic_id, index), offset in core.groups.committed():
            topic = image.topics.get(topic_id)
            if topic is not None:
                labels = (("group", group_id), ("topic", topic.name), ("partition", str(index)))
                yield Sample(offset, labels)

    return MetricFamily(
        "kafka_coordinator_group_committed_offset",
        MetricKind.GAUGE,
        "Next offset to read of the groups coordinated here.",
        LazySamples(samples),
    )


def _traffic(
    partitions: Iterable[Partition], *counted: tuple[str, str, dict[str, int]]
) -> Iterator[MetricFamily]:
    """Yield counters of (name, help, {topic: total}); topics with a replica here start at 0."""
    topics = dict.fromkeys((partition.topic_name for partition in partitions), 0)
    for name, help, values in counted:
        samples = (
            Sample(value, (("topic", topic),)) for topic, value in sorted({**topics, **values}.items())
        )
        yield MetricFamily(f"kafka_server_{name}_total", MetricKind.COUNTER, help, tuple(samples))


def _leading(core: Broker, partitions: list[Partition]) -> list[MetricFamily]:
    """Metrics of the partitions that this broker leads."""
    leading = [partition for partition in partitions if partition.role is Role.LEADER]
    registered = [partition.registration for partition in leading if partition.registration is not None]
    unfenced = {broker.broker_id for broker in core.image.sorted_brokers() if not broker.is_fenced}
    counts = core.counts
    return [
        gauge("kafka_server_partitions", "Replicas on this broker.", len(partitions)),
        gauge("kafka_server_leader_partitions", "Partitions led here.", len(leading)),
        gauge(
            "kafka_server_under_replicated_partitions",
            "Partitions led here whose ISR lacks a replica.",
            sum(len(p.isr) < len(p.replicas) for p in registered),
        ),
        gauge(
            "kafka_server_under_min_isr_partitions",
            "Partitions led here whose ISR is below min ISR.",
            sum(p.is_under_min_isr for p in leading),
        ),
        gauge(
            "kafka_server_at_min_isr_partitions",
            "Partitions led here whose ISR equals min ISR.",
            sum(len(p.isr) == p.min_isr for p in registered),
        ),
        gauge(
            "kafka_server_offline_replicas",
            "Replicas of partitions led here that are on fenced brokers or in failed log dirs.",
            sum(
                replica not in unfenced or core.image.offline_among((replica,), p.key) != ()
                for p in leading
                if p.registration is not None
                for replica in p.registration.replicas
            ),
        ),
        counter("kafka_server_isr_shrinks_total", "ISR shrinks proposed.", counts.isr_shrinks),
        counter("kafka_server_isr_expands_total", "ISR expands proposed.", counts.isr_expands),
        counter("kafka_server_failed_isr_updates_total", "ISR proposals refused.", counts.failed_isr_updates),
    ]


def replica_body(partition: Partition) -> dict[str, Any]:
    """What this broker knows of a partition, for /v1/partitions."""
    log, leadership = partition.log, partition.leadership
    body: dict[str, Any] = {
        "role": partition.role.value,
        "leader_epoch": partition.leader_epoch,
        "log_start_offset": log.log_start_offset,
        "high_watermark": partition.high_watermark,
        "flushed_offset": log.flushed_offset,
        "log_end_offset": log.log_end_offset,
    }
    if leadership is not None:
        body["maximal_isr"] = list(leadership.maximal_isr)
        # what each follower is known to hold: its log end, or its flushed offset where every write is flushed
        body["followers"] = [
            {"id": progress.replica_id, "position": progress.position}
            for progress in leadership.progress.values()
        ]
    return body


def _truncated(core: Broker, partitions: Iterable[Partition]) -> Iterator[Sample]:
    """By partition, with 0 where nothing was truncated: Prometheus sees no increase in a series that starts
    above 0."""
    truncated = core.fetchers.truncated
    rows = {(p.topic_name, p.key.partition_index): (0, 0) for p in partitions}
    rows.update((name, (above, below)) for name, (above, below) in truncated.items())
    if not core.config.has_partition_metrics:
        above, below = (sum(row[column] for row in rows.values()) for column in (0, 1))
        yield Sample(above, (("range", "above_hwm"),))
        yield Sample(below, (("range", "below_hwm"),))
        return
    for (topic, index), (above, below) in sorted(rows.items()):
        labels = (("topic", topic), ("partition", str(index)))
        yield Sample(above, (*labels, ("range", "above_hwm")))
        yield Sample(below, (*labels, ("range", "below_hwm")))


def _partition_families(partitions: Iterable[Partition]) -> list[MetricFamily]:
    def family(name: str, help: str, value: Callable[[Partition], int]) -> MetricFamily:
        return MetricFamily(
            f"kafka_server_partition_{name}",
            MetricKind.GAUGE,
            help,
            LazySamples(lambda: (Sample(value(p), _labels(p)) for p in partitions)),
        )

    return [
        family("high_watermark", "End of the committed part.", lambda p: p.high_watermark),
        family("log_end_offset", "Next offset.", lambda p: p.log.log_end_offset),
        family("log_start_offset", "First offset kept.", lambda p: p.log.log_start_offset),
        family("flushed_offset", "End of the durable part.", lambda p: p.log.flushed_offset),
        family(
            "hwm_blocked_records",
            "Records that wait for the ISR to reach min ISR.",
            lambda p: p.log.log_end_offset - p.high_watermark if p.is_under_min_isr else 0,
        ),
    ]


def _labels(partition: Partition) -> Labels:
    return (("topic", partition.topic_name), ("partition", str(partition.key.partition_index)))
