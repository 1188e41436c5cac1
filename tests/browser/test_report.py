"""The report of a run in a real browser, from a file and without a network."""

from pathlib import Path

import pytest

from holdfast.report.page import page as made_page
from tests.browser.chromium import browser, opened_page
from tests.unit.report.test_page import BEGIN, ELECTION, FENCED, KILL, LOAD, ONLINE, RUN, verdict

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(120),
    pytest.mark.skipif(browser() is None, reason="no Chromium here (Debian: apt-get install chromium)"),
]

#: Titles of the bands, as drawn.
TITLES = "[...document.querySelectorAll('.infolayer .annotation-text')].map(each => each.textContent)"


@pytest.mark.parametrize("width", [1280, 390])
async def test_every_band_is_drawn_and_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    file = tmp_path / "report.html"
    rows = [RUN, ONLINE, BEGIN, LOAD, {**LOAD, "t_ms": 1000, "until_ms": 2000}, KILL, FENCED, ELECTION]
    file.write_text(made_page([[*rows, verdict(lost=2)]]))
    async with opened_page(tmp_path / "profile", "--host-resolver-rules=MAP * ~NOTFOUND") as page:
        await page.open(file.as_uri(), width, 900)
        await page.until("document.querySelectorAll('.main-svg').length > 0")
        await page.until(f"{TITLES}.length >= 4")
        assert await page.value(TITLES) == [
            "Acknowledged records per second",
            "Latency, ms",
            "Brokers and active controller",
            "Leader of each partition",
        ]
        assert await page.value("document.querySelectorAll('.bars .point path').length") >= 4
        assert await page.value("document.querySelectorAll('.scatterlayer .js-line').length") >= 4
        assert await page.value("document.documentElement.scrollWidth") == width
