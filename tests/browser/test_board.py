"""The live page in a real browser: a cluster loses a broker, and the node that serves the page restarts."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import Producer
from holdfast.client.admin import Admin
from holdfast.localcluster.nodes import Node
from holdfast.localcluster.pytest_cluster import HoldfastCluster
from tests.browser.chromium import Page, browser, opened_page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(browser() is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]

SENTENCE = "document.getElementById('sentence').textContent"
ROWS = "document.querySelectorAll('#rows tr').length"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HoldfastCluster]:
    with HoldfastCluster.running(tmp_path / "cluster") as running:
        running.create_topic("orders", partitions=6, configs={"min.insync.replicas": "2"})
        yield running


def active_controller(cluster: HoldfastCluster) -> Node:
    found = cluster.wait_until(cluster.active_controller)
    assert found is not None
    return found


@pytest.fixture
async def page(cluster: HoldfastCluster, tmp_path: Path) -> AsyncIterator[Page]:
    """The page of the active controller."""
    controller = active_controller(cluster)
    async with opened_page(tmp_path / "profile") as page:
        await page.open(f"http://127.0.0.1:{controller.http_port}/", 1280, 900)
        await page.until(f"{ROWS} === 6")
        yield page


async def test_the_page_follows_a_killed_broker_and_its_return(cluster: HoldfastCluster, page: Page) -> None:
    assert await page.value(SENTENCE) == "All 6 partitions survive 1 more power loss"
    cluster.kill(cluster.broker(3))
    await page.until("document.querySelector('[data-broker=\"3\"]').classList.contains('fenced')")
    await page.until("document.querySelector('#changes').textContent.includes('broker 3 is gone')")
    await page.until(f"{SENTENCE}.endsWith('6 take no writes after the next stop')")
    cluster.restart(cluster.broker(3))
    await page.until(f"{SENTENCE} === 'All 6 partitions survive 1 more power loss'")


async def test_the_page_survives_the_restart_of_its_node(cluster: HoldfastCluster, page: Page) -> None:
    controller = active_controller(cluster)
    cluster.kill(controller)
    cluster.restart(controller)
    cluster.create_topic("later", partitions=1, configs={"min.insync.replicas": "2"})
    await page.until(f"{ROWS} === 7")


async def test_brokers_are_reached_with_the_keyboard_and_say_what_if(page: Page) -> None:
    await page.press("Tab")
    assert await page.value("document.activeElement.dataset.broker") == "1"
    await page.until(f"{SENTENCE}.startsWith('If broker 1 stopped: 2 partitions get another leader')")
    assert await page.value("document.querySelectorAll('tr.affected').length") == 2
    await page.value("document.activeElement.blur()")
    await page.until(f"{SENTENCE}.startsWith('All 6')")


async def test_a_brokers_page_shows_the_lag_of_its_groups(cluster: HoldfastCluster, page: Page) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(10):
            await producer.send("orders", b"value", partition=0)
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.alter_group_offsets("readers", {("orders", 0): 4})
        coordinator = cluster.broker((await admin.describe_group("readers")).coordinator_id)
    assert await page.value("document.getElementById('groups-section').hidden")
    await page.open(f"http://127.0.0.1:{coordinator.http_port}/", 1280, 900)
    cells = "[...document.querySelectorAll('#groups td')].map(cell => cell.textContent).join('|')"
    await page.until(f"{cells} === 'readers|Empty|0|6|orders-0: 6'")


@pytest.mark.parametrize("width", [1280, 390])
async def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    await page.open(await page.value("location.href"), width, 844)
    await page.until(f"{ROWS} === 6")
    assert await page.value("document.documentElement.scrollWidth") == width
    shown = "h1, section:not([hidden]) :is(h2, .broker, .scroll, #legend)"
    boxes = f"[...document.querySelectorAll('{shown}')]"
    fits = f"box.width > 0 && box.left >= 0 && box.right <= {width}"
    assert await page.value(f"{boxes}.map(each => each.getBoundingClientRect()).every(box => {fits})")


async def test_thousands_of_partitions_are_shown_worst_first(cluster: HoldfastCluster, page: Page) -> None:
    cluster.create_topic("many", partitions=1000, replication_factor=2, configs={"min.insync.replicas": "1"})
    await page.until("document.getElementById('shown').textContent.includes('of 1006')")
    assert await page.value(ROWS) == 200
    assert (await page.value("document.querySelector('#rows td').textContent")).startswith("many-")
    await page.value("document.getElementById('more').click()")
    await page.until(f"{ROWS} === 400")
