"""One request on its way through a node: what was asked, and the duty to answer it exactly once.

Owns that duty, and the room that the request takes meanwhile; never decides what the answer is.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.envelope import RequestParts, encode_refusal, encode_response
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FrameTooLarge
from holdfast.protocol.messages import Api
from holdfast.protocol.schema.fields import Buffer
from holdfast.rpc.core.memory import Charge

if TYPE_CHECKING:
    from holdfast.rpc.server_connection import ServerConnection

Handler: TypeAlias = "Callable[[Exchange], None]"


class OfConnection:
    """What handlers may ask of the connection that a request came through, of any protocol."""

    __slots__ = ("_connection",)

    def __init__(self, connection: "ServerConnection") -> None:
        self._connection = connection

    @property
    def peer(self) -> str:
        """`host:port` of the other side."""
        return self._connection.peer

    @property
    def listener_name(self) -> str:
        """The listener that the request came through."""
        return self._connection.server.listener_name

    @property
    def connection_id(self) -> int:
        """Unique among the connections of this server, those that have ended included."""
        return self._connection.connection_id

    @property
    def room_for_answer(self) -> int:
        """Most bytes that a large answer may have now, 0 for none: others have not taken theirs."""
        return self._connection.room_for_answer

    def vouch(self) -> None:
        """The peer is a node of the cluster: it does not compete with strangers for memory."""
        self._connection.vouch()

    def throttle(self, rest_ms: int) -> None:
        """The client is over a quota: read and start no other request of its connection for so long."""
        if self._connection.is_open:
            self._connection.rest(rest_ms)


class Exchange(OfConnection):
    """One request and the duty to answer it exactly once: `respond`, `fail` or `drop`."""

    __slots__ = (
        "_arrived_ns",
        "_charge",
        "_correlation_id",
        "_handled_ns",
        "_is_answered",
        "_started_ns",
        "api",
        "api_version",
        "client_id",
        "message",
    )

    def __init__(
        self,
        connection: "ServerConnection",
        api: Api,
        parts: RequestParts,
        message: Any,
        arrived_ns: int,
        started_ns: int,
        charge: Charge | None = None,
    ) -> None:
        self._connection = connection
        #: room that the request takes until it is answered or its bytes are let go
        self._charge = charge
        self._correlation_id = parts.correlation_id
        self._is_answered = False
        self._arrived_ns = arrived_ns
        self._started_ns = started_ns
        #: when the handler returned without an answer, 0 before
        self._handled_ns = 0
        self.api = api
        self.api_version = parts.api_version
        #: what the peer calls itself; proves nothing
        self.client_id = parts.client_id
        self.message = message

    @property
    def api_key(self) -> ApiKey:
        return self.api.key

    @property
    def is_answered(self) -> bool:
        """No answer is due any more."""
        return self._is_answered

    @property
    def is_open(self) -> bool:
        """True while an answer is still due and could still arrive."""
        return not self._is_answered and self._connection.is_open

    def let_go(self) -> None:
        """The request's bytes are not needed any more, although its answer is still due."""
        self.message = None
        charge, self._charge = self._charge, None
        if charge is not None:
            self._connection.release(charge)

    def respond(self, message: Any) -> None:
        """Answer. Does nothing when the peer has gone."""
        assert type(message) is self.api.response, f"{self.api.key.name}: {type(message).__name__}"
        answered_ns = self._finish(getattr(message, "error_code", ErrorCode.NONE))
        if self._connection.is_open:
            self._connection.send(self._encode(message), self.api.key, self._arrived_ns, answered_ns)

    async def respond_aside(self, message: Any) -> None:
        """Answer with a large message, which is encoded beside the event loop."""
        answer = await self._connection.server.runtime.tasks.compute(partial(self._encode, message))
        answered_ns = self._finish(getattr(message, "error_code", ErrorCode.NONE))
        if self._connection.is_open:
            self._connection.send(answer, self.api.key, self._arrived_ns, answered_ns)

    def fail(self, error_code: ErrorCode, text: str) -> None:
        """Refuse the request as a whole, for answers that have no place for it. `text` says what to do."""
        answered_ns = self._finish(error_code)
        if self._connection.is_open:
            refusal = encode_refusal(self._correlation_id, error_code, text)
            self._connection.send(refusal, self.api.key, self._arrived_ns, answered_ns)

    def drop(self) -> None:
        """Finish without any answer (required_acks 0)."""
        self._finish(ErrorCode.NONE)
        self._connection.go_on_soon()

    def hang_up(self, reason: str) -> None:
        """Finish without any answer and end the connection: the sender, who waits for none, hears by that.
        Does nothing when the peer has gone."""
        self._finish(ErrorCode.NONE)
        if self._connection.is_open:
            self._connection.hang_up(reason)

    def handled(self, now_ns: int) -> None:
        """The handler has returned: from here on others are waited for."""
        self._handled_ns = now_ns

    def _encode(self, message: Any) -> list[Buffer]:
        try:
            return encode_response(self.api_version, self._correlation_id, message)
        except FrameTooLarge as error:
            return encode_refusal(
                self._correlation_id, ErrorCode.MESSAGE_TOO_LARGE, f"the answer would be {error}"
            )

    def _finish(self, error_code: int) -> int:
        """Needs no answer any more; returns the time, ns."""
        assert not self._is_answered, f"{self.api.key.name} was answered twice"
        self._is_answered = True
        charge, self._charge = self._charge, None
        if charge is not None:
            self._connection.release(charge)
        answered_ns = self._connection.finished()
        self._connection.server.request_stats[self.api.key].answered(
            error_code, self._arrived_ns, self._started_ns, self._handled_ns, answered_ns
        )
        return answered_ns
