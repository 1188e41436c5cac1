"""Sends the node's requests to other voters and says what became of them.

Owns the connections; never repeats a request, the node does. The kind of a failure is evidence (D9), so it is
told apart here and nowhere else.
"""

import asyncio
from collections.abc import Callable

from raft.config import RaftConfig
from raft.effects import Answered, RaftResponse, Send, SendFailed, SendFailure
from rpc.channel import CallRefused, CallTimedOut, Disconnected, Pool
from runtime.api import ConnectionRefused, ConnectTimeout, NetworkError, Runtime


class Peers:
    """The way to the other voters."""

    def __init__(
        self, runtime: Runtime, config: RaftConfig, outcome: Callable[[Answered | SendFailed], None]
    ) -> None:
        self._runtime = runtime
        self._voters = config.voters
        self._outcome = outcome
        self._pool = Pool(runtime, f"raft-{config.node_id}", config.request_timeout_ms)
        self._in_flight = 0
        self._quiet: asyncio.Future[None] | None = None

    def send(self, effect: Send) -> None:
        """Start the request; its outcome comes later, exactly once."""
        host, port = self._voters[effect.voter_id]
        self._in_flight += 1
        channel = self._pool.connected(host, port)
        if channel is None:
            name = f"{type(effect.request).__name__} to {effect.voter_id}"
            self._runtime.tasks.start(name, self._connect_and_call(effect, host, port))
            return
        # The common case costs no task.
        answer = channel.call_soon(effect.request, effect.timeout_ms)
        answer.add_done_callback(lambda answer: self._done(effect, answer))

    async def quiet(self, timeout_ms: int) -> None:
        """Until every request sent has its outcome, or the time is over."""
        if self._in_flight == 0:
            return
        quiet: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._quiet = quiet
        timer = self._runtime.clock.call_later(timeout_ms, self._wake)
        await quiet
        timer.cancel()

    def close(self) -> None:
        """End all connections. Requests under way fail."""
        self._pool.close()

    def _wake(self) -> None:
        if self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    async def _connect_and_call(self, effect: Send, host: str, port: int) -> None:
        try:
            response = await self._pool.call(host, port, effect.request, effect.timeout_ms)
        except (NetworkError, CallRefused) as error:
            self._failed(effect, error)
        else:
            self._answered(effect, response)

    def _done(self, effect: Send, answer: "asyncio.Future[RaftResponse]") -> None:
        if answer.cancelled():
            return  # the loop is closing
        error = answer.exception()
        if error is None:
            self._answered(effect, answer.result())
        else:
            self._failed(effect, error)

    def _answered(self, effect: Send, response: RaftResponse) -> None:
        self._end()
        self._outcome(Answered(effect.request_id, response))

    def _failed(self, effect: Send, error: BaseException) -> None:
        self._end()
        failure = failure_of(error)
        if isinstance(error, CallTimedOut):
            # No late answer may come on this connection (D-4).
            self._pool.disconnect(*self._voters[effect.voter_id])
        self._outcome(SendFailed(effect.request_id, failure))

    def _end(self) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            self._wake()


def failure_of(error: BaseException) -> SendFailure:
    """What an exception of rpc says about the peer. Raises it when it is none of those."""
    match error:
        case ConnectionRefused():
            return SendFailure.REFUSED
        case CallTimedOut() | ConnectTimeout():
            return SendFailure.TIMED_OUT
        case Disconnected():
            return SendFailure.DISCONNECTED
        case NetworkError():
            return SendFailure.UNREACHABLE
        case CallRefused():
            return SendFailure.REJECTED
    raise error
