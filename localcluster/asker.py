"""Questions to a cluster from synchronous code: an Admin in a thread with an event loop of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.client.admin import Admin

T = TypeVar("T")


class Asker:
    """For callers with and without an event loop; close it at the end."""

    def __init__(self, servers: str, client_id: str = "holdfast-pytest") -> None:
        self._loop = asyncio.new_event_loop()
        self._admin = Admin(servers, client_id=client_id)
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast asker", daemon=True)
        self._thread.start()

    def ask(self, question: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        """The answer. Raises: ClientError and what else the question raises."""
        return asyncio.run_coroutine_threadsafe(question(self._admin), self._loop).result()

    def close(self) -> None:
        """End the connections and the thread."""
        asyncio.run_coroutine_threadsafe(self._admin.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
