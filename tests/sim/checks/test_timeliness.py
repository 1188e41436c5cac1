"""Properties of upkeep: a history that breaks each, and the one beside it that does not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.controller.core.decisions import CauseKind, LogEnd
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.image import RESOURCE_TOPIC
from holdfast.sim.checks.properties import timeliness
from holdfast.sim.cluster.nodes import State
from holdfast.sim.cluster.world import ClusterSpec
from tests.sim.checks.histories import Scene, before, change, image, leads, mark, row, view_of

MS = 1_000_000


def broken(scene: Scene, tell: Any) -> bool:
    """Whether the property speaks up, under its own name."""
    said = scene.violation(tell)
    assert said is None or said.startswith(scene.property.name), said
    return said is not None


@pytest.mark.parametrize(
    ("configured", "given", "expected"), [("3", 2, True), ("3", 3, False), ("9", 3, False)]
)
def test_a_partition_has_the_min_isr_that_is_configured_r109(
    configured: str, given: int, expected: bool
) -> None:
    """As far as its replicas go."""
    scene = Scene(timeliness.MinIsrIsConfigured())
    scene.ghost.row = row(min_isr=given)
    overrides: Map[str, str] = Map({"min.insync.replicas": configured})
    configs: Map[tuple[int, str], Map[str, str]] = Map({(RESOURCE_TOPIC, "t"): overrides})
    scene.set_image(replace(image(row=scene.ghost.row), configs=configs))
    assert broken(scene, lambda: scene.property.metadata_committed(scene.seen)) is expected


@pytest.mark.parametrize(
    ("looks_ms", "lags", "expected"),
    [
        (range(0, 4_000, 100), True, True),
        (range(0, 4_000, 100), False, False),
        (range(0, 1_900, 100), True, False),
        (range(0, 9_000, 1_300), True, False),
    ],
)
def test_a_member_that_lags_is_proposed_to_leave_r51(looks_ms: range, lags: bool, expected: bool) -> None:
    """But for a leader that may have been paused between two looks."""
    one = timeliness.LaggardsLeave()
    scene = Scene(one)
    view = leads(view_of(scene, 1))
    assert view.leadership is not None
    view.broker.state = State.RUNNING
    world = scene.world
    view.broker._clock = SimpleNamespace(now_ms=lambda: 10_000 + world.loop.now_ns // MS)  # type: ignore[assignment]
    for number in (2, 3):
        view.leadership.progress[number] = ReplicaProgress(number, None)
        view.leadership.progress[number].position = 0 if lags else 5
    view.end_offset = 5

    def look() -> None:
        started_ns = world.loop.now_ns
        for at_ms in looks_ms:
            world.loop.now_ns = started_ns + at_ms * MS
            one.replica_changed(scene.seen, view, before(view), [])

    assert broken(scene, look) is expected


@pytest.mark.parametrize(
    ("end_of_3", "over_budget", "expected"), [(-1, False, True), (0, False, False), (-1, True, False)]
)
def test_each_known_seat_has_told_of_its_log_r62(end_of_3: int, over_budget: bool, expected: bool) -> None:
    """An empty log is one too; beyond the budget operators may ask for less."""
    scene = Scene(timeliness.KnownSeatsHaveAnswered(), replace(ClusterSpec(), over_budget=over_budget))
    logs = (LogEnd(2, 5, 9), LogEnd(3, 4, end_of_3))
    lost = row(isr=(), leader=None, elr=(), last_known_elr=(2, 3))
    given = change(
        lost, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, logs=logs, leader=2, isr=(2,)
    )
    assert broken(scene, lambda: scene.property.partition_changed(scene.seen, 0, given)) is expected


@pytest.mark.parametrize(
    ("had_all_at_ms", "dropped_at_ms", "is_restarted", "expected"),
    [
        (0, 500, False, True),
        (0, 1_000, False, False),
        (600, 1_000, False, True),
        (600, 1_000, True, False),
        (None, 500, False, True),
        (None, 1_000, False, False),
    ],
    ids=["a moment ago", "long ago", "again", "as another", "the epoch is new", "it never came"],
)
def test_no_follower_is_dropped_that_had_all_a_moment_ago_r51(
    had_all_at_ms: int | None, dropped_at_ms: int, is_restarted: bool, expected: bool
) -> None:
    """The lag time is 1 s, and clocks may run fast."""
    one = timeliness.KeepersStay()
    scene = Scene(one)
    view = leads(view_of(scene, 1, [mark(0), mark(1)]))
    assert view.leadership is not None
    progress = view.leadership.progress[2] = ReplicaProgress(2, None)
    loop, started_ns = scene.world.loop, scene.world.loop.now_ns

    def look(at_ms: int, position: int) -> None:
        loop.now_ns = started_ns + at_ms * MS
        progress.position = position
        former = before(view)
        if at_ms == dropped_at_ms:
            view.proposal = Proposal((1, 3), (-1, 3), 5, 20)
        one.replica_changed(scene.seen, view, former, [])

    look(0, 0)
    if had_all_at_ms is not None:
        progress.broker_epoch = 4
        look(had_all_at_ms, 2)
    if is_restarted:
        progress.broker_epoch = 5
    assert broken(scene, lambda: look(dropped_at_ms, 1)) is expected


@pytest.mark.parametrize(
    ("position", "epochs", "dropped_at_ms", "expected"),
    [
        (2, (4, 4), 1_700, True),
        (2, (4, 4), 1_900, False),
        (1, (4, 4), 1_700, False),
        (2, (4, 5), 1_700, False),
    ],
    ids=["it keeps up", "it did long ago", "it falls behind", "it is another process"],
)
def test_no_follower_is_dropped_that_has_what_there_was_at_its_last_fetch_r51(
    position: int, epochs: tuple[int, int], dropped_at_ms: int, expected: bool
) -> None:
    """The leader has two batches when it is asked first, and three before it is asked again, 500 ms later."""
    one = timeliness.KeepersStay()
    scene = Scene(one)
    view = leads(view_of(scene, 1, [mark(0), mark(1)]))
    assert view.leadership is not None
    progress = view.leadership.progress[2] = ReplicaProgress(2, None)
    loop, started_ns = scene.world.loop, scene.world.loop.now_ns

    def fetch(at_ms: int, position: int, broker_epoch: int) -> None:
        loop.now_ns = started_ns + at_ms * MS
        progress.position, progress.broker_epoch = position, broker_epoch
        one.follower_fetched(scene.seen, view, progress)

    def drop() -> None:
        loop.now_ns = started_ns + dropped_at_ms * MS
        former = before(view)
        view.proposal = Proposal((1, 3), (-1, 3), 5, 20)
        one.replica_changed(scene.seen, view, former, [])

    one.replica_changed(scene.seen, view, before(view), [])
    fetch(1_000, 0, epochs[0])
    view.end_offset = 3
    fetch(1_500, position, epochs[1])
    assert broken(scene, drop) is expected
