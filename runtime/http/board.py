"""The live page of a node: its files, and the stream of events that it follows.

Owns how events become text, how many pages may follow, and when a stream ends. A stream ends after a while by
itself: the browser connects again and says where it was. So a page does not notice that a node restarts, and
occupies no connection for good.
"""

import asyncio
import json
from pathlib import Path

from aiohttp import web

from holdfast.runtime.http.server import error_response
from holdfast.runtime.stats import BoardEvent, NodeTelemetry

#: Pages that may follow at a time; the further ones ask again.
STREAMS_MAX = 16
#: How often a stream looks for changes, how often it says that it is alive, and how long it lasts.
LOOK_S = 0.25
ALIVE_S = 5.0
STREAM_S = 45.0
#: The browser connects again after so long.
RETRY_MS = 500

_FOLDER = Path(__file__).with_name("page")
#: {path: (file, content type)}
PAGE = {
    "/": ("board.html", "text/html"),
    "/board.css": ("board.css", "text/css"),
    "/board.js": ("board.js", "text/javascript"),
}
#: Only what this node serves: no inline script, no other host, no frame around it.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_response(path: str) -> web.Response:
    """One file of the page; `path` is one of PAGE."""
    name, content_type = PAGE[path]
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return web.Response(text=text, content_type=content_type, charset="utf-8", headers=_HEADERS)


class EventStreams:
    """The pages that follow one node."""

    def __init__(self, node: NodeTelemetry) -> None:
        self._node = node
        self._count = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send events until the stream's time is over or the page has gone; 503 when too many follow."""
        last = request.headers.get("Last-Event-ID", "")
        if request.query:
            return error_response(400, "BAD_QUERY", "/v1/events takes no parameter")
        if self._count >= STREAMS_MAX:
            busy = error_response(503, "BUSY", f"{STREAMS_MAX} pages follow this node already")
            busy.headers["Retry-After"] = "5"
            return busy
        self._count += 1
        try:
            return await self._follow(request, int(last) if last.isascii() and last.isdigit() else None)
        finally:
            self._count -= 1

    async def _follow(self, request: web.BaseRequest, last_offset: int | None) -> web.StreamResponse:
        watch = self._node.watch(last_offset)
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        response.force_close()
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        clock = asyncio.get_running_loop().time
        ends = clock() + STREAM_S
        alive = clock() + ALIVE_S
        await response.write(f"retry: {RETRY_MS}\n\n".encode())
        while clock() < ends:
            for event in watch.news():
                if event is None:
                    await asyncio.sleep(0)
                else:
                    await response.write(as_text(event))
                    alive = clock() + ALIVE_S
            if clock() >= alive:
                await response.write(b": alive\n\n")
                alive = clock() + ALIVE_S
            await asyncio.sleep(LOOK_S)
        return response


def as_text(event: BoardEvent) -> bytes:
    """The event as server-sent text."""
    resume = "" if event.offset is None else f"id: {event.offset}\n"
    return f"{resume}event: {event.kind}\ndata: {json.dumps(event.body, separators=(',', ':'))}\n\n".encode()
