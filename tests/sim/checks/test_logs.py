"""Properties of replicas and their logs: a history that breaks each, and the one beside it that does not."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.core.events import ReadRow
from holdfast.broker.core.replicas.leadership import Proposal
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.runtime.api import DiskError
from holdfast.sim.checks.observe.observer import _end
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.checks.properties import disks, logs, quorum, replicas
from holdfast.sim.load.clients import Polled
from tests.sim.checks.histories import (
    TOPIC_ID,
    Scene,
    before,
    cut,
    follows,
    grow,
    image,
    leads,
    mark,
    row,
    view_of,
)

BATCHES = [mark(0), mark(1), mark(2)]
OTHER = [mark(0), mark(1), mark(2, crc=9)]


def is_broken(one: Property, tell: Callable[[Scene], None]) -> bool:
    """Whether the property speaks up, under its own name."""
    scene = Scene(one)
    # No broker has a registration to compare with here: who runs is live.
    scene.seen.is_live = lambda view: not view.process.is_dead  # type: ignore[method-assign]
    said = scene.violation(lambda: tell(scene))
    assert said is None or said.startswith(one.name), said
    return said is not None


@pytest.mark.parametrize(("end", "expected"), [(3, False), (2, True)])
def test_a_candidate_has_all_that_is_committed_i8(end: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.high_watermark, scene.ghost.committed = 3, BATCHES
        view_of(scene, 2, BATCHES[:end])
        scene.property.metadata_committed(scene.seen)

    assert is_broken(logs.LeaderCandidateCompleteness(), tell) is expected


def test_a_candidate_with_another_batch_is_not_complete_i8() -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.high_watermark, scene.ghost.committed = 3, BATCHES
        view_of(scene, 2, OTHER)
        scene.property.metadata_committed(scene.seen)

    assert is_broken(logs.LeaderCandidateCompleteness(), tell)


@pytest.mark.parametrize(("leader", "expected"), [(1, False), (2, True)])
def test_the_leader_is_complete_and_others_do_not_count_i9(leader: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.high_watermark, scene.ghost.committed = 3, BATCHES
        scene.ghost.row = row(leader=leader)
        view_of(scene, 1, BATCHES)
        view_of(scene, 2, BATCHES[:2])
        scene.property.metadata_committed(scene.seen)

    assert is_broken(logs.LeaderCompleteness(), tell) is expected


@pytest.mark.parametrize(("high_watermark", "expected"), [(2, False), (3, True)])
def test_logs_match_below_the_high_watermark_i10(high_watermark: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.high_watermark, scene.ghost.committed = 3, BATCHES
        view = follows(view_of(scene, 2, OTHER, high_watermark=high_watermark))
        scene.property.replica_changed(scene.seen, view, before(view), OTHER)

    assert is_broken(logs.LogMatching(), tell) is expected


@pytest.mark.parametrize(("survives", "expected"), [(3, False), (2, True)])
def test_an_acknowledged_record_is_in_some_log_also_of_machines_that_are_down_i12(
    survives: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.acknowledged = 3
        view_of(scene, 1, BATCHES[:1])
        view_of(scene, 2, BATCHES, survives=survives)
        scene.property.metadata_committed(scene.seen)

    assert is_broken(logs.NoCommittedRecordLostGlobally(), tell) is expected


@pytest.mark.parametrize(("offset", "expected"), [(2, False), (3, True)])
def test_only_committed_records_are_consumed_i13(offset: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.high_watermark = 3
        scene.property.consumed(scene.seen, Polled(0, offset, 5, b""))

    assert is_broken(logs.ConsistentRead(), tell) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(4, False), (5, True)])
def test_a_current_leader_has_what_was_consumed_i13(epoch: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.consumed = 3
        view = leads(view_of(scene, 1, BATCHES[:2]), epoch)
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(logs.ConsistentRead(), tell) is expected


@pytest.mark.parametrize(("offset", "epoch", "expected"), [(2, 5, False), (3, 5, True), (2, 4, True)])
def test_an_acknowledgement_names_a_committed_batch_i16(offset: int, epoch: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.high_watermark, scene.ghost.committed = 3, BATCHES
        view = leads(view_of(scene, 1, BATCHES))
        scene.property.acknowledged(scene.seen, view, offset, epoch)

    assert is_broken(logs.AckedIsCommitted(), tell) is expected


@pytest.mark.parametrize(
    ("batches", "expected"),
    [(BATCHES, False), ([mark(0), mark(1, 4)], True), ([mark(0), mark(2)], True)],
    ids=["rising", "a falling epoch", "a hole"],
)
def test_epochs_rise_and_offsets_leave_no_hole_i18(batches: list[object], expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = view_of(scene, 1)
        view.history.batches += batches  # type: ignore[arg-type]
        view.log.leader_epoch_cache.assign(5, 0)
        scene.property.replica_changed(scene.seen, view, before(view), batches)

    assert is_broken(logs.EpochsInLog(), tell) is expected


def test_epochs_are_cut_with_the_log_i18() -> None:
    def tell(scene: Scene) -> None:
        view = view_of(scene, 1, [mark(0), mark(1), mark(2, 7)])
        cut(view, 2)
        scene.property.replica_changed(scene.seen, view, before(view), [])
        view.log.leader_epoch_cache.assign(7, 2)
        view.log.leader_epoch_cache.assign(8, 3)
        view.history.cut = [mark(2, 7)]
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(logs.EpochsInLog(), tell)


@pytest.mark.parametrize(("second", "expected"), [(BATCHES, False), (OTHER, True)])
def test_an_epoch_and_an_offset_name_one_batch_d1(second: list[object], expected: bool) -> None:
    def tell(scene: Scene) -> None:
        one = leads(view_of(scene, 1, BATCHES))
        scene.property.replica_changed(scene.seen, one, before(one), BATCHES)
        other = follows(view_of(scene, 2, second))  # type: ignore[arg-type]
        scene.property.replica_changed(scene.seen, other, before(other), second)

    assert is_broken(logs.EpochOffsetUniqueness(), tell) is expected


@pytest.mark.parametrize(
    ("disks_lie", "crc", "expected"), [(False, 0, True), (True, 0, False), (True, 9, True)]
)
def test_an_epoch_in_which_a_bit_has_turned_names_nothing_d1(
    disks_lie: bool, crc: int, expected: bool
) -> None:
    rotten = [*BATCHES[:2], mark(2, 2048, crc)]

    def tell(scene: Scene) -> None:
        scene.world.shape = replace(scene.world.shape, disks_lie=disks_lie)
        one = leads(view_of(scene, 1, BATCHES))
        scene.property.replica_changed(scene.seen, one, before(one), BATCHES)
        other = follows(view_of(scene, 2, rotten))
        scene.property.replica_changed(scene.seen, other, before(other), rotten)

    assert is_broken(logs.EpochOffsetUniqueness(), tell) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(5, False), (6, True)])
def test_only_its_leader_names_a_batch_a15(epoch: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES), epoch)
        scene.property.replica_changed(scene.seen, view, before(view), BATCHES)

    assert is_broken(logs.EpochOffsetUniqueness(), tell) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(5, False), (4, True), (None, True)])
def test_what_the_next_process_finds_the_last_one_has_named_where_it_ended_as_the_leader_a15(
    epoch: int | None, expected: bool
) -> None:
    """Seed 409367 of the reference load: an append was under way when the log dir failed."""

    def tell(scene: Scene) -> None:
        prior = view_of(scene, 1, BATCHES[:2])
        scene.property.replica_changed(scene.seen, leads(prior), before(prior), BATCHES[:2])
        prior = follows(prior) if epoch is None else leads(prior, epoch)
        found = follows(view_of(scene, 1, BATCHES))
        scene.property.replica_loaded(scene.seen, found, prior)
        scene.property.replica_changed(scene.seen, found, before(found), BATCHES)

    assert is_broken(logs.EpochOffsetUniqueness(), tell) is expected


def test_only_what_the_next_process_finds_first_may_have_been_named_unseen_a15() -> None:
    def tell(scene: Scene) -> None:
        prior = leads(view_of(scene, 1, BATCHES[:2]))
        scene.property.replica_changed(scene.seen, prior, before(prior), BATCHES[:2])
        found = follows(view_of(scene, 1, BATCHES[:2]))
        scene.property.replica_loaded(scene.seen, found, prior)
        scene.property.replica_changed(scene.seen, found, before(found), BATCHES[:2])
        scene.property.replica_changed(scene.seen, found, before(found), grow(found, BATCHES[2:]))

    assert is_broken(logs.EpochOffsetUniqueness(), tell)


@pytest.mark.parametrize(("survives", "expected"), [(2, False), (None, True)])
def test_a_follower_may_have_what_its_leader_sent_in_the_step_in_which_it_ended_a15(
    survives: int | None, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        leads(view_of(scene, 1, BATCHES[:2], survives=survives))
        follower = follows(view_of(scene, 2, BATCHES))
        scene.property.replica_changed(scene.seen, follower, before(follower), BATCHES)

    assert is_broken(logs.EpochOffsetUniqueness(), tell) is expected


@pytest.mark.parametrize(("high_watermark", "expected"), [(2, False), (3, True)])
def test_no_log_is_cut_below_its_high_watermark_a1(high_watermark: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 2, BATCHES))
        then = before(view, high_watermark=high_watermark)
        cut(view, 2)
        scene.property.replica_changed(scene.seen, view, then, [])

    assert is_broken(logs.NoTruncationBelowHighWatermark(), tell) is expected


@pytest.mark.parametrize(
    ("theirs", "cut_in", "expected"), [(OTHER, 5, False), (BATCHES, 5, True), (BATCHES, 4, False)]
)
def test_a_follower_cuts_only_what_its_leader_lacks_a16(
    theirs: list[object], cut_in: int, expected: bool
) -> None:
    """The leader by whose answer it was decided."""

    def tell(scene: Scene) -> None:
        leads(view_of(scene, 1, theirs))  # type: ignore[arg-type]
        view = follows(view_of(scene, 2, BATCHES, cut_in=cut_in))
        then = before(view)
        cut(view, 2)
        scene.property.replica_changed(scene.seen, view, then, [])

    assert is_broken(logs.TruncationKeepsWhatMatches(), tell) is expected


# --- roles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("maximal", "known", "truth", "expected"),
    [
        ((1, 2, 3), row(), row(), False),
        ((1, 2), row(), row(), True),
        ((1, 2, 3), row(isr=(1, 2)), row(isr=(1, 2)), True),
        ((1, 2), row(isr=(1, 2)), row(isr=(1, 2, 3)), True),
        ((1, 2), row(isr=(1, 2)), row(isr=(1, 2, 3), leader_epoch=6), False),
        ((1,), row(isr=(1,)), row(isr=(1,), elr=(2,)), False),
    ],
    ids=["all", "too few", "without a proposal", "behind", "stale", "below min ISR"],
)
def test_a_current_leader_waits_for_all_who_may_be_elected_i7(
    maximal: tuple[int, ...], known: object, truth: object, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        scene.ghost.row = truth  # type: ignore[assignment]
        view = leads(view_of(scene, 1))
        view.registration, view.maximal_isr = known, maximal  # type: ignore[assignment]
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(replicas.ReplicationQuorumSuperset(), tell) is expected


@pytest.mark.parametrize(("second", "expected"), [(6, False), (5, True)])
def test_one_broker_leads_an_epoch_i15(second: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        for broker_id, epoch in ((1, 5), (2, second)):
            view = leads(view_of(scene, broker_id), epoch)
            scene.property.replica_changed(scene.seen, view, before(view, leadership=None), [])

    assert is_broken(replicas.OneLeaderPerEpoch(), tell) is expected


@pytest.mark.parametrize(
    ("isr", "follower_end", "expected"),
    [((1, 2), 3, False), ((1,), 3, True), ((1, 2), 2, True)],
    ids=["both have it", "below min ISR", "a member lacks it"],
)
def test_the_high_watermark_rises_only_with_min_isr_and_all_members_a2(
    isr: tuple[int, ...], follower_end: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=3), isr=isr)
        follows(view_of(scene, 2, BATCHES[:follower_end]))
        scene.property.replica_changed(scene.seen, view, before(view, high_watermark=0), [])

    assert is_broken(replicas.HighWatermarkNeedsMinIsr(), tell) is expected


@pytest.mark.parametrize(
    ("flushed", "is_reflushed", "expected"),
    [(3, False, False), (2, False, True), (2, True, False)],
    ids=["durable", "not durable", "switched to every write, as the leader has not heard"],
)
@pytest.mark.parametrize("one", [replicas.HighWatermarkNeedsMinIsr, replicas.JoinerIsComplete])
def test_a_member_counts_as_its_leader_may_have_counted_it_when_the_policy_changes_a2_a5(
    one: type[replicas.HighWatermarkNeedsMinIsr | replicas.JoinerIsComplete],
    flushed: int,
    is_reflushed: bool,
    expected: bool,
) -> None:
    def tell(scene: Scene) -> None:
        if is_reflushed:
            scene.world.reflushed.add("t")
        view = leads(view_of(scene, 1, BATCHES, high_watermark=3), start_offset=3, isr=(1, 2))
        member = follows(view_of(scene, 2, BATCHES))
        member.replica.counts_flushed = True
        member.log.flushed_offset = flushed  # type: ignore[misc]
        assert view.leadership is not None
        assert view.registration is not None
        progress = view.leadership.progress[2] = ReplicaProgress(2, None)
        progress.fetched(3, 2, 3, 0)
        if one is replicas.JoinerIsComplete:
            view.registration = replace(view.registration, isr=(1,))
            view.proposal = Proposal((1, 2), (-1, 2), 5, 20)
        scene.property.replica_changed(scene.seen, view, before(view, high_watermark=0, proposal=None), [])

    assert is_broken(one(), tell) is expected


@pytest.mark.parametrize(("heard_in", "expected"), [(7, True), (6, False)], ids=["same", "former"])
def test_a_member_had_reached_it_before_it_lost_its_log_and_came_back_a2(
    heard_in: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        scene.set_image(image(row=row(), epochs={2: 7}))
        view = leads(view_of(scene, 1, BATCHES, high_watermark=3), isr=(1, 2))
        assert view.leadership is not None
        heard = view.leadership.progress[2] = ReplicaProgress(2, None)
        heard.fetched(3, heard_in, 3, 0)
        follows(view_of(scene, 2), 6)
        scene.property.replica_changed(scene.seen, view, before(view, high_watermark=0), [])

    assert is_broken(replicas.HighWatermarkNeedsMinIsr(), tell) is expected


@pytest.mark.parametrize(
    ("position", "epoch", "expected"),
    [(3, 5, False), (2, 5, True), (3, 4, True)],
    ids=["complete", "below the epoch's start", "follows an older leader"],
)
def test_a_replica_joins_when_it_is_complete_a5(position: int, epoch: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=2), start_offset=3, isr=(1,))
        follows(view_of(scene, 2, BATCHES), epoch)
        assert view.leadership is not None
        progress = view.leadership.progress[2] = ReplicaProgress(2, None)
        progress.fetched(position, 2, 3, 0)
        view.proposal = Proposal((1, 2), (-1, 2), 5, 20)
        scene.property.replica_changed(scene.seen, view, before(view, proposal=None), [])

    assert is_broken(replicas.JoinerIsComplete(), tell) is expected


@pytest.mark.parametrize(
    ("told", "end", "expected"),
    [(3, 3, False), (-1, 0, False), (2, 2, True), (3, 4, True)],
    ids=["reached", "unknown", "below the epoch's start", "records above it"],
)
def test_consumers_are_told_a_high_watermark_once_it_is_known_a6(told: int, end: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES, high_watermark=3), start_offset=3)
        answer = ReadRow(TOPIC_ID, 0, 0, told, 0, -1, None, 1, 5, 0, end, 100)
        scene.property.shown(scene.seen, view, answer)

    assert is_broken(replicas.HighWatermarkUnknownAtFirst(), tell) is expected


# --- disks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "survives", "expected"),
    [(BATCHES, 3, False), (BATCHES[:2], 2, False), (BATCHES[:2], 3, True), (OTHER, 3, True)],
    ids=["all", "an unflushed tail is gone", "a flushed batch is gone", "another batch"],
)
def test_a_new_process_finds_what_survived_a22(found: list[object], survives: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        prior = view_of(scene, 1, BATCHES, survives=survives)
        scene.property.replica_loaded(scene.seen, view_of(scene, 1, found), prior)  # type: ignore[arg-type]

    assert is_broken(disks.RecoveredLog(), tell) is expected


@pytest.mark.parametrize(("is_resetting", "expected"), [(True, False), (False, True)])
def test_of_a_log_that_was_being_dropped_any_beginning_may_be_found_a22(
    is_resetting: bool, expected: bool
) -> None:
    """R83; seeds 10226 and 10730 of the simulator as it was before."""

    def tell(scene: Scene) -> None:
        prior = view_of(scene, 1, BATCHES, flushed_offset=3)
        log: Any = prior.log
        log.guard = SimpleNamespace(changing=None)
        prior.history.is_resetting = is_resetting
        _end(prior, is_cache_lost=False)
        scene.property.replica_loaded(scene.seen, view_of(scene, 1, BATCHES[:1]), prior)

    assert is_broken(disks.RecoveredLog(), tell) is expected


@pytest.mark.parametrize("expected", [False, True])
def test_nothing_is_appended_after_a_disk_has_failed_a20(expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, BATCHES))
        view.log.failure = DiskError("f", "flush", 5, "EIO") if expected else None  # type: ignore[misc]
        scene.property.replica_changed(scene.seen, view, before(view), BATCHES)
        scene.world.pass_time(1)
        new = grow(view, [mark(3)])
        scene.property.replica_changed(scene.seen, view, before(view, end_offset=3), new)

    assert is_broken(disks.FailStop(), tell) is expected


# --- the quorum ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "expected"), [(100, False), (101, True), (99, True)])
def test_no_node_acts_upon_what_is_not_committed_i11(offset: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        copy = replace(image(row=scene.ghost.row), offset=offset)
        scene.property.image_followed(scene.seen, scene.world.brokers[0], copy)

    assert is_broken(quorum.MetadataLogMatching(), tell) is expected


def test_a_copy_of_the_metadata_is_what_was_committed_i11() -> None:
    def tell(scene: Scene) -> None:
        scene.property.image_followed(scene.seen, scene.world.brokers[0], image(row=row(isr=(1,))))

    assert is_broken(quorum.MetadataLogMatching(), tell)
