"""The cluster that a verdict is about: Holdfast's own, asked by its own client, or any other that speaks
Kafka's protocol (`durability.kafka_cluster`)."""

from collections.abc import Iterable
from typing import Protocol

from holdfast.durability import cluster_look
from holdfast.durability.cluster_look import TopicLook
from holdfast.durability.read_options import OffsetRange, parse_options
from holdfast.durability.source import plan_ranges
from holdfast.durability.spark_errors import reason_of


class JudgedCluster(Protocol):
    """Questions to it. All raise client.core.errors.ClientError, also for a topic that there is not."""

    def ranges(self, topics: Iterable[str]) -> list[OffsetRange]:
        """The whole of every one of these topics, by topic and partition."""

    def why_not_judged(self, topics: Iterable[str]) -> str | None:
        """Why no verdict can be given on these topics: some are compacted; None when none is."""

    def look(self, topics: Iterable[str]) -> dict[str, TopicLook]:
        """Topic -> what is known of it."""

    def reason_of(self, error: Exception) -> str:
        """What an error says that ended the reading of it, in one sentence."""

    def close(self) -> None:
        """End its connections."""


class OwnCluster:
    """A cluster of Holdfast. Each question has connections of its own."""

    def __init__(self, bootstrap_servers: str, timeout_ms: int) -> None:
        self._servers = bootstrap_servers
        self._timeout_ms = timeout_ms

    def ranges(self, topics: Iterable[str]) -> list[OffsetRange]:
        given = {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": ",".join(topics),
            "kafkaConsumer.pollTimeoutMs": str(self._timeout_ms),
        }
        return plan_ranges(parse_options(given))

    def why_not_judged(self, topics: Iterable[str]) -> str | None:
        return cluster_look.why_not_judged(self._servers, topics, self._timeout_ms)

    def look(self, topics: Iterable[str]) -> dict[str, TopicLook]:
        return cluster_look.look(self._servers, topics, self._timeout_ms)

    def reason_of(self, error: Exception) -> str:
        return reason_of(error)

    def close(self) -> None:
        pass
