"""The client's hold on a cluster: connections, metadata that is fresh enough, questions any node can answer.

Owns the connection pool and the one metadata request in flight. Decisions about staleness and addresses are
`metadata_cache`'s. Shared by producer, consumer and admin.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Any

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.client.core.metadata_cache import (
    Address,
    MetadataCache,
    NodeChooser,
    RefreshSchedule,
    TopicView,
    parse_addresses,
)
from holdfast.client.core.wanted_topics import UNKNOWN_TOPIC_GRACE_MS, WantedTopics
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataResponse
from holdfast.rpc.channel import CallRefused, Channel, Pool, was_surely_not_done
from holdfast.runtime.api import NetworkError, Runtime, Timer

#: Repetitions of a metadata request that brought no news: fast, since someone waits for a leader (D9).
METADATA_BACKOFF = Backoff(first_ms=10, max_ms=100)
METADATA_TIMEOUT_MS = 1_000
METADATA_MAX_AGE_MS = 60_000
CONNECT_TIMEOUT_MS = 2_000
#: A node that failed is asked last for so long.
SUSPICION_MS = 3_000
#: A node that says nothing for so long is left for another one, unless the caller knows better.
ASK_ATTEMPT_MS = 5_000
#: Repetitions of `ask` after a refusal or a failure.
ASK_BACKOFF = Backoff(first_ms=20, max_ms=500)
#: Answers of a controller that is not the active one, or not the quorum's leader.
_ASK_ANOTHER = (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
#: Refusals by a node that did nothing.
_NOTHING_DONE = (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_LIMIT_REACHED)


class ClusterClient:
    """Connections and metadata of one client."""

    def __init__(
        self,
        runtime: Runtime,
        bootstrap_servers: str | Sequence[str],
        client_id: str,
        on_metadata: Callable[[], None] | None = None,
        topics_in_use: Callable[[], Container[str]] = frozenset,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
    ) -> None:
        """`topics_in_use`: the topics that must not be forgotten now, though no call has named them
        lately."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._pool = Pool(runtime, client_id, CONNECT_TIMEOUT_MS)
        self._bootstrap = parse_addresses(bootstrap_servers)
        self._chooser = NodeChooser(self._bootstrap, SUSPICION_MS)
        self._schedule = RefreshSchedule(METADATA_BACKOFF, metadata_max_age_ms)
        self._on_metadata = on_metadata
        self._topics_in_use = topics_in_use
        self.cache = MetadataCache()
        #: what is asked for
        self.wanted = WantedTopics()
        self._timer: Timer | None = None
        #: who waits for the next metadata answer or failure
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closed = False
        #: why the last refresh failed, for people
        self._problem = "no node was asked yet"

    def close(self) -> None:
        """End all connections; all waiting calls get an error."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._pool.close()
        self._wake()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientError("this client is closed")

    # --- connections ----------------------------------------------------------------------------------

    def channel(self, broker_id: int) -> Channel | None:
        """The connection to that broker if it stands."""
        address = self.cache.address(broker_id)
        return None if address is None else self._pool.connected(*address)

    async def connect(self, broker_id: int) -> Channel:
        """The connection to that broker, made when there is none. Raises: NetworkError, ClientError."""
        address = self.cache.address(broker_id)
        if address is None:
            raise ClientError(f"broker {broker_id} is not known yet", ErrorCode.BROKER_NOT_AVAILABLE)
        try:
            return await self._pool.channel(*address, timeout_ms=CONNECT_TIMEOUT_MS)
        except NetworkError:
            self._chooser.failed(address, self._clock.now_ms())
            raise
        except CallRefused as error:
            raise ClientError(f"{address} refused: {error}", error.error_code) from error

    async def call(self, address: tuple[str, int], request: Any, timeout_ms: float) -> Any:
        """The answer of the node at this address, asked once. Raises: NetworkError, CallRefused."""
        return await self._pool.call(*address, request, timeout_ms)

    def suspect(self, broker_id: int) -> None:
        """A connection to that broker broke: ask others first."""
        address = self.cache.address(broker_id)
        if address is not None:
            self._chooser.failed(address, self._clock.now_ms())

    # --- metadata -------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Ask for metadata as soon as the schedule allows; `on_metadata` is called afterwards."""
        self._schedule.want(self._clock.now_ms())
        self._arm()

    async def refreshed(self, deadline_ms: int) -> None:
        """Ask and wait for the next answer or failure. Raises: TimedOut, ClientError when closed."""
        self._check_open()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        left_ms = deadline_ms - self._clock.now_ms()
        timer = self._clock.call_later(max(0, left_ms), lambda: _cancel_wait(waiter))
        self.refresh()
        try:
            if not await _was_woken(waiter):
                raise TimedOut(f"no metadata within the time given: {self._problem}")
        finally:
            timer.cancel()
        self._check_open()

    async def topic(self, name: str, timeout_ms: float) -> TopicView:
        """The topic, asked for when it is not known. Raises: ClientError (also when no topic can be called
        so), TimedOut."""
        start_ms = self._clock.now_ms()
        while True:
            self.wanted.use(name, self._clock.now_ms())
            view = self.cache.topic(name)
            if view is not None:
                return view
            waited_ms = self._clock.now_ms() - start_ms
            code = self.cache.topic_error(name)
            if code is not None and waited_ms >= min(timeout_ms, UNKNOWN_TOPIC_GRACE_MS):
                raise _unknown_topic(name, code)
            try:
                await self.refreshed(start_ms + int(timeout_ms))
            except TimedOut:
                if code is None:
                    raise
                raise _unknown_topic(name, code) from None

    def _arm(self) -> None:
        due_ms = self._schedule.due_ms()
        if due_ms is None or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left_ms = due_ms - self._clock.now_ms()
        if left_ms > 0:
            self._timer = self._clock.call_later(left_ms, self._arm)
            return
        self._schedule.started()
        self._runtime.tasks.start("client metadata", self._refresh_once())

    async def _refresh_once(self) -> None:
        for topic in self.wanted.forget_idle(self._clock.now_ms(), self._topics_in_use()):
            self.cache.forget(topic)
        news = False
        portions = deque(self.wanted.portions())
        try:
            while portions:
                names = portions.popleft()
                try:
                    request = MetadataRequest(topics=names)
                    response: MetadataResponse = await self._ask_each(request, METADATA_TIMEOUT_MS)
                except ClientError as error:
                    if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
                        raise
                    # so many partitions do not fit one answer
                    self._problem = str(error)
                    if names is not None and len(names) > 1:
                        portions.extendleft((names[len(names) // 2 :], names[: len(names) // 2]))
                    continue
                update = self.cache.update_all if names is None else self.cache.update
                news = bool(update(response)) or news
        except ClientError as error:
            self._problem = str(error)
        self._schedule.finished(self._clock.now_ms(), news=news)
        self._wake()
        if self._on_metadata is not None and not self._is_closed:
            self._on_metadata()
        self._arm()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- questions ------------------------------------------------------------------------------------

    async def _ask_each(self, request: Any, timeout_ms: float) -> Any:
        # One try at each node, the trusted ones first: a dead node costs a reset, not a pause (D9).
        problem = "no node is known"
        asked: list[Address] = []
        for _ in range(len(self.cache.addresses()) + len(self._bootstrap)):
            address = self._chooser.choose(self.cache.addresses(), self._clock.now_ms())
            if address in asked:
                break
            asked.append(address)
            try:
                response = await self._pool.call(*address, request, timeout_ms=timeout_ms)
            except NetworkError as error:
                self._chooser.failed(address, self._clock.now_ms())
                problem = str(error)
                continue
            except CallRefused as error:
                if not error.error_code.is_retriable:
                    raise ClientError(f"{address} refused: {error}", error.error_code) from error
                # It starts, stops or is overloaded, perhaps for long: the others know as much.
                self._chooser.failed(address, self._clock.now_ms())
                problem = f"{address}: {error}"
                continue
            self._chooser.succeeded(address)
            return response
        raise ClientError(problem)

    async def ask(
        self,
        request: Any,
        timeout_ms: float,
        *,
        code_of_answer: Callable[[Any], ErrorCode],
        what: str,
        attempt_ms: float = ASK_ATTEMPT_MS,
    ) -> tuple[Any, bool]:
        """Ask any node until one answers without a retriable error.

        Returns the answer and whether an earlier attempt ended without one, so may have been carried out.
        Raises: TimedOut, ClientError.
        """
        deadline_ms = self._clock.now_ms() + int(timeout_ms)
        repetitions = 0
        maybe_done = False
        while True:
            left_ms = deadline_ms - self._clock.now_ms()
            address = self._chooser.choose(self.cache.addresses(), self._clock.now_ms())
            try:
                response = await self._pool.call(
                    *address, request, timeout_ms=max(1, min(left_ms, attempt_ms))
                )
                code = code_of_answer(response)
                if code in _ASK_ANOTHER:
                    # brokers forward, controllers do not: another one may be active
                    self._chooser.failed(address, self._clock.now_ms())
                else:
                    self._chooser.succeeded(address)
                if not code.is_retriable:
                    return response, maybe_done
                # A part of the request may be done, or all of it too late.
                maybe_done = maybe_done or code not in _NOTHING_DONE
                problem = f"{address} answered {code.name}: {getattr(response, 'error_message', None) or ''}"
            except NetworkError as error:
                self._chooser.failed(address, self._clock.now_ms())
                maybe_done = maybe_done or not was_surely_not_done(error)
                code, problem = ErrorCode.NETWORK_EXCEPTION, str(error)
            except CallRefused as error:
                if not error.error_code.is_retriable:
                    raise ClientError(f"{address} refused {what}: {error}", error.error_code) from error
                self._chooser.failed(address, self._clock.now_ms())
                code, problem = error.error_code, str(error)
                # a broker that forwarded it may have lost the answer
                maybe_done = maybe_done or code not in _NOTHING_DONE
            self._check_open()
            pause_ms = ASK_BACKOFF.pause_ms(repetitions)
            if self._clock.now_ms() + pause_ms >= deadline_ms:
                raise TimedOut(f"{what} did not succeed within {timeout_ms:g} ms: {problem}", code)
            repetitions += 1
            await self._clock.sleep(pause_ms)


def _unknown_topic(name: str, code: ErrorCode) -> ClientError:
    return ClientError(f"topic {name}: {code.name}; create it first", code)


def _cancel_wait(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_exception(TimedOut(""))


async def _was_woken(waiter: "asyncio.Future[None]") -> bool:
    """True when it was woken, False when its time was over."""
    try:
        await waiter
    except TimedOut:
        return False
    return True
