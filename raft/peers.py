"""Sends the node's requests to other voters and reports the outcomes.

Owns one connection per voter. Never repeats a request and never backs off: the node paces its requests, and a
pause here would make the outcome old news. The kind of a failure is evidence about the peer (D9); it is
classified here and nowhere else.
"""

import asyncio
from collections.abc import Callable

from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.effects import Answered, RaftResponse, Send, SendFailed
from holdfast.rpc.channel import CallRefused, CallTimedOut, Channel, Disconnected, NotConnected, failure_of
from holdfast.rpc.core.failures import CallFailure
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
        self,
        runtime: Runtime,
        config: RaftConfig,
        outcome: Callable[[Answered | SendFailed], None],
        address_of: Callable[[int], tuple[str, int] | None] | None = None,
        address_missed: Callable[[int, tuple[str, int]], bool] = lambda voter_id, address: False,
    ) -> None:
        """`address_of` gives (host, port) of a voter, by default as configured; `address_missed` hears where
        it was not met, and tells whether another address is known."""
        self._runtime = runtime
        self._client_id = f"raft-{config.node_id}"
        self._connect_timeout_ms = config.request_timeout_ms
        self._address_of = address_of or config.voters.get
        self._address_missed = address_missed
        self._links: dict[int, _Link] = {}
        self._outcome = outcome
        self._in_flight = 0
        self._quiet: asyncio.Future[None] | None = None
        self._is_closed = False

    def send(self, effect: Send) -> None:
        """Start the request; its outcome follows, exactly once."""
        assert not self._is_closed, "nothing is sent after the end"
        self._in_flight += 1
        link = self._link_to(effect.voter_id)
        if link is None:
            self._end(SendFailed(effect.request_id, CallFailure.UNREACHABLE))
            return
        if link.channel is not None and link.channel.is_connected:
            self._call(link, link.channel, effect, effect.timeout_ms)
            return
        link.waiting.append((effect, self._runtime.clock.now_ms() + effect.timeout_ms))
        if link.connecting is None:
            name = f"connect to voter {effect.voter_id}"
            link.connecting = self._runtime.tasks.start(name, self._connect(effect.voter_id, link))

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
        for _, link in sorted(self._links.items()):
            self._give_up(link, Disconnected("this node has left the quorum"))

    # --- inside ----------------------------------------------------------------------------------------

    def _link_to(self, voter_id: int) -> _Link | None:
        """The link to where the voter is reached now; None when that is not known."""
        address, link = self._address_of(voter_id), self._links.get(voter_id)
        if address is None:
            return None
        if link is None or (link.host, link.port) != address:
            if link is not None:
                self._give_up(link, Disconnected(f"voter {voter_id} is reached elsewhere now"))
            link = self._links[voter_id] = _Link(*address)
        return link

    def _give_up(self, link: _Link, why: Exception) -> None:
        if link.connecting is not None:
            link.connecting.cancel()
        if link.channel is not None:
            link.channel.close()
        self._fail_waiting(link, why)

    async def _connect(self, voter_id: int, link: _Link) -> None:
        address, channel = (
            (link.host, link.port),
            Channel(self._runtime, link.host, link.port, self._client_id),
        )
        failure: Exception | None = None
        try:
            await channel.connect(self._connect_timeout_ms)
        except (NetworkError, CallRefused) as error:
            failure = error
        is_met = failure is None and channel.node_id == voter_id
        if not is_met and self._address_missed(voter_id, address):
            channel.abort()
            failure = NotConnected(f"voter {voter_id} was not met at {link.host}:{link.port}")
        link.connecting = None
        if failure is not None:
            self._fail_waiting(link, failure)
            return
        link.channel = channel
        waiting, link.waiting = link.waiting, []
        now_ms = self._runtime.clock.now_ms()
        for effect, deadline_ms in waiting:
            self._call(link, channel, effect, max(1, deadline_ms - now_ms))

    def _call(self, link: _Link, channel: Channel, effect: Send, timeout_ms: int) -> None:
        answer = channel.call_soon(effect.request, timeout_ms)
        answer.add_done_callback(lambda answer: self._done(link, effect, answer))

    def _done(self, link: _Link, effect: Send, answer: "asyncio.Future[RaftResponse]") -> None:
        if answer.cancelled():
            return  # the loop is closing
        error = answer.exception()
        if error is not None:
            if isinstance(error, CallTimedOut):
                # A late answer must not come on this connection (N-4).
                self._disconnect(link)
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
