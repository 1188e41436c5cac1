"""The admin endpoint over real HTTP."""

from collections.abc import AsyncIterator, Iterable

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.api import NetworkError
from runtime.stats import Histogram, MetricFamily, MetricKind, Sample, counter, gauge
from runtime.telemetry import AdminServer


class Node:
    """A broker that has just started."""

    def __init__(self) -> None:
        self.readiness = (False, "catching up with the metadata log")

    def is_ready(self) -> tuple[bool, str]:
        return self.readiness

    def metrics(self) -> Iterable[MetricFamily]:
        seconds = Histogram((0.1, 1.0))
        for value in (0.05, 0.5, 5):
            seconds.observe(value)
        yield gauge("kafka_server_partitions", "Partitions here.", 6)
        yield counter("kafka_server_isr_shrinks_total", "Times an ISR shrank.", 2)
        labels = (("topic", 'with "quotes"'), ("partition", "0"))
        yield MetricFamily("kafka_log_end", MetricKind.GAUGE, "Ends.", (Sample(7, labels),))
        samples = (Sample(seconds.value(), (("request", "Produce"),)),)
        yield MetricFamily("kafka_server_request_seconds", MetricKind.HISTOGRAM, "Time.", samples)


@pytest.fixture
async def node() -> Node:
    return Node()


@pytest.fixture
async def url(node: Node) -> AsyncIterator[str]:
    server = AdminServer("127.0.0.1", 0, node)
    yield f"http://127.0.0.1:{await server.start()}"
    await server.close()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
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


async def test_taken_port_is_a_network_error(url: str, node: Node) -> None:
    with pytest.raises(NetworkError, match="cannot serve HTTP"):
        await AdminServer("127.0.0.1", int(url.rsplit(":", 1)[1]), node).start()
