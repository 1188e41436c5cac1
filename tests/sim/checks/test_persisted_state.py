"""Properties of what is remembered beside a log: a history that breaks each, and the one beside it that does
not."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.core.events import AppendResult
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import BatchHeader
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.facts import BatchJudged
from holdfast.sim.checks.observe.taps import BrokerTap, TapRecord
from holdfast.sim.checks.observe.views import Judged, Property, ReplicaView
from holdfast.sim.checks.properties import persisted_state
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.storage import snapshots
from holdfast.storage.core.producer_state import ProducerState
from tests.sim.checks.histories import Scene, before, cut, follows, grow, leads, view_of
from tests.unit.broker.core_harness import KEY, CoreHarness, batch, change, partition


def sent(offset: int, sequence: int, *, epoch: int = 0, producer_id: int = 7, count: int = 1) -> BatchMark:
    """A batch of an idempotent producer, in leader epoch 5."""
    last = offset + count - 1
    return BatchMark(offset, 5, last, 0, 100, producer_id, epoch, sequence, sequence + count - 1)


def is_broken(one: Property, tell: Callable[[Scene], None], shape: ClusterSpec | None = None) -> bool:
    """Whether the property speaks up, under its own name."""
    scene = Scene(one, shape)
    said = scene.violation(lambda: tell(scene))
    assert said is None or said.startswith(one.name), said
    return said is not None


def knows(view: ReplicaView, producers: dict[int, tuple[int, list[tuple[int, int, int, int]]]]) -> None:
    """What the log remembers, and that nothing changes it now."""
    log: Any = view.log
    states = {
        one: SimpleNamespace(epoch=e, batches=[(*b, 0) for b in kept]) for one, (e, kept) in producers.items()
    }
    log.producer_state = SimpleNamespace(producers=states)
    log.guard = SimpleNamespace(changing=None)


def kept(*batches: BatchMark) -> list[tuple[int, int, int, int]]:
    return [(b.base_sequence, b.last_sequence, b.base_offset, b.last_offset) for b in batches]


SIX = [sent(number, number) for number in range(6)]


@pytest.mark.parametrize(
    ("batches", "known", "expected"),
    [
        (SIX, {7: (0, kept(*SIX[1:]))}, False),
        (SIX, {7: (0, kept(*SIX))}, True),
        (SIX, {7: (0, kept(*SIX[2:]))}, True),
        (SIX, {}, True),
        ([*SIX, sent(6, 0, epoch=1)], {7: (1, kept(sent(6, 0, epoch=1)))}, False),
        ([*SIX, sent(6, 0, epoch=1)], {7: (1, kept(*SIX[2:], sent(6, 0, epoch=1)))}, True),
        (SIX, {7: (0, kept(*SIX[1:])), 8: (0, kept(sent(6, 0)))}, True),
    ],
    ids=["the last five", "too many", "too few", "none", "a new epoch", "two epochs", "who is not there"],
)
def test_an_opened_log_knows_the_producers_that_are_in_it_r94(
    batches: list[BatchMark], known: dict[int, Any], expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, batches))
        knows(view, known)
        scene.property.replica_loaded(scene.seen, view, None)
        scene.property.replica_changed(scene.seen, view, before(view), batches)

    assert is_broken(persisted_state.ProducersAreOfTheLog(), tell) is expected


@pytest.mark.parametrize(
    ("is_resetting", "has_reset", "expected"),
    [(True, False, False), (False, True, False), (False, False, True)],
)
def test_a_log_that_began_anew_when_its_process_died_was_told_of_no_producer_r94(
    is_resetting: bool, has_reset: bool, expected: bool
) -> None:
    """R83; seed 10578 of the simulator as it was before."""

    def tell(scene: Scene) -> None:
        prior = view_of(scene, 1, SIX)
        prior.history.is_resetting, prior.history.has_begun_anew = is_resetting, has_reset
        view = follows(view_of(scene, 1, SIX))
        log: Any = view.log
        log.log_start_offset = 6
        knows(view, {})
        scene.property.replica_loaded(scene.seen, view, prior)
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(persisted_state.ProducersAreOfTheLog(), tell) is expected


def test_what_is_left_of_a_log_that_was_being_dropped_knows_its_producers_r94() -> None:
    """R83; seed 10730 of the simulator as it was before."""

    def tell(scene: Scene) -> None:
        prior = follows(view_of(scene, 1, SIX))
        log: Any = prior.log
        log.log_start_offset = log.log_end_offset = prior.end_offset = prior.history.end_offset = 9
        log.guard = SimpleNamespace(changing="reset")
        prior.history.is_resetting = prior.history.has_begun_anew = True
        scene.property.replica_changed(scene.seen, prior, before(prior), [])
        view = follows(view_of(scene, 1, SIX[:4]))
        knows(view, {7: (0, kept(*SIX[:4]))})
        scene.property.replica_loaded(scene.seen, view, prior)
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert not is_broken(persisted_state.ProducersAreOfTheLog(), tell)


@pytest.mark.parametrize("is_resetting", [True, False])
def test_a_log_that_was_dropped_and_did_not_begin_anew_may_know_no_producer_r94(is_resetting: bool) -> None:
    """R83: the process died between the two."""

    def tell(scene: Scene) -> None:
        prior = view_of(scene, 1, SIX)
        prior.history.is_resetting = is_resetting
        view = follows(view_of(scene, 1, SIX[:2]))
        log: Any = view.log
        log.log_start_offset = 2
        knows(view, {})
        scene.property.replica_loaded(scene.seen, view, prior)
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(persisted_state.ProducersAreOfTheLog(), tell) is not is_resetting


@pytest.mark.parametrize("forgets", [True, False])
def test_a_log_that_was_cut_knows_no_producer_of_its_tail_r94(forgets: bool) -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, SIX[:4]))
        knows(view, {7: (0, kept(*SIX[:4]))})
        cut(view, 2)
        log: Any = view.log
        log.guard.changing = "truncate"  # it is rebuilt by the end of that, and not looked at before
        scene.property.replica_changed(scene.seen, view, before(view), [])
        log.guard.changing = None
        view.history.cut = []
        other = sent(2, 0, producer_id=8)
        grow(view, [other])
        knows(view, {7: (0, kept(*SIX[: 2 if forgets else 4])), 8: (0, kept(other))})
        scene.property.replica_changed(scene.seen, view, before(view), [other])

    assert is_broken(persisted_state.ProducersAreOfTheLog(), tell) is not forgets


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (sent(6, 6), False),
        (sent(6, 7), True),
        (sent(6, 5), True),
        (sent(6, 0, epoch=1), False),
        (sent(6, 6, epoch=1), True),
        (sent(6, 0, producer_id=8), False),
        (sent(6, 9, producer_id=8), True),
    ],
    ids=[
        "the next",
        "a gap",
        "again",
        "a new epoch",
        "a new epoch that goes on",
        "who never wrote",
        "who never wrote, going on",
    ],
)
def test_the_sequences_of_a_producer_have_no_gap_r92(new: BatchMark, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, SIX))
        scene.property.replica_changed(scene.seen, view, before(view), grow(view, [new]))

    assert is_broken(persisted_state.SequencesContinue(), tell) is expected


@pytest.mark.parametrize(("first", "log_start", "expected"), [(0, 0, False), (3, 0, True), (3, 1, False)])
def test_a_producer_begins_at_zero_where_none_was_forgotten_r93(
    first: int, log_start: int, expected: bool
) -> None:
    """A log that begins later may have forgotten it."""

    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, SIX[:1]))
        log: Any = view.log
        log.log_start_offset = log_start
        scene.seen.replicas[view.index] = {1: view}
        new = sent(1, first, producer_id=8)
        scene.property.replica_changed(scene.seen, view, before(view), grow(view, [new]))

    assert is_broken(persisted_state.SequencesContinue(), tell) is expected


def test_the_epoch_of_a_producer_never_falls_r93() -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, [sent(0, 0, epoch=1)]))
        scene.property.replica_changed(scene.seen, view, before(view), grow(view, [sent(1, 0, epoch=0)]))

    assert is_broken(persisted_state.SequencesContinue(), tell)


@pytest.mark.parametrize(("point", "expected"), [(2, False), (3, True)], ids=["durable", "beyond"])
def test_no_recovery_point_is_above_what_is_durable_r87(point: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, SIX))
        log: Any = view.log
        log.flushed_offset = 2
        log_dir = SimpleNamespace(recovery_points={"t-0": point})
        managed = SimpleNamespace(log=log, log_dir=log_dir, partition="t-0")
        manager = SimpleNamespace(managed=lambda key: managed)
        view.broker.node = SimpleNamespace(log_manager=manager)  # type: ignore[assignment]
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(persisted_state.RecoveryPointsHold(), tell) is expected


@pytest.mark.parametrize(
    ("known", "told", "is_clean", "lies", "expected"),
    [
        (3, 3, True, False, False),
        (2, 2, True, False, True),
        (2, 3, True, False, False),
        (2, 2, False, False, False),
        (2, 2, True, True, False),
    ],
)
def test_a_clean_stop_keeps_the_high_watermark_f6(
    known: int, told: int, is_clean: bool, lies: bool, expected: bool
) -> None:
    """Above the end of a log that was cut it is known too. A disk that lies keeps nothing."""

    def tell(scene: Scene) -> None:
        prior = view_of(scene, 2, SIX, high_watermark=3)
        prior.process = scene.world.loop.process("b2.0")
        view = view_of(scene, 2, SIX, high_watermark=known, follows_clean_stop=is_clean)
        view.replica._told_high_watermark = told
        scene.property.replica_loaded(scene.seen, view, prior)

    shape = ClusterSpec(disks_lie=lies)
    assert is_broken(persisted_state.HighWatermarksAreKept(), tell, shape) is expected


def judged(
    batches: list[BatchMark], again: BatchMark, *, code: ErrorCode = ErrorCode.NONE, told: int = -1
) -> Callable[[Scene], None]:
    """A leader with these batches is sent one of them, or another, and answers like that."""

    def tell(scene: Scene) -> None:
        view = leads(view_of(scene, 1, batches))
        log: Any = view.log
        log.producer_state = ProducerState()
        for one in batches:
            log.producer_state.apply(header_of(one), one.base_offset)
        is_duplicate = code is ErrorCode.NONE
        count = again.last_sequence - again.base_sequence + 1
        end = told + count if is_duplicate else -1
        result = AppendResult(view.replica.key, 5, told, end, 100, code, is_duplicate=is_duplicate)
        one = log.producer_state.producers.get(again.producer_id)
        known = None if one is None else (one.epoch, tuple(one.batches))
        scene.property.batch_judged(scene.seen, view, Judged(header_of(again), result, known))

    return tell


def header_of(one: BatchMark) -> BatchHeader:
    """The header of a batch with that mark."""
    fields: dict[str, int] = dict.fromkeys(BatchHeader._fields, 0)
    fields |= {
        "base_offset": one.base_offset,
        "last_offset_delta": one.last_offset - one.base_offset,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "base_sequence": one.base_sequence,
        "record_count": one.last_offset - one.base_offset + 1,
    }
    return BatchHeader(**fields)


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OUTDATED = ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("again", "code", "told", "expected"),
    [
        (SIX[3], ErrorCode.NONE, 3, False),
        (SIX[3], ErrorCode.NONE, 4, True),
        (sent(0, 3, producer_id=8), ErrorCode.NONE, 3, True),
        (SIX[3], OUT_OF_ORDER, -1, True),
        (SIX[0], OUT_OF_ORDER, -1, False),
        (sent(6, 6), OUT_OF_ORDER, -1, True),
        (sent(6, 7), OUT_OF_ORDER, -1, False),
        (sent(6, 7, epoch=1), OUT_OF_ORDER, -1, False),
        (sent(6, 0, epoch=1), OUT_OF_ORDER, -1, True),
        (sent(6, 9, producer_id=8), OUT_OF_ORDER, -1, False),
        (sent(6, 0, producer_id=8), OUT_OF_ORDER, -1, True),
        (sent(6, 6), OUTDATED, -1, True),
        (sent(6, 6), ErrorCode.KAFKA_STORAGE_ERROR, -1, False),
    ],
    ids=[
        "where it is",
        "elsewhere",
        "of another producer",
        "refused, though known",
        "refused, and too old",
        "the next one is refused",
        "one is missing",
        "a new epoch does not begin at 0",
        "a new epoch is refused",
        "who never wrote does not begin at 0",
        "who never wrote is refused",
        "outdated, though of the last epoch",
        "not for its number",
    ],
)
def test_what_is_sent_again_is_told_where_it_is_and_refused_for_a_reason_r91(
    again: BatchMark, code: ErrorCode, told: int, expected: bool
) -> None:
    assert (
        is_broken(persisted_state.RepetitionsAreKnown(), judged(SIX, again, code=code, told=told)) is expected
    )


def test_a_producer_of_a_former_epoch_is_outdated_r92() -> None:
    batches = [*SIX, sent(6, 0, epoch=1)]
    assert not is_broken(persisted_state.RepetitionsAreKnown(), judged(batches, sent(7, 6), code=OUTDATED))


def test_a_gap_that_closes_within_the_same_step_was_a_gap_r92() -> None:
    """What has stalled on its way is read at once: batch 2, and behind it 1, which had been refused while the
    ISR was below min ISR, and is sent again."""
    harness = CoreHarness().join(partition(1))
    heard = TapRecord()
    harness.taps.append(BrokerTap(harness.core, heard))
    harness.produce(batch(producer=(7, 0, 0)), acks=1)
    harness.metadata(change(isr=(1,)))
    log: Any = harness.logs[KEY]
    log.producer_state = harness.producers[KEY]
    refused = harness.produce(batch(producer=(7, 0, 1)))
    harness.metadata(change(isr=(1, 2)))
    assert harness.row(refused) == ("NOT_ENOUGH_REPLICAS", -1)
    gap = harness.produce(batch(producer=(7, 0, 2)))
    harness.produce(batch(producer=(7, 0, 1)))
    assert harness.row(gap) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert log.log_end_offset == 2
    told = [fields[0] for _, fact, fields in heard.facts if fact is BatchJudged]
    (judged,) = (one for one in told if one.result.error_code is OUT_OF_ORDER)

    def look(scene: Scene) -> None:
        scene.property.batch_judged(scene.seen, leads(view_of(scene, 1)), judged)

    assert not is_broken(persisted_state.RepetitionsAreKnown(), look)


@pytest.mark.parametrize(
    ("known", "offset", "expected"),
    [(SIX[:4], 4, False), (SIX[:3], 4, True), (SIX[:5], 4, True), (SIX, 7, False)],
    ids=["what is below", "too few", "what was cut off", "above the end"],
)
def test_a_snapshot_tells_what_is_below_it_r94(known: list[BatchMark], offset: int, expected: bool) -> None:
    state = ProducerState()
    for one in known:
        state.apply(header_of(one), one.base_offset)
    text = snapshots.encode(state, offset).encode()

    def tell(scene: Scene) -> None:
        view = follows(view_of(scene, 1, SIX))
        log: Any = view.log
        log.guard, log.truncation_count = SimpleNamespace(changing=None), 0
        names = [f"{offset:020}.snapshot", f"{0:020}.log"]
        sim_disk = SimpleNamespace(names=lambda folder: names, read=lambda path: text)
        view.broker = SimpleNamespace(name="b1", machine=SimpleNamespace(sim_disk=sim_disk))  # type: ignore[assignment]
        scene.world.loop.now_ns += 1_000_000_000
        scene.property.replica_changed(scene.seen, view, before(view), [])

    assert is_broken(persisted_state.SnapshotsAreOfTheLog(), tell) is expected
