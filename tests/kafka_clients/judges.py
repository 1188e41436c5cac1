"""Every client with the same task: write records idempotently, read them as a group, commit what was read.

What became of it is then judged through our own client: records in the log, offsets committed.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.client.admin import Admin
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.clients import CLIENTS
from tests.kafka_clients.programs import KafkaTools, compiled, jars, node_program, program, run

PARTITIONS = 3
PATIENCE_S = 120


class Judge:
    """One client. `folder` is for its files."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder

    def write(self, topic: str, count: int) -> None:
        """The numbers below `count` as values; each must be acknowledged."""
        raise AssertionError("each client has its own way")

    def read(self, topic: str, count: int) -> Sequence[str]:
        """The values, read by the group that is called as the topic, which commits what it has read."""
        raise AssertionError("each client has its own way")


class PythonJudge(Judge):
    """Writes with a client of clients.py."""

    package = ""

    def write(self, topic: str, count: int) -> None:
        _, make = CLIENTS[self.package]
        client = make(self.bootstrap)
        values = [str(number).encode() for number in range(count)]
        acknowledged = client.produce(topic, values, lambda number: None, idempotent=True)
        client.close()
        assert len(set(acknowledged)) == count


class Reading:
    """What a member has read: all values once, and where each partition goes on."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._deadline_s = time.monotonic() + PATIENCE_S
        self.values: dict[str, None] = {}
        #: {partition: next offset}
        self.ends: dict[int, int] = {}

    def take(self, partition: int, offset: int, value: bytes) -> None:
        self.values[value.decode()] = None
        self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)

    def is_complete(self) -> bool:
        """Every value is there."""
        assert time.monotonic() < self._deadline_s, f"{len(self.values)} of {self._count} values"
        return len(self.values) == self._count


class Librdkafka(PythonJudge):
    package = "confluent-kafka"

    def read(self, topic: str, count: int) -> Sequence[str]:
        import confluent_kafka

        library: Any = confluent_kafka
        settings = {"bootstrap.servers": self.bootstrap, "group.id": topic, "log_level": 0}
        consumer = library.Consumer(
            {**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([topic])
        reading, is_committed = Reading(count), False
        while not is_committed:
            for one in consumer.consume(1_000, 1):
                if one.error() is None:
                    reading.take(one.partition(), one.offset(), one.value())
            if reading.is_complete():
                ends = [library.TopicPartition(topic, *end) for end in reading.ends.items()]
                with suppress(library.KafkaException):
                    rows = consumer.commit(offsets=ends, asynchronous=False)
                    is_committed = all(row.error is None for row in rows)
        consumer.close()
        return list(reading.values)


class KafkaPython(PythonJudge):
    package = "kafka-python"
    #: Without a record for so long another member takes over: where the metadata made it join again, 3.0.12
    #: does nothing any more for its group when the connection ends between SyncGroup and the answer
    #: (docs/kafka.md, "Known limits of clients").
    _STANDSTILL_S = 30

    def read(self, topic: str, count: int) -> Sequence[str]:
        import kafka

        library: Any = kafka
        consumer, moved_s = self._consumer(library, topic), time.monotonic()
        reading, is_committed = Reading(count), False
        while not is_committed:
            if time.monotonic() - moved_s > self._STANDSTILL_S:
                consumer.close(autocommit=False, timeout_ms=1_000)
                consumer, moved_s = self._consumer(library, topic), time.monotonic()
            polled: dict[Any, Any] = {}
            # the library raises what it cannot reach, and goes on in the next poll
            with suppress(library.errors.KafkaError):
                polled = consumer.poll(1_000)
            for rows in polled.values():
                moved_s = time.monotonic()
                for one in rows:
                    reading.take(one.partition, one.offset, one.value)
            if reading.is_complete():
                ends = {
                    library.TopicPartition(topic, partition): library.OffsetAndMetadata(end, "", -1)
                    for partition, end in reading.ends.items()
                }
                with suppress(library.errors.KafkaError):
                    consumer.commit(ends)
                    is_committed = True
        consumer.close()
        return list(reading.values)

    def _consumer(self, library: Any, topic: str) -> Any:
        return library.KafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )


class Aiokafka(PythonJudge):
    package = "aiokafka"

    def read(self, topic: str, count: int) -> Sequence[str]:
        return asyncio.run(self._read(topic, count))

    async def _read(self, topic: str, count: int) -> Sequence[str]:
        import aiokafka

        library: Any = aiokafka
        consumer = library.AIOKafkaConsumer(
            topic,
            bootstrap_servers=self.bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        reading, is_committed = Reading(count), False
        while not is_committed:
            for rows in (await consumer.getmany(timeout_ms=1_000)).values():
                for one in rows:
                    reading.take(one.partition, one.offset, one.value)
            if reading.is_complete():
                ends = {
                    library.TopicPartition(topic, partition): end for partition, end in reading.ends.items()
                }
                with suppress(library.errors.KafkaError):
                    await consumer.commit(ends)
                    is_committed = True
        # where a connection has just been lost, its fetch task tells the library's own cancellation
        with suppress(asyncio.CancelledError):
            await consumer.stop()
        return list(reading.values)


class Java(Judge):
    """Kafka's own client, in its verifiable tools."""

    def write(self, topic: str, count: int) -> None:
        settings = self.folder / "producer.properties"
        settings.write_text("retries=2147483647\nenable.idempotence=true\n")
        words = ("--topic", topic, "--acks", "-1", "--max-messages", str(count))
        done = self._tools().succeeds("VerifiableProducer", *words, "--command-config", str(settings))
        assert done.out.count("producer_send_success") == count

    def read(self, topic: str, count: int) -> Sequence[str]:
        """It ends after so many records, those that it reads again included: then another one goes on."""
        words = ("--topic", topic, "--group-id", topic, "--verbose", "--reset-policy", "earliest")
        values: list[str] = []
        ends: dict[int, int] = {}
        while (missing := count - sum(ends.values())) > 0:
            done = self._tools().succeeds("VerifiableConsumer", *words, "--max-messages", str(missing))
            for event in map(json.loads, done.lines):
                if event["name"] == "record_data":
                    values.append(event["value"])
                elif event["name"] == "offsets_committed" and event["success"]:
                    ends |= {row["partition"]: row["offset"] for row in event["offsets"]}
        return values

    def _tools(self) -> KafkaTools:
        jars("java")
        return KafkaTools(self.bootstrap)


class ProgramJudge(Judge):
    """A program of ours with the client, which takes the task's name as a word."""

    def write(self, topic: str, count: int) -> None:
        assert self.run(topic, "write", str(count)) == [str(count)]

    def read(self, topic: str, count: int) -> Sequence[str]:
        return self.run(topic, "read", str(count))

    def run(self, topic: str, *words: str) -> list[str]:
        """What it prints; it must succeed."""
        done = run([*self.command(), self.bootstrap, topic, *words], timeout_s=240)
        assert done.code == 0, done
        return done.lines

    def command(self) -> list[str]:
        """The words that start it."""
        raise AssertionError("each client has its own way")


class FranzGo(ProgramJudge):
    """franz_go/main.go."""

    def command(self) -> list[str]:
        return [str(franz_go(self.folder))]


class Sarama(ProgramJudge):
    """go_clients/sarama/main.go."""

    def command(self) -> list[str]:
        return [str(compiled("./sarama", self.folder / "sarama", module="go_clients"))]


class KafkaGo(ProgramJudge):
    """go_clients/kafka_go/main.go."""

    def command(self) -> list[str]:
        return [str(compiled("./kafka_go", self.folder / "kafka_go", module="go_clients"))]


class KafkaJs(ProgramJudge):
    """kafkajs/judge.js."""

    def command(self) -> list[str]:
        return node_program("kafkajs", self.folder / "kafkajs")


def franz_go(folder: Path) -> Path:
    """The program, compiled into this folder."""
    made = folder / "franz_go"
    return made if made.exists() else compiled(".", made)


class Kcat(Judge):
    def write(self, topic: str, count: int) -> None:
        lines = "".join(f"{number}\n" for number in range(count))
        self._run("-P", "-t", topic, "-X", "enable.idempotence=true", stdin=lines)

    def read(self, topic: str, count: int) -> Sequence[str]:
        words = ("-X", "auto.offset.reset=earliest", "-f", "%s\n", "-c", str(count))
        return self._run(*words, "-G", topic, topic)

    def _run(self, *words: str, stdin: str = "") -> list[str]:
        found = program("kcat", "apt-get install kcat")
        done = run([found, "-b", self.bootstrap, *words], stdin, timeout_s=240)
        assert done.code == 0, done
        return done.lines


#: {name: (module that must be there or None, how)}
JUDGES: dict[str, tuple[str | None, type[Judge]]] = {
    "confluent-kafka": ("confluent_kafka", Librdkafka),
    "aiokafka": ("aiokafka", Aiokafka),
    "kafka-python": ("kafka", KafkaPython),
    "Java": (None, Java),
    "franz-go": (None, FranzGo),
    "sarama": (None, Sarama),
    "kafka-go": (None, KafkaGo),
    "KafkaJS": (None, KafkaJs),
    "kcat": (None, Kcat),
}


def check(judge: Judge, cluster: HoldfastCluster, topic: str, count: int) -> None:
    """The task, and that nothing is lost or doubled: no record, no committed offset."""
    judge.write(topic, count)
    assert sorted(set(judge.read(topic, count))) == sorted(str(number) for number in range(count))
    written, committed = cluster.wait_until(lambda: figures(cluster, topic), PATIENCE_S)
    assert (written, committed) == (count, count)


def figures(cluster: HoldfastCluster, topic: str) -> tuple[int, int]:
    """(records in the topic, sum of the offsets that its group has committed). Raises: ClientError."""
    return asyncio.run(_figures(cluster.bootstrap_servers, topic))


async def _figures(servers: str, topic: str) -> tuple[int, int]:
    async with Admin(servers) as admin:
        ends = await admin.list_offsets({(topic, index): -1 for index in range(PARTITIONS)})
        committed = await admin.group_offsets(topic)
    return sum(one.offset for one in ends.values()), sum(one.offset for one in committed.values())
