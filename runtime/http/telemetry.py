"""HTTP of a node: `/`, `/livez`, `/readyz`, `/metrics`, `/v1/...`. Only user of prometheus-client.

Owns the paths and the text format; reads the node through `NodeTelemetry` and never changes it. Who may come
in, and for how long, is `runtime.http.server`'s. Entry points import this module only when an admin listener
is configured: it costs a node some 20 MB.
"""

import asyncio
import importlib.metadata
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from aiohttp import web
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from holdfast.runtime.api import NetworkError
from holdfast.runtime.http.board import PAGE, EventStreams, page_response
from holdfast.runtime.http.hosts import HostNames
from holdfast.runtime.http.server import HttpLimits, HttpServer, Visitor, error_response, json_response
from holdfast.runtime.stats import (
    Histogram,
    HistogramValue,
    HttpReply,
    MetricFamily,
    MetricKind,
    NodeTelemetry,
    Sample,
)

#: how often the event loop is asked how late it is
LAG_PERIOD_S = 0.25
#: Samples that are made and written between two turns of the event loop.
SAMPLES_A_STEP = 200
#: What OpenMetrics writes after everything, and both formats before the samples of a name.
_END = b"# EOF\n"
_HEAD = re.compile(rb"\A(#[^\n]*\n)+")
#: A version in an Accept header that prometheus-client cannot compare, or would repeat unread in the answer.
_ODD_VERSION = re.compile(r"version=(?!\d{1,4}(\.\d{1,4}){0,3}\s*([;,]|\Z))", re.ASCII)
_LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class AdminServer:
    """Serves one node. `port` 0 takes any free one."""

    def __init__(
        self,
        host: str,
        port: int,
        node: NodeTelemetry,
        limits: HttpLimits | None = None,
        host_names: Iterable[str] = (),
    ) -> None:
        """`host_names`: under which the nodes are known; requests for other names are refused
        (`runtime.http.hosts`)."""
        self._limits = limits or HttpLimits()
        self._host_names = HostNames((host, *host_names))
        self._host = host
        self._port = port
        self._node = node
        self._runner: web.ServerRunner | None = None
        self._lag = Histogram(_LAG_BUCKETS_S)
        self._lag_timer: asyncio.TimerHandle | None = None
        #: one scrape at a time, and a request that waited for it takes the one that began after the question:
        #: a stuck scraper that tries again must not pile up work
        self._scrape = asyncio.Lock()
        #: scrapes that have begun, the last one that came to its end, and its text
        self._begun_count = 0
        self._last_done = 0
        self._scraped: list[bytes] = []
        self._scraped_as = ""
        self._scraper_count = 0
        self._process = ProcessCollector(registry=None)
        self._streams = EventStreams(node)

    async def start(self) -> int:
        """Listen; returns the bound port. Raises: NetworkError when it is taken."""
        self._runner = web.ServerRunner(HttpServer(self._handle, self._limits), shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host or None, self._port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise NetworkError(f"cannot serve HTTP at {self._host}:{self._port}: {error.strerror}") from error
        self._watch_lag()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, Visitor)
        request.protocol.begun()
        if request.method not in ("GET", "HEAD"):
            text = f"{request.method} is not served here: everything is read with GET"
            refusal = error_response(405, "METHOD_NOT_ALLOWED", text)
            refusal.headers["Allow"] = "GET, HEAD"
            refusal.force_close()  # a body may follow that is not read
            return refusal
        if not self._host_names.has(request.headers.get("Host")):
            text = "no node has the name in the Host header; ask by address, or by a name of listeners"
            return error_response(403, "UNKNOWN_HOST", text)
        path = request.path
        if path == "/livez":
            return web.Response(text="ok\n")
        if path == "/readyz":
            is_ready, reason = self._node.is_ready()
            return web.Response(text=f"{reason}\n", status=200 if is_ready else 503)
        if path == "/metrics":
            return await self._metrics(request)
        if path in PAGE:
            return page_response(path)
        if path == "/v1/events":
            return await self._streams.answer(request)
        if path.startswith("/v1/"):
            return await self._inspect(path, list(request.query.items()))
        text = f"there is no {path}; there are /, /livez, /readyz, /metrics, and below /v1/ what the docs say"
        return error_response(404, "UNKNOWN_PATH", text)

    async def _inspect(self, path: str, query: list[tuple[str, str]]) -> web.Response:
        steps = self._node.inspect(path, query)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                reply: HttpReply = done.value
                return json_response(reply.status, reply.body)
            await asyncio.sleep(0)

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        encode, content_type = _format_of(request.headers.get("Accept", ""))
        wanted = self._begun_count + 1
        self._scraper_count += 1
        try:
            async with self._scrape:
                if self._last_done < wanted or self._scraped_as != content_type:
                    self._begun_count += 1
                    number = self._begun_count
                    self._scraped = await self._text(encode)
                    self._last_done, self._scraped_as = number, content_type
                chunks = self._scraped
        finally:
            self._scraper_count -= 1
            if not self._scraper_count:
                self._scraped, self._scraped_as = [], ""
        response = web.StreamResponse(headers={"Content-Type": content_type})
        response.content_length = sum(map(len, chunks))
        await response.prepare(request)
        if request.method != "HEAD":
            for chunk in chunks:
                await response.write(chunk)
        await response.write_eof()
        return response

    async def _text(self, encode: Callable[[Collector], bytes]) -> list[bytes]:
        """The text of everything, a few samples at a time: the node must not stand still for it."""
        chunks: list[bytes] = []
        pieces: list[bytes] = []
        made = 0
        for family in chain(self._node.metrics(), self._own_metrics()):
            await asyncio.sleep(0)  # what made the family may have walked over all partitions
            samples = iter(family.samples)
            part = tuple(islice(samples, SAMPLES_A_STEP))
            is_first = True
            while part or is_first:
                text = encode(_Part([_metric(replace(family, samples=part))])).removesuffix(_END)
                pieces.append(text if is_first else _HEAD.sub(b"", text))
                is_first = False
                made += len(part) + 1
                if made >= SAMPLES_A_STEP:
                    chunks.append(b"".join(pieces))
                    pieces, made = [], 0
                    await asyncio.sleep(0)
                part = tuple(islice(samples, SAMPLES_A_STEP))
        # The last part keeps the end mark, where the format has one.
        return [*chunks, *pieces, encode(_Part(self._process.collect()))]

    def _own_metrics(self) -> Iterator[MetricFamily]:
        yield MetricFamily(
            "kafka_runtime_loop_lag_seconds",
            MetricKind.HISTOGRAM,
            "How late the event loop runs a timer.",
            (Sample(self._lag.value()),),
        )
        yield MetricFamily(
            "holdfast_build_info",
            MetricKind.GAUGE,
            "Always 1; the label tells the version.",
            (Sample(1, (("version", _version()),)),),
        )

    def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + LAG_PERIOD_S

        def fire() -> None:
            self._lag.observe(max(0.0, loop.time() - due))
            self._watch_lag()

        self._lag_timer = loop.call_at(due, fire)


class _Part(Collector):
    """Some of what a scrape shows."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _format_of(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """How to write metrics for who accepts this, and its content type: the plain text in doubt."""
    return choose_encoder("" if _ODD_VERSION.search(accept) else accept)


def _metric(family: MetricFamily) -> Metric:
    # The text format adds the suffix of a counter to the family's name by itself.
    metric = Metric(family.name.removesuffix("_total"), family.help, family.kind.value)
    for sample in family.samples:
        labels = dict(sample.labels)
        if isinstance(sample.value, HistogramValue):
            _add_histogram(metric, labels, sample.value)
        else:
            metric.add_sample(family.name, labels, sample.value)
    return metric


def _add_histogram(metric: Metric, labels: dict[str, str], value: HistogramValue) -> None:
    total = 0
    for bound, count in value.buckets:
        total += count
        metric.add_sample(
            f"{metric.name}_bucket",
            {**labels, "le": "+Inf" if math.isinf(bound) else str(float(bound))},
            total,
        )
    metric.add_sample(f"{metric.name}_count", labels, total)
    metric.add_sample(f"{metric.name}_sum", labels, value.sum)


def _version() -> str:
    try:
        return importlib.metadata.version("holdfast")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
