"""Why partitions changed: told where it is decided, stored with the record, bounded in memory."""

from dataclasses import replace
from typing import Any

import msgpack
import pytest

from holdfast.controller.core.decisions import (
    DECISIONS_MAX,
    Cause,
    CauseKind,
    Decision,
    DecisionEntry,
    DecisionRing,
    LogEnd,
)
from holdfast.controller.core.partitions.election import ElectionReason, Rejection
from holdfast.controller.core.partitions.elr import SetsRule
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import PartitionChangeRecord, decode_record, encode_record
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import Command

FULL = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 0, 0, 2)
FENCED, SHUTTING_DOWN = Rejection.FENCED, Rejection.IN_CONTROLLED_SHUTDOWN
LOGS = (LogEnd(2, 3, 10), LogEnd(3, 3, 12))
LEADERLESS = "partition t-0 replicas=(1,2,3) min_isr=2 leader=none isr=()"


def played(*lines: str) -> Scenario:
    scenario = Scenario()
    if not lines[0].startswith("cluster"):
        scenario.execute(Command("broker 1 2 3 4", "a test"))
    for line in lines:
        scenario.execute(Command(line, "a test"))
        if line.startswith("cluster"):
            scenario.execute(Command("broker 1 2 3 4", "a test"))
    return scenario


def last(scenario: Scenario) -> DecisionEntry:
    return list(scenario.quorum.core.decisions)[-1]


T = "partition t-0 replicas=(1,2,3) min_isr=2"
UNCLEAN_ON = "config topic t unclean.leader.election.enable=true"
MANAGER_OFF = "config cluster unclean.recovery.manager.enabled=false"


@pytest.mark.parametrize(
    ("lines", "kind", "broker_id", "reason", "rejected", "sets_rule"),
    [
        (
            (T, "fence 1"),
            CauseKind.CONNECTION_REFUSED,
            1,
            ElectionReason.ISR,
            ((1, FENCED),),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "expire 1"),
            CauseKind.SESSION_ENDED,
            1,
            ElectionReason.ISR,
            ((1, FENCED),),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "stop 1"),
            CauseKind.CONTROLLED_SHUTDOWN,
            1,
            ElectionReason.ISR,
            ((1, SHUTTING_DOWN),),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "register 1 clean"),
            CauseKind.CLEAN_RESTART,
            1,
            ElectionReason.ISR,
            ((1, FENCED),),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "unregister 1"),
            CauseKind.UNREGISTRATION,
            1,
            ElectionReason.ISR,
            ((1, Rejection.UNREGISTERED),),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "stop 1", "fence 2"),
            CauseKind.CONNECTION_REFUSED,
            2,
            ElectionReason.ISR,
            ((2, FENCED), (1, SHUTTING_DOWN)),
            SetsRule.KEPT_BELOW_MIN_ISR,
        ),
        # the leader stays, so no other replica was looked at
        ((T, "fence 3"), CauseKind.CONNECTION_REFUSED, 3, None, (), SetsRule.CLEARED_AT_MIN_ISR),
        ((T, "alter t-0 isr=(1)"), CauseKind.ALTER_PARTITION, 1, None, (), SetsRule.KEPT_BELOW_MIN_ISR),
        (
            (T, "fence 3", "fence 2", "fence 1"),
            CauseKind.CONNECTION_REFUSED,
            1,
            None,
            ((1, FENCED), (2, FENCED), (3, FENCED)),
            SetsRule.KEPT_BELOW_MIN_ISR,
        ),
        (
            (f"{LEADERLESS} elr=(2,3)", "fence 2", "register 2 unclean"),
            CauseKind.UNCLEAN_REGISTRATION,
            2,
            ElectionReason.ELR,
            ((1, Rejection.NOT_ELIGIBLE), (2, FENCED)),
            SetsRule.KEPT_BELOW_MIN_ISR,
        ),
        (
            ("fence 2", f"{LEADERLESS} elr=(2)", "unfence 2"),
            CauseKind.UNFENCING,
            2,
            ElectionReason.ELR,
            ((1, Rejection.NOT_ELIGIBLE),),
            SetsRule.KEPT_BELOW_MIN_ISR,
        ),
        (
            (f"{T} leader=2", "elect preferred t-0"),
            CauseKind.PREFERRED_ASKED,
            None,
            ElectionReason.PREFERRED,
            (),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            ("cluster rebalance=on", f"{T} leader=2", "advance 300000"),
            CauseKind.LEADER_BALANCE,
            None,
            ElectionReason.PREFERRED,
            (),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            ("cluster manager=off", f"{LEADERLESS} elr=(1)", "fence 1", "elect unclean t-0"),
            CauseKind.UNCLEAN_ASKED,
            None,
            ElectionReason.UNCLEAN_RANDOM,
            ((1, FENCED), (3, Rejection.NOT_ELIGIBLE)),
            SetsRule.FORGOTTEN_BY_UNCLEAN_ELECTION,
        ),
        (
            (f"{LEADERLESS} last_known_elr=(1,2,3)", "elect designated t-0 leader=3"),
            CauseKind.DESIGNATED,
            3,
            ElectionReason.DESIGNATED,
            (),
            SetsRule.SEATS_AFTER_UNCLEAN_ELECTION,
        ),
        (
            ("cluster manager=off", LEADERLESS, UNCLEAN_ON, "advance 300000"),
            CauseKind.UNCLEAN_PASS,
            None,
            ElectionReason.UNCLEAN_RANDOM,
            ((2, Rejection.NOT_ELIGIBLE), (3, Rejection.NOT_ELIGIBLE)),
            SetsRule.FORGOTTEN_BY_UNCLEAN_ELECTION,
        ),
        (
            (f"{LEADERLESS} last_known_elr=(2,3) last_known_leader=3", MANAGER_OFF),
            CauseKind.MANAGER_SWITCHED_OFF,
            None,
            ElectionReason.LAST_KNOWN_LEADER,
            ((1, Rejection.NOT_ELIGIBLE), (2, Rejection.UNCLEAN_SHUTDOWN)),
            SetsRule.FORGOTTEN_BY_UNCLEAN_ELECTION,
        ),
        (
            (f"{LEADERLESS} elr=(2)", "failover"),
            CauseKind.TAKEOVER,
            None,
            ElectionReason.ELR,
            ((1, Rejection.NOT_ELIGIBLE),),
            SetsRule.KEPT_BELOW_MIN_ISR,
        ),
        (
            (T, "reassign t-0 replicas=(2,3)"),
            CauseKind.REASSIGNMENT_ASKED,
            None,
            ElectionReason.ISR,
            ((1, Rejection.NOT_ASSIGNED),),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "reassign t-0 replicas=(2,3,4)", "reassign t-0 cancel"),
            CauseKind.REASSIGNMENT_CANCELLED,
            None,
            None,
            (),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "alter t-0 isr=(1)", "config topic t min.insync.replicas=1"),
            CauseKind.MIN_ISR_CONFIGURED,
            None,
            None,
            (),
            SetsRule.CLEARED_AT_MIN_ISR,
        ),
        (
            (T, "alter t-0 isr=(1)", "feature elr=0"),
            CauseKind.ELR_SWITCHED_OFF,
            None,
            None,
            (),
            SetsRule.ELR_OFF,
        ),
    ],
)
def test_every_event_is_named_with_the_rule_and_the_rejected(
    lines: tuple[str, ...],
    kind: CauseKind,
    broker_id: int | None,
    reason: ElectionReason | None,
    rejected: tuple[tuple[int, Rejection], ...],
    sets_rule: SetsRule,
) -> None:
    """Issue 3 item 5; F38, R12, R18, R20-R22, R32, R41, R101-R105, R109 by their causes."""
    entry = last(played(*lines))
    assert entry.decision == Decision(Cause(kind, broker_id), reason, rejected, sets_rule)


def test_logs_that_were_compared_are_told_with_the_election() -> None:
    """R68."""
    scenario = played(f"{LEADERLESS} last_known_elr=(2,3)")
    for broker_id, end_offset in ((2, 10), (3, 12)):
        line = f"log_info {broker_id} t-0 last_epoch=3 end_offset={end_offset}"
        scenario.execute(Command(line, "a test"))
    scenario.execute(Command("log_info 1 t-0 last_epoch=3 end_offset=11", "a test"))
    cause = last(scenario).decision.cause
    assert cause == Cause(CauseKind.LOGS_COMPARED, None, (LogEnd(1, 3, 11), *LOGS))
    assert str(cause).endswith("1 ends at 11 in epoch 3, 2 ends at 10 in epoch 3, 3 ends at 12 in epoch 3")


def test_what_is_kept_in_memory_stands_in_the_metadata_log() -> None:
    scenario = played(T, "fence 3", "fence 2", "fence 1", "unfence 2", "alter t-0 isr=(2)")
    entries = {entry.offset: entry for entry in scenario.quorum.core.decisions}
    stored = {
        entry.offset: record
        for entry in scenario.quorum.entries
        if isinstance(record := decode_record(entry.value), PartitionChangeRecord)
    }
    assert len(entries) == 4
    assert sorted(entries) == sorted(stored)
    for offset, record in stored.items():
        assert record.decision is not None
        assert Decision.from_stored(record.decision) == entries[offset].decision
        assert entries[offset].before.merge(record) == entries[offset].after


@pytest.mark.parametrize("kind", list(CauseKind))
@pytest.mark.parametrize("reason", [None, *ElectionReason])
def test_a_stored_decision_is_what_was_decided(kind: CauseKind, reason: ElectionReason | None) -> None:
    rejected = tuple((number, why) for number, why in enumerate(Rejection))
    for sets_rule in SetsRule:
        decision = Decision(Cause(kind, 7, LOGS), reason, rejected, sets_rule)
        assert Decision.from_stored(decision.stored()) == decision
        assert str(decision.cause)


@pytest.mark.parametrize(
    "change", [{"cause": 99}, {"reason": 99}, {"sets_rule": 99}, {"rejected": (1, 99)}, {"rejected": (1,)}]
)
def test_a_decision_of_a_later_version_is_passed_over(change: dict[str, Any]) -> None:
    stored = Decision(Cause(CauseKind.UNFENCING, 1), None, (), SetsRule.ELR_OFF).stored()
    assert Decision.from_stored(replace(stored, **change)) is None


def test_records_from_before_decisions_were_stored_are_read() -> None:
    record = PartitionChangeRecord(bytes(16), 0, (1,), *[None] * 10)
    assert record.decision is None
    key, _, fields = msgpack.unpackb(encode_record(record))
    assert decode_record(msgpack.packb([key, 0, fields[:-1]])) == record


def test_a_decision_costs_few_bytes_in_the_metadata_log() -> None:
    """Ten thousand partitions may move at once."""
    record = decode_record(played(T, "fence 1").quorum.entries[-2].value)
    assert isinstance(record, PartitionChangeRecord)
    assert len(encode_record(record)) - len(encode_record(replace(record, decision=None))) <= 12


def test_memory_keeps_the_last_decisions_only_and_a_successor_starts_anew() -> None:
    ring = DecisionRing()
    decision = Decision(Cause(CauseKind.UNFENCING, 1), None, (), SetsRule.ELR_OFF)
    entries = [
        DecisionEntry(offset, bytes(16), "t", 0, FULL, FULL, decision) for offset in range(DECISIONS_MAX + 3)
    ]
    ring.extend(entries)
    assert (len(ring), next(iter(ring)).offset) == (DECISIONS_MAX, 3)
    scenario = played(T, "fence 1")
    core = scenario.quorum.core
    assert len(core.decisions) == 1
    scenario.quorum.lose(999)
    assert len(core.decisions) == 0
