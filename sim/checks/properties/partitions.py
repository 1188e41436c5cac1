"""Properties of what the controllers decide, record by record as the quorum commits them."""

from holdfast.broker.core.replicas.partition import Role
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, RegisterBrokerRecord
from holdfast.protocol.messages.alter_partition import AlterPartitionPartition, AlterPartitionRequest
from holdfast.protocol.messages.broker_registration import BrokerRegistrationRequest
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Change, Property, may_lead
from holdfast.sim.load.clients import partition_at


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
    process that registers again, since it has not heard the answer, is what it was, and keeps its epoch;
    unless it was let go."""

    name = "R32 CleanIsProven"

    def registration_handled(
        self, seen: Observer, request: BrokerRegistrationRequest, before: MetadataImage, after: MetadataImage
    ) -> None:
        old, new = before.brokers.get(request.broker_id), after.brokers.get(request.broker_id)
        if old is None or new is None or new is old:
            return
        if new.incarnation_id == old.incarnation_id:
            if new.broker_epoch != old.broker_epoch and not (old.is_fenced and old.in_controlled_shutdown):
                seen.broken(self, None, f"{old} got another epoch as the same process: {new}")
            return
        has_proof = request.previous_broker_epoch == old.broker_epoch
        if new.clean_shutdown and not (has_proof and set(old.log_dirs) <= set(request.log_dirs)):
            seen.broken(self, None, f"{request} counts as clean after {old}")


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
