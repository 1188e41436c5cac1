"""How brokers leave: fencing (R20), controlled shutdown (R22), unregistration (R28), replacement (D14).

Owns what is left to do of brokers with many partitions: each event does one slice, and the next one, which
follows at once, goes on. The same for the elections of a broker that returns. `replication_control` decides
what that does to a partition, `cluster_control` when a broker leaves.
"""

from dataclasses import dataclass

from holdfast.controller.core.brokers.session import Session
from holdfast.controller.core.decisions import Cause, CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.operators.operations import DONE, OperationResult
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.controller.core.partitions.replication_control import Departure, ReplicationControl
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.stats import Level

#: Partitions that one event takes from a leaving broker or elects for a returning one; the next event, which
#: follows at once, goes on. A change costs 0.1 ms, and no request is answered meanwhile.
SLICE_RECORDS_MAX = 75


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """What is to be done with the other partitions of a broker that leaves or returns."""

    #: -1 for a broker that is not registered
    broker_epoch: int
    #: UNFENCING: elect leaders; CONTROLLED_SHUTDOWN: take it out; others: take it out, then fence it
    kind: CauseKind
    detail: str = ""
    level: Level = Level.INFO
    #: UNCLEAN: a process that wants to register waits until its log counts nowhere
    departure: Departure = Departure.CLEAN


class Departures:
    """Of all brokers, and the elections when one returns."""

    def __init__(self, replication: ReplicationControl, sessions: dict[int, Session]) -> None:
        """`sessions`: by broker id, as `cluster_control` keeps them."""
        self._replication = replication
        self._sessions = sessions
        #: {broker id: the rest of a pass over its partitions}
        self._unfinished: dict[int, _Unfinished] = {}
        #: {broker id: what the pass is for, and the partitions that are left}
        self._rests: dict[int, tuple[Departure | None, PartitionPass]] = {}

    def take_over(self, draft: Draft) -> None:
        """Continue the controlled shutdowns of which the previous controller has written only the first part
        (K21).

        Nothing else would take the leaderships from such a broker (R22). A fencing that was cut needs
        nothing: its own record is the last one, and the broker's new session ends too.
        """
        for broker in draft.image.sorted_brokers():
            if broker.is_fenced or not broker.in_controlled_shutdown:
                continue
            begin_offset = draft.next_offset
            kind = CauseKind.CONTROLLED_SHUTDOWN
            is_done = self._take_out(draft, broker.broker_id, Departure.CLEAN, kind)
            self._note_rest(broker, kind, is_done)
            if draft.next_offset > begin_offset:
                self._sessions[broker.broker_id].shutdown_offset = draft.next_offset

    def stop(self) -> None:
        """Drop all soft state (K23)."""
        self._unfinished = {}
        self._rests = {}

    @property
    def is_busy(self) -> bool:
        """Some broker leaves or returns, and not all of its partitions were visited yet."""
        return bool(self._unfinished)

    def is_under_way(self, broker_id: int) -> bool:
        """This broker leaves or returns, and not all of its partitions were visited yet."""
        return broker_id in self._unfinished

    # --- reasons to leave --------------------------------------------------------------------------------

    def fence(
        self,
        draft: Draft,
        broker_id: int,
        kind: CauseKind,
        detail: str = "",
        level: Level = Level.WARNING,
    ) -> None:
        """Take an unfenced broker out of all ISRs, then fence it (R20); in slices when it has many."""
        broker = draft.image.brokers[broker_id]
        assert not broker.is_fenced
        cause = Cause(kind, broker_id)
        if not self._take_out(draft, broker_id, Departure.CLEAN, kind):
            self._unfinished[broker_id] = _Unfinished(broker.broker_epoch, kind, detail, level)
            return
        self._unfinished.pop(broker_id, None)
        draft.write(FenceBrokerRecord(broker_id, broker.broker_epoch))
        for session in self._sessions.values():  # who still reports a leader may be all of the ISR now
            session.must_replace = session.must_replace or bool(session.unreachable)
        story = f"{cause}, {detail}" if detail else str(cause)
        draft.note(f"broker {broker_id} fenced, epoch {broker.broker_epoch}: {story}", level)

    def begin_shutdown(self, draft: Draft, broker: BrokerRegistration) -> None:
        """A broker that leads something wants to stop: others are to lead first (R22)."""
        draft.write(change_record(broker, in_controlled_shutdown=True))
        draft.note(f"broker {broker.broker_id} began a controlled shutdown, epoch {broker.broker_epoch}")
        self._take_out_for_shutdown(draft, broker)

    def _take_out_for_shutdown(self, draft: Draft, broker: BrokerRegistration) -> None:
        kind = CauseKind.CONTROLLED_SHUTDOWN
        is_done = self._take_out(draft, broker.broker_id, Departure.CLEAN, kind)
        self._sessions[broker.broker_id].shutdown_offset = draft.next_offset
        self._note_rest(broker, kind, is_done)

    def give_way(self, draft: Draft, broker_id: int, departure: Departure, kind: CauseKind) -> bool:
        """Take out the process that another one replaces, registered or not; False while that is not done."""
        is_done = self._take_out(draft, broker_id, departure, kind)
        if not is_done:
            epoch = _epoch_of(draft.image.brokers.get(broker_id))
            self._unfinished[broker_id] = _Unfinished(epoch, kind, departure=departure)
        return is_done

    def unregister(self, draft: Draft, broker_id: int) -> OperationResult:
        """Remove a broker permanently (R28, B10). Errors: BROKER_ID_NOT_REGISTERED."""
        broker = draft.image.brokers.get(broker_id)
        if broker is None:
            return OperationResult(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
        cause = Cause(CauseKind.UNREGISTRATION, broker_id)
        self._replication.take_out(draft, broker_id, Departure.UNREGISTERED, cause)
        draft.write(UnregisterBrokerRecord(broker_id, broker.broker_epoch))
        draft.note(f"broker {broker_id} unregistered")
        self._sessions.pop(broker_id, None)
        return DONE

    # --- a broker that returns -----------------------------------------------------------------------------

    def elect_leaderless(self, draft: Draft, broker: BrokerRegistration) -> None:
        """The broker is back: it leads where there is no leader and it may (R21)."""
        kind, rest = CauseKind.UNFENCING, self._rest(broker.broker_id, None)
        is_done = self._replication.elect_leaderless(
            draft, Cause(kind, broker.broker_id), rest=rest, visits_max=SLICE_RECORDS_MAX
        )
        if is_done:
            del self._rests[broker.broker_id]
        self._note_rest(broker, kind, is_done)

    # --- in slices -----------------------------------------------------------------------------------------

    def go_on(self, draft: Draft) -> None:
        """The next slice of one broker, unless that is another process since, or in another state."""
        for broker_id, rest in sorted(self._unfinished.items()):
            broker = draft.image.brokers.get(broker_id)
            if rest.departure is Departure.UNCLEAN and _epoch_of(broker) == rest.broker_epoch:
                if self._take_out(draft, broker_id, rest.departure, rest.kind):
                    del self._unfinished[broker_id]
                    if broker is not None and not broker.is_fenced:  # or it is elected before it asks again
                        self.fence(draft, broker_id, rest.kind)
                return None
            if broker is None or broker.is_fenced or broker.broker_epoch != rest.broker_epoch:
                del self._unfinished[broker_id]
                self._rests.pop(broker_id, None)
            elif rest.kind is CauseKind.UNFENCING:
                return self.elect_leaderless(draft, broker)
            elif rest.kind is CauseKind.CONTROLLED_SHUTDOWN:
                return self._take_out_for_shutdown(draft, broker)
            else:
                return self.fence(draft, broker_id, rest.kind, rest.detail, rest.level)

    def _take_out(self, draft: Draft, broker_id: int, departure: Departure, kind: CauseKind) -> bool:
        """One slice; True when it was the last."""
        rest = self._rest(broker_id, departure)
        is_done = self._replication.take_out(
            draft, broker_id, departure, Cause(kind, broker_id), rest=rest, visits_max=SLICE_RECORDS_MAX
        )
        if is_done:
            del self._rests[broker_id]
        return is_done

    def _rest(self, broker_id: int, departure: Departure | None) -> PartitionPass:
        """Of the broker's departure, or its elections: None; one that was for something else is over."""
        known = self._rests.get(broker_id)
        if known is None or known[0] is not departure:
            known = self._rests[broker_id] = departure, PartitionPass()
        return known[1]

    def _note_rest(self, broker: BrokerRegistration, kind: CauseKind, is_done: bool) -> None:
        if is_done:
            self._unfinished.pop(broker.broker_id, None)
        else:
            self._unfinished[broker.broker_id] = _Unfinished(broker.broker_epoch, kind)


def change_record(broker: BrokerRegistration, in_controlled_shutdown: bool) -> BrokerRegistrationChangeRecord:
    """The registration as it is, but for that."""
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        in_controlled_shutdown=in_controlled_shutdown,
        listeners=broker.listeners,
        rack=broker.rack,
        features=broker.features,
        log_dirs=broker.log_dirs,
    )


def _epoch_of(broker: BrokerRegistration | None) -> int:
    return -1 if broker is None else broker.broker_epoch
