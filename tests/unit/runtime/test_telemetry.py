"""The admin endpoint over real HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from holdfast.runtime.api import NetworkError
from holdfast.runtime.http.board import STREAMS_MAX
from holdfast.runtime.http.telemetry import SAMPLES_A_STEP, AdminServer
from holdfast.runtime.stats import (
    BoardEvent,
    BoardWatch,
    Histogram,
    HttpReply,
    LazySamples,
    MetricFamily,
    MetricKind,
    Sample,
    Steps,
    counter,
    gauge,
)

#: more than are written in one go, and not a multiple of it
MANY = 3 * SAMPLES_A_STEP + 7


class Node:
    """A broker that has just started."""

    def __init__(self) -> None:
        self.readiness = (False, "catching up with the metadata log")
        self.partitions = 6
        self.scrape_count = 0

    def is_ready(self) -> tuple[bool, str]:
        return self.readiness

    def metrics(self) -> Iterable[MetricFamily]:
        self.scrape_count += 1
        seconds = Histogram((0.1, 1.0))
        for value in (0.05, 0.5, 5):
            seconds.observe(value)
        yield gauge("kafka_server_partitions", "Partitions here.", self.partitions)
        yield counter("kafka_server_isr_shrinks_total", "Times an ISR shrank.", 2)
        labels = (("topic", 'with "quotes"'), ("partition", "0"))
        yield MetricFamily("kafka_log_end", MetricKind.GAUGE, "Ends.", (Sample(7, labels),))
        samples = (Sample(seconds.value(), (("request", "Produce"),)),)
        yield MetricFamily("kafka_server_request_seconds", MetricKind.HISTOGRAM, "Time.", samples)
        yield MetricFamily("kafka_many", MetricKind.GAUGE, "One a partition.", LazySamples(self._many))
        yield MetricFamily("kafka_none_total", MetricKind.COUNTER, "Nothing yet.")

    def _many(self) -> Iterator[Sample]:
        return (Sample(n, (("partition", str(n)),)) for n in range(MANY))

    def inspect(self, path: str, query: Sequence[tuple[str, str]]) -> Steps:
        yield
        return HttpReply(200, {"path": path, "query": [list(pair) for pair in query]})

    def watch(self, last_offset: int | None) -> BoardWatch:
        return Watch(last_offset)


class Watch:
    """Says once where it begins, then nothing."""

    def __init__(self, last_offset: int | None) -> None:
        self._events: list[BoardEvent | None] = [
            None,
            BoardEvent("cluster", {"since": last_offset}),
            BoardEvent("offset", {}, 7),
        ]

    def news(self) -> Iterator[BoardEvent | None]:
        yield from self._events
        self._events = []


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
async def url(node: Node) -> AsyncIterator[str]:
    server = AdminServer("127.0.0.1", 0, node)
    yield f"http://127.0.0.1:{await server.start()}"
    await server.close()


async def get(url: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session:
        async with session.request(method, url, headers=headers) as response:
            return response.status, await response.text()


async def test_live_as_soon_as_the_loop_runs_but_ready_only_when_the_node_says_so(
    url: str, node: Node
) -> None:
    assert await get(f"{url}/livez") == (200, "ok\n")
    assert await get(f"{url}/readyz") == (503, "catching up with the metadata log\n")
    node.readiness = (True, "unfenced")
    assert await get(f"{url}/readyz") == (200, "unfenced\n")


async def test_metrics_are_what_the_node_reports(url: str) -> None:
    status, text = await get(f"{url}/metrics")
    assert status == 200
    values = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["kafka_server_partitions", ()] == 6
    assert values["kafka_server_isr_shrinks_total", ()] == 2
    assert values["kafka_log_end", (("partition", "0"), ("topic", 'with "quotes"'))] == 7
    produce = ("request", "Produce")
    buckets = [
        values["kafka_server_request_seconds_bucket", (("le", bound), produce)]
        for bound in ("0.1", "1.0", "+Inf")
    ]
    assert buckets == [1, 2, 3]
    assert values["kafka_server_request_seconds_count", (produce,)] == 3
    assert values["kafka_server_request_seconds_sum", (produce,)] == pytest.approx(5.55)
    assert values["process_open_fds", ()] > 0
    assert any(name == "holdfast_build_info" for name, _ in values)


async def test_a_name_with_many_samples_is_written_in_parts_and_announced_once(url: str) -> None:
    _, text = await get(f"{url}/metrics")
    assert text.count("# TYPE kafka_many gauge\n") == 1
    assert [line for line in text.splitlines() if line.startswith("kafka_many{")] == [
        f'kafka_many{{partition="{n}"}} {n}.0' for n in range(MANY)
    ]
    assert "# TYPE kafka_none_total counter\n" in text


async def test_openmetrics_ends_once_and_at_the_end(url: str) -> None:
    _, text = await get(f"{url}/metrics", Accept="application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics(text)}  # type: ignore[no-untyped-call]
    assert len(families["kafka_many"].samples) == MANY
    assert text.count("# EOF") == 1
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize("version", ["abc", "1.x", "-", "1.0.0.dev", "2.ü", "9" * 50])
async def test_a_format_that_cannot_be_understood_gets_the_plain_text(url: str, version: str) -> None:
    for kind in ("application/openmetrics-text", "text/plain"):
        status, text = await get(f"{url}/metrics", Accept=f"{kind}; version={version}")
        assert status == 200
        assert "kafka_server_partitions 6.0\n" in text


async def test_what_is_below_v1_is_the_nodes_to_answer(url: str) -> None:
    status, text = await get(f"{url}/v1/a%20b?x=1&x=2&y=%3D")
    assert status == 200
    assert json.loads(text) == {"path": "/v1/a b", "query": [["x", "1"], ["x", "2"], ["y", "="]]}


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [
        ("/board", "GET", 404, "UNKNOWN_PATH"),
        ("/v1/events?x=1", "GET", 400, "BAD_QUERY"),
        ("/metrics/", "GET", 404, "UNKNOWN_PATH"),
        ("/v1", "GET", 404, "UNKNOWN_PATH"),
        ("/metrics", "POST", 405, "METHOD_NOT_ALLOWED"),
        ("/v1/x", "DELETE", 405, "METHOD_NOT_ALLOWED"),
    ],
)
async def test_what_is_not_served_is_refused_with_a_sentence(
    url: str, path: str, method: str, status: int, code: str
) -> None:
    seen, text = await get(f"{url}{path}", method)
    error = json.loads(text)["error"]
    assert (seen, error["code"]) == (status, code)
    assert " " in error["message"]


async def test_scrapers_that_wait_share_one_scrape_that_began_after_they_asked(url: str, node: Node) -> None:
    """A stuck scraper that tries again must not pile up work."""
    texts = await asyncio.gather(*(get(f"{url}/metrics") for _ in range(20)))
    assert len({status for status, _ in texts}) == 1
    assert node.scrape_count < 20
    node.partitions = 7
    assert "kafka_server_partitions 7.0" in (await get(f"{url}/metrics"))[1]


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 403), ("evil.example:80", 403), ("broker-1:9404", 200), ("[::1]", 200)],
)
async def test_a_request_for_a_name_that_no_node_has_is_refused(url: str, host: str, status: int) -> None:
    """A stranger's site whose name leads here, so that a browser reads for it (DNS rebinding)."""
    seen, text = await get(f"{url}/v1/cluster", Host=host)
    assert seen == status
    assert status == 200 or json.loads(text)["error"]["code"] == "UNKNOWN_HOST"


async def test_a_head_request_gets_the_head_only(url: str) -> None:
    assert await get(f"{url}/metrics", "HEAD") == (200, "")


async def test_taken_port_is_a_network_error(url: str, node: Node) -> None:
    with pytest.raises(NetworkError, match="cannot serve HTTP"):
        await AdminServer("127.0.0.1", int(url.rsplit(":", 1)[1]), node).start()


async def test_the_page_is_small_and_loads_nothing_from_elsewhere(url: str) -> None:
    size = 0
    async with aiohttp.ClientSession() as session:
        for path in ("/", "/board.css", "/board.js"):
            async with session.get(f"{url}{path}") as answer:
                text = await answer.text()
                assert answer.status == 200
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
                size += len(text)
    assert size < 100_000


async def test_events_come_as_a_stream_that_says_where_to_resume(url: str) -> None:
    for known, since in (({}, "null"), ({"Last-Event-ID": "5"}, "5"), ({"Last-Event-ID": "x"}, "null")):
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/v1/events", headers=known) as answer:
                assert answer.headers["Content-Type"] == "text/event-stream"
                read = [await answer.content.readuntil(b"\n\n") for _ in range(3)]
        assert read == [
            b"retry: 500\n\n",
            f'event: cluster\ndata: {{"since":{since}}}\n\n'.encode(),
            b"id: 7\nevent: offset\ndata: {}\n\n",
        ]


async def test_more_pages_than_a_node_serves_ask_again_later(url: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        following = [await session.get(f"{url}/v1/events") for _ in range(STREAMS_MAX)]
        assert {answer.status for answer in following} == {200}
        async with session.get(f"{url}/v1/events") as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        assert (await get(f"{url}/livez"))[0] == 200
        for answer in following:
            answer.close()
