"""Brokers: registration (R30), heartbeats (R23), and when a session is over.

Owns the sessions, which are soft state: a new active controller starts a whole new session for every unfenced
broker. `departures` takes a broker out of its partitions and fences it.
"""

from collections.abc import Collection
from enum import Enum

from holdfast.controller.core.brokers.departures import Departures, change_record
from holdfast.controller.core.brokers.session import Session
from holdfast.controller.core.config import ControllerConfig
from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.draft import Draft
from holdfast.controller.core.events import ConnectionClosed, Probe, Probed
from holdfast.controller.core.partitions.offline_replicas import bring_online, take_offline
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.controller.core.partitions.replication_control import Departure, ReplicationControl
from holdfast.controller.core.partitions.short_leaders import hand_over
from holdfast.controller.core.partitions.unreachable_leaders import REPORTS_MIN, replace_leader
from holdfast.metadata.broker import BrokerRegistration, levels_of
from holdfast.metadata.configs import endpoint_problem
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    encode_record,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from holdfast.runtime.stats import Level

#: A session check may be late by this fraction of a session before the controller counts as stalled (D7).
CHECK_PERIODS_PER_SESSION = 8
#: A session check that has written this many records leaves the rest of the fencing to the next event.
CHECK_RECORDS_MAX = 200
#: Pauses in ms before the probes of a vanished broker's listener. A dying process may close its connections
#: before its listener, so the first probe may still be accepted.
PROBE_DELAYS_MS = (0, 20, 50, 100, 200, 400)
#: Directory ids up to this number are reserved, as in Kafka.
RESERVED_DIRECTORY_ID_MAX = 99
#: Largest registration record: a batch of records has a limit, and each node keeps it in memory.
REGISTRATION_BYTES_MAX = 64 << 10


class _NextState(Enum):
    """The state that a heartbeat leads to (R23)."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class ClusterControl:
    """Decisions about brokers, and their sessions."""

    def __init__(self, config: ControllerConfig, replication: ReplicationControl) -> None:
        self._config = config
        self._replication = replication
        #: by broker id; every unfenced broker has one, a fenced one may have one
        self._sessions: dict[int, Session] = {}
        self.departures = Departures(replication, self._sessions)
        #: time of the next session check; not later than the earliest end of a session
        self._next_check_ms: int | None = None
        #: brokers whose reports ask for more elections than one event makes
        self._moving: dict[int, None] = {}
        #: registrations after an unclean shutdown, by broker id
        self.unclean_registrations: dict[int, int] = {}

    def start(self, image: MetadataImage, now_ms: int) -> None:
        """Begin as the active controller: a whole new session for each unfenced broker (R26).

        A controlled shutdown goes on. When it began is not known any more, but not after the end of this log.
        """
        self._sessions.clear()
        for broker in image.sorted_brokers():
            if not broker.is_fenced:
                shutdown_offset = image.offset if broker.in_controlled_shutdown else None
                self._sessions[broker.broker_id] = Session(now_ms, shutdown_offset=shutdown_offset)
        self._next_check_ms = now_ms + self._config.session_timeout_ms if self._sessions else None

    def stop(self) -> None:
        """Drop all soft state (K23)."""
        self._sessions.clear()
        self.departures.stop()
        self._moving = {}
        self._next_check_ms = None

    def next_deadline_ms(self) -> int | None:
        """When `check_sessions` is due; 0: at once."""
        return 0 if self.departures.is_busy or self._moving else self._next_check_ms

    def waits_for_progress(self, image: MetadataImage, offset: int, now_ms: int) -> bool:
        """True while some broker has not reported that it applied everything below `offset`, but may yet: one
        that reports the same for a session's time cannot follow (K29), and is waited for once it moves."""
        waits = False
        for broker_id, session in sorted(self._sessions.items()):
            if session.metadata_offset >= offset or broker_id not in image.brokers:
                session.behind = None
                continue
            if session.behind is None or session.behind[0] != session.metadata_offset:
                session.behind = session.metadata_offset, now_ms
            waits |= now_ms - session.behind[1] < self._config.session_timeout_ms
        return waits

    # --- registration ------------------------------------------------------------------------------------

    def register(
        self,
        draft: Draft,
        request: BrokerRegistrationRequest,
        now_ms: int,
        voter_ids: Collection[int] = (),
    ) -> BrokerRegistrationResponse:
        """Register a new incarnation, or the same one again. Errors in the order of R30. `voter_ids`: the
        controllers that the metadata log names (K30), beside those of the configuration.

        One that was let go is over (R22): a process that did not ask for that gets a new epoch.
        """
        image = draft.image
        old = image.brokers.get(request.broker_id)
        is_same = old is not None and old.incarnation_id == request.incarnation_id
        is_clean_restart = (
            old is not None
            and request.previous_broker_epoch == old.broker_epoch
            # A clean shutdown covers all log dirs there were: one that is missing now may hold some of the
            # logs.
            and set(old.log_dirs) <= set(request.log_dirs)
        )
        error, text = self._registration_error(image, request, voter_ids)
        if error is not ErrorCode.NONE:
            return BrokerRegistrationResponse(error, text, -1, False)
        if old is not None and is_same and not (old.is_fenced and old.in_controlled_shutdown):
            self._amend(draft, old, request)
            return BrokerRegistrationResponse(ErrorCode.NONE, None, old.broker_epoch, old.clean_shutdown)
        is_clean = is_clean_restart or (old is None and request.previous_broker_epoch == -1)
        name = f"broker {request.broker_id}"
        if old is not None and not old.is_fenced and (is_clean or not image.elr_enabled):
            # a restart before the old session ended: the old incarnation leaves first (D14)
            why = CauseKind.CLEAN_RESTART if is_clean else CauseKind.UNCLEAN_REGISTRATION
            if not self.departures.give_way(draft, old.broker_id, Departure.CLEAN, why):
                return _try_again(name)
        if image.elr_enabled and (not is_clean or old is None):
            # R32: only an equal epoch proves a clean shutdown, and an unknown broker has none
            kind = CauseKind.UNCLEAN_REGISTRATION
            if not self.departures.give_way(draft, request.broker_id, Departure.UNCLEAN, kind):
                return _try_again(name)
        if not is_clean:
            self.unclean_registrations[request.broker_id] = (
                self.unclean_registrations.get(request.broker_id, 0) + 1
            )
        broker_epoch = draft.next_offset
        draft.write(_register_record(request, broker_epoch, is_clean))
        how = "for the first time" if old is None else "after a clean shutdown"
        if not is_clean:
            how = f"after an unclean shutdown (previous epoch {request.previous_broker_epoch})"
        draft.note(
            f"{name} registered {how}, epoch {broker_epoch}",
            Level.INFO if is_clean else Level.WARNING,
        )
        self._sessions.pop(request.broker_id, None)
        return BrokerRegistrationResponse(ErrorCode.NONE, None, broker_epoch, is_clean)

    def _registration_error(
        self, image: MetadataImage, request: BrokerRegistrationRequest, voter_ids: Collection[int]
    ) -> tuple[ErrorCode, str | None]:
        if request.cluster_id != self._config.cluster_id:
            return (
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._config.cluster_id}, not {request.cluster_id}; correct "
                "holdfast.cluster.id or controller.quorum.voters",
            )
        old = image.brokers.get(request.broker_id)
        if (
            old is not None
            and not old.is_fenced
            and old.incarnation_id != request.incarnation_id
            and not self._replaces(old, request)
        ):
            return (
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"broker {request.broker_id} is registered by another process with a live session; "
                "stop that process, or try again after its session; a second broker needs its own node.id",
            )
        problem = None
        if request.broker_id < 0 or request.broker_id in {*self._config.voters, *voter_ids}:
            problem = f"node.id {request.broker_id} belongs to a controller or is negative; choose another"
        elif not request.listeners:
            problem = "a broker needs at least one listener"
        elif wrong := [text for listener in request.listeners if (text := endpoint_problem(listener))]:
            problem = f"{wrong[0]}; correct advertised.listeners"  # every node would try to reach it
        elif not request.log_dirs or len(set(request.log_dirs)) != len(request.log_dirs):
            problem = "log dirs must be at least one, each with its own directory.id"
        elif any(
            int.from_bytes(directory, "big") <= RESERVED_DIRECTORY_ID_MAX for directory in request.log_dirs
        ):
            problem = "a directory.id is reserved; delete meta.properties of an empty log dir to get another"
        elif len(encode_record(_register_record(request, -1, False))) > REGISTRATION_BYTES_MAX:
            problem = f"a registration takes at most {REGISTRATION_BYTES_MAX} bytes; name fewer listeners"
        else:
            for other in image.sorted_brokers():
                shared = set(other.log_dirs).intersection(request.log_dirs)
                if shared and other.broker_id != request.broker_id:
                    problem = f"log dir {min(shared).hex()} belongs to broker {other.broker_id}"
        if problem is not None:
            return ErrorCode.INVALID_REGISTRATION, problem
        for name, level in image.levels.items():
            low, high = levels_of(request.features, name)
            if not low <= level <= high:
                text = f"feature {name} is at level {level}, this broker supports [{low}, {high}]; upgrade it"
                return ErrorCode.UNSUPPORTED_VERSION, text
        return ErrorCode.NONE, None

    def _replaces(self, old: BrokerRegistration, request: BrokerRegistrationRequest) -> bool:
        """The process of a live registration has ended, and this one took its place (D14): a log dir has one
        process at a time, and either it names the epoch of a clean stop, or the old connection is gone. A
        connection tells a restart from a copy of the log dirs that runs beside the original."""
        if not set(old.log_dirs) & set(request.log_dirs):
            return False
        session = self._sessions.get(old.broker_id)
        is_gone = session is not None and session.connection_id is None and session.was_connected
        return request.previous_broker_epoch == old.broker_epoch or is_gone

    def _amend(self, draft: Draft, old: BrokerRegistration, request: BrokerRegistrationRequest) -> None:
        """Update the registration of the same process, which keeps its epoch and state (R31)."""
        record = BrokerRegistrationChangeRecord(
            broker_id=old.broker_id,
            broker_epoch=old.broker_epoch,
            in_controlled_shutdown=old.in_controlled_shutdown,
            listeners=request.listeners,
            rack=request.rack,
            features=request.features,
            log_dirs=request.log_dirs,
        )
        if record != change_record(old, old.in_controlled_shutdown):
            draft.write(record)
            draft.note(f"broker {old.broker_id} amended its registration, epoch {old.broker_epoch}")

    # --- heartbeats --------------------------------------------------------------------------------------

    def heartbeat(
        self, draft: Draft, request: BrokerHeartbeatRequest, connection_id: int, now_ms: int
    ) -> BrokerHeartbeatResponse:
        """Renew the session, and do what the broker asks for when its time has come (R23).

        Errors: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH (R24).
        """
        broker = draft.image.brokers.get(request.broker_id)
        if broker is None:
            text = f"broker {request.broker_id} is not registered; register first"
            return BrokerHeartbeatResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, text, False, True, False)
        if broker.broker_epoch != request.broker_epoch:
            text = (
                f"broker {request.broker_id} is registered with epoch {broker.broker_epoch}; register again"
            )
            return BrokerHeartbeatResponse(ErrorCode.STALE_BROKER_EPOCH, text, False, True, False)
        session = self._sessions.get(request.broker_id)
        if session is None:
            session = self._sessions[request.broker_id] = Session(now_ms)
        session.last_contact_ms = now_ms
        session.connection_id, session.was_connected = connection_id, True
        session.metadata_offset = request.current_metadata_offset
        session_end_ms = now_ms + self._config.session_timeout_ms
        if self._next_check_ms is None or session_end_ms < self._next_check_ms:
            self._next_check_ms = session_end_ms
        if request.offline:  # before this heartbeat may unfence it
            take_offline(draft, self._replication, broker, request.offline)
        if request.online:
            bring_online(draft, broker, request.online)
        next_state = self._next_state(draft.image, broker, session, request)
        if next_state is _NextState.UNFENCED and broker.is_fenced:
            draft.write(UnfenceBrokerRecord(broker.broker_id, broker.broker_epoch))
            draft.note(f"broker {broker.broker_id} unfenced, epoch {broker.broker_epoch}")
            self.departures.elect_leaderless(draft, broker)
        elif next_state is _NextState.FENCED and not broker.is_fenced:
            self.departures.fence(draft, broker.broker_id, CauseKind.FENCING_ASKED, level=Level.INFO)
        elif next_state is _NextState.SHUTDOWN_NOW and not broker.is_fenced:
            self.departures.fence(draft, broker.broker_id, CauseKind.SHUTDOWN_COMPLETED, level=Level.INFO)
        elif next_state is _NextState.CONTROLLED_SHUTDOWN and not broker.in_controlled_shutdown:
            self.departures.begin_shutdown(draft, broker)
        # what is not written yet is not confirmed: the broker asks again
        is_done = not self.departures.is_under_way(broker.broker_id)
        self._take_report(session, request)
        self._move_leaders(draft, broker.broker_id, session)
        return BrokerHeartbeatResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            is_caught_up=request.current_metadata_offset > broker.broker_epoch,
            is_fenced=is_done and next_state in (_NextState.FENCED, _NextState.SHUTDOWN_NOW),
            should_shut_down=is_done and next_state is _NextState.SHUTDOWN_NOW,
            session_timeout_ms=self._config.session_timeout_ms,
        )

    def _take_report(self, session: Session, request: BrokerHeartbeatRequest) -> None:
        unreachable, low_on_space = frozenset(request.unreachable), request.low_on_space
        # Looked at once, and again while a report leaves partitions for the next event.
        session.must_replace = session.must_replace or unreachable != session.unreachable
        session.unreachable = unreachable
        # With each heartbeat: a follower may have room now, or be in the ISR again.
        session.must_hand_over = bool(low_on_space)
        if low_on_space != session.low_on_space:
            session.low_on_space, session.handed_over = low_on_space, PartitionPass()
            session.short = frozenset(
                PartitionId(row.topic_id, index) for row in low_on_space for index in row.partitions
            )

    def _move_leaders(self, draft: Draft, broker_id: int, session: Session) -> None:
        """One slice of the elections that the broker's report asks for; the next event goes on."""
        if session.must_replace:
            session.must_replace = not self._replace_unreachable(draft, session.unreachable)
        if session.must_hand_over:
            is_done = hand_over(
                draft, broker_id, session.low_on_space, self.is_short, self._replication, session.handed_over
            )
            session.must_hand_over = not is_done
        if session.must_replace or session.must_hand_over:
            self._moving[broker_id] = None
        else:
            self._moving.pop(broker_id, None)

    def _replace_unreachable(self, draft: Draft, unreachable: frozenset[int]) -> bool:
        """False when some partitions are left for the next event."""
        is_done = True
        for leader_id in sorted(unreachable):
            reporters = {
                broker_id
                for broker_id, other in sorted(self._sessions.items())
                if leader_id in other.unreachable and draft.image.is_active(broker_id)
            }
            if len(reporters) >= REPORTS_MIN:
                session = self._sessions.get(leader_id)
                rest = PartitionPass() if session is None else session.replaced
                is_done &= replace_leader(draft, leader_id, reporters, self.is_short, self._replication, rest)
        return is_done

    def is_short(self, broker_id: int, key: PartitionId) -> bool:
        """The broker has too little room for records of that partition, as it last reported."""
        session = self._sessions.get(broker_id)
        return session is not None and key in session.short

    @property
    def short_count(self) -> int:
        """Replicas without room for records."""
        return sum(len(session.short) for session in self._sessions.values())

    def _next_state(
        self,
        image: MetadataImage,
        broker: BrokerRegistration,
        session: Session,
        request: BrokerHeartbeatRequest,
    ) -> _NextState:
        if broker.is_fenced:
            if request.want_shutdown:
                return _NextState.SHUTDOWN_NOW
            # the record at offset broker_epoch must be applied, N-2
            if not request.want_fence and request.current_metadata_offset > broker.broker_epoch:
                return _NextState.UNFENCED
            return _NextState.FENCED
        if broker.in_controlled_shutdown:
            if image.leads_anything(broker.broker_id):
                return _NextState.CONTROLLED_SHUTDOWN
            others = [
                other.metadata_offset
                for broker_id, other in sorted(self._sessions.items())
                if image.is_active(broker_id)
            ]
            # the new leaders must know of the change, also when another controller began it (R26)
            if session.shutdown_offset is not None and others and session.shutdown_offset > min(others):
                return _NextState.CONTROLLED_SHUTDOWN
            return _NextState.SHUTDOWN_NOW
        if request.want_shutdown and not request.want_fence and image.leads_anything(broker.broker_id):
            return _NextState.CONTROLLED_SHUTDOWN
        if request.want_shutdown:
            return _NextState.SHUTDOWN_NOW
        return _NextState.FENCED if request.want_fence else _NextState.UNFENCED

    # --- sessions that end, connections that are lost ----------------------------------------------------

    def check_sessions(self, draft: Draft, now_ms: int) -> None:
        """Go on with what is unfinished; else fence every broker whose session has ended, the one silent for
        longest first (B13).

        After a broker with many partitions the check goes on in the next event, which follows at once. If
        many were fenced in one event, the voters would get no answer and depose this controller, and the next
        controller would begin anew.
        """
        if self.departures.is_busy:
            return self.departures.go_on(draft)
        if self._moving:
            broker_id = min(self._moving)
            session = self._sessions.get(broker_id)
            if session is None:
                del self._moving[broker_id]
            else:
                self._move_leaders(draft, broker_id, session)
            return None
        scheduled_ms = self._next_check_ms
        if scheduled_ms is None or now_ms < scheduled_ms:
            return
        timeout_ms = self._config.session_timeout_ms
        lateness_ms = now_ms - scheduled_ms
        if lateness_ms > timeout_ms // CHECK_PERIODS_PER_SESSION:
            # this process was stalled: heartbeats may wait in the sockets (D7)
            for _, session in sorted(self._sessions.items()):
                session.last_contact_ms += lateness_ms
            self._next_check_ms = now_ms
            draft.note(f"session check ran {lateness_ms} ms late; sessions extended by that", Level.WARNING)
            return
        by_contact = sorted(
            (session.last_contact_ms, broker_id) for broker_id, session in self._sessions.items()
        )
        for last_contact_ms, broker_id in by_contact:
            if last_contact_ms + timeout_ms > now_ms:
                self._next_check_ms = last_contact_ms + timeout_ms
                return
            broker = draft.image.brokers.get(broker_id)
            if broker is not None and not broker.is_fenced:
                silence = f"no heartbeat for {now_ms - last_contact_ms} ms"
                self.departures.fence(draft, broker_id, CauseKind.SESSION_ENDED, silence)
                if self.departures.is_under_way(broker_id):
                    return
            del self._sessions[broker_id]
            if len(draft.records) >= CHECK_RECORDS_MAX:
                self._next_check_ms = now_ms
                return
        self._next_check_ms = None

    def on_connection_closed(self, image: MetadataImage, event: ConnectionClosed) -> list[Probe]:
        """Probe the broker behind a lost connection (D9)."""
        probes: list[Probe] = []
        for broker_id, session in sorted(self._sessions.items()):
            broker = image.brokers.get(broker_id)
            if session.connection_id == event.connection_id and broker is not None and not broker.is_fenced:
                session.connection_id = None
                probes.append(self._probe(broker, 0))
        return probes

    def on_probed(self, draft: Draft, event: Probed) -> Probe | None:
        """Fence the broker at once if its port refuses; else probe a few times, then wait for the session
        (D9)."""
        broker = draft.image.brokers.get(event.broker_id)
        session = self._sessions.get(event.broker_id)
        if (
            broker is None
            or broker.is_fenced
            or broker.broker_epoch != event.broker_epoch
            or session is None
            or session.connection_id is not None  # it has sent a heartbeat on another connection since
        ):
            return None
        if event.is_refused:
            self.departures.fence(draft, event.broker_id, CauseKind.CONNECTION_REFUSED)
            return None
        attempt = event.attempt + 1
        return self._probe(broker, attempt) if attempt < len(PROBE_DELAYS_MS) else None

    def _probe(self, broker: BrokerRegistration, attempt: int) -> Probe:
        endpoint = broker.reachable_at(self._config.inter_broker_listener_name)
        return Probe(
            broker.broker_id,
            broker.broker_epoch,
            attempt,
            PROBE_DELAYS_MS[attempt],
            endpoint.host,
            endpoint.port,
        )


def _try_again(name: str) -> BrokerRegistrationResponse:
    text = f"{name} is being taken out of its partitions, as its earlier process is gone; try again"
    return BrokerRegistrationResponse(ErrorCode.OPERATION_NOT_ATTEMPTED, text, -1, False)


def _register_record(
    request: BrokerRegistrationRequest, broker_epoch: int, is_clean: bool
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        listeners=request.listeners,
        rack=request.rack,
        features=request.features,
        log_dirs=request.log_dirs,
        clean_shutdown=is_clean,
    )
