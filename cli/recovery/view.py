"""What `holdfast unclean-recovery` prints: the table of replicas, what became of each partition, warnings.

Owns the words and the JSON. Says what the mind knows; decides nothing.
"""

import json
from collections.abc import Mapping
from typing import Any

from holdfast.cli.recovery.choice import RecoveryCandidate, Worth, estimated_loss, longest, unseen
from holdfast.cli.recovery.core import Ending, Goal, RecoveryPlanner
from holdfast.cli.tables import table_lines
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition

HEADS = (
    "TOPIC", "PARTITION", "REPLICA", "ROLE", "FENCED", "BROKER-EPOCH", "LAST-EPOCH", "CURRENT-EPOCH", "LEO",
    "FLUSHED", "HWM", "REPLIED", "BEST", "EST-LOSS",
)  # fmt: skip
#: What the election tool reads: KIP-966's spelling, and KIP-1275's.
_LEADER_KEYS = {False: "desiredLeader", True: "designatedLeader"}


def name(partition: TopicPartition) -> str:
    """`topic-0`, as everywhere in Kafka's tools."""
    return f"{partition.topic}-{partition.partition}"


# --- the table -------------------------------------------------------------------------------------------


def table(planner: RecoveryPlanner) -> list[str]:
    """One line a replica of each partition without a leader; nothing without any."""
    rows: list[tuple[str, ...]] = []
    for partition in planner.targets():
        found = planner.candidates(partition)
        best = planner.best(partition)
        rows += [_cells(partition, found, one, one.replica == best) for one in found]
    return table_lines(HEADS, rows) if rows else []


def _cells(
    partition: TopicPartition, found: tuple[RecoveryCandidate, ...], one: RecoveryCandidate, is_best: bool
) -> tuple[str, ...]:
    log = one.log
    loss = estimated_loss(found, one.replica)
    numbers = ("-",) * 6
    if log is not None:
        numbers = (
            _known(log.broker_epoch),
            _known(log.last_epoch),
            str(log.leader_epoch),
            str(log.end_offset),
            str(log.flushed_offset),
            _known(log.high_watermark),
        )
    return (
        partition.topic,
        str(partition.partition),
        str(one.replica),
        one.role.value,
        _fenced(one),
        *numbers,
        _replied(one),
        "*" if is_best else "-",
        "-" if loss is None else str(loss),
    )


def _known(number: int) -> str:
    return "-" if number < 0 else str(number)


def _fenced(one: RecoveryCandidate) -> str:
    """R76: whether the controller would let it lead, and if not why."""
    if one.broker is None:
        return "unregistered"
    if one.broker.is_fenced:
        return "yes"
    if one.broker.in_controlled_shutdown:
        return "stopping"
    return "offline" if one.is_offline else "no"


def _replied(one: RecoveryCandidate) -> str:
    if one.problem is not None:
        return f"no({one.problem.code.name})"
    if one.worth is Worth.BEHIND:
        return "yes(old_metadata)"
    return "yes(newer_metadata)" if one.worth is Worth.AHEAD else "yes"


# --- what became of it -----------------------------------------------------------------------------------


def elected_lines(planner: RecoveryPlanner) -> list[str]:
    """Kafka's line for all that were elected, and for each who leads and what it may have cost."""
    elected = [one for one, outcome in planner.outcomes.items() if outcome.ending is Ending.ELECTED]
    if not elected:
        return []
    names = ", ".join(map(name, elected))
    return [
        f"Successfully completed leader election (DESIGNATION) for partitions {names}",
        *(f"{name(one)}: {_leader_text(planner, one)}" for one in elected),
    ]


def _leader_text(planner: RecoveryPlanner, partition: TopicPartition) -> str:
    leader = planner.designated[partition]
    loss = estimated_loss(planner.candidates(partition), leader)
    return f"broker {leader} leads, estimated loss {'unknown' if loss is None else f'{loss} record(s)'}"


def errors(planner: RecoveryPlanner, *, is_interrupted: bool = False) -> list[Mapping[str, Any]]:
    """What of the asked-for work was not done, in the form of `cli.options.Answer`."""
    found: list[Mapping[str, Any]] = []
    if planner.failure is not None:
        found.append({"code": planner.failure.code.name, "message": planner.failure.message})
    for partition, outcome in planner.outcomes.items():
        error = outcome.error
        if outcome.ending is Ending.FAILED or (
            outcome.ending is Ending.ONLINE and planner.goal is Goal.ELECT
        ):
            assert error is not None
            already = "already online: " if outcome.ending is Ending.ONLINE else ""
            found.append(_row(partition, error.code, already + error.message))
        elif partition in planner.under_way:
            text = "the controller's answer was not awaited: it is elected or not, look at it"
            found.append(_row(partition, ErrorCode.REQUEST_TIMED_OUT, text))
        elif outcome.ending is Ending.OPEN and (is_interrupted or planner.failure is not None):
            text = "nothing was decided before the end"
            if error is not None:
                text = f"not elected: {error}"
            found.append(_row(partition, ErrorCode.OPERATION_NOT_ATTEMPTED, text))
    if is_interrupted and not found:
        text = "stopped by a signal before anything was known"
        found.append({"code": ErrorCode.OPERATION_NOT_ATTEMPTED.name, "message": text})
    return found


def _row(partition: TopicPartition, code: ErrorCode, message: str) -> Mapping[str, Any]:
    return {
        "code": code.name,
        "topic": partition.topic,
        "partition": partition.partition,
        "message": message,
    }


def warnings(planner: RecoveryPlanner) -> list[str]:
    """What the operator should know beside the result (R76, R78, R79)."""
    told = []
    if planner.doubt is not None and planner.has_looked:
        told.append(f"{planner.doubt}: what is told here may be old")
    if planner.goal is not Goal.ELECT:
        told += [
            f"{name(one)} is skipped, it is online: {outcome.error.message}"
            for one, outcome in planner.outcomes.items()
            if outcome.ending is Ending.ONLINE and outcome.error is not None
        ]
    return [*told, *_silent_brokers(planner), *_poor_choices(planner)]


def _silent_brokers(planner: RecoveryPlanner) -> list[str]:
    """A line for each broker and reason; those that held everything once are named with their role."""
    silent: dict[tuple[int, str], list[str]] = {}
    for partition in planner.targets():
        found = planner.candidates(partition)
        important = {one.replica for one in unseen(found)}
        for one in found:
            if one.problem is not None:
                role = f" ({one.role.value})" if one.replica in important else ""
                silent.setdefault((one.replica, str(one.problem)), []).append(f"{name(partition)}{role}")
    lines: list[str] = []
    for (replica, problem), names in sorted(silent.items()):
        line = f"the logs of broker {replica} are not known for {', '.join(names)}: {problem}"
        if any(text.endswith(")") for text in names):
            line += "; what only this broker has is lost if another one leads"
        lines.append(line)
    return lines


def _poor_choices(planner: RecoveryPlanner) -> list[str]:
    lines: list[str] = []
    for partition in planner.targets():
        found = {one.replica: one for one in planner.candidates(partition)}
        best = planner.best(partition)
        if best is None or planner.goal is Goal.SHOW:
            continue
        better = longest(planner.row(partition), tuple(found.values()))
        if not found[best].is_ready:
            lines.append(
                f"{name(partition)}: only brokers that are not ready told where their logs end; the "
                f"controller refuses {best} until it is back"
            )
        elif better is not None and better != best:
            role = found[better].role.value
            lines.append(
                f"{name(partition)}: broker {better} ({role}) is not ready, and its log is better than "
                f"that of {best}, the best of those that may lead now"
            )
    return lines


# --- files and JSON --------------------------------------------------------------------------------------


def election_file(planner: RecoveryPlanner, *, is_kip1275: bool) -> str | None:
    """The input of `holdfast leader-election --election-type DESIGNATION`; None when no replica is
    designated."""
    key = _LEADER_KEYS[is_kip1275]
    rows = [
        {"topic": one.topic, "partition": one.partition, key: planner.designated[one]}
        for one in planner.open_partitions()
        if one in planner.designated
    ]
    if not rows:
        return None
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f'{{"partitions": [\n{lines}\n]}}\n'


def as_json(planner: RecoveryPlanner, *, shows_replicas: bool) -> dict[str, Any]:
    """`data` of `--output json`."""
    return {
        "partitions": [_partition_json(planner, one, shows_replicas) for one in planner.outcomes],
        "warnings": warnings(planner),
    }


def _partition_json(
    planner: RecoveryPlanner, partition: TopicPartition, shows_replicas: bool
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        **partition._asdict(),
        "result": planner.outcomes[partition].ending.value,
        "best": None,
    }
    if not planner.is_target(partition):
        return shown
    row = planner.row(partition)
    found = planner.candidates(partition)
    best = planner.best(partition)
    shown |= {
        "best": best,
        "best_estimated_loss": None if best is None else _loss_json(found, best),
        "leader_epoch": row.leader_epoch,
        "isr": row.isr,
        "elr": row.eligible_leader_replicas,
        "last_known_elr": row.last_known_elr,
    }
    if shows_replicas:
        shown["replicas"] = [_replica_json(found, one, one.replica == best) for one in found]
    return shown


def _loss_json(found: tuple[RecoveryCandidate, ...], replica: int) -> dict[str, Any] | None:
    loss = estimated_loss(found, replica)
    return None if loss is None else {"records": loss.records, "is_at_least": loss.is_at_least}


def _replica_json(
    found: tuple[RecoveryCandidate, ...], one: RecoveryCandidate, is_best: bool
) -> dict[str, Any]:
    log = one.log
    return {
        "replica": one.replica,
        "role": one.role.value,
        "fenced": _fenced(one),
        "broker_epoch": None if log is None else log.broker_epoch,
        "last_epoch": None if log is None else log.last_epoch,
        "current_epoch": None if log is None else log.leader_epoch,
        "log_end_offset": None if log is None else log.end_offset,
        "flushed_offset": None if log is None else log.flushed_offset,
        "high_watermark": None if log is None else log.high_watermark,
        "replied": _replied(one),
        "problem": None if one.problem is None else str(one.problem),
        "is_best": is_best,
        "estimated_loss": _loss_json(found, one.replica),
    }
