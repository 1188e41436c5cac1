"""Read on where the last run ended. The application keeps the offsets, here in a JSON file.

    python examples/resume.py 127.0.0.1:19006 t offsets.json

It ends when a second has passed without records. The offsets are written after the records were processed, so
a record may be processed twice after a crash, and none is left out.
"""

import asyncio
import json
import sys
from pathlib import Path

from holdfast import Consumer


async def main(servers: str, topic: str, file: Path) -> None:
    known: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    async with Consumer(servers) as consumer:
        partitions = await consumer.partitions(topic)
        consumer.assign({(t, index): known.get(str(index), "earliest") for t, index in partitions})
        while records := await consumer.poll(timeout_ms=1_000):
            for record in records:
                print(f"{record.partition}/{record.offset}: {(record.value or b'').decode()}")
                known[str(record.partition)] = record.offset + 1
            file.with_suffix(".new").write_text(json.dumps(known))
            file.with_suffix(".new").replace(file)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
