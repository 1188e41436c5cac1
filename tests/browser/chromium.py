"""A page in a real browser: Chromium without a window, driven over its own debugging protocol.

Owns the process and the few calls that tests need. Keys go through the browser's own input, as a person's do.
"""

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: longest wait for the browser to start, and for a condition in a page
WAIT_S = 60.0


def browser() -> str | None:
    """The path of a browser, None when this machine has none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)

    async def call(self, method: str, **parameters: Any) -> Any:
        """One call of the debugging protocol."""
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=WAIT_S)
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    async def value(self, expression: str) -> Any:
        """What the expression is in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until the expression is true in the page."""
        async with asyncio.timeout(WAIT_S):
            while not await self.value(expression):
                await asyncio.sleep(0.05)

    async def open(self, url: str, width: int, height: int) -> None:
        """Go there, with a window of that size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=url)

    async def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9)

    async def picture(self, file: Path) -> None:
        """Save what is to be seen as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def opened_page(folder: Path, *options: str) -> AsyncIterator[Page]:
    """A new browser with one empty page; its profile lies in `folder`."""
    program = browser()
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        *options,
        "about:blank",
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port_file = folder / "DevToolsActivePort"
        async with asyncio.timeout(WAIT_S):
            while not port_file.exists() or "\n" not in port_file.read_text():
                await asyncio.sleep(0.05)
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [row for row in json.loads(await answer.text()) if row["type"] == "page"]
            async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.kill()
        await process.wait()
