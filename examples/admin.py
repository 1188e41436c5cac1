"""Create a topic, show its partitions, change a setting, delete it.

python examples/admin.py 127.0.0.1:19006 example
"""

import asyncio
import sys

from holdfast import Admin, ClientError, ErrorCode, Resource


async def main(servers: str, topic: str) -> None:
    async with Admin(servers) as admin:
        try:
            made = await admin.create_topic(topic, num_partitions=3, configs={"retention.ms": "3600000"})
        except ClientError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            print(f"{topic} is there already")
        else:
            print(f"{topic}: {made.replication_factor} replicas, min ISR {made.min_isr}")
        (described,) = await admin.describe_topics([topic])
        for partition in described.partitions:
            print(f"partition {partition.partition_index}: leader {partition.leader_id}, ISR {partition.isr}")
        refused = await admin.alter_configs({Resource.topic(topic): {"retention.ms": "7200000"}})
        print(f"retention.ms changed: {refused[Resource.topic(topic)] is None}")
        await admin.delete_topic(topic)
        print(f"topics now: {', '.join(await admin.list_topics()) or 'none'}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
