"""Who may come in over HTTP, how many, for how long: what keeps strangers from disturbing the node.

Owns connections and their limits; knows no paths. At the limit a newcomer takes the place of the connection
that has said nothing for longest, so that a crowd of silent ones never locks a scraper out; with all of them
at work the newcomer is refused. File handles are the node's: its logs need them.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_log = logging.getLogger("holdfast.http")

#: A line of a request, and how many headers it may have.
LINE_BYTES_MAX = 4096
HEADERS_MAX = 64
#: How long the unread rest of a body is waited for.
LINGER_S = 0.5
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What visitors may take of the node."""

    connection_max: int = 64
    #: a request must be complete so long after the connection or the last answer, ...
    idle_max_s: float = 20.0
    #: ... and its answer taken so long after the request
    answer_max_s: float = 60.0


class HttpServer(web.Server):
    """Makes the protocol of each new connection."""

    def __init__(self, handler: Handler, limits: HttpLimits) -> None:
        # No work for a client that has gone.
        super().__init__(handler, handler_cancellation=True)
        self.limits = limits
        #: connections, those first that have been silent for longest; from their birth on, as a burst has
        #: them all made before any is open
        self._inside: dict[Visitor, None] = {}

    def __call__(self) -> "Visitor | _Refused":  # type: ignore[override]  # asyncio takes any protocol
        if len(self._inside) >= self.limits.connection_max:
            silent = next((visitor for visitor in self._inside if not visitor.is_at_work), None)
            if silent is None:
                return _Refused()
            silent.leave()
        visitor = Visitor(self)
        self.come(visitor)
        return visitor

    def has(self, visitor: "Visitor") -> bool:
        """It has not been shown out."""
        return visitor in self._inside

    def come(self, visitor: "Visitor") -> None:
        """The connection is new, or has just been answered: it is the last one to be shown out."""
        self._inside.pop(visitor, None)
        self._inside[visitor] = None

    def gone(self, visitor: "Visitor") -> None:
        """The connection is closed."""
        self._inside.pop(visitor, None)


class Visitor(web.RequestHandler):
    """One connection."""

    __slots__ = ("_deadline", "_server", "is_at_work")

    def __init__(self, server: HttpServer) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=server.limits.idle_max_s,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=LINGER_S,
            auto_decompress=False,  # no body is read here
            access_log=None,  # type: ignore[arg-type]  # as web.AppRunner has it
            logger=_log,
        )
        self._server = server
        self._deadline: asyncio.TimerHandle | None = None
        #: a request is being answered
        self.is_at_work = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._server.has(self):
            self.leave()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.gone(self)
        self.finished()
        super().connection_lost(exc)

    def begun(self) -> None:
        """A whole request is here."""
        self.is_at_work = True
        self._deadline = asyncio.get_running_loop().call_later(self._server.limits.answer_max_s, self.leave)

    def finished(self) -> None:
        """Its answer has left, or never will."""
        self.is_at_work = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def leave(self) -> None:
        """End the connection now, with all that is on its way."""
        self._server.gone(self)
        if self.transport is not None:
            self.transport.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        result = await super().finish_response(request, resp, start_time)
        self.finished()
        if self.transport is not None:
            self._server.come(self)
        return result

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What was no request is worth no line in the log, nor is a visitor who has gone; our own bug is."""
        if isinstance(exc, HttpProcessingError):
            text = f"this is not an HTTP request that is understood here: {exc.message.splitlines()[0]}"
            response = error_response(400, "BAD_REQUEST", text)
        elif isinstance(exc, ConnectionError):
            response = error_response(500, "GONE", "the client has gone")
        else:
            _log.error("answering %s failed", request.path, exc_info=exc)
            response = error_response(500, "INTERNAL_ERROR", "the node met its own bug; its log tells more")
        response.force_close()
        return response


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.write(_REFUSAL)
        stream.close()


def json_response(status: int, body: Any) -> web.Response:
    """`body` as JSON."""
    return web.Response(status=status, text=json.dumps(body) + "\n", content_type="application/json")


def error_response(status: int, code: str, message: str) -> web.Response:
    """A refusal: a word for programs and a sentence for people."""
    return json_response(status, {"error": {"code": code, "message": message}})
