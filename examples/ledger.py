"""An idempotent producer that writes down each record before it is sent, and each outcome: a ledger.

    python examples/ledger.py 127.0.0.1:19006 t /tmp/ledger
    holdfast validate --bootstrap-server 127.0.0.1:19006 --ledger /tmp/ledger

Also after crashes of this process or of brokers, `holdfast validate` (which needs the extra `spark`) says
whether a record that was acknowledged is lost, there twice, or out of order.
"""

import asyncio
import sys

from holdfast import Ledger, Producer


async def main(servers: str, topic: str, folder: str) -> None:
    ledger = Ledger(folder, run="example", producer="p0")
    async with Producer(servers, acks="all", ledger=ledger) as producer:  # idempotent unless told otherwise
        for _ in range(1_000):
            number, value = ledger.next_value(100)  # 100 bytes that name their producer and their number
            await producer.submit(topic, value, tag=number)
    print(f"{producer.metrics().records_acknowledged} acknowledged, written down in {ledger.path}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
