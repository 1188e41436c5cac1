"""Properties of what clients are told: a history that breaks each, and the one beside it that does not."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from holdfast.broker.core.events import ReadRow
from holdfast.broker.core.requests.purgatory import DelayedProduce, ProducePurgatory, WaitingRow
from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.protocol.errors import ErrorCode
from holdfast.sim.checks.observe.views import Property, ReplicaView
from holdfast.sim.checks.properties import clients
from holdfast.sim.load.clients import Polled
from tests.sim.checks.histories import (
    TOPIC_ID,
    Scene,
    before,
    change,
    follows,
    grow,
    image,
    leads,
    mark,
    row,
    view_of,
)

BATCHES = [mark(0), mark(1), mark(2)]


def is_broken(one: Property, tell: Callable[[Scene], None]) -> bool:
    """Whether the property speaks up, under its own name."""
    scene = Scene(one)
    scene.seen.is_live = lambda view: not view.process.is_dead  # type: ignore[method-assign]
    said = scene.violation(lambda: tell(scene))
    assert said is None or said.startswith(one.name), said
    return said is not None


def read(high_watermark: int, epoch: int = 5) -> ReadRow:
    """What a leader of that epoch answers a consumer."""
    return ReadRow(TOPIC_ID, 0, 0, high_watermark, 0, -1, None, 1, epoch, 0, max(0, high_watermark), 1)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([(5, 3), (5, 3), (5, 4)], False),
        ([(5, 3), (5, 2)], True),
        ([(5, 3), (6, 2)], True),
        ([(5, 3), (6, -1), (6, 3)], False),
        ([(5, 3), (6, 4), (5, 3)], False),
        ([(5, 3), (6, 4), (5, 6), (6, 5)], True),
    ],
    ids=["up", "back", "back with a leader", "not known at first", "a deposed one", "behind a deposed one"],
)
def test_the_high_watermark_that_is_told_never_falls_rule_12(
    told: list[tuple[int, int]], expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        view = view_of(scene, 1, BATCHES)
        for epoch, high_watermark in told:
            scene.property.shown(scene.seen, view, read(high_watermark, epoch))

    assert is_broken(clients.HighWatermarkNeverFalls(), tell) is expected


def test_an_unclean_election_begins_another_log_rule_12() -> None:
    def tell(scene: Scene) -> None:
        view = view_of(scene, 1, BATCHES)
        scene.property.shown(scene.seen, view, read(3, 5))
        leaderless = row(isr=(), leader=None, last_known_leader=1)
        reason = ElectionReason.LONGEST_LOG
        elected = change(leaderless, CauseKind.LOGS_COMPARED, None, reason, leader=2, isr=(2,))
        scene.property.partition_changed(scene.seen, 0, elected)
        for epoch, high_watermark in ((6, 1), (5, 3), (6, 2)):
            scene.property.shown(scene.seen, view, read(high_watermark, epoch))

    assert not is_broken(clients.HighWatermarkNeverFalls(), tell)


@pytest.mark.parametrize(
    ("high_watermark", "epoch", "expected"),
    [(3, 5, False), (2, 5, True), (-1, 5, False), (2, 4, False)],
    ids=["all of it", "less", "not known", "a deposed leader"],
)
def test_the_present_leader_shows_what_was_acknowledged_rule_13(
    high_watermark: int, epoch: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.acknowledged = 3
        scene.property.shown(scene.seen, view_of(scene, 1, BATCHES), read(high_watermark, epoch))

    assert is_broken(clients.AcknowledgedIsShown(), tell) is expected


@pytest.mark.parametrize(
    ("counts_flushed", "flushed", "epoch", "expected"),
    [(True, 3, 0, False), (True, 2, 0, True), (False, 0, 0, False), (True, 2, 9, False)],
    ids=["flushed", "not by a member", "not promised", "by its former incarnation"],
)
def test_what_is_acknowledged_is_on_all_disks_of_the_isr_rule_24(
    counts_flushed: bool, flushed: int, epoch: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        scene.set_image(image(row=row(), epochs={2: epoch}))
        view = leads(view_of(scene, 1, BATCHES), isr=(1, 2))
        view.replica.counts_flushed = counts_flushed
        view.log.flushed_offset = 3  # type: ignore[misc]
        member = follows(view_of(scene, 2, BATCHES))
        member.log.flushed_offset = flushed  # type: ignore[misc]
        assert view.leadership is not None
        if epoch:
            heard = SimpleNamespace(broker_epoch=2)
            view.leadership.progress[2] = heard  # type: ignore[assignment]
        scene.property.acknowledged(scene.seen, view, 2, 5)

    assert is_broken(clients.AcknowledgedIsDurable(), tell) is expected


@pytest.mark.parametrize(
    ("isr", "epoch", "needs", "expected"),
    [
        ((1, 2), 5, 3, False),
        ((1,), 5, 3, True),
        ((1, 2), 4, 3, True),
        ((1, 2), 5, 2, True),
    ],
    ids=["it may come", "below min ISR", "of a former epoch", "it has come"],
)
def test_no_write_waits_for_what_cannot_come_a18(
    isr: tuple[int, ...], epoch: int, needs: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=2), isr=isr)
        waits(view, epoch, needs)
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(clients.WaitingWritesAreGivenUp(), tell) is expected


def test_no_write_waits_for_a_follower_a18() -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, BATCHES), 6)
        waits(view, 5, 3)
        grow(view, [mark(3)])
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(clients.WaitingWritesAreGivenUp(), tell)


def waits(view: ReplicaView, epoch: int, needs: int) -> None:
    """A write in the broker's purgatory."""
    purgatory: ProducePurgatory[object] = ProducePurgatory(10)
    delayed: DelayedProduce[object] = DelayedProduce(None, [None])
    key = view.replica.key
    delayed.wait_for(WaitingRow(delayed, 0, key, needs - 1, needs, epoch, epoch))
    purgatory.add(delayed, 1000)
    core = SimpleNamespace(produce_path=SimpleNamespace(_replicating=purgatory))
    view.broker.node = SimpleNamespace(core=core)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("acks", "error", "expected"),
    [
        (-1, ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (1, ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (1, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
    ],
)
def test_min_isr_is_asked_of_acks_all_alone_f5(acks: int, error: ErrorCode, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.property.write_refused(scene.seen, view_of(scene, 1), acks, error)

    assert is_broken(clients.LeaderAcksNeedNoQuorum(), tell) is expected


def test_what_a_broker_does_with_unanswered_writes_is_told_with_its_name_f4() -> None:
    def tell(scene: Scene) -> None:
        broker = scene.world.brokers[0]
        scene.property.write_dropped(scene.seen, broker, "answers a write with acks=0")

    assert is_broken(clients.UnansweredWritesAreHeardOf(), tell)


@pytest.mark.parametrize(
    ("offsets", "start", "expected"),
    [((0, 2), 2, False), ((0, 2), 1, True), ((0, 1), 0, False), ((0, 2, 1), 2, False)],
    ids=["at the log start", "behind it", "nothing is deleted", "led back"],
)
def test_a_reader_goes_on_where_a_log_begins_rule_10(
    offsets: tuple[int, ...], start: int, expected: bool
) -> None:
    """Being led back is for `checks.skipped` to judge."""

    def tell(scene: Scene) -> None:
        view = view_of(scene, 1, BATCHES)
        view.log.log_start_offset = start  # type: ignore[misc]
        scene.property.shown(scene.seen, view, read(3))
        session = [Polled(0, offset, 5, b"") for offset in offsets]
        scene.world.load.polls.append(session)
        scene.property.consumed(scene.seen, session[-1])

    assert is_broken(clients.ReadersGoOnAtAStart(), tell) is expected


@pytest.mark.parametrize(("start_of_another", "expected"), [(2, False), (1, True)])
def test_a_reader_goes_on_where_the_log_of_a_former_leader_begins(
    start_of_another: int, expected: bool
) -> None:
    """It told where that is, and the next leader, whose own log begins before, gives the records."""

    def tell(scene: Scene) -> None:
        view_of(scene, 2, BATCHES).log.log_start_offset = start_of_another  # type: ignore[misc]
        view = view_of(scene, 1, BATCHES)
        view.log.log_start_offset = 1  # type: ignore[misc]
        scene.property.shown(scene.seen, view, read(3))
        session = [Polled(0, offset, 5, b"") for offset in (0, 2)]
        scene.world.load.polls.append(session)
        scene.property.consumed(scene.seen, session[-1])

    assert is_broken(clients.ReadersGoOnAtAStart(), tell) is expected
