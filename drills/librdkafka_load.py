"""The load of a drill by librdkafka, through the listener for Kafka clients.

Keeps the ledger of Holdfast's own load, so the same verdict judges it. Of a record whose delivery failed
nothing is claimed: librdkafka cannot tell whether it is in the log.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.client.core.history import value_crc32c
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.ledger import Ledger
from holdfast.drills.load import DELIVERY_TIMEOUT_MS, RUN, VALUE_BYTES, DrillLoad
from holdfast.runtime.api import Runtime

#: most records without an answer
_BACKLOG_RECORDS = 1_000
_ALL = -1
#: once the drill has failed, for answers that still come
_LAST_ANSWERS_S = 1.0


class LibrdkafkaLoad(DrillLoad):
    """Idempotent, acks=all. `bootstrap_servers` are the listeners for Kafka clients."""

    async def _work(self, runtime: Runtime) -> int:
        ledger = Ledger(str(self._ledger), RUN, self.name, runtime=runtime)
        await ledger.open()
        producer = _Producer(self._bootstrap_servers, self.name)
        clock = runtime.clock

        def delivered(pseq: int, error: Any, message: Any) -> None:
            partition, now_ns = message.partition(), clock.now_ns()
            if error is None:
                outcome, offset, text = DeliveryOutcome.OK, message.offset(), None
                self.note(outcome, offset, 1)
            else:
                outcome, offset, text = DeliveryOutcome.INFO, -1, error.name()
                self.note(outcome, -1, 1)
            ledger.complete([pseq], self._topic, partition, outcome, offset, -1, text, now_ns)

        def portion() -> Iterator[tuple[int, bytes]]:
            """Records that the ledger knows."""
            made = [ledger.next_value(VALUE_BYTES) for _ in range(self._portion)]
            for pseq, value in made:
                crc = value_crc32c(value)
                ledger.invoke(pseq, self._topic, pseq % self._partitions, crc, _ALL, clock.now_ns())
            ledger.write()
            yield from made

        def refused(pseq: int, error: str) -> None:
            self.note(DeliveryOutcome.FAIL, -1, 1)
            partition, now_ns = pseq % self._partitions, clock.now_ns()
            ledger.complete([pseq], self._topic, partition, DeliveryOutcome.FAIL, -1, -1, error, now_ns)

        while not self._stop.is_set():
            if producer.waiting < _BACKLOG_RECORDS and not self._held.is_set():
                for pseq, value in portion():
                    error = producer.send(
                        self._topic, value, pseq % self._partitions, partial(delivered, pseq)
                    )
                    if error is not None:
                        refused(pseq, error)
            producer.poll()
            self._outstanding = producer.waiting > 0 or not self._held.is_set()
            await clock.sleep(self._pace_ms)
        deadline_ms = clock.now_ms() + self._patience_ms
        while producer.waiting and clock.now_ms() < deadline_ms:
            producer.poll()
            await clock.sleep(self._pace_ms)
        producer.end()
        await ledger.close()
        return 0


class _Producer:
    """librdkafka's producer, and the one after it.

    It gives up for good when the log lacks records that were acknowledged: the sequence of the next record
    fits no more. Every call then raises. An application makes a new producer, and so does this.
    """

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        import confluent_kafka

        self._library: Any = confluent_kafka
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "retry.backoff.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1_000,
            "log_level": 0,
        }
        self._producer = self._library.Producer(self._settings)

    @property
    def waiting(self) -> int:
        """Records without an answer."""
        return len(self._producer)

    def send(self, topic: str, value: bytes, partition: int, delivered: Any) -> str | None:
        """`delivered(error, message)` is called while polling. The error when the record is not taken."""
        try:
            self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        except self._library.KafkaException as error:
            return str(error.args[0].name())
        return None

    def poll(self) -> None:
        """Let what was delivered be told."""
        try:
            self._producer.poll(0)
        except self._library.KafkaException:
            self.end()
            self._producer = self._library.Producer(self._settings)

    def end(self) -> None:
        """Give up what has no answer yet; each record has been told of then."""
        self._producer.purge()
        for _ in range(2):  # a producer says once that it has given up, at either of them
            with suppress(self._library.KafkaException):
                self._producer.flush(_LAST_ANSWERS_S)
