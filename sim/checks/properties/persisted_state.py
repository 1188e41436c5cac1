"""Properties of what a broker remembers beside its logs: their producers, how far they are durable and
committed, and what it has learnt in a leader epoch.

Owns a second opinion, made from the headers of the batches alone. What is remembered wrongly shows when a
retry comes, or power is lost, much later and seldom.
"""

from collections.abc import Iterable, Sequence

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import SEQUENCE_MODULUS
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Judged, Property, ReplicaView
from holdfast.storage import snapshots
from holdfast.storage.core.files import SNAPSHOT_SUFFIX, offset_path, parse_offset_name

#: snapshots are looked at so often: a wrong one stays until its log is rolled behind it
_LOOK_NS = 500_000_000
#: as many as a client may have in flight (R90)
_BATCHES_KNOWN = 5
#: (its epoch, the last batches of that epoch as (first sequence, last sequence, first offset, last offset))
Known = tuple[int, list[tuple[int, int, int, int]]]


class ProducersAreOfTheLog(Property):
    """R90, R94: of each idempotent producer a log knows the last five batches of its last epoch, those that
    are in it and no others, however it came to be: appended, fetched, cut, or opened anew."""

    name = "R94 ProducersAreOfTheLog"
    is_about_loss = True

    def __init__(self) -> None:
        #: (process, partition) of which all is to be compared: the log was cut, or opened
        self._unseen: set[tuple[str, int]] = set()
        #: {(broker, partition): where its log began anew (R83)}: it was told nothing of what was before
        self._begun: dict[tuple[str, int], int] = {}
        #: the same before the last reset, which a crash may stop half-way
        self._former: dict[tuple[str, int], int] = {}

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        self._unseen.add((view.process.name, view.index))
        start, place = view.log.log_start_offset, (view.broker.name, view.index)
        # by a reset that no process could be told of any more, too, if it has come that far
        is_reset = prior is not None and (prior.history.is_resetting or prior.history.has_begun_anew)
        if prior is None or start > prior.end_offset or (is_reset and start == prior.end_offset):
            self._begun[place] = start
        elif prior.history.is_resetting:
            is_empty = view.end_offset == start and not view.log.producer_state.producers
            if is_empty:  # the old one was gone, and the new one was not there yet
                self._begun[place] = start
            elif self._begun.get(place) == prior.end_offset:
                self._begun[place] = self._former.get(place, 0)

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        log, history, key = view.log, view.history, (view.process.name, view.index)
        if history.cut or history.has_begun_anew:
            self._unseen.add(key)
        place = view.broker.name, view.index
        if history.has_begun_anew:
            self._former[place] = self._begun.get(place, 0)
            self._begun[place] = log.log_start_offset
        if not appended and key not in self._unseen:
            return
        is_moving = log.guard.changing is not None or history.end_offset != log.log_end_offset
        if is_moving or history.start_offset or log.failure is not None or view.process.is_dead:
            return
        known = log.producer_state.producers
        begun = self._begun.get(place, 0)
        batches = [one for one in history.batches if one.last_offset >= begun] if begun else history.batches
        if key in self._unseen:
            self._unseen.discard(key)
            wanted = _producers_of(batches)
            asked = {*wanted, *known}
        else:
            asked = {batch.producer_id for batch in appended if batch.producer_id >= 0}
            wanted = {one: _last_of(batches, one) for one in asked}
        for producer_id in sorted(asked):
            one = known.get(producer_id)
            found = None if one is None else (one.epoch, [tuple(batch[:4]) for batch in one.batches])
            if found != wanted.get(producer_id):
                story = f"{view.broker.name} knows of producer {producer_id} {found}, its log holds"
                seen.broken(self, view.index, f"{story} {wanted.get(producer_id)}")


class SnapshotsAreOfTheLog(Property):
    """R94: a snapshot that lies within a log tells of the producers of what is below it, and of no other: the
    next start may begin with it. One above the end of a log that was cut goes before the log grows."""

    name = "R94 SnapshotsAreOfTheLog"
    is_about_loss = True

    def __init__(self) -> None:
        #: {(process, partition): (when it was looked at, cuts of its log by then, snapshots that were right)}
        self._judged: dict[tuple[str, int], tuple[int, int, frozenset[int]]] = {}
        #: (broker, partition) of logs that began anew (R83): of what was before they were told nothing
        self._begun: set[tuple[str, int]] = set()

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        start = view.log.log_start_offset
        is_moved = start > 0 and (prior is None or start > prior.log.log_start_offset)
        if is_moved or (prior is not None and (prior.history.is_resetting or prior.history.has_begun_anew)):
            self._begun.add((view.broker.name, view.index))

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        log, history, place = view.log, view.history, (view.broker.name, view.index)
        if history.has_begun_anew:
            self._begun.add(place)
        key, now_ns = (view.process.name, view.index), seen.world.loop.now_ns
        looked_ns, count, known = self._judged.get(key, (-_LOOK_NS, -1, frozenset()))
        if now_ns - looked_ns < _LOOK_NS or place in self._begun:
            return
        is_at_rest = log.guard.changing is None and not history.is_behind and not history.start_offset
        if not is_at_rest or log.failure is not None or view.process.is_dead:
            return
        known = known if count == log.truncation_count else frozenset()
        names = view.broker.machine.sim_disk.names(log.folder)
        found = (parse_offset_name(name, SNAPSHOT_SUFFIX) for name in names)
        inside = frozenset(
            one for one in found if one is not None and log.log_start_offset <= one <= log.log_end_offset
        )
        for offset in sorted(inside - known):
            self._judge(seen, view, offset)
        self._judged[key] = now_ns, log.truncation_count, inside

    def _judge(self, seen: Observer, view: ReplicaView, offset: int) -> None:
        data = view.broker.machine.sim_disk.read(offset_path(view.log.folder, offset, SNAPSHOT_SUFFIX))
        state = None if data is None else snapshots.decode(data.decode(), offset)
        if state is None:
            return  # unreadable, and the log does not believe it
        told = {
            producer_id: (one.epoch, [tuple(batch[:4]) for batch in one.batches])
            for producer_id, one in state.producers.items()
        }
        wanted = _producers_of(one for one in view.history.batches if one.last_offset < offset)
        if told != wanted:
            story = f"{view.broker.name} has a snapshot at {offset} that tells of {told}, its log holds"
            seen.broken(self, view.index, f"{story} {wanted}")


def _producers_of(batches: Iterable[BatchMark]) -> dict[int, Known]:
    """What is to be known of all producers."""
    found: dict[int, Known] = {}
    for batch in batches:
        if batch.producer_id >= 0:
            epoch, known = found.get(batch.producer_id, (batch.producer_epoch, []))
            known = known if epoch == batch.producer_epoch else []
            found[batch.producer_id] = batch.producer_epoch, [*known, _kept(batch)][-_BATCHES_KNOWN:]
    return found


def _last_of(batches: Sequence[BatchMark], producer_id: int) -> Known:
    """What is to be known of a producer that has written the last of them, or one soon before that."""
    epoch = -1
    known: list[tuple[int, int, int, int]] = []
    for batch in reversed(batches):
        if batch.producer_id == producer_id:
            epoch = batch.producer_epoch if epoch < 0 else epoch
            if batch.producer_epoch != epoch or len(known) == _BATCHES_KNOWN:
                break
            known.append(_kept(batch))
    return epoch, known[::-1]


def _kept(batch: BatchMark) -> tuple[int, int, int, int]:
    return batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset


class SequencesContinue(Property):
    """R92, R93: in a log the batches of a producer follow each other without a gap; its epoch never falls,
    and each epoch begins at 0, the first one too."""

    name = "R92 SequencesContinue"

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        if not appended:
            return
        batches = view.history.batches
        # A leader may have begun where another leader's log did (R83), told nothing of what was before.
        start_offset = max(one.log.log_start_offset for one in seen.replicas[view.index].values())
        for position in range(len(batches) - len(appended), len(batches)):
            one = batches[position]
            if one.producer_id < 0:
                continue
            numbers = range(position - 1, -1, -1)
            last = next((batches[n] for n in numbers if batches[n].producer_id == one.producer_id), None)
            if view.history.start_offset:
                continue
            if last is None and not start_offset and one.base_sequence:
                seen.broken(self, view.index, f"{view.broker.name} has {one}, the first of its producer")
            if last is None or last.last_offset < start_offset:
                continue  # who may have been forgotten goes on anywhere
            is_same = one.producer_epoch == last.producer_epoch
            wanted = (last.last_sequence + 1) % SEQUENCE_MODULUS if is_same else 0
            if one.producer_epoch < last.producer_epoch or one.base_sequence != wanted:
                seen.broken(self, view.index, f"{view.broker.name} has {one} behind {last} of its producer")


class RepetitionsAreKnown(Property):
    """R91, R92: a batch that an idempotent producer sends again is told to be where it is; it is refused
    neither then, nor as the next one of its producer. Who were refused what is stored would send it again
    under another number, or give up what others read."""

    name = "R91 RepetitionsAreKnown"

    def batch_judged(self, seen: Observer, view: ReplicaView, judged: Judged) -> None:
        header, result, known = judged
        if view.survives is not None or view.log.failure is not None:
            return
        sent = header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
        told = f"{view.broker.name} told producer {sent[0]} of {sent[1:]}"
        if result.is_duplicate:
            history, base_offset = view.history, result.base_offset
            if base_offset < max(history.start_offset, view.log.log_start_offset):
                return
            one = next((b for b in reversed(history.batches) if b.base_offset <= base_offset), None)
            stored = None if one is None else (one.producer_id, one.producer_epoch, one.base_sequence)
            if one is None or stored != sent[:3] or one.last_offset != result.end_offset - 1:
                seen.broken(self, view.index, f"{told} that it is at {base_offset}; there is {one}")
            return
        epoch, batches = (-1, ()) if known is None else known
        if result.error_code == ErrorCode.INVALID_PRODUCER_EPOCH:
            if known is None or epoch <= header.producer_epoch:
                seen.broken(self, view.index, f"{told} that it is outdated; known is {epoch}")
        elif result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if known is None:
                is_here = any(batch.producer_id == sent[0] for batch in view.history.batches)
                is_wrong = is_here or bool(view.history.start_offset) or header.base_sequence == 0
            elif epoch != header.producer_epoch:
                is_wrong = header.base_sequence == 0
            else:
                sequences = [batch[:2] for batch in batches]
                follows = (sequences[-1][1] + 1) % SEQUENCE_MODULUS == header.base_sequence
                is_wrong = follows or sent[2:] in sequences
            if is_wrong:
                story = f"{told} that it is out of order; known are"
                seen.broken(self, view.index, f"{story} {known}")


class RecoveryPointsHold(Property):
    """R86, R87: no recovery point on a disk is above the end of what is durable of that log, whether it was
    cut, or another one of its name was there before: behind it the next start would believe anything."""

    name = "R87 RecoveryPointsHold"
    is_about_loss = True

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        node = view.broker.node
        managed = None if node is None else node.log_manager.managed(view.replica.key)
        if managed is None or managed.log is not view.log or view.process.is_dead:
            return
        point = managed.log_dir.recovery_points.get(managed.partition, 0)
        if point > view.log.flushed_offset:
            story = f"{view.broker.name} has stored the recovery point {point}, durable is up to"
            seen.broken(self, view.index, f"{story} {view.log.flushed_offset}")


class HighWatermarksAreKept(Property):
    """F6, R68: after a clean stop a replica knows as high a high watermark as before. With a lower one its
    consumers would wait until the ISR is whole, and a recovery would be told of too little."""

    name = "F6 HighWatermarksAreKept"

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        if prior is None or not view.follows_clean_stop or prior.process is view.process:
            return
        # A power loss of a later process, which had not opened the logs yet, takes what a lying disk has
        # called durable at the stop: the file of the high watermarks, too.
        if seen.world.shape.disks_lie:
            return
        known = view.replica.claimed_high_watermark
        if known < prior.high_watermark:
            story = f"{view.broker.name} stopped cleanly at the high watermark {prior.high_watermark}"
            seen.broken(self, view.index, f"{story} and finds {known}")
