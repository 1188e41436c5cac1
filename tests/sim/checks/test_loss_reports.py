"""What is promised and told of losses: a history that breaks each property, one beside it that does not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.controller.core.decisions import Cause, CauseKind, LogEnd
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.sim.checks.observe.views import ReplicaView
from holdfast.sim.checks.properties.loss_reports import (
    CeilingsHoldWhatIsCommitted,
    LogsAreToldAsTheyAre,
    LossIsBounded,
)
from holdfast.sim.checks.properties.replicas import HighWatermarkStaysUnderCeilings
from holdfast.sim.cluster.world import ClusterSpec
from tests.sim.checks.histories import (
    Scene,
    before,
    change,
    cut,
    follows,
    image,
    leads,
    mark,
    row,
    view_of,
)


def alive(view: ReplicaView, ceiling: int = -1) -> ReplicaView:
    """Its broker runs, with that ceiling on its disk."""
    managed = SimpleNamespace(ceiling=ceiling)
    node: Any = SimpleNamespace(
        core=SimpleNamespace(lifecycle=SimpleNamespace(broker_epoch=view.broker.node_id)),
        log_manager=SimpleNamespace(managed=lambda key: managed),
    )
    view.broker.node = node
    return view


@pytest.mark.parametrize(
    ("own", "others", "moves", "expected"),
    [
        (7, 7, True, False),
        (6, 7, True, True),
        (7, 6, True, True),
        # a leader promises first; who was let in before its first promise bounds nothing
        (-1, 7, True, True),
        (7, -1, True, False),
        # what it had when it began is the former leader's
        (6, 6, False, False),
    ],
)
def test_what_is_committed_stays_below_what_was_promised_b4(
    own: int, others: int, moves: bool, expected: bool
) -> None:
    scene = Scene(HighWatermarkStaysUnderCeilings())
    view = alive(leads(view_of(scene, 1, high_watermark=7)), own)
    for number in (2, 3):
        alive(view_of(scene, number), others)
    former = before(view, high_watermark=5 if moves else 7)
    said = scene.violation(lambda: scene.property.replica_changed(scene.seen, view, former, []))
    assert (said is not None) is expected


@pytest.mark.parametrize(
    ("at_most", "kept", "expected"),
    [
        (-1, 0, False),
        (5, 0, False),
        (4, 0, True),
        (2, 3, False),
        (1, 3, True),
    ],
)
def test_an_election_loses_no_more_than_is_said_b4(at_most: int, kept: int, expected: bool) -> None:
    """Five records were committed when all replicas lost their tails; the elected log has some of them."""
    scene = Scene(LossIsBounded())
    led = leads(view_of(scene, 1, map(mark, range(6)), high_watermark=5))
    scene.property.replica_changed(scene.seen, led, before(led), [])
    alive(view_of(scene, 2, map(mark, range(kept))))
    lost = row(isr=(), leader=None, leader_epoch=6, last_known_elr=(1, 2))
    logs = (LogEnd(2, 5 if kept else -1, kept),)
    elected = change(lost, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, leader=2, isr=(2,))
    cause = Cause(CauseKind.LOGS_COMPARED, None, logs, at_most)
    elected = replace(elected, decision=replace(elected.decision, cause=cause))
    said = scene.violation(lambda: scene.property.partition_changed(scene.seen, 0, elected))
    assert (said is not None) is expected


@pytest.mark.parametrize(("left", "expected"), [(2, False), (1, True)])
def test_what_one_election_has_lost_the_next_does_not_lose_again_b4(left: int, expected: bool) -> None:
    """The first of them was told of, and whom it elected fell before it led."""
    scene = Scene(LossIsBounded())
    led = leads(view_of(scene, 1, map(mark, range(6)), high_watermark=5))
    scene.property.replica_changed(scene.seen, led, before(led), [])
    view = alive(view_of(scene, 2, map(mark, range(2))))

    def elect(leader_epoch: int, at_most: int) -> str | None:
        lost = row(isr=(), leader=None, leader_epoch=leader_epoch, last_known_elr=(1, 2))
        elected = change(lost, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, leader=2, isr=(2,))
        cause = Cause(CauseKind.LOGS_COMPARED, None, (LogEnd(2, 5, 2),), at_most)
        elected = replace(elected, decision=replace(elected.decision, cause=cause))
        return scene.violation(lambda: scene.property.partition_changed(scene.seen, 0, elected))

    assert elect(6, 3) is None
    cut(view, left)
    assert (elect(8, 0) is not None) is expected


def test_a_log_that_parts_from_what_was_committed_has_lost_it_b4() -> None:
    """As long as it may be."""
    scene = Scene(LossIsBounded())
    led = leads(view_of(scene, 1, map(mark, range(5)), high_watermark=5))
    scene.property.replica_changed(scene.seen, led, before(led), [])
    alive(view_of(scene, 2, (mark(offset, crc=offset >= 2) for offset in range(9))))
    lost = row(isr=(), leader=None, leader_epoch=6, last_known_elr=(1, 2))
    elected = change(lost, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, leader=2, isr=(2,))
    cause = Cause(CauseKind.LOGS_COMPARED, None, (LogEnd(2, 5, 9),), 2)
    elected = replace(elected, decision=replace(elected.decision, cause=cause))
    said = scene.violation(lambda: scene.property.partition_changed(scene.seen, 0, elected))
    assert said is not None
    assert "3 records are gone" in said


@pytest.mark.parametrize(
    ("ceiling", "seats", "shape", "unclean", "expected"),
    [
        (6, {"isr": (1, 2)}, {}, None, True),
        (7, {"isr": (1, 2)}, {}, None, False),
        (6, {"isr": (1,), "elr": (2,)}, {}, None, True),
        (6, {"isr": (1,), "last_known_elr": (2,)}, {}, None, True),
        # a replica outside of the sets says nothing
        (6, {"isr": (1, 3)}, {}, None, False),
        (6, {"isr": (1, 2)}, {}, "LONGEST_LOG", False),
        (6, {"isr": (1, 2)}, {"elr": False}, None, False),
        (6, {"isr": (1, 2)}, {"disks_lie": True}, None, False),
    ],
)
@pytest.mark.parametrize("is_found", [False, True])
def test_a_promise_holds_what_was_committed_b4(
    ceiling: int,
    seats: dict[str, Any],
    shape: dict[str, Any],
    unclean: str | None,
    expected: bool,
    is_found: bool,
) -> None:
    """When it has become durable, and when a process finds it on its disk."""
    scene = Scene(CeilingsHoldWhatIsCommitted(), replace(ClusterSpec(), **shape))
    view = alive(view_of(scene, 2), ceiling)
    scene.ghost.row, scene.ghost.high_watermark, scene.ghost.unclean = row(**seats), 7, unclean
    tell = scene.property.replica_loaded if is_found else scene.property.ceiling_stored
    told: Any = None if is_found else ceiling
    assert (scene.violation(lambda: tell(scene.seen, view, told)) is not None) is expected


@pytest.mark.parametrize(
    ("told", "epoch", "expected"),
    [
        ((5, 3), 5, False),
        ((5, 2), 5, True),
        ((6, 3), 5, True),
        ((5, 2), 6, False),
        ((-1, -1), 5, False),
    ],
    ids=["as it is", "less", "an epoch without a batch", "it follows the next leader", "not compared"],
)
def test_a_log_is_told_of_as_it_is_r66(told: tuple[int, int], epoch: int, expected: bool) -> None:
    scene = Scene(LogsAreToldAsTheyAre())
    scene.set_image(image(row=row()))
    alive(follows(view_of(scene, 2, map(mark, range(3))), epoch))
    leaderless = row(isr=(), leader=None, last_known_elr=(2, 3), last_known_leader=1)
    logs = (LogEnd(2, *told),)
    reason = ElectionReason.LONGEST_LOG
    elected = change(leaderless, CauseKind.LOGS_COMPARED, None, reason, logs=logs, leader=2, isr=(2,))
    said = scene.violation(lambda: scene.property.partition_changed(scene.seen, 0, elected))
    assert (said is not None) is expected
