"""Send the words of the command line as records, each when the one before it is acknowledged.

python examples/produce.py 127.0.0.1:19006 t one two three
"""

import asyncio
import sys

from holdfast import ProduceFailed, Producer


async def main(servers: str, topic: str, *words: str) -> None:
    async with Producer(servers, linger_ms=0) as producer:  # nothing else comes that a batch could wait for
        for word in words:
            try:
                where = await producer.send(topic, word.encode(), key=word[:1].encode())
            except ProduceFailed as error:
                print(f"{word}: {error}; it may be in the log: {error.may_be_appended}")
            else:
                print(f"{word}: partition {where.partition}, offset {where.offset}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
