"""Rows `broker` and `partition` of a history, out of the metadata log of the cluster that was played with.

The log has every change with its time and its reason, so nothing needs to watch the cluster meanwhile.
"""

from holdfast.cli.inspect.partition_story import ReadLog
from holdfast.cli.inspect.sentences import why
from holdfast.controller.core.decisions import Decision
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.report.history import Row


def metadata_rows(log: ReadLog, wall_ms: int) -> list[Row]:
    """The rows of the log; `wall_ms` is the wall clock when the run began."""
    image = MetadataImage() if log.base is None else log.base.image
    rows: list[Row] = []
    for logged in log.records:
        delta = MetadataDelta(image)
        delta.replay(logged.record, logged.offset, 0)
        after = delta.apply()
        t_ms = logged.timestamp_ms - wall_ms
        broker = _broker(logged.record)
        if broker is not None:
            rows.append({"kind": "broker", "t_ms": t_ms, **broker})
        partition = _partition(logged.record, image, after)
        if partition is not None:
            rows.append({"kind": "partition", "t_ms": t_ms, **partition})
        image = after
    return rows


def _broker(record: MetadataRecord) -> Row | None:
    match record:
        case RegisterBrokerRecord():
            how = "clean" if record.clean_shutdown else "unclean"
            return _state(record.broker_id, "registered", f"registered after a shutdown that was {how}")
        case UnfenceBrokerRecord():
            return _state(record.broker_id, "online", "unfenced")
        case FenceBrokerRecord():
            return _state(record.broker_id, "fenced", "fenced")
        case UnregisterBrokerRecord():
            return _state(record.broker_id, "gone", "unregistered")
        case BrokerRegistrationChangeRecord() if record.in_controlled_shutdown:
            return _state(record.broker_id, "stopping", "began a controlled shutdown")
    return None


def _state(broker_id: int, state: str, text: str) -> Row:
    return {"broker": broker_id, "state": state, "text": text}


def _partition(record: MetadataRecord, before: MetadataImage, after: MetadataImage) -> Row | None:
    if not isinstance(record, PartitionRecord | PartitionChangeRecord):
        return None
    now = after.partition(record.topic_id, record.partition_index)
    if now is None:
        return None
    was = before.partition(record.topic_id, record.partition_index)
    decision = _decision(record)
    return {
        "topic": after.topics[record.topic_id].name,
        "partition": record.partition_index,
        **_sets(now),
        "why": [] if was is None else why(was, now, decision),
        "is_election": was is not None and was.leader_epoch != now.leader_epoch,
        "is_unclean": decision is not None and decision.reason is not None and decision.reason.is_unclean,
    }


def _decision(record: PartitionRecord | PartitionChangeRecord) -> Decision | None:
    stored = record.decision if isinstance(record, PartitionChangeRecord) else None
    return None if stored is None else Decision.from_stored(stored)


def _sets(partition: PartitionRegistration) -> Row:
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "last_known_elr": list(partition.last_known_elr),
        "min_isr": partition.min_isr,
    }
