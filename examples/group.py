"""A member of a consumer group: start it as often as you like, the members share the partitions.

    python examples/group.py 127.0.0.1:19006 t readers

Kill one with `kill -9`, or the broker that coordinates the group: the others go on from the last commit, so
each record is read at least once. With --idle-seconds N it ends when nothing has come for so long.
"""

import argparse
import asyncio

from holdfast import CommitFailed, Consumer, RebalanceListener, TopicPartition


class Shown(RebalanceListener):
    async def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        print("now reading", [partition for _, partition in partitions], flush=True)

    async def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        print("no longer reading", [partition for _, partition in partitions], flush=True)


async def main(servers: str, topic: str, group: str, idle_seconds: float) -> None:
    consumer = Consumer(
        servers,
        group_id=group,
        assignors=["cooperative-sticky"],  # what moves to another member stops, the rest goes on
        enable_auto_commit=False,
        session_timeout_ms=6_000,  # a member that was killed is missed after so long
        heartbeat_interval_ms=1_000,
    )
    async with consumer:
        consumer.subscribe(topic, Shown())
        while True:
            records = await consumer.poll(timeout_ms=idle_seconds * 1_000)
            for record in records:  # here the work would be done
                print(f"{record.partition}/{record.offset}: {(record.value or b'').decode()}", flush=True)
            if not records:
                break
            try:
                await consumer.commit()
            except CommitFailed as error:  # others have these partitions, and read the records again
                print(error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("--idle-seconds", type=float, default=3_600)
    given = parser.parse_args()
    try:
        asyncio.run(main(given.servers, given.topic, given.group, given.idle_seconds))
    except KeyboardInterrupt:
        pass
