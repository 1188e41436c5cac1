"""What a controller reports about itself and, while it is active, about the cluster.

Names and labels are those that Kafka's users expect. Series of partitions and of the whole cluster come
from the active controller only, so that there are no duplicates. One pass over all partitions a scrape.
"""

from controller.quorum_controller import QuorumController
from metadata.image import MetadataImage
from metadata.partition import PartitionRegistration, leader_number
from runtime.stats import Labels, MetricFamily, MetricKind, Sample, counter, gauge


def families(core: QuorumController) -> list[MetricFamily]:
    """Everything, as of now."""
    counts = core.counts
    found = [
        gauge("kafka_controller_active_controller", "1 on the active controller.", int(core.is_active)),
        gauge("kafka_controller_metadata_offset", "End of the applied metadata.", core.committed.offset),
        MetricFamily(
            "kafka_controller_leader_elections_total",
            MetricKind.COUNTER,
            "Leaders elected, by reason.",
            tuple(Sample(n, (("reason", reason.value),)) for reason, n in counts.elections.items()),
        ),
        MetricFamily(
            "kafka_controller_unclean_shutdown_registrations_total",
            MetricKind.COUNTER,
            "Registrations whose previous epoch did not match, by broker.",
            tuple(
                Sample(n, (("broker", str(broker)),))
                for broker, n in sorted(core.unclean_registrations.items())
            ),
        ),
        counter("kafka_controller_events_total", "Events handled.", counts.events),
        counter(
            "kafka_controller_records_appended_total", "Metadata records appended.", counts.records_appended
        ),
        counter(
            "kafka_controller_replay_violations_total",
            "Committed records that did not fit the state.",
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
            "The same under the name of KIP-966.",
            counts.recoveries,
        ),
    ]
    if core.is_active:
        found += [
            gauge(
                "kafka_controller_unclean_recovery_partitions_count",
                "Partitions under recovery, those included that wait for fenced replicas.",
                core.recovery.count,
            ),
            gauge(
                "kafka_controller_manual_leader_election_required_partition_count",
                "Partitions that get no leader before somebody elects one by hand.",
                core.recovery.count_for_operators(core.committed),
            ),
        ]
        found += _cluster(core.committed, core.config.partition_metrics)
    return found


def _cluster(image: MetadataImage, with_partitions: bool) -> list[MetricFamily]:
    brokers = image.sorted_brokers()
    rows = [
        (topic.name, index, partition)
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
            "Unfenced brokers that are leaving.",
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
    return found + _partitions(rows) if with_partitions else found


def _partitions(rows: list[tuple[str, int, PartitionRegistration]]) -> list[MetricFamily]:
    labelled: list[tuple[Labels, PartitionRegistration]] = [
        ((("topic", name), ("partition", str(index))), partition) for name, index, partition in rows
    ]

    def each(name: str, help: str, values: list[int]) -> MetricFamily:
        samples = tuple(Sample(value, labels) for (labels, _), value in zip(labelled, values, strict=True))
        return MetricFamily(f"kafka_controller_partition_{name}", MetricKind.GAUGE, help, samples)

    partitions = [partition for _, partition in labelled]
    return [
        each("leader", "Leader, -1 for none.", [leader_number(p.leader) for p in partitions]),
        each("leader_epoch", "Leader epoch.", [p.leader_epoch for p in partitions]),
        each("partition_epoch", "Partition epoch.", [p.partition_epoch for p in partitions]),
        each("effective_min_isr", "Effective min ISR.", [p.min_isr for p in partitions]),
        each("electable_leaders", "Members of ISR and ELR.", [len(p.isr) + len(p.elr) for p in partitions]),
        each("leader_recovery_state", "1 while recovering.", [p.leader_recovery_state for p in partitions]),
    ]
