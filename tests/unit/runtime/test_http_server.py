"""Unknown clients may send anything, or nothing: the others are served and nothing stays behind."""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace

import pytest

from holdfast.runtime.http.server import HEADERS_MAX, LINE_BYTES_MAX, HttpLimits
from holdfast.runtime.http.telemetry import AdminServer
from holdfast.runtime.stats import BoardWatch, HttpReply, MetricFamily, Steps

ASK = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
ASK_FOREVER = ASK.replace(b"/livez", b"/v1/forever")
#: no client is shown out for being slow, but where a test waits for just that
LIMITS = HttpLimits(connection_max=3, idle_max_s=60.0, answer_max_s=60.0)


class Node:
    """Breaks at /readyz and never comes to an end with anything below /v1/."""

    def __init__(self) -> None:
        self.questions = 0
        #: most at a time
        self.questions_seen = 0
        self.is_busy = asyncio.Event()

    def is_ready(self) -> tuple[bool, str]:
        raise RuntimeError("planted")

    def metrics(self) -> Iterable[MetricFamily]:
        return ()

    def inspect(self, path: str, query: object) -> Steps:
        self.questions += 1
        self.questions_seen = max(self.questions_seen, self.questions)
        if self.questions == LIMITS.connection_max:
            self.is_busy.set()
        try:
            while True:
                yield
        finally:
            self.questions -= 1
        return HttpReply(200, {})

    def watch(self, last_offset: int | None) -> BoardWatch:
        raise RuntimeError("planted")


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
def limits() -> HttpLimits:
    return LIMITS


@pytest.fixture
async def port(node: Node, limits: HttpLimits) -> AsyncIterator[int]:
    server = AdminServer("127.0.0.1", 0, node, limits)
    yield await server.start()
    await server.close()


class Visitor:
    """A connection as a stranger has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def hear(self) -> bytes:
        """Everything until the node hangs up."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    async def answer(self) -> bytes:
        """Status line of the next answer, of which the rest is read."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
        await self.reader.readexactly(length)
        return head.split(b"\r\n")[0]


@pytest.fixture
async def visit(port: int) -> AsyncIterator[Callable[[], Awaitable[Visitor]]]:
    made: list[Visitor] = []

    async def come() -> Visitor:
        made.append(Visitor(*await asyncio.open_connection("127.0.0.1", port)))
        return made[-1]

    yield come
    for visitor in made:
        visitor.writer.close()


Visit = Callable[[], Awaitable[Visitor]]


@pytest.mark.parametrize(
    "said",
    [
        b"\x00\x01\x02\x03 not http at all\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"a" * (2 * LINE_BYTES_MAX) + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * (2 * LINE_BYTES_MAX) + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(2 * HEADERS_MAX)) + b"\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_a_sentence_and_not_worth_a_line_in_the_log(
    visit: Visit, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    visitor = await visit()
    await visitor.say(said)
    head, _, body = (await visitor.hear()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") or head.startswith(b"HTTP/1.0 400 ")
    assert "not an HTTP request" in json.loads(body)["error"]["message"]
    assert not caplog.records


@pytest.mark.parametrize("limits", [replace(LIMITS, idle_max_s=0.2)], ids=["short"])
async def test_a_request_that_never_ends_is_given_up(visit: Visit) -> None:
    visitor = await visit()
    await visitor.say(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
    for _ in range(5):
        await visitor.say(b"X: y\r\n")
    assert await visitor.hear() == b""


async def test_a_crowd_of_silent_connections_locks_no_client_out(visit: Visit) -> None:
    """The one that has been silent for longest makes room, not the one that was answered last."""
    crowd = [await visit() for _ in range(LIMITS.connection_max)]
    await crowd[0].say(ASK)
    assert await crowd[0].answer() == b"HTTP/1.1 200 OK"
    newcomer = await visit()
    await newcomer.say(ASK)
    assert await newcomer.answer() == b"HTTP/1.1 200 OK"
    assert await crowd[1].hear() == b"", "it was silent for longest"
    await crowd[0].say(ASK)
    assert await crowd[0].answer() == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("limits", [replace(LIMITS, answer_max_s=0.3)], ids=["short"])
async def test_a_burst_makes_room_for_its_last(port: int, node: Node) -> None:
    """The kernel takes them all before the node looks."""
    burst = []
    for _ in range(3 * LIMITS.connection_max):
        burst.append(socket.create_connection(("127.0.0.1", port)))
        burst[-1].sendall(ASK_FOREVER)
    for connection in burst:
        reader, writer = await asyncio.open_connection(sock=connection)
        assert await Visitor(reader, writer).hear() == b""
        writer.close()
    assert node.questions_seen == LIMITS.connection_max


async def test_when_all_are_at_work_a_newcomer_is_told_to_come_again(visit: Visit, node: Node) -> None:
    for _ in range(LIMITS.connection_max):
        await (await visit()).say(ASK_FOREVER)
    await node.is_busy.wait()
    refusal = await (await visit()).hear()
    assert refusal.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1\r\n" in refusal


@pytest.mark.parametrize("limits", [replace(LIMITS, answer_max_s=0.3)], ids=["short"])
async def test_an_answer_that_takes_too_long_ends_with_its_connection(visit: Visit, node: Node) -> None:
    visitor = await visit()
    await visitor.say(ASK_FOREVER)
    assert await visitor.hear() == b""
    await (await visit()).say(b"bye")  # a turn of the event loop
    assert node.questions == 0, "the node works for no visitor who has gone"


async def test_a_body_that_is_not_wanted_is_not_read(visit: Visit) -> None:
    visitor = await visit()
    await visitor.say(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 1000)
    answer = await visitor.hear()
    assert answer.startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
        b"Content-Encoding: br\r\nContent-Length: 9\r\n\r\nnot brotl",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\nnot a chunk\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdefgh\r\n",
    ],
    ids=["gzip", "brotli", "no chunk", "a long chunk"],
)
async def test_a_body_that_cannot_be_understood_is_not_worth_a_line_in_the_log(
    visit: Visit, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = await visit()
    await visitor.say(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + body)
    assert (await visitor.hear()).startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 400 "))
    assert not caplog.records


async def test_our_own_bug_is_a_500_and_told_to_the_log_alone(
    visit: Visit, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = await visit()
    await visitor.say(ASK.replace(b"livez", b"readyz"))
    answer = await visitor.hear()
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert b"planted" not in answer
    assert "planted" in caplog.text
