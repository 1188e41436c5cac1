"""Print the records of topics from their beginning, those of added partitions too, until Ctrl-C.

    python examples/consume.py 127.0.0.1:19006 t

With --count N it ends after N records.
"""

import argparse
import asyncio

from holdfast import Consumer


async def main(servers: str, topics: list[str], count: int | None) -> None:
    read = 0
    async with Consumer(servers, *topics) as consumer:
        async for record in consumer:
            text = "" if record.value is None else record.value.decode(errors="replace")
            print(f"{record.topic}-{record.partition} offset {record.offset}: {text}", flush=True)
            read += 1
            if read == count:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--count", type=int)
    given = parser.parse_args()
    try:
        asyncio.run(main(given.servers, given.topics, given.count))
    except KeyboardInterrupt:
        pass
