"""What a leader does as soon as it may: histories that break it, and those beside them that do not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from immutables import Map

from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.sim.checks.observe.views import ReplicaView
from holdfast.sim.checks.properties import leader_timeliness
from holdfast.sim.cluster.nodes import State
from tests.sim.checks.histories import TOPIC_ID, Scene, before, image, leads, mark, row, view_of

NOW_MS = 1_000_000


def broken(scene: Scene, tell: Any) -> bool:
    """Whether the property speaks up, under its own name."""
    said = scene.violation(tell)
    assert said is None or said.startswith(scene.property.name), said
    return said is not None


def leader(scene: Scene, isr: tuple[int, ...] = (1, 2), **given: Any) -> ReplicaView:
    """Broker 1 leads t-0, has five records, and has shown three of them."""
    view = leads(view_of(scene, 1, map(mark, range(5)), high_watermark=3), isr=isr, **given)
    assert view.leadership is not None
    view.leadership.position = 5
    view.broker.state = State.RUNNING
    view.broker._clock = SimpleNamespace(shown_ns=lambda: NOW_MS * 1_000_000)  # type: ignore[assignment]
    view.replica.ceiling.stored(given.get("ceiling", 100))
    view.broker.node = SimpleNamespace(core=SimpleNamespace(image=image(row=row())))  # type: ignore[assignment]
    return view


def has(view: ReplicaView, follower: int, position: int, *, kept_up_ms: int | None = None) -> ReplicaProgress:
    """What is known of a follower; it had all so long ago, and fetched a second ago."""
    assert view.leadership is not None
    progress = ReplicaProgress(follower, None)
    progress.position, progress.broker_epoch = position, follower
    progress.last_caught_up_ms = None if kept_up_ms is None else NOW_MS - kept_up_ms
    progress.last_fetch_ms = NOW_MS - 1_000
    view.leadership.progress[follower] = progress
    return progress


@pytest.mark.parametrize(
    ("isr", "two", "three", "kept_up_ms", "ceiling", "expected"),
    [
        ((1, 2), 5, 0, None, 100, True),
        ((1, 2), 3, 0, None, 100, False),
        ((1, 2), 4, 0, None, 100, True),
        ((1, 2, 3), 5, 3, None, 100, False),
        ((1, 2), 5, 3, 500, 100, False),
        ((1, 2), 5, 3, 9_000, 100, True),
        ((1,), 5, 5, None, 100, False),
        ((1, 2), 5, 0, None, 4, False),
        ((1, 2), 5, 4, 500, 4, False),
    ],
    ids=[
        "all have it",
        "one has no more",
        "one has one more",
        "another one has no more",
        "who keeps up is waited for",
        "who has kept up once is not",
        "below min ISR",
        "above the ceiling",
        "above it, though less with who keeps up",
    ],
)
def test_a_high_watermark_is_as_high_as_it_may_be_r52(
    isr: tuple[int, ...], two: int, three: int, kept_up_ms: int | None, ceiling: int, expected: bool
) -> None:
    scene = Scene(leader_timeliness.HighWatermarkMoves())
    view = leader(scene, isr, min_isr=2)
    view.replica.ceiling.limit = ceiling
    progress = has(view, 2, two)
    has(view, 3, three, kept_up_ms=kept_up_ms)
    assert broken(scene, lambda: scene.property.follower_fetched(scene.seen, view, progress)) is expected
    told = before(view)
    assert broken(scene, lambda: scene.property.replica_changed(scene.seen, view, told, ())) is expected
    assert broken(scene, lambda: scene.property.ceiling_stored(scene.seen, view, ceiling)) is expected


def test_a_leader_that_has_not_heard_of_its_own_append_yet_is_not_late_r52() -> None:
    scene = Scene(leader_timeliness.HighWatermarkMoves())
    view = leader(scene)
    progress = has(view, 2, 5)
    assert view.leadership is not None
    view.leadership.position = 4
    assert not broken(scene, lambda: scene.property.follower_fetched(scene.seen, view, progress))


@pytest.mark.parametrize(
    ("position", "kept_up_ms", "fenced", "is_new", "expected"),
    [
        (2, 500, (), False, True),
        (3, 500, (), False, False),
        (2, 5_000, (), False, False),
        (2, None, (), False, False),
        (2, 500, (3,), False, False),
        (2, 500, (), True, False),
    ],
    ids=["it keeps up", "it has that", "it does not keep up", "it never has", "it is fenced", "news of it"],
)
def test_a_high_watermark_waits_for_who_keeps_up_f3(
    position: int, kept_up_ms: int | None, fenced: tuple[int, ...], is_new: bool, expected: bool
) -> None:
    one = leader_timeliness.HighWatermarkWaitsForJoiners()
    scene = Scene(one)
    view = leader(scene)
    has(view, 2, 5)
    has(view, 3, position, kept_up_ms=kept_up_ms)
    node: Any = view.broker.node
    node.core.image = image(fenced, row=row())
    one.broker_called(scene.seen, view.broker)
    if is_new:
        node.core.image = replace(node.core.image, offset=101)
    told = before(view, high_watermark=2)
    assert broken(scene, lambda: one.replica_changed(scene.seen, view, told, ())) is expected


@pytest.mark.parametrize(
    ("position", "fetches", "proposal", "fenced", "epoch", "expected"),
    [
        (5, 2, None, (), 3, True),
        (5, 1, None, (), 3, False),
        (4, 2, None, (), 3, False),
        (5, 2, object(), (), 3, False),
        (5, 2, None, (3,), 3, False),
        (5, 2, None, (), 2, False),
    ],
    ids=["has all", "has asked once", "lacks one", "another is proposed", "is fenced", "was another process"],
)
def test_a_follower_that_has_all_is_let_in_r50(
    position: int, fetches: int, proposal: Any, fenced: tuple[int, ...], epoch: int, expected: bool
) -> None:
    one = leader_timeliness.FollowersAreLetIn()
    scene = Scene(one)
    view = leader(scene)
    has(view, 2, 5)
    progress = has(view, 3, position)
    progress.broker_epoch = epoch
    assert view.leadership is not None
    view.leadership.proposal = proposal
    node: Any = view.broker.node
    node.core.image = image(fenced, row=row())

    def look() -> None:
        for _ in range(fetches):
            one.follower_fetched(scene.seen, view, progress)
            scene.world.loop.now_ns += 1_000_000

    assert broken(scene, look) is expected


def test_who_has_lost_its_log_dir_is_not_let_in_r50() -> None:
    one = leader_timeliness.FollowersAreLetIn()
    scene = Scene(one)
    view = leader(scene)
    progress = has(view, 3, 5)
    node: Any = view.broker.node
    lost: Any = Map({(TOPIC_ID, 0): None})
    known = image(row=row())
    gone = replace(known.brokers[3], offline_replicas=lost)
    node.core.image = replace(known, brokers=known.brokers.set(3, gone))

    def look() -> None:
        for _ in range(2):
            one.follower_fetched(scene.seen, view, progress)
            scene.world.loop.now_ns += 1_000_000

    assert not broken(scene, look)


@pytest.mark.parametrize(
    ("position", "proposal", "is_news", "expected"),
    [(5, None, True, True), (4, None, True, False), (5, object(), True, False), (5, None, False, False)],
    ids=["has all", "lacks one", "another is proposed", "nothing has been answered"],
)
def test_who_has_all_is_proposed_once_another_proposal_is_closed_r50(
    position: int, proposal: Any, is_news: bool, expected: bool
) -> None:
    scene = Scene(leader_timeliness.CompleteAreProposed())
    view = leader(scene)
    has(view, 2, 5)
    has(view, 3, position)
    assert view.leadership is not None
    view.leadership.proposal = proposal
    told = before(view, registration=row(partition_epoch=19 if is_news else 20))
    assert broken(scene, lambda: scene.property.replica_changed(scene.seen, view, told, ())) is expected


@pytest.mark.parametrize(
    ("position", "fenced", "registered", "expected"),
    [
        (5, ((3,), ()), 3, True),
        (5, ((3,), (3,)), 3, False),
        (5, ((), ()), 3, False),
        (4, ((3,), ()), 3, False),
        (5, ((), ()), 2, True),
    ],
    ids=["it is unfenced", "it stays fenced", "it was before", "it lacks one", "it has registered anew"],
)
def test_who_has_all_is_proposed_once_it_is_unfenced_r50(
    position: int, fenced: tuple[tuple[int, ...], tuple[int, ...]], registered: int, expected: bool
) -> None:
    one = leader_timeliness.CompleteAreProposed()
    scene = Scene(one)
    view = leader(scene)
    has(view, 2, 5)
    has(view, 3, position)
    node: Any = view.broker.node
    node.core.partitions = {view.replica.key: view.replica}
    was, now = fenced
    node.core.image = image(was, row=row(), epochs={3: registered})
    one.broker_called(scene.seen, view.broker)
    known = image(now, row=row())
    is_same = (was, registered) == (now, 3)
    node.core.image = replace(known, brokers=node.core.image.brokers) if is_same else known
    assert broken(scene, lambda: one.broker_called(scene.seen, view.broker)) is expected
