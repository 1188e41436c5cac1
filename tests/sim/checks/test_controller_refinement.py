"""Refinement of the controllers' decisions: steps that the model has not, each beside one that it has."""

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from holdfast.controller.core.decisions import CauseKind, LogEnd
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    RECOVERING,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.protocol.messages.alter_partition import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    IsrMember,
)
from holdfast.sim.checks.observe.views import NO_PLACE, Change
from holdfast.sim.checks.refinement.controller import DecisionsRefineModel
from holdfast.sim.cluster.world import ClusterSpec
from tests.sim.checks import histories
from tests.sim.checks.histories import TOPIC_ID, Scene, image, row

MANAGER = ClusterSpec(recovery_manager=True)
#: below min ISR, 2 has left and may lead
ALONE = row(isr=(1,), elr=(2,))
LEADERLESS = row(isr=(), elr=(), leader=None, last_known_leader=1, last_known_elr=(1, 2))
#: 3 joins, 2 leaves
MOVING = row(
    replicas=(1, 3, 2), isr=(1, 2), adding_replicas=(3,), removing_replicas=(2,), original_replicas=(1, 2)
)
LEADS_ALONE: dict[str, Any] = {"leader": 2, "isr": (2,), "last_known_elr": (), "last_known_leader": None}
RECOVERED: dict[str, Any] = {"leader_recovery_state": 0}
LOGS = (LogEnd(1, 4, 90), LogEnd(2, 5, 80))


def change(
    before: PartitionRegistration,
    kind: CauseKind,
    cause_broker: int | None = None,
    reason: ElectionReason | None = None,
    **given: Any,
) -> Change:
    """The next row; who was elected uncleanly recovers."""
    if reason is not None and reason.is_unclean:
        given.setdefault("leader_recovery_state", RECOVERING)
    return histories.change(before, kind, cause_broker, reason, **given)


class Case(NamedTuple):
    """A step that the model has not, and one that it has."""

    broken: Change
    allowed: Change
    shape: ClusterSpec = ClusterSpec()


CASES = {
    "a broker whose session ended stays in the ISR": Case(
        change(row(), CauseKind.SESSION_ENDED, 1, ElectionReason.ISR, leader=2),
        change(row(), CauseKind.SESSION_ENDED, 1, ElectionReason.ISR, leader=2, isr=(2, 3)),
    ),
    "a member goes with another": Case(
        change(row(min_isr=3), CauseKind.SESSION_ENDED, 2, isr=(1,), elr=(2, 3)),
        change(row(), CauseKind.SESSION_ENDED, 2, isr=(1, 3)),
    ),
    "another member of the ISR leads than the order says": Case(
        change(row(), CauseKind.SESSION_ENDED, 1, ElectionReason.ISR, leader=3, isr=(2, 3)),
        change(row(), CauseKind.SESSION_ENDED, 1, ElectionReason.ISR, leader=3, isr=(2, 3), fenced=(2,)),
    ),
    "the last member leaves and is not eligible": Case(
        change(
            row(isr=(1,)), CauseKind.SESSION_ENDED, 1, leader=None, isr=(), last_known_elr=(1,),
            last_known_leader=1,
        ),
        change(row(isr=(1,)), CauseKind.SESSION_ENDED, 1, leader=None, isr=(), elr=(1,), last_known_leader=1),
    ),
    "the last known leader is not kept": Case(
        change(row(isr=(1,)), CauseKind.SESSION_ENDED, 1, leader=None, isr=(), elr=(1,)),
        change(row(isr=(1,)), CauseKind.SESSION_ENDED, 1, leader=None, isr=(), elr=(1,), last_known_leader=1),
    ),
    "an ELR member is elected and the others forgotten": Case(
        change(
            row(isr=(1,), elr=(2, 3), min_isr=3), CauseKind.SESSION_ENDED, 1, ElectionReason.ELR,
            leader=2, isr=(2,), elr=(3,), min_isr=2,
        ),
        change(
            row(isr=(1,), elr=(2, 3)), CauseKind.SESSION_ENDED, 1, ElectionReason.ELR,
            leader=2, isr=(2,), elr=(1, 3),
        ),
    ),
    "an unclean stop that keeps its seat in the ELR": Case(
        change(ALONE, CauseKind.UNCLEAN_REGISTRATION, 2, last_known_elr=(3,)),
        change(ALONE, CauseKind.UNCLEAN_REGISTRATION, 2, elr=(), last_known_elr=(2,)),
    ),
    "a broker that is unregistered and remembered": Case(
        change(ALONE, CauseKind.UNREGISTRATION, 2, elr=(), last_known_elr=(2,)),
        change(ALONE, CauseKind.UNREGISTRATION, 2, elr=()),
    ),
    "a leader epoch that grows with the ELR alone": Case(
        change(ALONE, CauseKind.UNCLEAN_REGISTRATION, 2, elr=(), last_known_elr=(2,), leader_epoch=6),
        change(ALONE, CauseKind.UNCLEAN_REGISTRATION, 2, elr=(), last_known_elr=(2,)),
    ),
    "a replica is elected by unfencing where logs are compared": Case(
        change(LEADERLESS, CauseKind.UNFENCING, 1, ElectionReason.LAST_KNOWN_LEADER, leader=1, isr=(1,)),
        change(
            replace(LEADERLESS, elr=(2,), last_known_elr=(1,)), CauseKind.UNFENCING, 2, ElectionReason.ELR,
            leader=2, isr=(2,), elr=(), last_known_elr=(1,), last_known_leader=None,
        ),
        MANAGER,
    ),
    "a last known leader who was not the last": Case(
        change(
            LEADERLESS, CauseKind.UNFENCING, 2, ElectionReason.LAST_KNOWN_LEADER,
            leader=2, isr=(2,), last_known_elr=(), last_known_leader=None,
        ),
        change(
            LEADERLESS, CauseKind.UNFENCING, 1, ElectionReason.LAST_KNOWN_LEADER,
            leader=1, isr=(1,), last_known_elr=(), last_known_leader=None,
        ),
    ),
    "not the best log": Case(
        change(
            LEADERLESS, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, logs=LOGS,
            leader=1, isr=(1,), last_known_elr=(2,), last_known_leader=None,
        ),
        change(
            LEADERLESS, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, logs=LOGS,
            leader=2, isr=(2,), last_known_elr=(1,), last_known_leader=None,
        ),
        MANAGER,
    ),
    "a seat is forgotten with the election by logs": Case(
        change(
            LEADERLESS, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, logs=LOGS,
            leader=2, isr=(2,), last_known_elr=(), last_known_leader=None,
        ),
        change(
            LEADERLESS, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, logs=LOGS,
            leader=2, isr=(2,), last_known_elr=(1,), last_known_leader=None,
        ),
        MANAGER,
    ),
    "a designated replica that is fenced": Case(
        change(
            LEADERLESS, CauseKind.DESIGNATED, 3, ElectionReason.DESIGNATED, fenced=(3,),
            leader=3, isr=(3,), last_known_elr=(), last_known_leader=None,
        ),
        change(
            LEADERLESS, CauseKind.DESIGNATED, 3, ElectionReason.DESIGNATED,
            leader=3, isr=(3,), last_known_elr=(), last_known_leader=None,
        ),
    ),
    "a designation while a broker leads": Case(
        change(row(), CauseKind.DESIGNATED, 3, ElectionReason.DESIGNATED, leader=3, isr=(3,)),
        change(
            LEADERLESS, CauseKind.DESIGNATED, 2, ElectionReason.DESIGNATED,
            leader=2, isr=(2,), last_known_elr=(), last_known_leader=None,
        ),
    ),
    "an unclean pass where no topic allows it": Case(
        change(
            LEADERLESS, CauseKind.UNCLEAN_PASS, None, ElectionReason.UNCLEAN_RANDOM,
            leader=1, isr=(1,), last_known_elr=(), last_known_leader=None,
        ),
        change(
            replace(LEADERLESS, last_known_leader=None), CauseKind.UNCLEAN_ASKED, None,
            ElectionReason.UNCLEAN_RANDOM, leader=1, isr=(1,), last_known_elr=(),
        ),
    ),
    "a preferred replica outside the ISR": Case(
        change(
            row(leader=2, isr=(2, 3)), CauseKind.PREFERRED_ASKED, None, ElectionReason.PREFERRED,
            leader=1, isr=(1, 2, 3),
        ),
        change(row(leader=2), CauseKind.PREFERRED_ASKED, None, ElectionReason.PREFERRED, leader=1),
    ),
    "a reassignment that drops who is complete below min ISR": Case(
        change(ALONE, CauseKind.REASSIGNMENT_ASKED, replicas=(1, 3), elr=(), leader_epoch=6),
        change(row(), CauseKind.REASSIGNMENT_ASKED, replicas=(2, 1, 3)),
    ),
    "a reassignment that forgets the list from before": Case(
        change(
            row(), CauseKind.REASSIGNMENT_ASKED, replicas=(1, 2, 4, 3), adding_replicas=(4,),
            removing_replicas=(3,), original_replicas=(1, 2, 4, 3),
        ),
        change(
            row(), CauseKind.REASSIGNMENT_ASKED, replicas=(1, 2, 4, 3), adding_replicas=(4,),
            removing_replicas=(3,), original_replicas=(1, 2, 3),
        ),
    ),
    "a cancelled move that leaves who was added": Case(
        change(
            MOVING, CauseKind.REASSIGNMENT_CANCELLED, adding_replicas=(), removing_replicas=(),
            original_replicas=None,
        ),
        change(
            MOVING, CauseKind.REASSIGNMENT_CANCELLED, replicas=(1, 2), adding_replicas=(),
            removing_replicas=(), original_replicas=None, leader_epoch=6,
        ),
    ),
    "an unclean leader that need not recover": Case(
        change(LEADERLESS, CauseKind.DESIGNATED, 2, ElectionReason.DESIGNATED, **LEADS_ALONE, **RECOVERED),
        change(LEADERLESS, CauseKind.DESIGNATED, 2, ElectionReason.DESIGNATED, **LEADS_ALONE),
    ),
    "another min ISR than is configured": Case(
        change(row(min_isr=3), CauseKind.MIN_ISR_CONFIGURED, min_isr=1),
        change(row(min_isr=3), CauseKind.MIN_ISR_CONFIGURED, min_isr=2),
    ),
    "a record that changes nothing": Case(
        change(row(), CauseKind.MIN_ISR_CONFIGURED),
        change(row(min_isr=1), CauseKind.MIN_ISR_CONFIGURED, min_isr=2),
    ),
    "a change without a cause": Case(
        change(row(), CauseKind.UNSTATED, isr=(1, 2)),
        change(row(), CauseKind.SESSION_ENDED, 3, isr=(1, 2)),
    ),
}  # fmt: skip


def scene(shape: ClusterSpec | None = None) -> tuple[Scene, DecisionsRefineModel]:
    one = DecisionsRefineModel()
    return Scene(one, shape), one


@pytest.mark.parametrize("name", CASES)
def test_a_change_that_the_model_would_not_make_is_seen_and_the_one_beside_it_is_not(name: str) -> None:
    case = CASES[name]
    for told, is_broken in ((case.allowed, False), (case.broken, True)):
        stage, one = scene(case.shape)
        said = stage.violation(lambda: one.partition_changed(stage.seen, 0, told))  # noqa: B023
        assert (said is not None) is is_broken, said
        assert said is None or "the model: " in said


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        (change(row(isr=(1, 2)), CauseKind.SESSION_ENDED, 2, isr=(1, 3)), "A-3 IsrGrowth: (3) joined"),
        (change(ALONE, CauseKind.SESSION_ENDED, 1, ElectionReason.ELR, leader=2, isr=(2,), elr=()), "A-9 "),
        (change(row(), CauseKind.SESSION_ENDED, 1, ElectionReason.ISR, leader=2, isr=(2, 2, 4)), "I-6 "),
        (
            change(row(), CauseKind.SESSION_ENDED, 1, ElectionReason.ISR, leader=2, isr=(2, 3), fenced=(2,)),
            "I-5 ValidControllerState: (2) of the ISR is fenced; A-13 ElectionOrder: 2 was elected (isr) and",
        ),
        (change(row(), CauseKind.SESSION_ENDED, 1, leader=2, isr=(2, 3), leader_epoch=5), "A-11 EpochsGrow"),
    ],
    ids=["an ISR that grows", "an ELR that forgets", "a stranger", "a fenced leader", "an epoch that stays"],
)
def test_what_the_model_would_not_make_is_told_by_the_properties_that_it_breaks(
    told: Change, broken: str
) -> None:
    """Also of a topic without load, which has no place."""
    for place in (0, NO_PLACE):
        stage, one = scene()
        said = stage.violation(lambda: one.partition_changed(stage.seen, place, told))  # noqa: B023
        assert said is not None
        assert broken in said


def proposal(isr: tuple[tuple[int, int], ...], *, sender: int = 1, **given: int) -> AlterPartitionRequest:
    members = tuple(IsrMember(*member) for member in isr)
    numbers = {"leader_epoch": 5, "partition_epoch": 20} | given
    one = AlterPartitionPartition(
        TOPIC_ID, 0, numbers["leader_epoch"], numbers["partition_epoch"], members, 0
    )
    return AlterPartitionRequest(sender, sender, (one,))


@pytest.mark.parametrize(
    ("asked", "is_broken"),
    [
        (proposal(((1, -1), (2, 2), (3, 3))), False),
        (proposal(((1, -1), (2, 2))), True),
        (proposal(((1, -1), (2, 2), (3, 9))), True),
        (proposal(((1, -1), (2, 2), (3, 3)), leader_epoch=4), True),
        (proposal(((1, 1), (2, -1), (3, 3)), sender=2), True),
        (None, True),
    ],
    ids=[
        "as asked",
        "more than was asked",
        "a former incarnation",
        "old epoch",
        "not the leader",
        "unasked",
    ],
)
def test_an_isr_changes_as_its_leader_proposed(asked: AlterPartitionRequest | None, is_broken: bool) -> None:
    known, granted = row(isr=(1, 2)), row(isr=(1, 2, 3), partition_epoch=21)
    stage, one = scene()
    if asked is not None:
        one.proposal_handled(stage.seen, asked, image(row=known), image(row=granted))
    told = change(known, CauseKind.ALTER_PARTITION, 1, isr=(1, 2, 3))
    said = stage.violation(lambda: one.partition_changed(stage.seen, 0, told))
    assert (said is not None) is is_broken, said


@pytest.mark.parametrize(("recovery_state", "is_broken"), [(0, False), (1, True)])
def test_who_joins_and_ends_a_move_with_it_leads_as_a_complete_replica(
    recovery_state: int, is_broken: bool
) -> None:
    """R102: no unclean election chose it, though it was not in the ISR before."""
    moving = row(
        replicas=(2, 3, 1), isr=(1, 3), adding_replicas=(2,), removing_replicas=(1,), original_replicas=(3, 1)
    )
    told = change(
        moving, CauseKind.ALTER_PARTITION, 1, ElectionReason.ISR, leader=2, replicas=(2, 3), isr=(2, 3),
        adding_replicas=(), removing_replicas=(), original_replicas=None,
        leader_recovery_state=recovery_state,
    )  # fmt: skip
    stage, one = scene()
    asked = proposal(((1, -1), (2, 2), (3, 3)))
    one.proposal_handled(stage.seen, asked, image(row=moving), image(row=told.after))
    said = stage.violation(lambda: one.partition_changed(stage.seen, 0, told))
    assert (said is not None) is is_broken, said


def registers(*, is_clean: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(2, bytes(15) + b"\7", 50, (), None, (), (), is_clean)


@pytest.mark.parametrize(
    ("record", "committed", "fenced", "is_broken"),
    [
        (FenceBrokerRecord(2, 2), row(isr=(1, 3)), (), False),
        (FenceBrokerRecord(2, 2), row(), (), True),
        (FenceBrokerRecord(2, 2), ALONE, (), False),
        (registers(is_clean=True), ALONE, (2,), False),
        (registers(is_clean=False), ALONE, (2,), True),
        (registers(is_clean=False), row(isr=(1, 3)), (2,), False),
        (registers(is_clean=True), row(), (), True),
        (registers(is_clean=False), row(isr=(1, 3)), (), False),
        (registers(is_clean=False), row(isr=(1, 2, 3)), (), True),
        (UnregisterBrokerRecord(2, 2), row(isr=(1, 3)), (2,), False),
        (UnregisterBrokerRecord(2, 2), row(isr=(1,), last_known_elr=(2,)), (2,), True),
    ],
    ids=[
        "fenced outside the ISR",
        "fenced inside the ISR",
        "fenced in the ELR",
        "clean in the ELR",
        "unclean in the ELR",
        "unclean outside",
        "restarted inside the ISR",
        "unclean while unfenced",
        "unclean while unfenced and inside the ISR",
        "unregistered outside",
        "unregistered and remembered",
    ],
)
def test_a_broker_is_out_of_all_partitions_before_its_own_record_is_written(
    record: MetadataRecord, committed: PartitionRegistration, fenced: tuple[int, ...], is_broken: bool
) -> None:
    stage, one = scene()
    before = image(fenced, row=committed)
    said = stage.violation(lambda: one.record_committed(stage.seen, 50, record, before))
    assert (said is not None) is is_broken, said


def unfenced(committed: PartitionRegistration) -> tuple[Scene, DecisionsRefineModel]:
    stage, one = scene()
    stage.set_image(image((1, 3), row=committed))
    one.record_committed(stage.seen, 60, UnfenceBrokerRecord(2, 2), image((1, 2, 3), row=committed))
    return stage, one


@pytest.mark.parametrize(
    ("elr", "is_broken"), [((2,), True), ((1,), False)], ids=["it may lead", "it may not"]
)
def test_who_is_unfenced_leads_in_the_same_batch_where_it_may(elr: tuple[int, ...], is_broken: bool) -> None:
    committed = row(isr=(), elr=elr, leader=None, last_known_leader=1)
    stage, one = unfenced(committed)
    said = stage.violation(lambda: one.metadata_committed(stage.seen))
    assert (said is not None) is is_broken, said


def test_where_writes_are_cut_into_batches_the_next_controller_goes_on_with_an_unfencing() -> None:
    committed = row(isr=(), elr=(2,), leader=None, last_known_leader=1)
    stage, one = unfenced(committed)
    stage.world.shape = replace(stage.world.shape, tiny_limits=True)
    assert stage.world.active_controller() is None
    assert stage.violation(lambda: one.metadata_committed(stage.seen)) is None
    stage.world.shape = replace(stage.world.shape, tiny_limits=False)
    assert stage.violation(lambda: one.metadata_committed(stage.seen)) is not None


@pytest.mark.parametrize(
    ("given", "is_broken"),
    [({}, False), ({"isr": (1, 2)}, True), ({"leader": 2}, True), ({"elr": (3,)}, True)],
    ids=["whole", "an active replica left out", "not the first", "an ELR"],
)
def test_a_partition_begins_as_in_the_model(given: dict[str, object], is_broken: bool) -> None:
    stage, one = scene()
    first = row(**{"leader_epoch": 0, "partition_epoch": 0, **given})
    said = stage.violation(lambda: one.record_committed(stage.seen, 5, first.to_record(TOPIC_ID, 0), image()))
    assert (said is not None) is is_broken, said
