"""What an active controller should make of what it hears from brokers, worked out once more (R22-R27, R30).

Owns a second opinion: sentences about where the controller differs. Keeps what a session is, and asks the
controller nothing but for its image before and after each event.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.controller.core.brokers import cluster_control
from holdfast.controller.core.brokers.cluster_control import CHECK_PERIODS_PER_SESSION
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.events import ConnectionClosed, Probe, Probed, RequestReceived, Respond, Tick
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.broker import BrokerRegistration
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
)


@dataclass(slots=True)
class _Session:
    """Of one registration."""

    broker_epoch: int
    #: of its last heartbeat, or of the beginning of this controller
    heard_ms: int
    #: how long the controller may have stood still since: heartbeats wait in its sockets then (D7)
    stalled_ms: int = 0
    #: of its last heartbeat; None when there was none, or when the connection was lost since
    connection_id: int | None = None
    #: what it has applied, as it last said
    told_offset: int = -1
    #: the end of what the others must have applied before it may go; None when that is not known any more
    leaves_from: int | None = None
    #: it is being fenced in slices, rightly: what it says meanwhile comes too late
    is_ending: bool = False
    #: it gives up its seats in several events, each of which the others must have applied
    leaves_in_slices: bool = False


class BrokerSessions:
    """Of one controller process."""

    def __init__(self, core: QuorumController) -> None:
        self._core = core
        self._timeout_ms = core.config.session_timeout_ms
        self._is_active = False
        self._sessions: dict[int, _Session] = {}
        #: the controller was called last
        self._called_ms = 0
        #: it was not called for so long, and may have stood still, since its timer has fired last
        self._stood_ms = 0
        #: {request: what its answer should say: (fenced, may go)}, of heartbeats that are not answered yet
        self._unanswered: dict[int, tuple[bool, bool]] = {}

    def differs(self, event: Any, before: MetadataImage, effects: Sequence[Any], now_ms: int) -> list[str]:
        """What is wrong with what an event has led to; `before`: the image that it was judged by."""
        core, was_active = self._core, self._is_active
        self._is_active = core.is_active
        if not core.is_active:
            return []
        if not was_active:
            self._begin(now_ms)
            return []
        found: list[str] = []
        message = event.message if type(event) is RequestReceived else None
        if type(message) is BrokerHeartbeatRequest:
            if not _is_refused(effects):
                found += self._heartbeat(message, event.connection_id, before, now_ms)
                self._note_answer(event.request_id, message, before)
        elif type(message) is BrokerRegistrationRequest:
            if not _is_refused(effects):
                found += _registered(message, before, core.latest, core.config)
                self._former_leaves(message.broker_id, before, now_ms)
        elif type(event) is ConnectionClosed:
            found += self._connection_closed(event, before, effects)
        elif type(event) is Probed:
            found += self._probed(event, before, now_ms)
        asks = message.broker_id if type(message) is BrokerHeartbeatRequest else None
        found += self._answered(effects)
        self._note_slices(before, now_ms, is_timer=type(event) is Tick)
        if core.latest.brokers is not before.brokers:
            found += self._fenced(event, asks, before, now_ms)
        gap_ms = now_ms - self._called_ms
        if gap_ms > self._timeout_ms // CHECK_PERIODS_PER_SESSION:
            self._stood_ms += gap_ms
        if type(event) is Tick:
            found += self._overdue(now_ms)
        self._called_ms = now_ms
        return found

    def _begin(self, now_ms: int) -> None:
        """Whole new sessions for the unfenced (R26)."""
        self._called_ms, self._stood_ms, self._unanswered = now_ms, 0, {}
        image = self._core.latest
        # what it has found half done may be longer than the log was (K21)
        offset = image.offset if image is self._core.committed else None
        self._sessions = {
            broker.broker_id: _Session(
                broker.broker_epoch, now_ms, leaves_from=offset if broker.in_controlled_shutdown else None
            )
            for broker in image.sorted_brokers()
            if not broker.is_fenced
        }

    def _session(self, broker: BrokerRegistration, now_ms: int) -> _Session:
        session = self._sessions.get(broker.broker_id)
        if session is None or session.broker_epoch != broker.broker_epoch:
            session = self._sessions[broker.broker_id] = _Session(broker.broker_epoch, now_ms)
        return session

    # --- heartbeats ------------------------------------------------------------------------------------

    def _heartbeat(
        self, request: BrokerHeartbeatRequest, connection_id: int, before: MetadataImage, now_ms: int
    ) -> list[str]:
        row, after = before.brokers.get(request.broker_id), self._core.latest.brokers.get(request.broker_id)
        if row is None or row.broker_epoch != request.broker_epoch:
            return []
        session = self._session(row, now_ms)
        session.heard_ms, session.stalled_ms, session.connection_id = now_ms, 0, connection_id
        session.told_offset = request.current_metadata_offset
        assert after is not None, "a heartbeat takes no broker out"
        if request.offline:
            return _not_taken_offline(request, before, after)
        leads = any(
            partition.leader == request.broker_id
            for topic in before.sorted_topics()
            for _, partition in topic.sorted_partitions()
        )
        wanted = self._wanted(row, session, request, before, leads=leads)
        if wanted == "leaving" and not row.in_controlled_shutdown:
            session.leaves_from = self._core.latest.offset
            session.leaves_in_slices = _needs_slices(before, request.broker_id)
        got = _state(after)
        if wanted is None or got == wanted:
            return []
        if wanted == "fenced" and _needs_slices(before, request.broker_id):
            session.is_ending = True
            return []
        return [
            f"broker {request.broker_id} is {got} and should be {wanted} (R23): {request}, leads: {leads}"
        ]

    def _note_answer(self, request_id: int, request: BrokerHeartbeatRequest, before: MetadataImage) -> None:
        """What it leads to is checked elsewhere; this is what the broker must be told of that (R23)."""
        row, after = before.brokers.get(request.broker_id), self._core.latest.brokers.get(request.broker_id)
        if row is not None and after is not None and row.broker_epoch == request.broker_epoch:
            was_leaving = row.in_controlled_shutdown and not row.is_fenced
            may_go = after.is_fenced and (request.want_shutdown or was_leaving)
            self._unanswered[request_id] = after.is_fenced, may_go

    def _answered(self, effects: Sequence[Any]) -> list[str]:
        found: list[str] = []
        for effect in effects:
            if type(effect) is not Respond or type(effect.message) is not BrokerHeartbeatResponse:
                continue
            expected, told = self._unanswered.pop(effect.request_id, None), effect.message
            is_told = told.error_code == ErrorCode.NONE and expected is not None
            if is_told and expected != (told.is_fenced, told.should_shut_down):
                found.append(
                    f"a heartbeat is answered with {told}, and not (fenced, may go) = {expected} (R23)"
                )
        return found

    def _wanted(
        self,
        row: BrokerRegistration,
        session: _Session,
        request: BrokerHeartbeatRequest,
        before: MetadataImage,
        *,
        leads: bool,
    ) -> str | None:
        """R23; None when that is not known."""
        if row.is_fenced:
            session.leaves_from = None  # other leaders have begun to lead, however it went
            has_applied = request.current_metadata_offset > row.broker_epoch
            if not has_applied or request.want_fence or request.want_shutdown:
                return "fenced"
            # one of before its stop may come late: only a registration ends that (R22)
            return "leaving" if row.in_controlled_shutdown else "unfenced"
        if row.in_controlled_shutdown:
            if leads:
                return "leaving"
            if session.leaves_from is None:
                return None
            told = [
                self._session(other, session.heard_ms).told_offset
                for other in before.sorted_brokers()
                if not other.is_fenced and not other.in_controlled_shutdown
            ]
            return "leaving" if min(told, default=session.leaves_from) < session.leaves_from else "fenced"
        if request.want_shutdown and not request.want_fence and leads:
            return "leaving"
        return "fenced" if request.want_shutdown or request.want_fence else "unfenced"

    # --- silence ---------------------------------------------------------------------------------------

    def _fenced(self, event: Any, asks: int | None, before: MetadataImage, now_ms: int) -> list[str]:
        """Who was fenced without having asked, and not by evidence, had been silent for a whole session."""
        found: list[str] = []
        for broker_id, row in self._core.latest.brokers.items():
            old = before.brokers.get(broker_id)
            if old is None or old.broker_epoch != row.broker_epoch or old.is_fenced or not row.is_fenced:
                continue
            if broker_id == asks or (type(event) is Probed and event.broker_id == broker_id):
                continue
            session = self._session(row, now_ms)
            end_ms = session.heard_ms + self._timeout_ms
            if session.is_ending:
                session.is_ending = False
            elif now_ms < end_ms:
                silent_ms = now_ms - session.heard_ms
                found.append(f"broker {broker_id} is fenced {silent_ms} ms after its last heartbeat (R25)")
            # it may have been extended already, by so much at most
            elif (
                self._called_ms < end_ms
                and end_ms + session.stalled_ms < now_ms - self._timeout_ms // CHECK_PERIODS_PER_SESSION
            ):
                stood_ms = now_ms - self._called_ms
                found.append(
                    f"broker {broker_id} is fenced by one that has stood still for {stood_ms} ms (D7)"
                )
        return found

    def _former_leaves(self, broker_id: int, before: MetadataImage, now_ms: int) -> None:
        """The process that registers anew takes the place of one that leaves in slices first (R30)."""
        row, after = before.brokers.get(broker_id), self._core.latest.brokers.get(broker_id)
        is_same = row is not None and after is not None and row.broker_epoch == after.broker_epoch
        if row is not None and is_same and not row.is_fenced and _needs_slices(before, broker_id):
            self._session(row, now_ms).is_ending = True

    def _note_slices(self, before: MetadataImage, now_ms: int, *, is_timer: bool) -> None:
        """A broker with many seats leaves them in several events, and only then is it fenced or may go."""
        after = self._core.latest
        for broker_id, session in self._sessions.items():
            row = before.brokers.get(broker_id)
            if row is None or row.broker_epoch != session.broker_epoch or row.is_fenced:
                continue
            if (
                is_timer
                and now_ms - session.heard_ms >= self._timeout_ms
                and _needs_slices(before, broker_id)
            ):
                session.is_ending = True
            if row.in_controlled_shutdown and session.leaves_in_slices:
                if _seats(after, broker_id) < _seats(_without_deleted(before, after), broker_id):
                    session.leaves_from = after.offset

    def _overdue(self, now_ms: int) -> list[str]:
        """Who has been silent for half a session more than a whole one, and is not fenced by the timer."""
        stood_ms, self._stood_ms, found = self._stood_ms, 0, []
        for broker_id, row in self._core.latest.brokers.items():
            if row.is_fenced:
                continue
            session = self._session(row, now_ms)
            session.stalled_ms += stood_ms
            silent_ms = now_ms - session.heard_ms
            if silent_ms - session.stalled_ms > self._timeout_ms * 3 // 2:
                found.append(f"broker {broker_id} was not heard of for {silent_ms} ms, and is unfenced (R25)")
        return found

    # --- evidence --------------------------------------------------------------------------------------

    def _connection_closed(
        self, event: ConnectionClosed, before: MetadataImage, effects: Sequence[Any]
    ) -> list[str]:
        probed = {effect.broker_id for effect in effects if type(effect) is Probe}
        found: list[str] = []
        for broker_id, session in self._sessions.items():
            row = before.brokers.get(broker_id)
            if session.connection_id != event.connection_id or row is None:
                continue
            if row.broker_epoch == session.broker_epoch and not row.is_fenced:
                session.connection_id = None
                if broker_id not in probed:
                    found.append(f"broker {broker_id} has lost its connection, and is not probed (D9)")
        return found

    def _probed(self, event: Probed, before: MetadataImage, now_ms: int) -> list[str]:
        """Only a refusal is evidence, and only until the broker is heard of on another connection (D9)."""
        row, after = before.brokers.get(event.broker_id), self._core.latest.brokers.get(event.broker_id)
        if row is None or after is None or row.is_fenced:
            return []
        session = self._sessions.get(event.broker_id)
        is_lost = session is None or session.connection_id is None
        is_gone = event.is_refused and event.broker_epoch == row.broker_epoch and is_lost
        if is_gone == after.is_fenced:
            return []
        if is_gone and _needs_slices(before, event.broker_id):
            self._session(row, now_ms).is_ending = True
            return []
        word = "fenced" if after.is_fenced else "not fenced"
        return [f"broker {event.broker_id} of epoch {row.broker_epoch} is {word} after {event} (D9)"]


def _is_refused(effects: Sequence[Any]) -> bool:
    """Too many wait for the quorum."""
    answers = [effect.message for effect in effects if type(effect) is Respond]
    return any(getattr(one, "error_code", None) == ErrorCode.REQUEST_LIMIT_REACHED for one in answers)


def _registered(
    request: BrokerRegistrationRequest, before: MetadataImage, after: MetadataImage, config: ControllerConfig
) -> list[str]:
    """R30, R32: only a session that may live stands in the way, and the proof of its clean stop ends it."""
    old, new = before.brokers.get(request.broker_id), after.brokers.get(request.broker_id)
    if not _may_be_a_broker(request, before, config):
        return [] if new is old else [f"what is no broker of this cluster is registered (R30): {request}"]
    lives = old is not None and not old.is_fenced and old.incarnation_id != request.incarnation_id
    if old is not None and lives and old.broker_epoch != request.previous_broker_epoch:
        return []
    if new is not None and new.incarnation_id == request.incarnation_id:
        return []
    if _needs_slices(before, request.broker_id):
        return []  # the former process leaves first
    return [f"broker {request.broker_id} may not register (R30): {old}, {request}"]


def _not_taken_offline(
    request: BrokerHeartbeatRequest, before: MetadataImage, after: BrokerRegistration
) -> list[str]:
    """R27: replicas in failed log dirs, that are still not noted."""
    left = []
    for told in request.offline:
        for index in told.partitions:
            partition = before.partition(told.topic_id, index)
            if partition is not None and request.broker_id in partition.replicas:
                if (told.topic_id, index) not in after.offline_replicas:
                    left.append(index)
    return [f"broker {request.broker_id} has told of {left}, in vain (R27): {request}"] if left else []


def _seats(image: MetadataImage, broker_id: int) -> int:
    """Partitions of which the broker is a member that counts."""
    return sum(
        broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
        for topic in image.sorted_topics()
        for _, partition in topic.sorted_partitions()
    )


def _without_deleted(before: MetadataImage, after: MetadataImage) -> MetadataImage:
    """A topic that was deleted is no seat that was left."""
    gone = [topic for topic in before.sorted_topics() if topic.topic_id not in after.topics]
    topics, topic_ids = before.topics, before.topic_ids
    for topic in gone:
        topics, topic_ids = topics.delete(topic.topic_id), topic_ids.delete(topic.name)
    return replace(before, topics=topics, topic_ids=topic_ids) if gone else before


def _needs_slices(image: MetadataImage, broker_id: int) -> bool:
    """One event cannot take the broker out. With the limit of production no broker here is so large."""
    return _seats(image, broker_id) >= cluster_control.SLICE_RECORDS_MAX


def _state(row: BrokerRegistration) -> str:
    if row.is_fenced:
        return "fenced"
    return "leaving" if row.in_controlled_shutdown else "unfenced"


def _may_be_a_broker(
    request: BrokerRegistrationRequest, before: MetadataImage, config: ControllerConfig
) -> bool:
    """R30, as far as it says what a broker is."""
    others = [row for row in before.sorted_brokers() if row.broker_id != request.broker_id]
    taken = {log_dir for row in others for log_dir in row.log_dirs}
    is_ours = request.cluster_id == config.cluster_id and request.broker_id not in config.voters
    return is_ours and request.broker_id >= 0 and bool(request.listeners) and not taken & {*request.log_dirs}
