"""Refinement of replicas: steps that no replica of the model takes, each beside one that it takes."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.controller.core.decisions import CauseKind
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.views import Before, ReplicaView
from holdfast.sim.checks.refinement.replica import ReplicasRefineModel
from tests.sim.checks.histories import (
    Scene,
    before,
    change,
    cut,
    follows,
    grow,
    image,
    leads,
    mark,
    row,
    view_of,
)

#: epoch 4 wrote two records, epoch 5 two
THEIRS = [mark(0, 4), mark(1, 4), mark(2, 5), mark(3, 5)]
#: epoch 4 wrote a third
DIVERGED = [mark(0, 4), mark(1, 4), mark(2, 4, crc=9)]


def told(step: Callable[[Scene, ReplicasRefineModel], tuple[ReplicaView, Before, list[BatchMark]]]) -> str:
    """What the property says of a step; nothing when the model takes it too."""
    one = ReplicasRefineModel()
    scene = Scene(one)
    view, was, appended = step(scene, one)
    return scene.violation(lambda: one.replica_changed(scene.seen, view, was, appended)) or ""


def leader(scene: Scene, **given: Any) -> ReplicaView:
    """Broker 1 leads epoch 5, which began at 2; 2 and 3 have fetched all of it."""
    view = leads(view_of(scene, 1, THEIRS), start_offset=2, **given)
    assert view.leadership is not None
    for broker_id in (2, 3):
        view.leadership.progress[broker_id] = heard = ReplicaProgress(broker_id, None)
        heard.fetched(4, broker_id, 4, 0)
    view.replica._brokers.acceptable.update({2: 2, 3: 3})
    return view


def reached(scene: Scene, one: ReplicasRefineModel, high_watermark: int) -> None:
    """The leader has come so far."""
    first = leader(scene)
    was = before(first, high_watermark=1)
    _at(first, high_watermark)
    one.replica_changed(scene.seen, first, was, [])


# --- registrations and roles -----------------------------------------------------------------------------


@pytest.mark.parametrize(("min_isr", "problem"), [(2, ""), (1, "committed at this partition epoch")])
def test_a_registration_is_the_one_that_was_committed(min_isr: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        one.partition_changed(scene.seen, 0, change(row(), CauseKind.SESSION_ENDED, 3, isr=(1, 2)))
        view = follows(view_of(scene, 2, THEIRS))
        was = before(view)
        follows(view, isr=(1, 2), partition_epoch=21, min_isr=min_isr)
        return view, was, []

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(
    ("then", "problem"),
    [(21, ""), (20, ""), (19, "goes back")],
    ids=["newer", "learnt twice", "older"],
)
def test_registrations_are_taken_in_order(then: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        scene.ghost.row = row(partition_epoch=21)
        view = follows(view_of(scene, 2, THEIRS))
        was = before(view)
        return follows(view, partition_epoch=then), was, []

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(("epoch", "problem"), [(6, ""), (5, "once more")])
def test_a_leadership_begins_with_its_epoch_only(epoch: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        scene.ghost.row = row(partition_epoch=21)
        view = leader(scene)
        was = before(view)
        return leads(view, epoch, partition_epoch=21), was, []

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


def test_the_role_is_the_registrations() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        scene.ghost.row = row(partition_epoch=21)
        view = follows(view_of(scene, 1, THEIRS), leader=2)
        was = before(view)
        return follows(view, 6, leader=1, partition_epoch=21), was, []

    assert "is follower by" in told(step)


# --- leaders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "problem"),
    [(mark(4, 5), ""), (mark(4, 6), "leads epoch 5 and appends")],
    ids=["own epoch", "another"],
)
def test_a_leader_appends_in_its_epoch_a15(batch: BatchMark, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leader(scene)
        was = before(view)
        return view, was, grow(view, [batch])

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(
    ("batch", "start_offset", "problem"),
    [
        (mark(2, 4), None, ""),
        (mark(2, 4), 3, ""),
        (mark(2, 5), None, "its epoch 5 begins at None"),
        (mark(2, 4), 2, "leads epoch 5 and appends"),
    ],
    ids=["not begun", "begun behind it", "its own before it began", "begun before it"],
)
def test_what_was_being_copied_may_come_until_the_epoch_begins(
    batch: BatchMark, start_offset: int | None, problem: str
) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leads(view_of(scene, 1, THEIRS[:2]), start_offset=start_offset)
        was = before(view)
        return view, was, grow(view, [batch])

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(("start_offset", "problem"), [(2, ""), (1, "began epoch 5 at 1")])
def test_an_epoch_begins_where_the_log_ended_r54(start_offset: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leads(view_of(scene, 1, THEIRS[:2]), start_offset=start_offset)
        was = before(view)
        return view, was, grow(view, THEIRS[2:])

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


def test_a_leader_cuts_nothing() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leader(scene)
        was = before(view)
        cut(view, 3)
        return view, was, []

    assert "cuts its log while it leads" in told(step)


@pytest.mark.parametrize(
    ("isr", "maximal", "position", "end", "problem"),
    [
        ((1, 2), (1, 2), 3, 3, ""),
        ((1, 2), (1, 2), 3, 4, "the model to 3"),
        ((1,), (1,), 4, 4, "the model to 1"),
        ((1,), (1, 2), 4, 4, "the model to 1"),
        ((1, 3), (1, 2, 3), 3, 4, "the model to 3"),
        ((1, 3), (1, 2, 3), 3, 2, ""),
    ],
    ids=["as far as all", "farther", "below min ISR", "only proposed", "a joiner waits", "less far"],
)
def test_a_high_watermark_goes_as_far_as_the_models_a2(
    isr: tuple[int, ...], maximal: tuple[int, ...], position: int, end: int, problem: str
) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leader(scene, isr=isr)
        assert view.leadership is not None
        view.leadership.maximal_isr = view.maximal_isr = maximal
        view.leadership.progress[2].position = position
        return view, before(view, high_watermark=1), _at(view, end)

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


def _at(view: ReplicaView, high_watermark: int) -> list[BatchMark]:
    view.high_watermark = high_watermark
    return []


def test_a_leaders_high_watermark_never_goes_back() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leader(scene)
        return view, before(view, high_watermark=4), _at(view, 3)

    assert "goes back" in told(step)


def test_a_leader_begins_with_the_high_watermark_that_it_knew_f6() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        scene.ghost.row = row(partition_epoch=21)
        view = follows(view_of(scene, 1, THEIRS[:2], high_watermark=1), 4, leader=2)
        was = before(view)
        leads(view, partition_epoch=21, start_offset=2)
        return view, was, _at(view, 2)

    assert "no leader told it" in told(step)


@pytest.mark.parametrize(
    ("asked", "maximal", "problem"),
    [
        ((1, 2, 3), (1, 2, 3), ""),
        ((1, 2, 3), (1, 2), "waits for"),
        ((1,), (1, 2), ""),
        ((1,), (1,), "waits for"),
        ((1, 3), (1, 2, 3), "neither more nor less"),
        ((1, 2, 4), (1, 2, 4), "asks for"),
    ],
    ids=["a joiner", "a joiner who is not waited for", "a shrink", "counted at once", "both", "no replica"],
)
def test_a_proposal_is_one_of_the_models_f3(
    asked: tuple[int, ...], maximal: tuple[int, ...], problem: str
) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leader(scene, isr=(1, 2))
        was = before(view)
        assert view.leadership is not None
        view.proposal = view.leadership.proposal = Proposal(asked, (), 5, 20)
        view.maximal_isr = view.leadership.maximal_isr = maximal
        return view, was, []

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(
    ("position", "epoch", "problem"),
    [(4, 3, ""), (3, 3, "asks for 3"), (1, 3, "asks for 3"), (4, 2, "asks for 3")],
    ids=["complete", "below the high watermark", "below the epoch's start", "a former incarnation"],
)
def test_who_is_proposed_may_join_in_the_model_a5(position: int, epoch: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        view = leader(scene, isr=(1, 2))
        _at(view, 4)
        was = before(view)
        assert view.leadership is not None
        view.leadership.progress[3].fetched(position, epoch, 4, 0)
        view.proposal = view.leadership.proposal = Proposal((1, 2, 3), (), 5, 20)
        view.maximal_isr = view.leadership.maximal_isr = (1, 2, 3)
        return view, was, []

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


# --- followers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "copied", "problem"),
    [
        (THEIRS[:2], THEIRS[2:], ""),
        (THEIRS[:2], [mark(2, 4, crc=7)], "its leader b1 has"),
        (THEIRS, [mark(4, 5)], "its leader b1 has"),
        (DIVERGED, [THEIRS[3]], "which its leader has not"),
    ],
    ids=["the next ones", "something else", "more than there is", "without a look at what is before"],
)
def test_a_follower_copies_its_leader_r80(
    own: list[BatchMark], copied: list[BatchMark], problem: str
) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        leader(scene)
        view = follows(view_of(scene, 2, own))
        was = before(view)
        return view, was, grow(view, copied)

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(
    ("own", "end", "problem"),
    [
        (DIVERGED, 2, ""),
        (DIVERGED, 1, "is cut to 1, the model to 2"),
        (DIVERGED, 0, "is cut to 0, the model to 2"),
        (THEIRS[:3], 2, "its leader has all of it"),
    ],
    ids=["where they part", "too far", "to its start", "for nothing"],
)
def test_a_follower_is_cut_where_the_models_is_a16(own: list[BatchMark], end: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        leader(scene)
        view = follows(view_of(scene, 2, own))
        was = before(view)
        cut(view, end)
        return view, was, []

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(("told_end", "problem"), [(2, ""), (3, "its leader reached 2")])
def test_a_follower_believes_in_no_more_than_its_leader_r52(told_end: int, problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        reached(scene, one, 2)
        view = follows(view_of(scene, 2, THEIRS))
        was = before(view)
        return view, was, _at(view, told_end)

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(
    ("waits", "problem"), [(True, ""), (False, "its leader reached 0")], ids=["late", "out of nothing"]
)
def test_what_it_was_told_may_come_true_after_the_epoch_when_it_waits_for_the_log(
    waits: bool, problem: str
) -> None:
    """A reset to the leader's log start (R83) ends after the leader is gone. Seed 10320 as it was before."""

    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        reached(scene, one, 2)
        view = follows(view_of(scene, 2, THEIRS))
        waiting = {view.replica.key} if waits else set()
        view.broker.node = SimpleNamespace(  # type: ignore[assignment]
            server=SimpleNamespace(_logs=SimpleNamespace(_waiting=waiting))
        )
        was = before(view)
        scene.ghost.row = row(leader=None, leader_epoch=6, isr=(), partition_epoch=21)
        follows(view, 6, leader=None, isr=(), partition_epoch=21)
        one.replica_changed(scene.seen, view, was, [])
        waiting.clear()
        was = before(view)
        return view, was, _at(view, 2)

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(
    ("waits", "problem"), [(True, ""), (False, "follows no leader")], ids=["late", "out of nothing"]
)
def test_what_was_copied_may_come_after_an_epoch_that_it_led_meanwhile_when_it_waits_for_the_log(
    waits: bool, problem: str
) -> None:
    """It rolls for seconds; meanwhile it is elected, and fenced. Seed 14325 as it was before."""

    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        reached(scene, one, 2)
        view = follows(view_of(scene, 2, THEIRS[:3]))
        waiting = {view.replica.key} if waits else set()
        view.broker.node = SimpleNamespace(  # type: ignore[assignment]
            server=SimpleNamespace(_logs=SimpleNamespace(_waiting=waiting))
        )
        was = before(view)
        scene.ghost.row = row(leader=2, leader_epoch=6, partition_epoch=21)
        leads(view, 6, start_offset=None, partition_epoch=21)
        one.replica_changed(scene.seen, view, was, [])
        was = before(view)
        scene.ghost.row = row(leader=None, leader_epoch=7, isr=(), partition_epoch=22)
        follows(view, 7, leader=None, isr=(), partition_epoch=22)
        one.replica_changed(scene.seen, view, was, [])
        waiting.clear()
        return view, before(view), grow(view, THEIRS[3:])

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


def test_what_waits_for_the_log_is_no_excuse_for_what_a_later_leader_has_not_written() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        reached(scene, one, 2)
        view = follows(view_of(scene, 2, THEIRS[:3]))
        view.broker.node = SimpleNamespace(  # type: ignore[assignment]
            server=SimpleNamespace(_logs=SimpleNamespace(_waiting={view.replica.key}))
        )
        was = before(view)
        scene.ghost.row = row(leader=2, leader_epoch=6, partition_epoch=21)
        leads(view, 6, start_offset=None, partition_epoch=21)
        one.replica_changed(scene.seen, view, was, [])
        was = before(view)
        scene.ghost.row = row(leader_epoch=8, partition_epoch=23)
        follows(view, 8, partition_epoch=23)
        leads(view_of(scene, 1, THEIRS), 8, start_offset=4, partition_epoch=23)
        one.replica_changed(scene.seen, view, was, [])
        return view, before(view), grow(view, [mark(3, 8, crc=77)])

    assert "appends" in told(step)


@pytest.mark.parametrize(
    ("own", "problem"), [(THEIRS[:3], ""), (DIVERGED, "its leader has")], ids=["a prefix", "diverged"]
)
def test_a_follower_believes_in_nothing_that_diverges_r82(own: list[BatchMark], problem: str) -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        reached(scene, one, 3)
        view = follows(view_of(scene, 2, own))
        was = before(view)
        return view, was, _at(view, 3)

    assert problem in told(step)
    assert bool(told(step)) is bool(problem)


@pytest.mark.parametrize(("high_watermark", "is_broken"), [(2, False), (3, True)])
def test_a_process_begins_with_a_high_watermark_that_a_replica_reached(
    high_watermark: int, is_broken: bool
) -> None:
    one = ReplicasRefineModel()
    scene = Scene(one)
    scene.ghost.high_watermark = 2
    view = view_of(scene, 2, THEIRS, high_watermark=high_watermark)
    said = scene.violation(lambda: one.replica_loaded(scene.seen, view, None))
    assert (said is not None) is is_broken


def test_a_registration_is_committed_before_it_is_taken_d5() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        scene.ghost.row = row(partition_epoch=20)
        view = follows(view_of(scene, 2, THEIRS))
        was = before(view)
        return follows(view, partition_epoch=21), was, []

    assert "committed is" in told(step)


def test_what_was_committed_at_first_is_known_without_a_change() -> None:
    def step(scene: Scene, one: ReplicasRefineModel) -> tuple[ReplicaView, Before, list[BatchMark]]:
        scene.set_image(image(row=row()))
        one.metadata_committed(scene.seen)
        view = view_of(scene, 2, THEIRS)
        was = before(view)
        return follows(view, isr=(1, 2)), was, []

    assert "committed at this partition epoch" in told(step)
