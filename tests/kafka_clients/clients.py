"""Three unmodified Kafka clients with one small interface: librdkafka, aiokafka and kafka-python.

Each is imported only when a test is about it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: Longest time that a client may take over what it is asked, in seconds.
PATIENCE_S = 60


class Found(NamedTuple):
    """A record, acknowledged or read."""

    partition: int
    offset: int
    value: bytes


class KafkaClient(Protocol):
    """One foreign client library."""

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None: ...

    def topics(self) -> set[str]: ...

    def topic_config(self, name: str, key: str) -> str: ...

    def delete_topic(self, name: str) -> None: ...

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Records below the offset; the low watermark."""
        ...

    def produce(
        self, topic: str, values: Sequence[bytes], between: Callable[[int], None], *, idempotent: bool
    ) -> list[Found]:
        """Send all with acks=all and wait; `between(number)` is called after every hundredth. What was
        acknowledged."""

    def read(self, topic: str, partitions: int, count: int) -> list[Found]:
        """The first `count` records of a topic, over all its partitions, without a group."""

    def begin_transaction(self) -> None:
        """Raises: the client's own error."""

    def close(self) -> None: ...


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        import confluent_kafka.admin

        self._library: Any = confluent_kafka
        self._settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = confluent_kafka.admin.AdminClient(self._settings)

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        new = self._library.admin.NewTopic(name, partitions, 3, config=configs)
        self._admin.create_topics([new])[name].result(PATIENCE_S)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE_S).topics)

    def topic_config(self, name: str, key: str) -> str:
        resource = self._library.admin.ConfigResource("topic", name)
        value: str = self._admin.describe_configs([resource])[resource].result(PATIENCE_S)[key].value
        return value

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(PATIENCE_S)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        place = self._library.TopicPartition(topic, partition, offset)
        (answer,) = self._admin.delete_records([place]).values()
        low_watermark: int = answer.result(PATIENCE_S).low_watermark
        return low_watermark

    def produce(
        self, topic: str, values: Sequence[bytes], between: Callable[[int], None], *, idempotent: bool
    ) -> list[Found]:
        acknowledged: list[Found] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acknowledged.append(Found(message.partition(), message.offset(), message.value()))

        producer = self._library.Producer(
            {**self._settings, "enable.idempotence": idempotent, "acks": "all", "compression.type": "lz4"}
        )
        for number, value in enumerate(values):
            producer.produce(topic, value, on_delivery=delivered)
            if number % 100 == 0:
                producer.poll(0)
                between(number)
        producer.flush(PATIENCE_S)
        return acknowledged

    def read(self, topic: str, partitions: int, count: int) -> list[Found]:
        # librdkafka wants a group's name, and asks for no coordinator as long as nothing is committed
        consumer = self._library.Consumer(
            {**self._settings, "group.id": "unused", "enable.auto.commit": False}
        )
        first = self._library.OFFSET_BEGINNING
        consumer.assign([self._library.TopicPartition(topic, index, first) for index in range(partitions)])
        found: list[Found] = []
        while len(found) < count:
            messages = [consumer.poll(PATIENCE_S), *consumer.consume(1_000, 0)]
            assert messages[0] is not None, f"{len(found)} of {count} records"
            good = [message for message in messages if message.error() is None]
            found += [Found(message.partition(), message.offset(), message.value()) for message in good]
        consumer.close()
        return found

    def begin_transaction(self) -> None:
        self._library.Producer({**self._settings, "transactional.id": "id"}).init_transactions(PATIENCE_S)

    def close(self) -> None: ...


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        import kafka
        import kafka.admin

        self._library: Any = kafka
        self._bootstrap = bootstrap.split(",")
        self._admin: Any = kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        new = self._library.admin.NewTopic(name, partitions, 3, topic_configs=configs)
        self._admin.create_topics([new])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def topic_config(self, name: str, key: str) -> str:
        resource = self._library.admin.ConfigResource("TOPIC", name)
        found = self._admin.describe_configs([resource])
        return str(found["topic"][name][key]["value"])

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        place = self._library.TopicPartition(topic, partition)
        low_watermark: int = self._admin.delete_records({place: offset})[place]["low_watermark"]
        return low_watermark

    def produce(
        self, topic: str, values: Sequence[bytes], between: Callable[[int], None], *, idempotent: bool
    ) -> list[Found]:
        producer = self._library.KafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", enable_idempotence=idempotent
        )
        sent = []
        for number, value in enumerate(values):
            sent.append((value, producer.send(topic, value)))
            if number % 100 == 0:
                between(number)
        producer.flush(PATIENCE_S)
        found = [
            Found(future.value.partition, future.value.offset, value)
            for value, future in sent
            if future.succeeded()
        ]
        producer.close()
        return found

    def read(self, topic: str, partitions: int, count: int) -> list[Found]:
        consumer = self._library.KafkaConsumer(bootstrap_servers=self._bootstrap)
        assigned = [self._library.TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning()
        found: list[Found] = []
        while len(found) < count:
            messages = consumer.poll(PATIENCE_S * 1_000)
            assert messages, f"{len(found)} of {count} records"
            found += [Found(m.partition, m.offset, m.value) for rows in messages.values() for m in rows]
        consumer.close()
        return found

    def begin_transaction(self) -> None:
        producer = self._library.KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id="id")
        try:
            producer.init_transactions()
        finally:
            producer.close(0)

    def close(self) -> None:
        self._admin.close()


class Aiokafka:
    """aiokafka, each call on an event loop of its own."""

    def __init__(self, bootstrap: str) -> None:
        import aiokafka
        import aiokafka.admin

        self._library: Any = aiokafka
        self._bootstrap = bootstrap

    def _with_admin(self, ask: Callable[[Any], Any]) -> Any:
        async def run() -> Any:
            admin = self._library.admin.AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return asyncio.run(run())

    def create_topic(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        new = self._library.admin.NewTopic(name, partitions, 3, topic_configs=configs)
        answer = self._with_admin(lambda admin: admin.create_topics([new]))
        assert [row[1] for row in answer.topic_errors] == [0], answer

    def topics(self) -> set[str]:
        return set(self._with_admin(lambda admin: admin.list_topics()))

    def topic_config(self, name: str, key: str) -> str:
        kind = self._library.admin.config_resource.ConfigResourceType.TOPIC
        resource = self._library.admin.config_resource.ConfigResource(kind, name)
        (answer,) = self._with_admin(lambda admin: admin.describe_configs([resource]))
        rows = {row[0]: row[1] for row in answer.resources[0][4]}
        return str(rows[key])

    def delete_topic(self, name: str) -> None:
        answer = self._with_admin(lambda admin: admin.delete_topics([name]))
        assert [row[1] for row in answer.topic_error_codes] == [0], answer

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        place = self._library.TopicPartition(topic, partition)
        low_watermark: int = self._with_admin(
            lambda admin: admin.delete_records({place: self._library.admin.RecordsToDelete(offset)})
        )[place]
        return low_watermark

    def produce(
        self, topic: str, values: Sequence[bytes], between: Callable[[int], None], *, idempotent: bool
    ) -> list[Found]:
        async def run() -> list[Found]:
            producer = self._library.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all",
                enable_idempotence=idempotent,
                compression_type="gzip",
            )
            await producer.start()
            sent = []
            for number, value in enumerate(values):
                sent.append(await producer.send(topic, value))
                if number % 100 == 0:
                    await asyncio.to_thread(between, number)
            await producer.flush()
            answers = await asyncio.gather(*sent, return_exceptions=True)
            await producer.stop()
            return [
                Found(answer.partition, answer.offset, value)
                for value, answer in zip(values, answers, strict=True)
                if not isinstance(answer, BaseException)
            ]

        return asyncio.run(run())

    def read(self, topic: str, partitions: int, count: int) -> list[Found]:
        async def run() -> list[Found]:
            consumer = self._library.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
            await consumer.start()
            consumer.assign([self._library.TopicPartition(topic, index) for index in range(partitions)])
            await consumer.seek_to_beginning()
            found: list[Found] = []
            while len(found) < count:
                messages = await consumer.getmany(timeout_ms=PATIENCE_S * 1_000)
                assert messages, f"{len(found)} of {count} records"
                found += [Found(m.partition, m.offset, m.value) for rows in messages.values() for m in rows]
            await consumer.stop()
            return found

        return asyncio.run(run())

    def begin_transaction(self) -> None:
        async def run() -> None:
            producer = self._library.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, transactional_id="id"
            )
            try:
                await producer.start()
            finally:
                await producer.stop()

        asyncio.run(run())

    def close(self) -> None: ...


#: {name of the package on the index: (module to import, how to make the client)}
CLIENTS: dict[str, tuple[str, Callable[[str], KafkaClient]]] = {
    "confluent-kafka": ("confluent_kafka", Librdkafka),
    "aiokafka": ("aiokafka", Aiokafka),
    "kafka-python": ("kafka", KafkaPython),
}
