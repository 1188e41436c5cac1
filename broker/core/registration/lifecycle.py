"""The broker's state as the controller sees it: register, heartbeat, be unfenced, shut down (R29).

Owns the broker epoch and the state. Sends nothing: it builds the next request. A broker takes no role before
it has replayed its own registration record; until then, and until its logs are loaded, its heartbeats ask to
stay fenced (N-2).

    STARTING -> RECOVERY           registered, own registration record replayed, roles taken
    RECOVERY -> RUNNING            unfenced
    any      -> STARTING           the controller no longer knows the broker epoch: register again
    any      -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    FeatureRange,
    ListenerEndpoint,
    OfflineTopic,
)

#: Pause after a failed request to the controller, in ms; doubles up to RETRY_MS_MAX.
RETRY_MS_MIN = 50
RETRY_MS_MAX = 1000
#: Heartbeat interval while a change is due: ready but still fenced, or shutting down.
HURRY_MS = 100
#: A registration or heartbeat without an answer is given up after a heartbeat interval, but not sooner.
ANSWER_MS_MIN = 1000
#: A controlled shutdown ends when no controller has answered for so long: without one no leadership
#: moves.
SILENCE_MS_MAX = 5000
#: Later than any clock shows.
FAR_AWAY_MS = 1 << 62

_FATAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)


class BrokerState(Enum):
    """Kafka's broker states."""

    STARTING = "STARTING"
    RECOVERY = "RECOVERY"
    RUNNING = "RUNNING"
    PENDING_CONTROLLED_SHUTDOWN = "PENDING_CONTROLLED_SHUTDOWN"
    SHUTTING_DOWN = "SHUTTING_DOWN"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a registration says about this process."""

    broker_id: int
    cluster_id: str
    #: random id of this process start
    incarnation_id: bytes
    listeners: tuple[ListenerEndpoint, ...]
    rack: str | None
    features: tuple[FeatureRange, ...]
    #: ids of the log dirs that could be opened at the start
    log_dirs: tuple[bytes, ...]
    #: broker epoch of the last clean shutdown, -1 for none (R32)
    previous_broker_epoch: int


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why the node stops."""

    text: str
    is_failure: bool


LifecycleRequest: TypeAlias = BrokerRegistrationRequest | BrokerHeartbeatRequest


class Lifecycle:
    """State of one broker process."""

    def __init__(
        self,
        identity: Identity,
        *,
        heartbeat_ms: int,
        registration_timeout_ms: int,
        controlled_shutdown: bool,
        shutdown_timeout_ms: int,
        now_ms: int,
    ) -> None:
        self.identity = identity
        self.state = BrokerState.STARTING
        #: epoch of the registration, -1 while there is none
        self.broker_epoch = -1
        #: as in the controller's last answer
        self.is_fenced = True
        #: whether the controller counted the last stop as clean; None before the registration
        self.was_clean: bool | None = None
        #: the logs are loaded and the roles taken: the broker may be unfenced
        self.is_ready = False
        #: committed metadata is applied; False from a record of a later build on (K29)
        self.applies_metadata = True
        #: a log dir answers no more: other brokers lead and acknowledge until it does
        self.is_stalled = False
        #: replicas that take no records of clients for want of room: other brokers should lead them
        self.low_on_space: tuple[OfflineTopic, ...] = ()
        self._heartbeat_ms = heartbeat_ms
        self._controlled_shutdown = controlled_shutdown
        self._shutdown_timeout_ms = shutdown_timeout_ms
        self._previous_broker_epoch = identity.previous_broker_epoch
        #: time limit of the first registration; None once registered
        self._give_up_ms: int | None = now_ms + registration_timeout_ms
        self._registration_timeout_ms = registration_timeout_ms
        #: what the controller has said to the last registration that it refused
        self._refusal: str | None = None
        self._next_ms = now_ms
        self._failures = 0
        self._in_flight = False
        self._shutdown_deadline_ms: int | None = None
        self._heard_ms = now_ms
        self._sent_ms = now_ms
        #: when the controller may fence this broker unless it hears another heartbeat; None while unknown
        self._session_end_ms: int | None = None

    @property
    def is_registered(self) -> bool:
        """The controller has given this broker an epoch and still knows it."""
        return self.broker_epoch >= 0

    @property
    def answer_timeout_ms(self) -> int:
        """How long a request waits for its answer. A lost connection shows by silence alone, and must be
        replaced well within a session."""
        return max(ANSWER_MS_MIN, self._heartbeat_ms)

    def is_session_over(self, now_ms: int) -> bool:
        """True when the controller has fenced this broker, or may have, and elected other leaders.

        Counted from the sending of the last heartbeat that was answered: never later than the controller
        counts."""
        return self.is_fenced or (self._session_end_ms is not None and now_ms >= self._session_end_ms)

    # --- requests ----------------------------------------------------------------------------------------

    def next_request(
        self,
        metadata_offset: int,
        now_ms: int,
        offline: tuple[OfflineTopic, ...] = (),
        unreachable: Set[int] = frozenset(),
        online: tuple[OfflineTopic, ...] = (),
    ) -> LifecycleRequest | None:
        """The request to send to the active controller now, None when none is due. `offline`: replicas out
        of use that the controller does not know of yet; `online`: those that it takes for such no more;
        `unreachable`: leaders that this broker cannot fetch from."""
        if self._in_flight or now_ms < self._next_ms or self.state is BrokerState.SHUTTING_DOWN:
            return None
        self._in_flight = True
        self._sent_ms = now_ms
        identity = self.identity
        if not self.is_registered:
            return BrokerRegistrationRequest(
                identity.broker_id,
                identity.cluster_id,
                identity.incarnation_id,
                identity.listeners,
                identity.rack,
                identity.features,
                identity.log_dirs,
                self._previous_broker_epoch,
            )
        return BrokerHeartbeatRequest(
            identity.broker_id,
            self.broker_epoch,
            metadata_offset,
            want_fence=not self.is_ready or self.is_stalled,
            want_shutdown=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline=offline,
            unreachable=tuple(sorted(unreachable)),
            online=online,
            low_on_space=self.low_on_space,
        )

    def hurry(self, now_ms: int) -> None:
        """Send the next request without waiting for the heartbeat interval: the controller needs it now."""
        self._next_ms = min(self._next_ms, now_ms)

    def clean_shutdown_disproved(self, incarnation_id: bytes, now_ms: int) -> None:
        """The last stop was not clean after all: register again, as another incarnation, without a proof.

        Requests sent before are void. Under the former registration this broker has served no request.
        """
        assert not self.is_ready
        self.identity = replace(self.identity, incarnation_id=incarnation_id, previous_broker_epoch=-1)
        self._previous_broker_epoch = -1
        self.broker_epoch = -1
        self.is_fenced = True
        self.was_clean = None
        self._in_flight = False
        self._next_ms = now_ms

    def controller_changed(self, now_ms: int) -> None:
        """Another controller is active: answers of the former one are no longer expected."""
        self._in_flight = False
        self._failures = 0
        self._next_ms = now_ms

    # --- answers -----------------------------------------------------------------------------------------

    def registered(self, response: BrokerRegistrationResponse, now_ms: int) -> StopReason | None:
        """Handle the answer to a registration (R30). The first success ends the time limit."""
        self._in_flight = False
        self._heard_ms = now_ms
        code = response.error_code
        if code == ErrorCode.NONE:
            self.broker_epoch = response.broker_epoch
            self.was_clean = response.clean_shutdown
            self.is_fenced = True
            self._give_up_ms = None
            self._failures = 0
            self._next_ms = now_ms
            return None
        if code in _FATAL:
            return StopReason(
                f"the controller refuses this broker: {response.error_message}", is_failure=True
            )
        self._refusal = response.error_message
        if code == ErrorCode.OPERATION_NOT_ATTEMPTED and self._give_up_ms is not None:
            # it takes this broker's earlier process out of its partitions, an event after the other
            self._give_up_ms = now_ms + self._registration_timeout_ms
        self._retry(now_ms)
        return None

    def heartbeat_answered(self, response: BrokerHeartbeatResponse, now_ms: int) -> StopReason | None:
        """Handle the answer to a heartbeat. STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED and leave to stop
        without having asked for it end the registration: `is_registered` is false afterwards, and the caller
        drops all roles (N-2)."""
        self._in_flight = False
        self._heard_ms = now_ms
        code = response.error_code
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            return self.registration_over(now_ms)
        if code != ErrorCode.NONE:
            self._retry(now_ms)
            return None
        self._failures = 0
        if response.session_timeout_ms >= 0:
            self._session_end_ms = self._sent_ms + response.session_timeout_ms
        self.is_fenced = response.is_fenced
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                return self._stop("controlled shutdown is complete")
            self._next_ms = now_ms + min(HURRY_MS, self._heartbeat_ms)
            return None
        if response.should_shut_down:
            # Another has asked for a stop in this broker's name; only a new registration ends that (R22).
            return self.registration_over(now_ms)
        if self.state is BrokerState.RECOVERY and not response.is_fenced:
            self.state = BrokerState.RUNNING
        in_a_hurry = self.is_ready and response.is_fenced and not self.is_stalled
        self._next_ms = now_ms + (min(HURRY_MS, self._heartbeat_ms) if in_a_hurry else self._heartbeat_ms)
        return None

    def registration_over(self, now_ms: int) -> StopReason | None:
        """The quorum no longer knows this registration: register again, or finish a shutdown under way."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return self._stop("the controller does not know this registration any more")
        if self.state is BrokerState.SHUTTING_DOWN:
            return None
        self.broker_epoch = -1
        self._previous_broker_epoch = -1  # a running process cannot claim a clean shutdown
        self.is_fenced = True
        self.is_ready = False
        self.state = BrokerState.STARTING
        self._next_ms = now_ms + RETRY_MS_MIN
        return None

    def failed(self, now_ms: int) -> None:
        """No answer came, or one from a node that is not the active controller."""
        self._in_flight, self._refusal = False, None
        self._retry(now_ms)

    def _retry(self, now_ms: int) -> None:
        pause_ms = min(RETRY_MS_MIN << min(self._failures, 10), RETRY_MS_MAX)
        if self.is_registered:
            pause_ms = min(pause_ms, self._heartbeat_ms)
        self._failures += 1
        self._next_ms = now_ms + pause_ms

    # --- what else happens -------------------------------------------------------------------------------

    def caught_up(self, now_ms: int) -> None:
        """Own registration record replayed, logs loaded, roles taken (N-2): ask to be unfenced."""
        assert self.is_registered
        self.is_ready = self.applies_metadata = True
        if self.state is BrokerState.STARTING:
            self.state = BrokerState.RECOVERY
        self.hurry(now_ms)

    def left_behind(self, now_ms: int) -> None:
        """Committed metadata is applied no more, all roles are dropped: ask to be fenced at once (K29)."""
        self.is_ready = self.applies_metadata = False
        self.hurry(now_ms)

    def disks_stalled(self, is_stalled: bool, now_ms: int) -> None:
        """A log dir answers no more, or all do again: ask to be fenced, or unfenced, at once."""
        self.is_stalled = is_stalled
        self.hurry(now_ms)

    def space_low(self, replicas: tuple[OfflineTopic, ...], now_ms: int) -> None:
        """Too little is left of the disks of these replicas, and of no others: tell it at once."""
        self.low_on_space = replicas
        self.hurry(now_ms)

    def shutdown_wanted(self, now_ms: int) -> StopReason | None:
        """Begin a controlled shutdown, or stop at once when no controller can help with it."""
        if self.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            return None
        # The controllers would wait until it has applied the metadata in which it leads nothing any more.
        if not self.is_registered or not self._controlled_shutdown or not self.applies_metadata:
            return self._stop("stopping without controlled shutdown")
        self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self._shutdown_deadline_ms = now_ms + self._shutdown_timeout_ms
        self._heard_ms = now_ms
        self.hurry(now_ms)
        return None

    def check_times(self, now_ms: int) -> StopReason | None:
        """Return why to stop if a time limit has passed."""
        if self._give_up_ms is not None and now_ms >= self._give_up_ms and not self.is_registered:
            self._give_up_ms = None
            why = (
                "are the controllers of controller.quorum.voters up, and is holdfast.cluster.id the same "
                "there?"
            )
            if self._refusal is not None:
                why = f"the controller said: {self._refusal}"
            return StopReason(
                f"no registration within initial.broker.registration.timeout.ms; {why}", is_failure=True
            )
        if self._shutdown_deadline_ms is not None and self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if now_ms >= self._shutdown_deadline_ms:
                return self._stop("controlled shutdown took too long, stopping before it is complete")
            if now_ms - self._heard_ms >= SILENCE_MS_MAX:
                return self._stop("no controller answers, stopping without controlled shutdown")
        return None

    def give_up(self, text: str) -> StopReason:
        """Stop without using the registration. Nothing was done under it, so the epoch of the last clean
        shutdown remains valid (R36)."""
        self.broker_epoch = -1
        self.is_fenced = True
        self.was_clean = None
        self.state = BrokerState.SHUTTING_DOWN
        return StopReason(text, is_failure=True)

    def abandon(self, text: str) -> StopReason:
        """Stop without another word to the controllers. The registration remains: all was done under it, and
        a clean shutdown counts for the metadata that holds it (R36)."""
        self.is_fenced = True
        self.state = BrokerState.SHUTTING_DOWN
        return StopReason(text, is_failure=True)

    def _stop(self, text: str) -> StopReason:
        self.state = BrokerState.SHUTTING_DOWN
        return StopReason(text, is_failure=False)

    def next_deadline_ms(self, may_send: bool) -> int:
        """When `next_request` (if `may_send`) or `check_times` may have a result."""
        deadlines = [self._next_ms] if may_send and not self._in_flight else []
        if self._give_up_ms is not None:
            deadlines.append(self._give_up_ms)
        if self._shutdown_deadline_ms is not None:
            deadlines.append(min(self._shutdown_deadline_ms, self._heard_ms + SILENCE_MS_MAX))
        if self.state is BrokerState.SHUTTING_DOWN or not deadlines:
            return FAR_AWAY_MS
        return min(deadlines)
