"""Properties of what the controllers decide, record by record as the quorum commits them."""

from holdfast.broker.core.replicas.partition import Role
from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import MetadataRecord, RegisterBrokerRecord
from holdfast.protocol.messages.alter_partition import AlterPartitionPartition, AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerRegistrationRequest
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Change, Property, may_lead
from holdfast.sim.load.clients import partition_at

_RECOVERY = (ElectionReason.LONGEST_LOG, ElectionReason.LAST_KNOWN_LEADER)
#: Causes that may take members away for good (A-10).
_TAKES_AWAY = (
    CauseKind.UNCLEAN_REGISTRATION,
    CauseKind.UNREGISTRATION,
    CauseKind.LOG_DIR_FAILED,
    CauseKind.REASSIGNMENT_ASKED,
    CauseKind.REASSIGNMENT_CANCELLED,
    CauseKind.MIN_ISR_CONFIGURED,
    CauseKind.ELR_SWITCHED_OFF,
)
_ELECTS = (
    CauseKind.SESSION_ENDED,
    CauseKind.CONNECTION_REFUSED,
    CauseKind.FENCING_ASKED,
    CauseKind.SHUTDOWN_COMPLETED,
    CauseKind.CONTROLLED_SHUTDOWN,
    CauseKind.CLEAN_RESTART,
    CauseKind.UNFENCING,
    CauseKind.LOG_DIR_FAILED,
)


class ValidControllerState(Property):
    """The leader is in the ISR, and no member of the ISR is fenced; without ELR the last one may be (F7), and
    stays when ELR is switched on, until the partition changes."""

    name = "I-5 ValidControllerState"

    def __init__(self) -> None:
        #: {partition: as it was when it was last seen with a fenced member, without ELR}
        self._kept: dict[int, PartitionRegistration] = {}

    def metadata_committed(self, seen: Observer) -> None:
        image = seen.image
        for index, ghost in seen.ghosts.items():
            row = ghost.row
            if row is None:
                continue
            if row.leader is not None and row.leader not in row.isr:
                seen.broken(self, index, f"the leader is not in the ISR: {row}")
            for broker_id in row.isr:
                registration = image.brokers.get(broker_id)
                if registration is not None and not registration.is_fenced:
                    continue
                if row.leader is None and not image.elr_enabled:
                    self._kept[index] = row
                elif registration is None or row.leader is not None or self._kept.get(index) is not row:
                    seen.broken(self, index, f"broker {broker_id} is fenced, the ISR is {row.isr}")


class ValidIsrElr(Property):
    """ISR and ELR are parts of the replicas, apart from each other, and the ELR is empty from min ISR on."""

    name = "I-6 ValidIsrElr"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        row = change.after
        replicas, isr, elr, known = map(set, (row.replicas, row.isr, row.elr, row.last_known_elr))
        is_apart = not isr & elr and not known & (isr | elr)
        if not isr | elr | known <= replicas or not is_apart or (len(isr) >= row.min_isr and elr):
            seen.broken(self, index, str(row))


class MinIsrRecoveryQuorum(Property):
    """When no replica is complete, those that were are known: at least min ISR. Not asserted while one
    may be missing by right: after a reassignment, an unclean election, another min ISR, with the feature off
    before (D14), or when fewer brokers than min ISR were there to make the partition on."""

    name = "I-14 MinIsrRecoveryQuorum"

    def __init__(self) -> None:
        #: partitions of which it is not asserted until the ISR reaches min ISR again
        self._is_open: set[int] = set()
        self._known: set[int] = set()

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        row, cause = change.after, change.decision.cause.kind
        is_new = index not in self._known
        self._known.add(index)
        if (
            change.is_unclean_election
            or (is_new and len(change.before.isr + change.before.elr) < change.before.min_isr)
            or row.replicas != change.before.replicas
            or row.min_isr != change.before.min_isr
            or cause in (CauseKind.UNREGISTRATION, CauseKind.ELR_SWITCHED_OFF)
            or not change.image.elr_enabled
        ):
            self._is_open.add(index)
        if len(row.isr) >= row.min_isr and change.image.elr_enabled:
            self._is_open.discard(index)
        if not row.isr and not row.elr and len(row.last_known_elr) < row.min_isr:
            if index not in self._is_open:
                seen.broken(self, index, f"no replica is complete and too few are known: {row}")


class IsrGrowth(Property):
    """The ISR grows only by AlterPartition, by an ELR member that leads an empty one, or by recovery."""

    name = "A-3 IsrGrowth"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, after, reason = change.before, change.after, change.decision.reason
        grown = [broker_id for broker_id in after.isr if broker_id not in before.isr]
        if not grown or change.decision.cause.kind is CauseKind.ALTER_PARTITION:
            return
        left = [b for b in before.isr if b not in change.unclean and change.is_active(b)]
        is_alone = after.leader is not None and after.isr == (after.leader,) and not left
        if is_alone and (reason is ElectionReason.ELR or change.is_unclean_election):
            return
        seen.broken(self, index, f"{grown} joined the ISR by {change.decision}: {before} -> {after}")


class ProposalsAreChecked(Property):
    """AlterPartition is granted only to the current leader, with current epochs, for members that are
    unfenced and of the incarnation that the leader saw."""

    name = "A-4 ProposalsAreChecked"

    def proposal_handled(
        self, seen: Observer, request: AlterPartitionRequest, before: MetadataImage, after: MetadataImage
    ) -> None:
        for row in request.partitions:
            place = seen.place(row.topic_id, row.partition_index)
            if place is not None:
                old = before.partition(row.topic_id, row.partition_index)
                new = after.partition(row.topic_id, row.partition_index)
                if old is not None and new is not None and new.partition_epoch > old.partition_epoch:
                    problem = self._problem(request, row, before)
                    if problem is not None:
                        story = f"{problem}: {request.broker_id} asked for {row}, before it was {old}"
                        seen.broken(self, place, story)

    @staticmethod
    def _problem(
        request: AlterPartitionRequest, row: AlterPartitionPartition, image: MetadataImage
    ) -> str | None:
        old = image.partition(row.topic_id, row.partition_index)
        sender = image.brokers.get(request.broker_id)
        assert old is not None
        if old.leader != request.broker_id or row.leader_epoch != old.leader_epoch:
            return "granted to a broker that does not lead"
        if row.partition_epoch != old.partition_epoch:
            return "granted with an old partition epoch"
        if sender is None or sender.broker_epoch != request.broker_epoch:
            return "granted to a former incarnation"
        for member in row.new_isr:
            broker = image.brokers.get(member.broker_id)
            key = PartitionId(row.topic_id, row.partition_index)
            if broker is None or not may_lead(image, member.broker_id, key):
                return f"granted for {member.broker_id}, which may not be in an ISR"
            is_named = member.broker_epoch >= 0 or member.broker_id in old.isr
            if not is_named or member.broker_epoch not in (-1, broker.broker_epoch):
                return f"granted for a former incarnation of {member.broker_id}"
        return None


class RegistrationsAreApart(Property):
    """Broker epochs rise; an id is given away again only when it is fenced, or to the same process, or to one
    with a log dir of the former, which has one process at a time."""

    name = "A-7 RegistrationsAreApart"

    def __init__(self) -> None:
        self._highest = -1

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        if type(record) is not RegisterBrokerRecord:
            return
        if record.broker_epoch <= self._highest:
            seen.broken(self, None, f"{record.broker_id} got epoch {record.broker_epoch}")
        self._highest = record.broker_epoch
        old = before.brokers.get(record.broker_id)
        is_same = old is not None and old.incarnation_id == record.incarnation_id
        if old is None or old.is_fenced or is_same:
            return
        if not set(old.log_dirs) & set(record.log_dirs):
            seen.broken(self, None, f"broker {record.broker_id} registers while {old} is unfenced")


class CleanIsProven(Property):
    """R32, R33: a new incarnation counts as clean only when it names the very epoch of the registration
    before it, and has all log dirs of that. One that cannot prove that is not believed. R31: a
    process that registers again, since it has not heard the answer, is what it was, and keeps its epoch."""

    name = "R32 CleanIsProven"

    def registration_handled(
        self, seen: Observer, request: BrokerRegistrationRequest, before: MetadataImage, after: MetadataImage
    ) -> None:
        old, new = before.brokers.get(request.broker_id), after.brokers.get(request.broker_id)
        if old is None or new is None or new is old:
            return
        if new.incarnation_id == old.incarnation_id:
            if new.broker_epoch != old.broker_epoch:
                seen.broken(self, None, f"{old} got another epoch as the same process: {new}")
            return
        has_proof = request.previous_broker_epoch == old.broker_epoch
        if new.clean_shutdown and not (has_proof and set(old.log_dirs) <= set(request.log_dirs)):
            seen.broken(self, None, f"{request} counts as clean after {old}")


class ElrUpdate(Property):
    """The ELR after a change is what the KIP says of the sets before it."""

    name = "A-9 ElrUpdate"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, after = change.before, change.after
        is_on = change.image.elr_enabled
        if not is_on or len(after.isr) >= after.min_isr or change.is_unclean_election:
            expected: list[int] = []
        else:
            gone = set(before.elr) | set(before.isr)
            expected = sorted((gone & set(after.replicas)) - set(after.isr) - set(change.unclean))
            if change.decision.cause.kind is CauseKind.UNREGISTRATION:
                expected = [b for b in expected if b != change.decision.cause.broker_id]
        if list(after.elr) != expected:
            seen.broken(self, index, f"the ELR should be {expected}: {before} -> {after}, {change.decision}")


class CandidatesKept(Property):
    """Below min ISR no complete replica is forgotten, but by an unclean stop or by operators."""

    name = "A-10 CandidatesKept"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, after = change.before, change.after
        if not change.image.elr_enabled or change.is_unclean_election:
            return
        if change.decision.cause.kind in _TAKES_AWAY or before.replicas != after.replicas:
            return
        was, now = len(before.isr) + len(before.elr), len(after.isr) + len(after.elr)
        if now < after.min_isr and now < was:
            seen.broken(self, index, f"{was} candidates became {now}: {before} -> {after}")


class EpochsOfARow(Property):
    """Each record grows the partition epoch by one; the leader epoch grows by one with each decision about
    the leader, and by nothing else."""

    name = "A-11 EpochsOfARow"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, after = change.before, change.after
        lost_replica = not set(before.replicas) <= set(after.replicas)
        is_decided = after.leader != before.leader or lost_replica
        grown = after.leader_epoch - before.leader_epoch
        is_elected_again = after.leader is not None and after.leader not in before.isr
        if (
            after.partition_epoch != before.partition_epoch + 1
            or grown not in (0, 1)
            or (is_decided and not grown)
            or (grown and not is_decided and not is_elected_again)
        ):
            seen.broken(self, index, f"{after} follows {before}")


class LastKnownElrGains(Property):
    """The last known ELR only gains, until the ISR reaches min ISR."""

    name = "A-12 LastKnownElrGains"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, after = change.before, change.after
        if not change.image.elr_enabled:
            return
        if len(after.isr) >= after.min_isr:
            if after.last_known_elr:
                seen.broken(self, index, f"the last known ELR outlives min ISR: {after}")
            return
        if change.is_unclean_election or change.decision.cause.kind is CauseKind.UNREGISTRATION:
            return  # R10: forgotten, or kept as seats
        kept = {*after.last_known_elr, *after.isr}
        gone = [b for b in before.last_known_elr if b in after.replicas and b not in kept]
        lost = [b for b in change.unclean if b in (*before.isr, *before.elr) and b in after.replicas]
        if gone or not set(lost) <= kept:
            story = f"{gone or lost} not in the last known ELR: {before} -> {after}"
            seen.broken(self, index, story)


class ElectionOrder(Property):
    """ISR before ELR before any strategy; no replica that is fenced or leaving, on no path; and there is a
    leader when a replica may lead."""

    name = "A-13 ElectionOrder"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        problem = self._problem(change)
        if problem is not None:
            story = f"{problem}: {change.before} -> {change.after}, {change.decision}"
            seen.broken(self, index, story)

    @staticmethod
    def _problem(change: Change) -> str | None:
        before, after, decision = change.before, change.after, change.decision
        leader, kind = after.leader, decision.cause.kind
        elr = [b for b in before.elr if b not in change.unclean and b in after.replicas]
        if leader is None:
            candidates = [b for b in after.isr or after.elr if change.is_active(b)]
            return f"{candidates} may lead" if kind in _ELECTS and candidates else None
        if leader == before.leader and after.leader_epoch == before.leader_epoch:
            return None
        if not change.is_active(leader):
            return f"{leader} is not active"
        isr = [
            b for b in before.isr if change.is_active(b) and b in after.replicas and b not in change.unclean
        ]
        is_of_isr = leader in before.isr and leader not in change.unclean
        if isr and not is_of_isr and kind is not CauseKind.ALTER_PARTITION:
            return f"{isr} of the ISR may lead"
        if decision.reason is ElectionReason.ISR and leader not in (*before.isr, *after.isr):
            return f"{leader} was in no ISR"
        if decision.reason is ElectionReason.ELR and leader not in elr and not is_of_isr:
            return f"{leader} was not in the ELR"
        if change.is_unclean_election:
            complete = [b for b in (*isr, *elr) if change.is_active(b)]
            if complete:
                return f"elected uncleanly while {complete} may lead"
        return None


class LastKnownLeaderByRule(Property):
    """The last known leader leads again only when ISR and ELR are empty, and only if it was the last; with
    the recovery manager only the longest log, or an operator's choice, leads."""

    name = "A-13 LastKnownLeader"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, reason = change.before, change.decision.reason
        compares_logs = seen.world.shape.recovery_manager and change.image.elr_enabled
        if reason is ElectionReason.LAST_KNOWN_LEADER:
            cause = change.decision.cause
            gone = (cause.broker_id,) if cause.kind is CauseKind.UNREGISTRATION else change.unclean
            isr = [b for b in before.isr if b not in gone]
            elr = [b for b in before.elr if b not in gone]
            known = before.last_known_leader
            if compares_logs or isr or elr or change.after.leader != known:
                seen.broken(self, index, f"{before} -> {change.after}, {change.decision}")
        if reason is ElectionReason.LONGEST_LOG and not compares_logs:
            seen.broken(self, index, f"logs were compared: {before} -> {change.after}")


class BestLogWins(Property):
    """A-14 and N-3: who is elected by its log has the best one of those that were compared; none of the last
    known ELR was left out; and each still had the log that it told of."""

    name = "A-14 BestLogWins"

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        if change.decision.reason is not ElectionReason.LONGEST_LOG:
            return
        logs = {log.replica: (log.last_epoch, log.end_offset) for log in change.decision.cause.logs}
        leader = change.after.leader
        missing = [b for b in change.before.last_known_elr if b not in logs]
        topic = partition_at(index).topic
        # Beyond the budget operators may ask for anybody, of one partition or as a strategy.
        unclean = seen.world.shape.over_budget or seen.image.topic_config(
            topic, "unclean.leader.election.enable"
        )
        known = max((logs[b] for b in change.before.last_known_elr if b in logs), default=(-1, 0))
        best = [max(logs.values())]
        if known[1] and len(change.before.last_known_elr) >= change.before.min_isr:
            # a later epoch from outside the last known ELR proves nothing; Aggressive takes it all the same
            proved = max(end for end in logs.values() if end[0] == known[0])
            best = [proved, *best] if unclean else [proved]
        if leader is None or logs.get(leader) not in best:
            seen.broken(self, index, f"{leader} is elected of {logs}")
        if missing and not unclean:
            seen.broken(self, index, f"{missing} of {change.before} were not compared: {logs}")
        for broker_id, told in logs.items():
            view = seen.live_replica(index, broker_id)
            if told[1] < 0 or view is None or view.role is Role.LEADER or view.registration is None:
                continue
            # Without a leader a log does not grow either: who feeds it leads no more.
            end = view.log.last_epoch, view.end_offset
            if end != told and not view.history.cut:
                if view.registration.leader_epoch <= change.before.leader_epoch:
                    seen.broken(self, index, f"{broker_id} told of {told}, its log ends at {end} (N-3)")


class ReassignmentKeepsData(Property):
    """A reassignment ends only with an ISR of min ISR that holds all that were added; who is no replica is
    no candidate."""

    name = "A-17 ReassignmentKeepsData"
    judges_rows = True

    def partition_changed(self, seen: Observer, index: int, change: Change) -> None:
        before, after = change.before, change.after
        left = set(before.replicas) - set(after.replicas)
        if left & {*after.isr, *after.elr, *after.last_known_elr}:
            seen.broken(self, index, f"{left} are no replicas: {after}")
        if before.original_replicas is None or after.original_replicas is not None:
            return
        # One that is asked to go where it came from ends at once, and no replica is added.
        asked = (CauseKind.REASSIGNMENT_CANCELLED, CauseKind.REASSIGNMENT_ASKED)
        is_called_off = change.decision.cause.kind in asked
        missing = [
            b for b in before.adding_replicas if b not in after.isr and not (is_called_off and b in left)
        ]
        had = left & {*before.isr, *before.elr, *before.last_known_elr}
        if missing or (had and len(after.isr) < after.min_isr):
            seen.broken(self, index, f"ended without {missing}: {before} -> {after}")
