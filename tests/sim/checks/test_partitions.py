"""Properties of controllers' decisions: a history that breaks each, and the one beside it that does not."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from holdfast.controller.core.decisions import CauseKind, LogEnd
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.records import RegisterBrokerRecord
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from holdfast.protocol.messages.broker_registration import BrokerRegistrationRequest
from holdfast.sim.checks.observe.views import Change, Property
from holdfast.sim.checks.properties import partitions
from holdfast.sim.checks.properties.replicas import TypeOK
from holdfast.sim.cluster.world import ClusterSpec
from tests.sim.checks.histories import (
    TOPIC_ID,
    Scene,
    broker,
    change,
    follows,
    image,
    mark,
    row,
    view_of,
)

DIR_A, DIR_B = bytes(15) + b"a", bytes(15) + b"b"
MANAGER = ClusterSpec(recovery_manager=True)
#: below min ISR, 2 has left and may lead
ALONE = row(isr=(1,), elr=(2,))
LEADERLESS = row(isr=(), elr=(), leader=None, last_known_leader=1, last_known_elr=(1, 2))


class Case(NamedTuple):
    """A change that breaks a property and one that is allowed."""

    one: type[Property]
    broken: Change
    allowed: Change
    shape: ClusterSpec = ClusterSpec()


CASES = {
    "a leader who is no replica": Case(
        TypeOK, change(row(), leader=4), change(row(), leader=2, reason=ElectionReason.ISR)
    ),
    "not the best log": Case(
        partitions.BestLogWins,
        change(
            LEADERLESS,
            CauseKind.LOGS_COMPARED,
            None,
            ElectionReason.LONGEST_LOG,
            leader=1,
            logs=(LogEnd(1, 4, 90), LogEnd(2, 5, 80)),
        ),
        change(
            LEADERLESS,
            CauseKind.LOGS_COMPARED,
            None,
            ElectionReason.LONGEST_LOG,
            leader=2,
            logs=(LogEnd(1, 4, 90), LogEnd(2, 5, 80)),
        ),
        MANAGER,
    ),
    "a seat that was not asked": Case(
        partitions.BestLogWins,
        change(
            LEADERLESS,
            CauseKind.LOGS_COMPARED,
            None,
            ElectionReason.LONGEST_LOG,
            leader=2,
            logs=(LogEnd(2, 5, 80), LogEnd(3, 5, 10)),
        ),
        change(
            LEADERLESS,
            CauseKind.LOGS_COMPARED,
            None,
            ElectionReason.LONGEST_LOG,
            leader=2,
            logs=(LogEnd(1, 5, 70), LogEnd(2, 5, 80)),
        ),
        MANAGER,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_that_breaks_a_property_is_seen_and_the_one_beside_it_is_not(name: str) -> None:
    case = CASES[name]
    for told, is_broken in ((case.allowed, False), (case.broken, True)):
        scene = Scene(case.one(), case.shape)
        said = scene.violation(lambda: scene.property.partition_changed(scene.seen, 0, told))  # noqa: B023
        assert (said is not None) is is_broken, said
        assert said is None or said.startswith(case.one.name)


@pytest.mark.parametrize(
    ("told", "is_broken"),
    [((5, 2), False), ((5, 3), True), ((5, 1), True), ((4, 2), True), ((-1, -1), False)],
    ids=["the same", "cut since", "grown since", "another epoch", "only a claim"],
)
def test_a_log_that_was_compared_is_still_the_one_that_was_told_of_d3(
    told: tuple[int, int], is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(partitions.BestLogWins(), MANAGER)
    monkeypatch.setattr(scene.seen, "is_live", lambda view: True)
    follows(view_of(scene, 1, [mark(0), mark(1)]), leader=None, isr=())
    logs = (LogEnd(1, *told), LogEnd(2, 5, 80))
    chosen = change(
        LEADERLESS, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, leader=2, logs=logs
    )
    said = scene.violation(lambda: scene.property.partition_changed(scene.seen, 0, chosen))
    assert (said is not None and "N-3" in said) is is_broken, said


def proposal(
    isr: tuple[tuple[int, int], ...],
    *,
    broker_epoch: int = 1,
    leader_epoch: int = 5,
    partition_epoch: int = 20,
) -> AlterPartitionRequest:
    """Broker 1 asks for an ISR: (id, broker epoch)."""
    members = tuple(IsrMember(*member) for member in isr)
    one = AlterPartitionPartition(TOPIC_ID, 0, leader_epoch, partition_epoch, members, 0)
    return AlterPartitionRequest(1, broker_epoch, (one,))


@pytest.mark.parametrize(
    ("request_", "is_broken"),
    [
        (proposal(((1, -1), (2, 2), (3, 3))), False),
        (proposal(((1, -1), (2, 2), (3, 3)), leader_epoch=4), True),
        (proposal(((1, -1), (2, 2), (3, 3)), partition_epoch=19), True),
        (proposal(((1, -1), (2, 2), (3, 3)), broker_epoch=9), True),
        (proposal(((1, -1), (2, 2), (3, 9))), True),
        (proposal(((1, -1), (2, 2), (3, -1))), True),
    ],
    ids=["current", "leader epoch", "partition epoch", "sender", "member's epoch", "unproven member"],
)
def test_only_a_current_proposal_is_granted_a4(request_: AlterPartitionRequest, is_broken: bool) -> None:
    scene = Scene(partitions.ProposalsAreChecked())
    known, granted = row(isr=(1, 2)), row(isr=(1, 2, 3), partition_epoch=21)
    said = scene.violation(
        lambda: scene.property.proposal_handled(scene.seen, request_, image(row=known), image(row=granted))
    )
    assert (said is not None) is is_broken


def test_a_fenced_member_is_not_granted_a4() -> None:
    scene = Scene(partitions.ProposalsAreChecked())
    request = proposal(((1, -1), (2, 2), (3, 3)))
    known, granted = row(isr=(1, 2)), row(isr=(1, 2, 3), partition_epoch=21)
    said = scene.violation(
        lambda: scene.property.proposal_handled(
            scene.seen, request, image((3,), row=known), image((3,), row=granted)
        )
    )
    assert said is not None


def registration(
    epoch: int, *, incarnation: int = 9, is_clean: bool = False, log_dirs: tuple[bytes, ...] = (DIR_B,)
) -> RegisterBrokerRecord:
    """Broker 2 registers."""
    return RegisterBrokerRecord(2, bytes(15) + bytes([incarnation]), epoch, (), None, (), log_dirs, is_clean)


def test_an_id_is_given_away_again_only_when_it_is_fenced_a7() -> None:
    unfenced, fenced = (
        replace(known, brokers=known.brokers.set(2, replace(known.brokers[2], log_dirs=(DIR_A,))))
        for known in (image(), image((2,)))
    )
    for before, record, is_broken in (
        (fenced, registration(10), False),
        (unfenced, registration(10), True),
        # a log dir has one process at a time; the epoch alone may have come with a copy of the files
        (unfenced, registration(10, is_clean=True), True),
        (unfenced, registration(10, log_dirs=(DIR_A, DIR_B)), False),
        (unfenced, registration(10, incarnation=2), False),
    ):
        scene = Scene(partitions.RegistrationsAreApart())
        said = scene.violation(
            lambda: scene.property.record_committed(scene.seen, 10, record, before)  # noqa: B023
        )
        assert (said is not None) is is_broken, (record, before.brokers[2])
    assert broker(2).incarnation_id == bytes(15) + b"\2"


def test_broker_epochs_rise_in_the_whole_cluster_a7() -> None:
    scene = Scene(partitions.RegistrationsAreApart())
    scene.property.record_committed(scene.seen, 10, registration(10), image((2,)))
    said = scene.violation(
        lambda: scene.property.record_committed(scene.seen, 11, registration(10), image((2,)))
    )
    assert said is not None


@pytest.mark.parametrize(
    ("previous_epoch", "log_dirs", "is_clean", "expected"),
    [
        (7, (DIR_A, DIR_B), True, False),
        (6, (DIR_A, DIR_B), True, True),
        (-1, (DIR_A, DIR_B), True, True),
        (-1, (DIR_A, DIR_B), False, False),
        # what lay in the other dir is not here
        (7, (DIR_A,), True, True),
    ],
)
def test_a_clean_stop_is_proven_by_its_epoch_and_all_log_dirs_r32(
    previous_epoch: int, log_dirs: tuple[bytes, ...], is_clean: bool, expected: bool
) -> None:
    scene = Scene(partitions.CleanIsProven())
    known = image(epochs={2: 7})
    old = replace(known.brokers[2], log_dirs=(DIR_A, DIR_B))
    new = replace(old, broker_epoch=90, incarnation_id=bytes(16), log_dirs=log_dirs, clean_shutdown=is_clean)
    asked = BrokerRegistrationRequest(2, "c", bytes(16), (), None, (), log_dirs, previous_epoch)
    images = [replace(known, brokers=known.brokers.set(2, one)) for one in (old, new)]
    said = scene.violation(lambda: scene.property.registration_handled(scene.seen, asked, *images))
    assert (said is not None) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(7, False), (90, True)])
def test_a_process_that_registers_again_keeps_its_epoch_r31(epoch: int, expected: bool) -> None:
    scene = Scene(partitions.CleanIsProven())
    known = image(epochs={2: 7})
    old = known.brokers[2]
    asked = BrokerRegistrationRequest(2, "c", old.incarnation_id, (), None, (), (DIR_A,), -1)
    images = [
        replace(known, brokers=known.brokers.set(2, one)) for one in (old, replace(old, broker_epoch=epoch))
    ]
    said = scene.violation(lambda: scene.property.registration_handled(scene.seen, asked, *images))
    assert (said is not None) is expected
