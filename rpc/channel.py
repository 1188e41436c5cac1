"""The asking side: one connection with many requests in flight, and a pool of them by address.

Owns matching answers to requests, deadlines and reconnecting; never repeats a request, because only the
caller knows whether it may be done twice. A new connection first asks ApiVersions; every request
then goes in the highest version that both sides speak (D3).
"""

import asyncio
from typing import Any

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import encode_request, parse_response
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FrameDecoder, FrameError, FrameTooLarge
from holdfast.protocol.messages import API_OF_REQUEST, APIS, Api
from holdfast.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast.protocol.schema.fields import SchemaError, decode_message
from holdfast.rpc.core.correlation import InFlight, UnknownCorrelation
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.api import (
    Connection,
    ConnectionRefused,
    ConnectTimeout,
    NetworkError,
    Runtime,
    Task,
    Timer,
)

SOFTWARE = "holdfast"
_NOT_UNDERSTOOD = "an answer cannot be understood"


class Disconnected(NetworkError):
    """The connection ended before the answer came. Whether the request was carried out is not known."""


class NotConnected(NetworkError):
    """The connection ended or failed before it could carry a request: nothing was asked of the peer."""


class CallTimedOut(NetworkError):
    """No answer came in time. Whether the request was or will be carried out is not known; its answer is
    dropped when it comes. `close()` the channel to be sure that none comes (N-4)."""


class CallRefused(Exception):
    """The peer, or this side for it, refused the request as a whole; it was not carried out."""

    def __init__(self, error_code: ErrorCode, text: str) -> None:
        super().__init__(f"{error_code.name}: {text}")
        self.error_code = error_code
        self.text = text


def was_surely_not_done(error: Exception) -> bool:
    """True when the request that ended so cannot have been carried out by the node that was called."""
    # Sent and then silence or a broken connection says nothing; without a connection it was never sent.
    return isinstance(error, CallRefused | ConnectionRefused | ConnectTimeout | NotConnected)


class _Call:
    """A request that waits for its answer."""

    __slots__ = ("api", "api_version", "future", "reads_before")

    def __init__(self, api: Api, api_version: int, future: "asyncio.Future[Any]", reads_before: int) -> None:
        self.api = api
        self.api_version = api_version
        self.future = future
        #: how often bytes had arrived when the request was sent
        self.reads_before = reads_before


class Channel:
    """One connection to one node. Connect it once; a lost channel stays lost, make another one."""

    #: Unanswered calls of a channel; one more is refused with REQUEST_LIMIT_REACHED.
    IN_FLIGHT_MAX = 10_000

    def __init__(
        self, runtime: Runtime, host: str, port: int, client_id: str, *, silence_max_ms: int | None = None
    ) -> None:
        """`silence_max_ms`: with a request unanswered and not a byte for so long the channel is lost, before
        the request's own time is over: a long answer may take that. None: only the request's time counts."""
        self.host = host
        self.port = port
        #: the peer's node id, once connected
        self.node_id = -1
        self._runtime = runtime
        self._clock = runtime.clock
        self._client_id = client_id
        self._connection: Connection | None = None
        self._decoder = FrameDecoder()
        self._in_flight: InFlight[_Call] = InFlight()
        #: highest common version by API; what is missing cannot be called
        self._versions: dict[ApiKey, int] = {ApiKey.API_VERSIONS: APIS[ApiKey.API_VERSIONS].max_version}
        self._is_connected = False
        self._is_writing_paused = False
        #: who waits for room in the connection
        self._writers: list[asyncio.Future[None]] = []
        self._lost: NetworkError | None = None
        self._timer: Timer | None = None
        self._timer_ms = 0
        #: how often bytes have arrived, and when they last did
        self._reads = 0
        self._read_ms = 0
        self._silence_max_ms = silence_max_ms

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        """Connected, versions agreed, not lost."""
        return self._is_connected

    @property
    def is_writable(self) -> bool:
        """Connected, and not more queued than the connection's write limit."""
        return self._is_connected and not self._is_writing_paused

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    async def connect(self, timeout_ms: float) -> None:
        """Connect and agree on versions.

        Raises: ConnectionRefused, ConnectTimeout (also when the peer accepts and says nothing), NotConnected
        (all NetworkError), CallRefused.
        """
        assert self._connection is None and self._lost is None, "a channel connects once"
        try:
            await self._connect(timeout_ms)
        except (ConnectionRefused, ConnectTimeout):
            raise
        except NetworkError as error:
            # An unknown host name, or a peer that hung up: no request was on the way yet.
            raise NotConnected(str(error)) from error

    async def _connect(self, timeout_ms: float) -> None:
        deadline_ms = self._clock.now_ms() + timeout_ms
        connection = await self._runtime.network.connect(self.host, self.port, self, timeout_ms)
        if self._lost is not None:
            connection.abort()
            raise self._not_connected()
        try:
            response: ApiVersionsResponse = await self.call_soon(
                ApiVersionsRequest(software=SOFTWARE), max(1, deadline_ms - self._clock.now_ms())
            )
        except CallTimedOut:
            self.abort()
            raise ConnectTimeout(
                f"{self.address} accepted but said nothing within {timeout_ms:g} ms"
            ) from None
        except (CallRefused, asyncio.CancelledError):
            self.abort()
            raise
        if self._lost is not None:
            raise self._not_connected()  # heard of behind the answer, and before we went on
        self.node_id = response.node_id
        self._versions |= common_versions(response)
        self._is_connected = True

    async def call(self, request: Any, timeout_ms: float) -> Any:
        """The answer to `request`. Raises: CallTimedOut, Disconnected (both NetworkError), CallRefused."""
        return await self.call_soon(request, timeout_ms)

    def call_soon(self, request: Any, timeout_ms: float) -> "asyncio.Future[Any]":
        """Queue `request` behind those before it; the future has what `call` returns or raises."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        api = API_OF_REQUEST[type(request)]
        api_version = self._versions.get(api.key)
        if self._connection is None or self._lost is not None:
            future.set_exception(self._not_connected())
        elif api_version is None:
            future.set_exception(self._unsupported(api))
        elif len(self._in_flight) >= self.IN_FLIGHT_MAX:
            text = f"{self.IN_FLIGHT_MAX} calls to {self.address} are unanswered; wait for some"
            future.set_exception(CallRefused(ErrorCode.REQUEST_LIMIT_REACHED, text))
        else:
            now_ms = self._clock.now_ms()
            call = _Call(api, api_version, future, self._reads)
            correlation_id = self._in_flight.add(call, now_ms, now_ms + int(timeout_ms))
            try:
                buffers = encode_request(api, api_version, correlation_id, self._client_id, request)
            except FrameTooLarge as error:
                self._in_flight.answer(correlation_id)
                future.set_exception(CallRefused(ErrorCode.MESSAGE_TOO_LARGE, f"the request is {error}"))
                return future
            except Exception:
                # It never left: do not count it, or take the peer for silent because of it.
                self._in_flight.answer(correlation_id)
                raise
            self._connection.write(buffers)
            # An earlier timer stays, and nothing but this call could need an earlier one.
            if self._timer is None or self._timer_ms > now_ms + min(
                timeout_ms, self._silence_max_ms or timeout_ms
            ):
                self._arm_timer()
        return future

    def send(self, request: Any) -> None:
        """Send `request` without waiting for an answer. Raises: Disconnected, CallRefused."""
        api = API_OF_REQUEST[type(request)]
        api_version = self._versions.get(api.key)
        if self._connection is None or self._lost is not None:
            raise self._not_connected()
        if api_version is None:
            raise self._unsupported(api)
        try:
            buffers = encode_request(api, api_version, self._in_flight.take_id(), self._client_id, request)
        except FrameTooLarge as error:
            raise CallRefused(ErrorCode.MESSAGE_TOO_LARGE, f"the request is {error}") from None
        self._connection.write(buffers)

    def writable(self) -> "asyncio.Future[None]":
        """Done once less than the write limit is queued; fails with Disconnected when the channel is lost."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.is_writable:
            future.set_result(None)
        elif not self._is_connected:
            future.set_exception(self._not_connected())
        else:
            self._writers.append(future)
        return future

    def close(self) -> None:
        """Send what is queued, then end the connection. Unanswered calls fail with Disconnected at once."""
        if self._lost is None:
            self._lose(Disconnected(f"the connection to {self.address} was closed on this side"))
            if self._connection is not None:
                self._connection.close()

    def abort(self) -> None:
        """End the connection at once; what is queued is not sent."""
        self._lose(Disconnected(f"the connection to {self.address} was closed on this side"))
        if self._connection is not None:
            self._connection.abort()

    # --- ConnectionHandler --------------------------------------------------------------------------------

    def connection_made(self, connection: Connection) -> None:
        self._connection = connection

    def bytes_received(self, data: bytes) -> None:
        if self._lost is not None:
            return
        self._reads += 1
        if self._silence_max_ms is not None:
            self._read_ms = self._clock.now_ms()
        try:
            for frame in self._decoder.feed(data):
                self._answered(frame.body, frame.attachment)
        except (FrameError, SchemaError, UnknownCorrelation) as error:
            self._give_up(Disconnected(f"{self.address}: {_NOT_UNDERSTOOD}: {error}"))

    def pause_writing(self) -> None:
        # What calls queue is bounded by what callers keep in flight; who only sends asks for room.
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        writers, self._writers = self._writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(None)

    def connection_lost(self, error: NetworkError | None) -> None:
        reason = "the peer closed it" if error is None else str(error)
        self._lose(Disconnected(f"the connection to {self.address} ended: {reason}"))

    # --- inside -------------------------------------------------------------------------------------------

    def _answered(self, body: Any, attachment: memoryview) -> None:
        correlation_id, raw, refusal = parse_response(body)
        call = self._in_flight.answer(correlation_id)
        if call is None or call.future.done():
            return  # too late, or the caller gave up
        if refusal is not None:
            call.future.set_exception(CallRefused(_error_code(refusal[0]), refusal[1]))
            return
        try:
            response: Any = decode_message(call.api.response, raw, call.api_version, attachment)
        except SchemaError as error:
            call.future.set_exception(Disconnected(f"{self.address}: {_NOT_UNDERSTOOD}: {error}"))
            raise
        call.future.set_result(response)

    def _not_connected(self) -> Exception:
        return _copy(self._lost or Disconnected(f"{self.address} is not connected"))

    def _unsupported(self, api: Api) -> CallRefused:
        text = f"{self.address} and this node have no version of {api.key.name} in common"
        return CallRefused(ErrorCode.UNSUPPORTED_VERSION, text)

    def _arm_timer(self) -> None:
        # One timer, for the earliest deadline. Answers do not move it: it finds nothing and is set anew.
        deadline_ms = self._in_flight.next_deadline_ms()
        silent_ms = self._silent_at_ms()
        if deadline_ms is not None and silent_ms is not None:
            deadline_ms = min(deadline_ms, silent_ms)
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._clock.call_later(max(0, deadline_ms - self._clock.now_ms()), self._expire)

    def _silent_at_ms(self) -> int | None:
        """When the peer counts as silent unless a byte comes; None while no answer is due."""
        sent_ms = self._in_flight.oldest_ms()
        if self._silence_max_ms is None or sent_ms is None:
            return None
        return max(sent_ms, self._read_ms) + self._silence_max_ms

    def _expire(self) -> None:
        self._timer = None
        silent_ms = self._silent_at_ms()
        is_silent = silent_ms is not None and self._clock.now_ms() >= silent_ms
        for waiting in self._in_flight.expire(self._clock.now_ms()):
            is_silent = is_silent or self._reads == waiting.item.reads_before
            if not waiting.item.future.done():
                waited_ms = waiting.deadline_ms - waiting.sent_ms
                text = f"{self.address} did not answer {waiting.item.api.key.name} within {waited_ms} ms"
                waiting.item.future.set_exception(CallTimedOut(text))
        if is_silent:
            # Not a byte since that request: a dead host would keep this connection half-open for minutes.
            self._give_up(Disconnected(f"{self.address} is silent, the connection was given up"))
        else:
            self._arm_timer()

    def _give_up(self, error: NetworkError) -> None:
        self._lose(error)
        assert self._connection is not None
        self._connection.abort()

    def _lose(self, error: NetworkError) -> None:
        if self._lost is not None:
            return
        self._lost = error
        self._is_connected = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        writers, self._writers = self._writers, []
        for future in (*writers, *(call.future for call in self._in_flight.drain())):
            if not future.done():
                future.set_exception(_copy(error))
                # Who closed the channel itself may not be waiting any more; that is not worth a complaint.
                future.exception()


def common_versions(response: ApiVersionsResponse) -> dict[ApiKey, int]:
    """The highest version that both sides speak, for every API where there is one."""
    versions: dict[ApiKey, int] = {}
    for offered in response.apis:
        api = APIS.get(offered.api_key)  # type: ignore[call-overload]  # an int finds its ApiKey
        if api is not None:
            highest = min(api.max_version, offered.max_version)
            if highest >= max(api.min_version, offered.min_version):
                versions[api.key] = highest
    return versions


def _error_code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# --- pool ----------------------------------------------------------------------------------------------


class _Address:
    """What the pool knows of one `host:port`."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.channel: Channel | None = None
        self.connecting: Task | None = None
        #: attempts that failed since the last success
        self.failures = 0
        self.last_error: Exception | None = None
        #: no attempt before this
        self.retry_ms = 0
        #: callers that wait for a channel, in order of arrival
        self.waiters: list[asyncio.Future[Channel]] = []


class Pool:
    """One channel an address, connected on demand and shared by all callers."""

    #: Wait after the second failure in a row; doubles with each one after it, up to the second number.
    BACK_OFF_FIRST_MS = 20
    BACK_OFF_MAX_MS = 1_000

    def __init__(self, runtime: Runtime, client_id: str, connect_timeout_ms: int = 3_000) -> None:
        self._runtime = runtime
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._addresses: dict[tuple[str, int], _Address] = {}
        self._is_closed = False

    async def call(self, host: str, port: int, request: Any, timeout_ms: float) -> Any:
        """The answer to `request`, connecting first where needed, all within `timeout_ms`.

        Raises: ConnectionRefused, ConnectTimeout, NotConnected, CallTimedOut, Disconnected (all
        NetworkError), CallRefused.
        """
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms
        channel = await self.channel(host, port, timeout_ms)
        return await channel.call_soon(request, max(1, deadline_ms - self._runtime.clock.now_ms()))

    async def channel(self, host: str, port: int, timeout_ms: float) -> Channel:
        """A connected channel. Concurrent callers share one attempt (single flight).

        Raises: NetworkError, what the last attempt met when the time is over; CallRefused.
        """
        channel = self.connected(host, port)
        if channel is not None:
            return channel
        if self._is_closed:
            raise NotConnected("the pool is closed")
        address = self._addresses.setdefault((host, port), _Address(host, port))
        waiter: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()
        address.waiters.append(waiter)
        timer = self._runtime.clock.call_later(timeout_ms, lambda: _time_out(address, waiter, timeout_ms))
        self._connect_later(address)
        try:
            return await waiter
        finally:
            timer.cancel()

    def connected(self, host: str, port: int) -> Channel | None:
        """The channel to this address when it is connected now."""
        address = self._addresses.get((host, port))
        if address is not None and address.channel is not None and address.channel.is_connected:
            return address.channel
        return None

    def disconnect(self, host: str, port: int) -> None:
        """End the connection, so that no late answer can come (N-4). The next call connects anew."""
        address = self._addresses.get((host, port))
        if address is not None and address.channel is not None:
            address.channel.abort()
            address.channel = None

    def close(self) -> None:
        """End all connections. Calls under way fail with Disconnected."""
        self._is_closed = True
        for address in self._addresses.values():
            if address.connecting is not None:
                address.connecting.cancel()
            if address.channel is not None:
                address.channel.close()
            _wake(address, NotConnected("the pool is closed"))
        self._addresses.clear()

    def _connect_later(self, address: _Address) -> None:
        if address.connecting is None:
            name = f"connect to {address.host}:{address.port}"
            address.connecting = self._runtime.tasks.start(name, self._connect(address))

    async def _connect(self, address: _Address) -> None:
        clock = self._runtime.clock
        if address.retry_ms > clock.now_ms():
            await clock.sleep(address.retry_ms - clock.now_ms())
        channel = Channel(self._runtime, address.host, address.port, self._client_id)
        try:
            await channel.connect(self._connect_timeout_ms)
        except (NetworkError, CallRefused) as error:
            address.connecting = None
            self._failed(address, error)
            return
        address.connecting = None
        address.channel, address.failures, address.last_error = channel, 0, None
        waiters, address.waiters = address.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(channel)

    def _failed(self, address: _Address, error: Exception) -> None:
        # The first failure costs nothing: a restarted node is found at once (D9). Then wait, and not in step.
        address.failures += 1
        address.last_error = error
        wait_ms = 0.0
        if address.failures > 1:
            doubled_ms = self.BACK_OFF_FIRST_MS << min(address.failures - 2, 16)
            wait_ms = min(doubled_ms, self.BACK_OFF_MAX_MS) * (0.5 + self._runtime.random.random() / 2)
        address.retry_ms = self._runtime.clock.now_ms() + int(wait_ms)
        _wake(address, error)


def _wake(address: _Address, error: Exception) -> None:
    waiters, address.waiters = address.waiters, []
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(_copy(error))


def _copy(error: Exception) -> Exception:
    # One exception raised in several places would gather the frames of all of them.
    if isinstance(error, CallRefused):
        return CallRefused(error.error_code, error.text)
    return type(error)(*error.args)


def _time_out(address: _Address, waiter: "asyncio.Future[Channel]", timeout_ms: float) -> None:
    if not waiter.done():
        text = f"{address.host}:{address.port} was not connected within {timeout_ms:g} ms"
        waiter.set_exception(_copy(address.last_error or ConnectTimeout(text)))
    if waiter in address.waiters:
        address.waiters.remove(waiter)


def failure_of(error: BaseException) -> CallFailure:
    """What an exception of rpc says about the peer. Raises it when it is none of those."""
    match error:
        case ConnectionRefused():
            return CallFailure.REFUSED
        case CallTimedOut() | ConnectTimeout():
            return CallFailure.TIMED_OUT
        case Disconnected():
            return CallFailure.DISCONNECTED
        case NetworkError():
            return CallFailure.UNREACHABLE
        case CallRefused():
            return CallFailure.REJECTED
    raise error
