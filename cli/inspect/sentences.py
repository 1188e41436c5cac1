"""Sentences about the steps of a partition's story, for people who are woken up at night.

Owns the words. Says what was decided from the decision in the record, and what follows from the state alone
(KIP-966: below min ISR the high watermark stands still, so all members of ISR and ELR have what was
acknowledged). Decides nothing and looks nothing up.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from holdfast.cli.inspect.partition_story import Step
from holdfast.controller.core.decisions import Decision
from holdfast.controller.core.partitions.election import ElectionReason, Rejection
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.partition import PartitionRegistration, ids_text
from holdfast.metadata.records import (
    RECOVERING,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    ReplicasOfflineRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

_REASONS = {
    ElectionReason.ISR: "it is active and in the ISR",
    ElectionReason.ELR: "the ISR is empty and it is in the ELR, so it has all that was acknowledged",
    ElectionReason.PREFERRED: "it is the preferred replica and in the ISR",
    ElectionReason.LAST_KNOWN_LEADER: "it led last; its log was not compared",
    ElectionReason.UNCLEAN_RANDOM: (
        "unclean elections are allowed and it is the first active replica; its log was not compared"
    ),
    ElectionReason.DESIGNATED: "an operator chose it, and nothing proves that its log is complete",
    ElectionReason.LONGEST_LOG: "its log ends last of those that were compared",
}
_REJECTIONS = {
    Rejection.FENCED: "fenced",
    Rejection.IN_CONTROLLED_SHUTDOWN: "in controlled shutdown",
    Rejection.UNREGISTERED: "not registered",
    Rejection.NOT_IN_ISR: "not in the ISR",
    Rejection.NOT_ELIGIBLE: "not in the ELR",
    Rejection.UNCLEAN_SHUTDOWN: "lost its seat to an unclean shutdown",
    Rejection.NOT_ASSIGNED: "no replica any more",
    Rejection.LOG_DIR_FAILED: "damaged, or in a log dir that failed",
}


def headline(step: Step) -> str:
    """What changed, in one line."""
    before, after = step.before, step.after
    if after is None:
        return "deleted with its topic"
    if before is None:
        return f"created: replicas {ids_text(after.replicas)}, {after}"
    if isinstance(step.logged.record, PartitionChangeRecord):
        return after.diff(before)
    return _event(step.logged.record)


def sentences(step: Step) -> list[str]:
    """Why it changed and what follows, most important first; empty for what only happened around it."""
    if step.after is None:
        return ["Its records are gone. A topic of the same name is another topic with another id."]
    if step.before is not None and not isinstance(step.logged.record, PartitionChangeRecord):
        return []
    told: list[str] = []
    if step.before is not None:
        told += why(step.before, step.after, step.decision)
    return told + consequences(step.after)


def why(before: PartitionRegistration, after: PartitionRegistration, decision: Decision | None) -> list[str]:
    """What the controller decided."""
    if decision is None:
        return ["Why: this record says nothing that this version understands; it may be an old one."]
    told = [f"Why: {decision.cause}."]
    if after.leader_epoch != before.leader_epoch:
        told.append(_leadership(before, after, decision))
        loss = decision.cause.loss_text(after.leader)
        if loss is not None:
            told.append(f"Predicted loss: {loss} by what the logs tell.")
    told += _sets(before, after, decision.sets_rule)
    if after.min_isr != before.min_isr:
        told.append(f"Effective min ISR is {after.min_isr} from here on, for controller and leader alike.")
    if before.is_reassigning and not after.is_reassigning:
        told.append(f"The reassignment has ended: the replicas are {ids_text(after.replicas)}.")
    elif after.is_reassigning and after.adding_replicas != before.adding_replicas:
        told.append(
            f"A reassignment runs: it ends once {ids_text(after.adding_replicas)} are in the ISR and enough "
            "of the final replicas are in sync for min ISR."
        )
    return told


def _leadership(before: PartitionRegistration, after: PartitionRegistration, decision: Decision) -> str:
    order = f"Candidates in order of preference: {_list(after.replicas)}"
    rejected = _list(f"{replica} ({_REJECTIONS[why]})" for replica, why in decision.rejected)
    if rejected:
        order += f"; rejected: {rejected}"
    if after.leader is None:
        return f"No replica may lead. {order}."
    if decision.reason is None:
        return f"Broker {after.leader} goes on leading in a new epoch. {order}."
    return f"Broker {after.leader} leads: {_REASONS[decision.reason]}. {order}."


def _sets(before: PartitionRegistration, after: PartitionRegistration, rule: SetsRule) -> list[str]:
    """Why ELR and last known ELR are what they are, where they have changed."""
    if (after.elr, after.last_known_elr) == (before.elr, before.last_known_elr):
        return []
    if rule is SetsRule.CLEARED_AT_MIN_ISR:
        return [
            f"The ISR has reached min ISR {after.min_isr}, so no replica outside it is eligible any more."
        ]
    if rule is SetsRule.ELR_OFF:
        return ["Eligible leader replicas are off, so both sets are empty."]
    if rule is SetsRule.FORGOTTEN_BY_UNCLEAN_ELECTION:
        return [
            f"ELR {ids_text(before.elr)} and last known ELR {ids_text(before.last_known_elr)} are forgotten."
        ]
    told: list[str] = []
    joined = _new(after.elr, before.elr)
    lost = _new(after.last_known_elr, before.last_known_elr)
    elected = tuple(replica for replica in before.elr if replica in after.isr)
    gone = tuple(
        replica
        for replica in before.elr + before.last_known_elr
        if replica not in after.elr + after.last_known_elr + after.isr
    )
    if joined:
        told.append(
            f"{_brokers(joined)} left the ISR below min ISR and stays eligible: the log is complete up to "
            "the high watermark."
        )
    if lost and rule is SetsRule.SEATS_AFTER_UNCLEAN_ELECTION:
        told.append(
            f"{_brokers(lost)} was passed over; the seat is remembered until the ISR reaches min ISR."
        )
    elif lost:
        told.append(f"{_brokers(lost)} may have lost the end of its log; the seat is remembered.")
    if elected:
        told.append(f"{_brokers(elected)} is in the ISR again and needs no eligibility.")
    if gone:
        told.append(f"{_brokers(gone)} has no seat any more.")
    return told


def consequences(after: PartitionRegistration) -> list[str]:
    """What follows from this state, and what has to happen for a better one."""
    told: list[str] = []
    complete = tuple(sorted(after.isr + after.elr))
    if after.leader is None:
        told.append("No replica leads: reads and writes wait.")
        if after.electable:
            told.append(
                f"The first of {ids_text(after.electable)} that is active leads at once, and nothing is lost."
            )
        elif after.last_known_elr:
            told.append(
                f"No complete log is left for sure; those of {ids_text(after.last_known_elr)} may be. The "
                "recovery manager compares logs, or an operator designates a leader."
            )
        else:
            told.append(
                "No replica is known to have a complete log: an election now may lose acknowledged records."
            )
        return told
    if after.leader_recovery_state == RECOVERING:
        told.append("Acknowledged records may be lost: the leader was elected without proof.")
    if len(after.isr) < after.min_isr:
        told.append(
            f"The high watermark stands still until {after.min_isr} replicas are in sync: writes with "
            "acks=all are refused."
        )
        if after.leader_recovery_state != RECOVERING:
            told.append(f"Records acknowledged before are on {_list(complete)}.")
    elif len(after.isr) == after.min_isr:
        told.append(f"Writes go on; one more replica that leaves {ids_text(after.isr)} stops them.")
    return told


def _event(record: MetadataRecord) -> str:
    """What happened around the partition."""
    match record:
        case RegisterBrokerRecord():
            how = "cleanly" if record.clean_shutdown else "after an unclean shutdown"
            return f"broker {record.broker_id} registered {how}, epoch {record.broker_epoch}"
        case UnregisterBrokerRecord():
            return f"broker {record.broker_id} was unregistered"
        case FenceBrokerRecord():
            return f"broker {record.broker_id} was fenced"
        case UnfenceBrokerRecord():
            return f"broker {record.broker_id} was unfenced"
        case BrokerRegistrationChangeRecord():
            if record.in_controlled_shutdown:
                return f"broker {record.broker_id} is in controlled shutdown"
            return f"broker {record.broker_id} changed its registration"
        case ReplicasOfflineRecord():
            if record.are_online:
                return f"broker {record.broker_id} fetches its replica anew"
            return f"broker {record.broker_id} lost its replica: damaged, or in a log dir that failed"
        case ConfigRecord():
            owner = f"topic {record.resource_name}" if record.resource_name else "cluster"
            if record.value is None:
                return f"{owner} configured: {record.name} removed"
            return f"{owner} configured: {record.name}={record.value}"
        case FeatureLevelRecord():
            return f"feature {record.name} is at level {record.level}"
    raise AssertionError(f"{type(record).__name__} is no part of a story")


def _new(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(replica for replica in after if replica not in before)


def _brokers(ids: tuple[int, ...]) -> str:
    return f"Broker {ids[0]}" if len(ids) == 1 else f"Each of {ids_text(ids)}"


def _list(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))


# --- for programs --------------------------------------------------------------------------------------


def state_row(partition: PartitionRegistration | None) -> dict[str, Any] | None:
    """The fields of a state as plain values."""
    if partition is None:
        return None
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in ((one.name, getattr(partition, one.name)) for one in fields(partition))
    }


def decision_row(step: Step) -> dict[str, Any] | None:
    """The decision as plain values; None where nothing was decided, or it is not known."""
    decision = step.decision
    if decision is None or step.after is None:
        return None
    return {
        "cause": decision.cause.kind.name.lower(),
        "cause_broker": decision.cause.broker_id,
        "reason": None if decision.reason is None else decision.reason.value,
        "candidates": list(step.after.replicas),
        "rejected": [{"replica": replica, "because": why.name.lower()} for replica, why in decision.rejected],
        "sets_rule": decision.sets_rule.name.lower(),
        "logs": [{one.name: getattr(log, one.name) for one in fields(log)} for log in decision.cause.logs],
        "predicted_loss": decision.cause.predicted_loss(step.after.leader),
        "most_lost": decision.cause.most_lost(step.after.leader),
    }
