"""Send many records without waiting for each, and look at every outcome in the end.

python examples/produce_many.py 127.0.0.1:19006 t 100000
"""

import asyncio
import sys
import time

from holdfast import Producer


async def main(servers: str, topic: str, count: int) -> None:
    start = time.perf_counter()
    async with Producer(servers, compression="lz4") as producer:
        # `submit` waits only while there is no room (`buffer_memory_bytes`), so memory stays bounded
        deliveries = [await producer.submit(topic, b"record %d" % number) for number in range(count)]
        await producer.flush()
        highest = max(delivery.result().offset for delivery in deliveries)  # raises what failed
        metrics = producer.metrics()
    rate = count / (time.perf_counter() - start)
    print(
        f"{metrics.records_acknowledged} records acknowledged, highest offset {highest}, {rate:,.0f} a second"
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
