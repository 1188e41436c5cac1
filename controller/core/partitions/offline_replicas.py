"""Replicas that are damaged or lie in a failed log dir, while their broker goes on (R27, B24; as KIP-858, by
partition).

Owns what a broker's report of such replicas does to partitions. The process never uses a failed log dir again
and never writes its clean-shutdown file, so the next registration would take its replicas out anyway (R32).
That is done at once, so that no replica that cannot be elected is shown as eligible. A damaged replica that
the broker has put aside and begun anew, empty, is active again, in neither ISR nor ELR. The broker's next
incarnation has no offline replicas until it reports some.
"""

from collections.abc import Iterable

from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.partition_change import RequestedChange
from holdfast.controller.core.partitions.replication_control import ReplicationControl
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.records import ReplicasOfflineRecord
from holdfast.protocol.messages.broker_registration import OfflineTopic
from holdfast.runtime.stats import Level


def take_offline(
    draft: Draft,
    replication: ReplicationControl,
    broker: BrokerRegistration,
    reported: Iterable[OfflineTopic],
) -> None:
    """Take the broker's replicas of these partitions out of leadership, ISR and ELR, and record them as
    offline.

    Replicas that are recorded already, or were never assigned to the broker, are skipped: a report may be
    repeated, and may name a partition twice.
    """
    image, broker_id = draft.image, broker.broker_id
    cause = Cause(CauseKind.LOG_DIR_FAILED, broker_id)
    by_topic: dict[bytes, set[int]] = {}
    for row in reported:
        by_topic.setdefault(row.topic_id, set()).update(row.partitions)
    for topic_id, indexes in by_topic.items():
        topic = image.topics.get(topic_id)
        if topic is None:
            continue
        new = tuple(
            index
            for index in sorted(indexes)
            if (topic_id, index) not in broker.offline_replicas
            and (partition := topic.partitions.get(index)) is not None
            and broker_id in partition.replicas
        )
        if not new:
            continue
        # its own record follows, as when a whole broker leaves (F26)
        context = replication.context(image, topic.name, image.is_active).without((broker_id,))
        for index in new:
            partition = topic.partitions[index]
            if broker_id in partition.isr + partition.elr:
                requested = RequestedChange(
                    tuple(r for r in partition.isr if r != broker_id), unclean=(broker_id,)
                )
                replication.change(draft, topic, index, partition, requested, context, cause)
        draft.write(ReplicasOfflineRecord(broker_id, broker.broker_epoch, topic_id, new))
        text = f"broker {broker_id} lost {len(new)} replicas of {topic.name}, damaged or with a log dir"
        draft.note(text, Level.WARNING)


def bring_online(draft: Draft, broker: BrokerRegistration, reported: Iterable[OfflineTopic]) -> None:
    """Record that these replicas begin anew, empty: they may be fetched into, and join the ISR when they have
    caught up. Those that are not recorded as offline are skipped: a report may be repeated.

    At metadata.version 0 all are: they stay offline until the broker registers again or it is 1 (K31).
    """
    if not draft.image.metadata_version:
        return
    for row in reported:
        known = broker.offline_replicas
        new = tuple(index for index in sorted(set(row.partitions)) if (row.topic_id, index) in known)
        if new:
            draft.write(
                ReplicasOfflineRecord(
                    broker.broker_id, broker.broker_epoch, row.topic_id, new, are_online=True
                )
            )
            draft.note(f"broker {broker.broker_id} fetches {len(new)} damaged replicas anew")
