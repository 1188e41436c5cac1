"""Sends the node's requests to other voters and reports the outcomes.

Owns one connection per voter. Never repeats a request and never backs off: the node paces its requests, and a
pause here would make the outcome old news. The kind of a failure is evidence about the peer (D9); it is
classified here and nowhere else.
"""

import asyncio
from collections.abc import Callable

from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.effects import Answered, RaftResponse, Send, SendFailed
from holdfast.rpc.channel import CallRefused, CallTimedOut, Channel, Disconnected, failure_of
from holdfast.runtime.api import NetworkError, Runtime, Task


class _Link:
    """The connection to one voter."""

    __slots__ = ("channel", "connecting", "host", "port", "waiting")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.channel: Channel | None = None
        self.connecting: Task | None = None
        #: (request, deadline) that wait for the connection, in order
        self.waiting: list[tuple[Send, int]] = []


class Peers:
    """The connections to the other voters."""

    def __init__(
        self, runtime: Runtime, config: RaftConfig, outcome: Callable[[Answered | SendFailed], None]
    ) -> None:
        self._runtime = runtime
        self._client_id = f"raft-{config.node_id}"
        self._connect_timeout_ms = config.request_timeout_ms
        self._links = {id: _Link(*address) for id, address in sorted(config.voters.items())}
        self._outcome = outcome
        self._in_flight = 0
        self._quiet: asyncio.Future[None] | None = None
        self._is_closed = False

    def send(self, effect: Send) -> None:
        """Start the request; its outcome follows, exactly once."""
        assert not self._is_closed, "nothing is sent after the end"
        self._in_flight += 1
        link = self._links[effect.voter_id]
        if link.channel is not None and link.channel.is_connected:
            self._call(link.channel, effect, effect.timeout_ms)
            return
        link.waiting.append((effect, self._runtime.clock.now_ms() + effect.timeout_ms))
        if link.connecting is None:
            name = f"connect to voter {effect.voter_id}"
            link.connecting = self._runtime.tasks.start(name, self._connect(link))

    async def quiet(self, timeout_ms: int) -> None:
        """Wait until every request has its outcome, or the time is over."""
        if self._in_flight == 0:
            return
        quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._quiet = quiet
        timer = self._runtime.clock.call_later(timeout_ms, self._wake)
        await quiet
        timer.cancel()

    def close(self) -> None:
        """End all connections. Requests under way fail."""
        self._is_closed = True
        for link in self._links.values():
            if link.connecting is not None:
                link.connecting.cancel()
            if link.channel is not None:
                link.channel.close()
            self._fail_waiting(link, Disconnected("this node has left the quorum"))

    # --- inside ----------------------------------------------------------------------------------------

    async def _connect(self, link: _Link) -> None:
        channel = Channel(self._runtime, link.host, link.port, self._client_id)
        try:
            await channel.connect(self._connect_timeout_ms)
        except (NetworkError, CallRefused) as error:
            link.connecting = None
            self._fail_waiting(link, error)
            return
        link.connecting, link.channel = None, channel
        waiting, link.waiting = link.waiting, []
        now_ms = self._runtime.clock.now_ms()
        for effect, deadline_ms in waiting:
            self._call(channel, effect, max(1, deadline_ms - now_ms))

    def _call(self, channel: Channel, effect: Send, timeout_ms: int) -> None:
        answer = channel.call_soon(effect.request, timeout_ms)
        answer.add_done_callback(lambda answer: self._done(effect, answer))

    def _done(self, effect: Send, answer: "asyncio.Future[RaftResponse]") -> None:
        if answer.cancelled():
            return  # the loop is closing
        error = answer.exception()
        if error is not None:
            if isinstance(error, CallTimedOut):
                # A late answer must not come on this connection (N-4).
                self._disconnect(self._links[effect.voter_id])
            self._end(SendFailed(effect.request_id, failure_of(error)))
        else:
            self._end(Answered(effect.request_id, answer.result()))

    def _disconnect(self, link: _Link) -> None:
        if link.channel is not None:
            link.channel.abort()
            link.channel = None

    def _fail_waiting(self, link: _Link, error: Exception) -> None:
        waiting, link.waiting = link.waiting, []
        for effect, _ in waiting:
            self._end(SendFailed(effect.request_id, failure_of(error)))

    def _end(self, outcome: Answered | SendFailed) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            self._wake()
        self._outcome(outcome)

    def _wake(self) -> None:
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)
