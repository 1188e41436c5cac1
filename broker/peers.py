"""Outgoing connections of a broker: one for each broker that it fetches from, and the active controller.

Owns the channels and decides nothing. A fetch session lives exactly as long as its connection (N-4). A
failure is classified only as far as it says something certain about the peer (D9).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.broker.core.events import (
    CallAnswered,
    CallController,
    CallFailed,
    CloseSource,
    Event,
    FetchAnswered,
    FetchFailed,
    SendFetch,
)
from holdfast.rpc.channel import CallRefused, Channel, NotConnected, Pool, failure_of
from holdfast.runtime.api import ConnectionRefused, ConnectTimeout, NetworkError, Runtime

#: Longest time limit for a connection to a source, in ms; the fetcher then tries again.
CONNECT_TIMEOUT_MS = 3000


class _SourceChannel:
    """The connection of one fetch session."""

    __slots__ = ("backlog", "channel", "is_closed")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        #: requests that wait until the connection is up; None afterwards
        self.backlog: list[SendFetch] | None = []
        self.is_closed = False


class Peers:
    """All outgoing connections of a broker."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        voters: dict[int, tuple[str, int]],
        post: Callable[[Event], None],
    ) -> None:
        self._runtime = runtime
        self._client_id = f"broker-{node_id}"
        #: (host, port) of a controller, None when it is not known; by the configuration until the owner, who
        #: follows the metadata log, knows better (K30)
        self.address_of: Callable[[int], tuple[str, int] | None] = voters.get
        #: hears where a controller was not met; true when another address of it is known
        self.address_missed: Callable[[int, tuple[str, int]], bool] = lambda controller_id, address: False
        self._post = post
        self._sources: dict[int, _SourceChannel] = {}
        self.controllers = Pool(runtime, self._client_id)

    def close(self) -> None:
        """End all connections."""
        for source_id in sorted(self._sources):
            self._drop(source_id)
        self.controllers.close()

    # --- sources -----------------------------------------------------------------------------------------

    def send_fetch(self, effect: SendFetch) -> None:
        """Send on the session's connection, in order; a session's first request opens the connection."""
        source_id = effect.source_id
        if effect.request.session_epoch == 0:
            self._drop(source_id)
            channel = Channel(
                self._runtime, effect.host, effect.port, self._client_id, silence_max_ms=effect.silence_ms
            )
            source = self._sources[source_id] = _SourceChannel(channel)
            work = self._connect(source_id, source, min(CONNECT_TIMEOUT_MS, effect.silence_ms))
            self._runtime.tasks.start(f"connect to broker {source_id}", work)
        source = self._sources[source_id]
        if source.backlog is not None:
            source.backlog.append(effect)
        else:
            self._send(source, effect)

    async def _connect(self, source_id: int, source: _SourceChannel, timeout_ms: int) -> None:
        if source.is_closed:
            return  # dropped before this task had its first turn
        failure: Exception | None = None
        try:
            await source.channel.connect(timeout_ms)
        except (NetworkError, CallRefused) as error:
            failure = error
        if source.is_closed:
            source.channel.abort()
            return
        backlog, source.backlog = source.backlog, None
        assert backlog is not None
        if failure is not None:
            self._failed(backlog[0], failure)
            return
        for effect in backlog:
            self._send(source, effect)

    def _send(self, source: _SourceChannel, effect: SendFetch) -> None:
        future = source.channel.call_soon(effect.request, effect.timeout_ms)
        future.add_done_callback(lambda done: self._answered(source, effect, done))

    def _answered(self, source: _SourceChannel, effect: SendFetch, done: "asyncio.Future[Any]") -> None:
        error = None if done.cancelled() else done.exception()
        if source.is_closed or done.cancelled():
            return
        if error is not None:
            self._failed(effect, error)
            return
        request = effect.request
        self._post(FetchAnswered(effect.source_id, request.session_id, request.session_epoch, done.result()))

    def _failed(self, effect: SendFetch, error: BaseException) -> None:
        request = effect.request
        self._post(
            FetchFailed(
                effect.source_id, request.session_id, request.session_epoch, failure_of(error), str(error)
            )
        )

    def close_source(self, effect: CloseSource) -> None:
        """End the session's connection; answers that are still under way are ignored (N-4)."""
        self._drop(effect.source_id)

    def _drop(self, source_id: int) -> None:
        source = self._sources.pop(source_id, None)
        if source is not None:
            source.is_closed = True
            source.channel.abort()

    # --- controller --------------------------------------------------------------------------------------

    def call_controller(self, effect: CallController) -> None:
        """Send to the controller; the answer or the failure comes back as an event."""
        name = f"call controller {effect.controller_id}"
        self._runtime.tasks.start(name, self._call_controller(effect))

    async def _call_controller(self, effect: CallController) -> None:
        try:
            response = await self.ask_controller(effect.controller_id, effect.request, effect.timeout_ms)
        except (NetworkError, CallRefused) as error:
            self._post(CallFailed(effect.call_id, failure_of(error), str(error)))
        else:
            self._post(CallAnswered(effect.call_id, response))

    async def ask_controller(self, controller_id: int, request: Any, timeout_ms: float) -> Any:
        """The controller's answer to a forwarded request. Raises: NetworkError, CallRefused."""
        address = self.address_of(controller_id)
        if address is None:
            raise NotConnected(f"where controller {controller_id} is reached is not known")
        started_ms = self._runtime.clock.now_ms()
        text = f"controller {controller_id} was not met at {address[0]}:{address[1]}"
        try:
            channel = await self.controllers.channel(*address, timeout_ms)
        except (ConnectionRefused, ConnectTimeout, NotConnected) as error:
            if self.address_missed(controller_id, address):
                raise NotConnected(text) from error
            raise
        if channel.node_id != controller_id and self.address_missed(controller_id, address):
            raise NotConnected(text)
        return await channel.call_soon(
            request, max(1, timeout_ms - (self._runtime.clock.now_ms() - started_ms))
        )
