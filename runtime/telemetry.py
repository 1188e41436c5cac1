"""The admin endpoint of a node: `/livez`, `/readyz`, `/metrics`. Only user of aiohttp and prometheus-client.

Owns the HTTP server and the text format; reads the node through `NodeTelemetry` and never changes it. Entry
points import this module only when an admin listener is configured: it costs a node some 20 MB.
"""

import asyncio
import importlib.metadata
import math
from collections.abc import Iterable, Iterator

from aiohttp import web
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from runtime.api import NetworkError
from runtime.stats import Histogram, HistogramValue, MetricFamily, MetricKind, NodeTelemetry, Sample

#: how often the event loop is asked how late it is
LAG_PERIOD_S = 0.25
_LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class AdminServer:
    """Serves one node. `port` 0 takes any free one."""

    def __init__(self, host: str, port: int, node: NodeTelemetry) -> None:
        self._host = host
        self._port = port
        self._node = node
        self._runner: web.AppRunner | None = None
        self._lag = Histogram(_LAG_BUCKETS_S)
        self._lag_timer: asyncio.TimerHandle | None = None
        #: one scrape at a time: a stuck scraper that tries again must not pile up work
        self._scrape = asyncio.Lock()
        self._process = ProcessCollector(registry=None)

    async def start(self) -> int:
        """Listen; returns the bound port. Raises: NetworkError when it is taken."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
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

    async def _live(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:
        is_ready, reason = self._node.is_ready()
        return web.Response(text=f"{reason}\n", status=200 if is_ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with self._scrape:
            # The snapshot is taken on the loop, between two events; the text is made beside it.
            snapshot = _Snapshot([*self._node.metrics(), *self._own_metrics()], self._process)
            text = await asyncio.get_running_loop().run_in_executor(None, encode, snapshot)
        return web.Response(body=text, headers={"Content-Type": content_type})

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


class _Snapshot(Collector):
    """What one scrape shows."""

    def __init__(self, families: Iterable[MetricFamily], process: Collector) -> None:
        self._families = families
        self._process = process

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield _metric(family)
        yield from self._process.collect()


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
