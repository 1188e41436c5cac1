"""Refinement: each step of a replica is one that the model's replica may take, by the model's own rules.

Owns the guards of registrations, roles, appends, high watermarks, truncations and proposals as
`sim.model.rules` has them, asked with the numbers of the real replica. docs/model.md says what is left open.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from holdfast.broker.core.replicas.leadership import Leadership, Proposal
from holdfast.broker.core.replicas.partition import Role
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Change, Property, ReplicaView
from holdfast.sim.checks.refinement.abstraction import BROKERS_MAX, mask
from holdfast.sim.model.rules import Rules
from holdfast.sim.model.state import EPOCH_SHIFT, ModelBroker, ModelReplica

#: what both know of a registration; an AlterPartition answer does not carry the rest
_Known = tuple[int | None, int, tuple[int, ...], int]
_mask = lru_cache(maxsize=256)(mask)


class ReplicasRefineModel(Property):
    """Every step of a replica is one, or a few, of the model."""

    name = "Refinement ReplicasRefineModel"

    def __init__(self) -> None:
        self._rules = Rules()
        #: {partition: {partition epoch: what was committed}}
        self._rows: dict[int, dict[int, _Known]] = {}
        #: {(partition, leader epoch): the highest high watermark that its leader had}
        self._peaks: dict[tuple[int, int], int] = {}
        #: {(partition, broker): under what registration it has begun what waits for its log}
        self._late: dict[tuple[int, int], PartitionRegistration] = {}
        #: of which everything is new
        self._loaded: ReplicaView | None = None
        self._replica = ModelReplica(0, 0, BROKERS_MAX)
        self._broker = ModelBroker(0, BROKERS_MAX, 0)

    # --- registrations ---------------------------------------------------------------------------------

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        self._rows.setdefault(index, {})[change.after.partition_epoch] = _known(change.after)

    def metadata_committed(self, seen: Observer) -> None:
        for index, ghost in seen.ghosts.items():
            if ghost.row is not None and index not in self._rows:
                self._rows[index] = {ghost.row.partition_epoch: _known(ghost.row)}

    def _took(self, seen: Observer, view: ReplicaView, before: Before) -> str | None:
        """A registration is a committed one, and newer; the role follows from it (R54, N-5)."""
        row, old = view.registration, before.registration
        if row is None:
            return None if view.role is Role.NONE else f"{view.role.value} without a registration"
        committed = self._rows.get(view.index, {}).get(row.partition_epoch)
        if committed is not None and committed != _known(row):
            return f"takes {row}, committed at this partition epoch was {committed}"
        truth = seen.ghosts[view.index].row
        if committed is None and truth is not None and row.partition_epoch > truth.partition_epoch:
            return f"takes {row}, committed is {truth}"
        if view.role is not (Role.LEADER if row.leader == view.broker.node_id else Role.FOLLOWER):
            return f"is {view.role.value} by {row}"
        if old is None:
            return None
        if row.partition_epoch < old.partition_epoch:
            return f"goes back from {old} to {row}"
        if row.leader_epoch == old.leader_epoch and view.leadership is not before.leadership:
            return f"begins to lead once more in epoch {row.leader_epoch}"
        return None

    # --- steps -----------------------------------------------------------------------------------------

    def replica_loaded(self, seen: Observer, view: ReplicaView, prior: ReplicaView | None) -> None:
        self._loaded = view
        if view.high_watermark > seen.ghosts[view.index].high_watermark:
            story = f"{view.broker.name} begins at high watermark {view.high_watermark}, never reached before"
            seen.broken(self, view.index, story)

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        problem = None
        if view.registration is not before.registration:
            problem = self._took(seen, view, before)
        leadership, late = view.leadership, self._late_row(view, before)
        if self._loaded is view:
            self._loaded = None
        elif problem is None:
            if leadership is None:
                problem = self._followed(seen, view, before, appended, late)
            elif leadership is before.leadership:
                problem = self._led(seen, view, leadership, before, appended)
            else:
                problem = self._began(view, leadership, before, appended)
        if leadership is not None:
            key = view.index, leadership.leader_epoch
            if view.high_watermark > self._peaks.get(key, -1):
                self._peaks[key] = view.high_watermark
        if problem is not None:
            state = f"high watermark {before.high_watermark} -> {view.high_watermark}, end "
            state += f"{before.end_offset} -> {view.end_offset}, {before.role.value} -> {view.role.value}"
            story = f"{view.broker.name} {problem}; {state}, {before.registration} -> {view.registration}"
            seen.broken(self, view.index, story)

    # --- leaders ---------------------------------------------------------------------------------------

    def _began(
        self, view: ReplicaView, leadership: Leadership, before: Before, appended: Sequence[BatchMark]
    ) -> str | None:
        """It takes the lead with the log and the high watermark that it has (F6)."""
        if view.high_watermark > before.high_watermark and len(leadership.maximal_isr) > 1:
            return "begins to lead with a high watermark that no leader told it"
        if leadership.proposal is None and leadership.maximal_isr != _row(view).isr:
            return f"begins to lead and waits for {leadership.maximal_isr}"
        return None

    def _led(
        self,
        seen: Observer,
        view: ReplicaView,
        leadership: Leadership,
        before: Before,
        appended: Sequence[BatchMark],
    ) -> str | None:
        if appended:
            problem = self._appended_own(view, leadership, appended)
            if problem is not None:
                return problem
        own, started = leadership.leader_epoch, leadership.start_offset
        for batch in view.history.cut:
            # One begun as a follower may end before the log takes the epoch: the model has cut before.
            if batch.leader_epoch == own or (started is not None and batch.base_offset < started):
                return f"cuts its log while it leads: {batch}"
        if view.high_watermark != before.high_watermark:
            problem = self._advanced(seen, view, leadership, before)
            if problem is not None:
                return problem
        if view.proposal is not before.proposal or view.registration is not before.registration:
            return self._proposed(view, leadership, before)
        return None

    @staticmethod
    def _appended_own(view: ReplicaView, leadership: Leadership, appended: Sequence[BatchMark]) -> str | None:
        """In its own epoch, which begins where its log ended (A-15). What it had begun to copy as a follower
        may come until its log has taken the epoch: the model has appended it before."""
        epoch, start_offset = leadership.leader_epoch, leadership.start_offset
        for batch in appended:
            is_copied = start_offset is None or batch.base_offset < start_offset
            if is_copied and batch.leader_epoch >= epoch:
                return f"appends {batch}, its epoch {epoch} begins at {start_offset}"
            if not is_copied and batch.leader_epoch != epoch:
                return f"leads epoch {epoch} and appends {batch}"
        batches = view.history.batches
        at = len(batches) - len(appended)
        while at < len(batches) and batches[at].leader_epoch != epoch:
            at += 1
        is_first = at < len(batches) and (not at or batches[at - 1].leader_epoch != epoch)
        if is_first and start_offset != batches[at].base_offset and not view.history.start_offset:
            return f"began epoch {epoch} at {start_offset}, appends {batches[at]} first"
        return None

    def _advanced(
        self, seen: Observer, view: ReplicaView, leadership: Leadership, before: Before
    ) -> str | None:
        """Up to what the model's leader would reach (F1, F3, A-2); it may be behind (KAFKA-19996)."""
        if view.high_watermark < before.high_watermark:
            return "leads and goes back"
        reached = -1
        for row in (view.registration, before.registration):
            if row is not None:
                replica = self._mapped(view, leadership, row, before.high_watermark)
                # switched to every write it may have risen before, in this very step
                end = self._rules.position(
                    view.end_offset, view.replica.log.flushed_offset, seen.counts_durable(view)
                )
                reached = max(reached, self._rules.high_watermark(replica, end))
                if reached >= view.high_watermark or row is before.registration:
                    break
        if view.high_watermark > reached:
            return f"goes to {view.high_watermark}, the model to {reached}"
        return None

    def _proposed(self, view: ReplicaView, leadership: Leadership, before: Before) -> str | None:
        """One proposal at a time, for the present state; a shrink changes nothing until it is confirmed."""
        row, proposal = _row(view), leadership.proposal
        replica = self._mapped(view, leadership, row, view.high_watermark)
        maximal = replica.isr
        if proposal is not None:
            numbers = (_mask(proposal.isr), (), proposal.leader_epoch, proposal.partition_epoch)
            maximal = self._rules.after_proposal(replica, numbers)[1]
        if replica.maximal_isr != maximal:
            return f"waits for {leadership.maximal_isr} with {proposal}"
        if proposal is None or proposal is before.proposal:
            return None
        return self._guarded(view, row, replica, proposal)

    def _guarded(
        self,
        view: ReplicaView,
        row: PartitionRegistration,
        replica: ModelReplica,
        proposal: Proposal,
    ) -> str | None:
        """As `expand` and `shrink` of the model."""
        isr = _mask(proposal.isr)
        if (proposal.leader_epoch, proposal.partition_epoch) != (row.leader_epoch, row.partition_epoch):
            return f"asks for {proposal}"
        if isr & ~_mask(row.replicas) or not isr >> view.broker.node_id & 1:
            return f"asks for {proposal}"
        joining, leaving = isr & ~replica.isr, replica.isr & ~isr
        if bool(joining) == bool(leaving):
            return f"asks for {proposal}, which is neither more nor less"
        broker = self._broker
        broker.acceptable = 0
        for broker_id, epoch in view.replica._brokers.acceptable.items():
            broker.acceptable |= 1 << broker_id
            broker.known_epochs[broker_id] = epoch
        for broker_id in proposal.isr:
            if joining >> broker_id & 1 and not self._rules.may_join(replica, broker, broker_id):
                return f"asks for {broker_id}, which is at {replica.positions[broker_id]}"
        return None

    def _mapped(
        self, view: ReplicaView, leadership: Leadership, row: PartitionRegistration, high_watermark: int
    ) -> ModelReplica:
        """The leader as the model has it, as far as its rules look."""
        replica = self._replica
        replica.broker = view.broker.node_id
        replica.high_watermark = high_watermark
        replica.start_offset = 0 if leadership.start_offset is None else leadership.start_offset
        replica.isr, replica.min_isr = _mask(row.isr), row.min_isr
        replica.maximal_isr = _mask(leadership.maximal_isr)
        positions, epochs = replica.positions, replica.position_epochs
        for broker_id, progress in leadership.progress.items():
            positions[broker_id] = progress.position
            epochs[broker_id] = progress.broker_epoch
        return replica

    # --- followers -------------------------------------------------------------------------------------

    def _followed(
        self,
        seen: Observer,
        view: ReplicaView,
        before: Before,
        appended: Sequence[BatchMark],
        late: PartitionRegistration | None,
    ) -> str | None:
        cut = view.history.cut
        rows = [row for row in (before.registration, view.registration) if row is not None]
        if late is not None:
            rows.insert(0, late)
        if appended or cut:
            if view.history.start_offset or view.history.has_begun_anew:
                return None  # behind what the leader has deleted
            told = [self._copied(seen, view, row, before, appended) for row in _by_epoch(rows)]
            if told and None not in told:
                return told[0]
            if not told:
                return "changes its log without a role"
        if view.high_watermark > before.high_watermark:
            peak = max((self._peaks.get((view.index, row.leader_epoch), 0) for row in rows), default=0)
            if view.high_watermark > min(peak, max(view.end_offset, before.end_offset)):
                return f"believes in high watermark {view.high_watermark}, its leader reached {peak}"
            return self._matched(seen, view)
        return None

    def _late_row(self, view: ReplicaView, before: Before) -> PartitionRegistration | None:
        """The registration under which something was begun that waits for the log, for a roll before all: the
        model has done it by then. It may have led since, and lead no more."""
        place, node = (view.index, view.broker.node_id), view.broker.node
        late = self._late.pop(place, None)
        if late is None and view.registration is not before.registration:
            late = before.registration
        if late is not None and node is not None and view.replica.key in node.server._logs._waiting:
            self._late[place] = late
        return late

    @staticmethod
    def _matched(seen: Observer, view: ReplicaView) -> str | None:
        """Its last batch below the high watermark is its leader's: no diverging answer tells of one (R82)."""
        row, own = view.registration, view.history.batches
        at = bisect_left(own, (view.high_watermark,)) - 1
        leader = None if row is None or row.leader is None else seen.replicas[view.index].get(row.leader)
        if at < 0 or row is None or leader is None or leader.leadership is None:
            return None
        if leader.leadership.leader_epoch != row.leader_epoch or leader.history.start_offset:
            return None
        theirs = leader.history.batches
        place = bisect_left(theirs, (own[at].base_offset,))
        if theirs[place : place + 1] != [own[at]]:
            return f"believes that {own[at]} is committed, its leader has {theirs[place : place + 1]}"
        return None

    def _copied(
        self,
        seen: Observer,
        view: ReplicaView,
        row: PartitionRegistration,
        before: Before,
        appended: Sequence[BatchMark],
    ) -> str | None:
        """It was cut where the model would, and copies what its leader has behind what both have (R80)."""
        if row.leader is None or row.leader == view.broker.node_id:
            # a batch that waited, or a truncation that was under way, may end after the epoch
            return None if before.role is Role.LEADER or view.history.cut else "follows no leader and appends"
        leader = seen.replicas[view.index].get(row.leader)
        if leader is None or leader.leadership is None or leader.history.start_offset:
            return None
        if leader.leadership.leader_epoch != row.leader_epoch:
            # it does not lead any more; no replica has what it had, and nothing later came from it
            is_of_its_time = all(batch.leader_epoch <= row.leader_epoch for batch in appended)
            return None if is_of_its_time else "appends what a later leader has written"
        theirs, own = leader.history.batches, view.history.batches
        if view.history.cut:
            problem = self._cut(view, theirs, own[: len(own) - len(appended)])
            if problem is not None:
                return problem
        if not appended:
            return None
        at = bisect_left(theirs, (appended[0].base_offset,))
        if theirs[at : at + len(appended)] != list(appended):
            return f"appends {appended[0]}, its leader {leader.broker.name} has {theirs[at : at + 1]}"
        position = len(own) - len(appended)
        if position and (not at or theirs[at - 1] != own[position - 1]):
            return f"appends {appended[0]} behind {own[position - 1]}, which its leader has not"
        return None

    def _cut(self, view: ReplicaView, theirs: Sequence[BatchMark], kept: Sequence[BatchMark]) -> str | None:
        """Where the model cuts after the answer of the model's leader (A-16)."""
        log = _entries([*kept, *reversed(view.history.cut)])
        end = len(_entries(kept))
        answer = self._rules.divergence(_entries(theirs), len(log), log[-1] >> EPOCH_SHIFT)
        if answer is None:
            return f"is cut to {end}, though its leader has all of it"
        expected = self._rules.truncation(log, view.high_watermark, *answer)
        return None if end == expected else f"is cut to {end}, the model to {expected}"


def _row(view: ReplicaView) -> PartitionRegistration:
    assert view.registration is not None, "who leads has one"
    return view.registration


def _known(row: PartitionRegistration) -> _Known:
    return row.leader, row.leader_epoch, row.isr, row.min_isr


def _by_epoch(rows: Sequence[PartitionRegistration]) -> list[PartitionRegistration]:
    """One for each leader epoch, the newest first."""
    return list({row.leader_epoch: row for row in rows}.values())[::-1]


def _entries(batches: Sequence[BatchMark]) -> list[int]:
    """The records as the model has them; what they hold does not matter here."""
    return [
        batch.leader_epoch << EPOCH_SHIFT
        for batch in batches
        for _ in range(batch.base_offset, batch.last_offset + 1)
    ]
