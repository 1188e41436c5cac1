"""A program without `async`: one event loop in a thread, and ordinary calls that wait for it.

    python examples/synchronous.py 127.0.0.1:19006 t

`EventLoopThread` is all there is to it: copy it into your program.
"""

import asyncio
import sys
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from holdfast import Consumer, ConsumerRecord, Producer

T = TypeVar("T")


class EventLoopThread:
    """An event loop in a thread of its own. `call` may be used from any other thread."""

    def __enter__(self) -> "EventLoopThread":
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        return self

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """What `work` returns or raises. Raises: TimeoutError, and then `work` is cancelled."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()  # does nothing once it is done

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


async def read_one(servers: str, topic: str, partition: int, offset: int) -> ConsumerRecord:
    """What belongs together is one coroutine: only the event loop's thread may touch a client."""
    async with Consumer(servers) as consumer:
        consumer.assign({(topic, partition): offset})
        (record,) = await consumer.poll(max_records=1, timeout_ms=30_000)
        return record


def main(servers: str, topic: str) -> None:
    with EventLoopThread() as thread:
        producer = Producer(servers, linger_ms=0)
        thread.call(producer.start())
        try:
            where = thread.call(producer.send(topic, b"from a synchronous program"), timeout_s=30)
        finally:
            thread.call(producer.close())
        print(f"sent: partition {where.partition}, offset {where.offset}")
        record = thread.call(read_one(servers, topic, where.partition, where.offset))
        print(f"read: {(record.value or b'').decode()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
