"""Metrics of a controller and, while it is active, of the cluster.

Names and labels are Kafka's where Kafka has them. Series of partitions and of the whole cluster come from the
active controller only, so that there are no duplicates. Each scrape walks the partitions once.
"""

from collections.abc import Callable, Container, Iterator

from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.controller.core.partitions.unclean_recovery import Strategy
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.headroom import headroom
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage, PartitionRow
from holdfast.metadata.partition import PartitionRegistration, leader_number
from holdfast.runtime.stats import (
    Histogram,
    Labels,
    LazySamples,
    MetricFamily,
    MetricKind,
    Sample,
    counter,
    gauge,
)

#: A replica's best role in its partition; the values of the replica_role gauge.
ROLE_LEADER, ROLE_ISR, ROLE_ELR, ROLE_LAST_KNOWN_ELR = 6, 5, 4, 3
ROLE_CATCHING_UP, ROLE_FENCED, ROLE_OFFLINE = 2, 1, 0


def families(core: QuorumController) -> list[MetricFamily]:
    """All families as of now."""
    counts = core.counts
    found = [
        gauge("kafka_controller_active_controller", "1 on the active controller.", int(core.is_active)),
        gauge("kafka_controller_metadata_offset", "End of the applied metadata.", core.committed.offset),
        MetricFamily(
            "kafka_controller_leader_elections_total",
            MetricKind.COUNTER,
            "Leaders elected, by reason.",
            tuple(Sample(n, (("reason", reason),)) for reason, n in _elections(core)),
        ),
        MetricFamily(
            "kafka_controller_unclean_shutdown_registrations_total",
            MetricKind.COUNTER,
            "Registrations after an unclean shutdown, by broker.",
            tuple(
                Sample(core.unclean_registrations.get(broker, 0), (("broker", str(broker)),))
                for broker in sorted({*core.committed.brokers, *core.unclean_registrations})
            ),
        ),
        counter("kafka_controller_events_total", "Events handled.", counts.events),
        counter(
            "kafka_controller_records_appended_total", "Metadata records appended.", counts.records_appended
        ),
        counter(
            "kafka_controller_replay_violations_total",
            "Committed records that contradict the state.",
            counts.replay_violations,
        ),
        MetricFamily(
            "kafka_controller_unclean_recovery_replies_total",
            MetricKind.COUNTER,
            "Answers about logs, by broker and result.",
            tuple(
                Sample(n, (("broker", str(broker)), ("result", result)))
                for (broker, result), n in sorted(core.log_replies.items())
            ),
        ),
        counter(
            "kafka_controller_unclean_recovery_finished_total",
            "Partitions that got a leader by a comparison of logs.",
            counts.recoveries,
        ),
        gauge(
            "kafka_controller_unclean_recovery_finished_count",
            "The same, under KIP-966's name.",
            counts.recoveries,
        ),
    ]
    if core.is_active:
        found += [
            gauge(
                "kafka_controller_unclean_recovery_partitions_count",
                "Partitions under recovery, including those that wait for fenced replicas.",
                core.recovery.count,
            ),
            gauge(
                "kafka_controller_manual_leader_election_required_partition_count",
                "Partitions that get a leader only by an operator's election.",
                core.recovery.count_for_operators(core.committed),
            ),
            gauge(
                "kafka_controller_low_on_space_replicas",
                "Replicas that take no records of clients for want of room, as brokers report.",
                core.short_count,
            ),
        ]
        found += _cluster(core.committed, core.config.partition_metrics)
    return found + _durations(core)


def event_families(queue: Histogram, processing: Histogram) -> list[MetricFamily]:
    """Durations of events, measured by the shell."""
    return [
        _histogram(
            "event_queue_seconds", "Seconds that an event waited for earlier ones.", Sample(queue.value())
        ),
        _histogram(
            "event_processing_seconds",
            "Seconds that an event and its effects took.",
            Sample(processing.value()),
        ),
    ]


def _elections(core: QuorumController) -> Iterator[tuple[str, int]]:
    """(label, count); comparisons of logs are counted by strategy."""
    for reason, count in core.counts.elections.items():
        if reason is not ElectionReason.LONGEST_LOG:
            yield "designation" if reason is ElectionReason.DESIGNATED else reason.value, count
    yield "longest_log_balanced", core.recovery.elections[Strategy.BALANCED]
    yield "longest_log_aggressive", core.recovery.elections[Strategy.AGGRESSIVE]


def _durations(core: QuorumController) -> list[MetricFamily]:
    durations = core.durations
    return [
        _histogram(
            "leader_election_seconds",
            "Seconds from the decision for a leader to its commit.",
            Sample(durations.election_seconds.value()),
        ),
        _histogram(
            "partition_leaderless_seconds",
            "Seconds that a partition was without a leader, counted when it has one again.",
            Sample(durations.leaderless_seconds.value()),
        ),
        _histogram(
            "unclean_recovery_seconds",
            "Seconds of recoveries that ended with a leader, by phase.",
            *(
                Sample(seconds.value(), (("phase", phase),))
                for phase, seconds in durations.recovery_seconds.items()
            ),
        ),
    ]


def _histogram(name: str, help: str, *samples: Sample) -> MetricFamily:
    return MetricFamily(f"kafka_controller_{name}", MetricKind.HISTOGRAM, help, samples)


def _cluster(image: MetadataImage, with_partitions: bool) -> list[MetricFamily]:
    brokers = image.sorted_brokers()
    rows = [
        (topic, index, partition)
        for topic in image.sorted_topics()
        for index, partition in topic.sorted_partitions()
    ]
    partitions = [partition for _, _, partition in rows]

    def count(name: str, help: str, *matches: bool) -> MetricFamily:
        return gauge(f"kafka_controller_{name}", help, sum(matches))

    found = [
        count("active_brokers", "Unfenced brokers.", *(not broker.is_fenced for broker in brokers)),
        count("fenced_brokers", "Fenced brokers.", *(broker.is_fenced for broker in brokers)),
        count(
            "controlled_shutdown_brokers",
            "Unfenced brokers in controlled shutdown.",
            *(broker.in_controlled_shutdown and not broker.is_fenced for broker in brokers),
        ),
        count("offline_partitions", "Partitions without a leader.", *(p.leader is None for p in partitions)),
        count(
            "global_under_min_isr_partition_count",
            "Partitions whose ISR is smaller than min ISR.",
            *(len(p.isr) < p.min_isr for p in partitions),
        ),
        count(
            "preferred_replica_imbalance",
            "Partitions not led by their preferred replica.",
            *(p.leader != p.replicas[0] for p in partitions),
        ),
        gauge("kafka_controller_global_topics", "Topics.", len(image.topics)),
        gauge("kafka_controller_global_partitions", "Partitions.", len(rows)),
    ]
    return found + _partitions(image, rows) if with_partitions else found


def _partitions(image: MetadataImage, rows: list[PartitionRow]) -> list[MetricFamily]:
    def labelled() -> Iterator[tuple[Labels, PartitionRegistration]]:
        for topic, index, partition in rows:
            yield (("topic", topic.name), ("partition", str(index))), partition

    def roles() -> Iterator[Sample]:
        for topic, index, partition in rows:
            offline = image.offline_among(partition.replicas, PartitionId(topic.topic_id, index))
            for replica in partition.replicas:
                labels = (("topic", topic.name), ("partition", str(index)), ("broker", str(replica)))
                yield Sample(replica_role(partition, replica, unfenced, offline), labels)

    def family(name: str, help: str, make: Callable[[], Iterator[Sample]]) -> MetricFamily:
        return MetricFamily(f"kafka_controller_partition_{name}", MetricKind.GAUGE, help, LazySamples(make))

    def each(name: str, help: str, value: Callable[[PartitionRegistration], int]) -> MetricFamily:
        return family(
            name, help, lambda: (Sample(value(partition), labels) for labels, partition in labelled())
        )

    unfenced = {broker.broker_id for broker in image.sorted_brokers() if not broker.is_fenced}
    return [
        each("leader", "Leader, -1 for none.", lambda p: leader_number(p.leader)),
        each("leader_epoch", "Leader epoch.", lambda p: p.leader_epoch),
        each("partition_epoch", "Partition epoch.", lambda p: p.partition_epoch),
        each("effective_min_isr", "Effective min ISR.", lambda p: p.min_isr),
        each("electable_leaders", "Members of ISR and ELR.", lambda p: len(p.isr) + len(p.elr)),
        each("leader_recovery_state", "1 while recovering.", lambda p: p.leader_recovery_state),
        family(
            "replica_role",
            "6 leader, 5 ISR, 4 ELR, 3 last known ELR, 2 catching up, 1 fenced, 0 log dir failed.",
            roles,
        ),
        family(
            "failures_tolerated",
            "Failures survived: by writes, by the leadership (online), by acknowledged records (lossy).",
            lambda: (
                Sample(value, (*labels, ("kind", kind)))
                for labels, partition in labelled()
                for kind, value in _tolerated(partition, unfenced)
            ),
        ),
    ]


def replica_role(
    partition: PartitionRegistration, replica: int, unfenced: Container[int], offline: Container[int]
) -> int:
    """The replica's best role in its partition; `offline` are the replicas in failed log dirs."""
    if replica == partition.leader:
        return ROLE_LEADER
    if replica in partition.isr:
        return ROLE_ISR
    if replica in partition.elr:
        return ROLE_ELR
    if replica in partition.last_known_elr:
        return ROLE_LAST_KNOWN_ELR
    if replica not in unfenced:
        return ROLE_FENCED
    return ROLE_OFFLINE if replica in offline else ROLE_CATCHING_UP


def _tolerated(partition: PartitionRegistration, unfenced: Container[int]) -> Iterator[tuple[str, int]]:
    left = headroom(partition.isr, partition.elr, partition.min_isr, unfenced.__contains__)
    yield "writes", left.writes
    yield "online", left.online
    yield "lossy", left.lossy
