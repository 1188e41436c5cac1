"""Any cluster that speaks Kafka's protocol, as a verdict needs it: what Kafka's own Admin says of topics, and
their records through Spark's own Kafka source (docs/validate-your-own-kafka.md).

Both are in a package that Spark does not bring along, and the Admin is asked in Spark's Java. Of Holdfast's
own clusters `durability.cluster_look` and `durability.source` answer the same questions. Never judges.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.client.core.errors import ClientError
from holdfast.durability.cluster_look import PartitionLook, TopicLook, check_same, why_compacted
from holdfast.durability.kafka_properties import unknown_properties, used_properties, without_secrets
from holdfast.durability.read_options import OffsetRange
from holdfast.durability.spark_errors import SPARK_ERRORS, reason_of

_CLIENT_ID = "holdfast-validate"
_POLICY = "cleanup.policy"
#: What the package has, and what it needs beside Spark: (name of a class, artifact).
_NEEDED = (
    ("org.apache.spark.sql.kafka010.KafkaSourceProvider", "spark-sql-kafka-0-10"),
    ("org.apache.spark.kafka010.KafkaTokenUtil", "spark-token-provider-kafka-0-10"),
    ("org.apache.kafka.clients.admin.Admin", "kafka-clients"),
    ("org.apache.commons.pool2.ObjectPool", "commons-pool2"),
)
#: Longest wait of the Admin for one answer, of those that it asks for again until its time is over.
_REQUEST_TIMEOUT_MAX_MS = 30_000
#: Partitions that a message names.
_SHOWN_MAX = 5
#: The Admin itself says first that its time is over, and why.
_GRACE_MS = 5_000
#: What of the reader's rows a verdict on values needs; a batch is not seen through this source.
_COLUMNS = (
    *("topic", "partition", "offset", "'good' AS state", "value"),
    *("CAST(NULL AS int) AS leaderEpoch", "CAST(NULL AS long) AS batch_crc32c"),
)
_NO_RECORDS = (
    "topic string, partition int, offset long, state string, value binary, leaderEpoch int, batch_crc32c long"
)
#: What the Admin says where a listener does not understand it: its first request has no answer.
_NO_ANSWER = re.compile(r"(waiting for a node assignment|AdminClient thread has exited)\. Call: listNodes")
#: What Spark's source says of records that it was to read and that are not there.
_GONE = re.compile(r"Could not read records in offset \[(\d+), \d+\) for topic partition (\S+)")
_OF_TLS = "SslAuthenticationException"
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*([\w$]+)(?:: ?(.*))?$", re.MULTILINE)


class KafkaCluster:
    """Questions to one cluster. All raise ClientError, also when the package is not there. Keeps one Admin
    until it is closed, and the ids of the topics: each has to be the same whenever it is asked about."""

    def __init__(
        self, spark: Any, bootstrap_servers: str, timeout_ms: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties`: of Kafka's clients, as its own tools take them with `--command-config`."""
        self._spark = spark
        self._java = spark._jvm
        self._timeout_ms = timeout_ms
        self._given = properties or {}
        self._ours = {"bootstrap.servers": bootstrap_servers, **client_settings(timeout_ms)}
        self._made: Any | None = None
        self._settings: Mapping[str, str] = {}
        self._first: dict[str, TopicLook] = {}

    def close(self) -> None:
        """End its connections."""
        if self._made is not None:
            self._made.close(self._java.java.time.Duration.ZERO)
            self._made = None

    def look(self, topics: Iterable[str]) -> dict[str, TopicLook]:
        """Topic -> what is known of it. A topic that there is not is an error as well."""
        names = sorted(set(topics))
        futures = self._admin.describeTopics(names).topicNameValues()
        found = {name: _topic_look(self._answer(f"topic {name}", futures[name])) for name in names}
        check_same(self._first, found)
        self._first = found | self._first
        return found

    def ranges(self, topics: Iterable[str]) -> list[OffsetRange]:
        """The whole of every one of these topics, by topic and partition."""
        look = self.look(topics)
        places = [(name, partition) for name, topic in look.items() for partition in sorted(topic.partitions)]
        spec = self._java.org.apache.kafka.clients.admin.OffsetSpec
        try:
            starts, ends = self._offsets(places, spec.earliest), self._offsets(places, spec.latest)
        except ClientError as error:
            if without := self._without_leader(sorted(look)):
                raise ClientError(f"{without}: no leader within {self._timeout_ms} ms") from error
            raise
        return [OffsetRange(*place, min(starts[place], ends[place]), ends[place]) for place in places]

    def _without_leader(self, names: list[str]) -> str:
        """Some partitions of these topics that have none now, "" when all have one."""
        futures = self._admin.describeTopics(names).topicNameValues()
        found = [
            f"{name}-{row.partition()}"
            for name in names
            for row in self._answer(f"topic {name}", futures[name]).partitions()
            if row.leader() is None
        ]
        return ", ".join(found[:_SHOWN_MAX]) + (
            f" and {len(found) - _SHOWN_MAX} more" if found[_SHOWN_MAX:] else ""
        )

    def why_not_judged(self, topics: Iterable[str]) -> str | None:
        """Why no verdict can be given on these topics: some are compacted; None when none is."""
        config = self._java.org.apache.kafka.common.config
        names = sorted(set(topics))
        asked = {name: config.ConfigResource(config.ConfigResource.Type.TOPIC, name) for name in names}
        futures = self._admin.describeConfigs(list(asked.values())).values()
        compacted = []
        for name, resource in asked.items():
            what = f"{_POLICY} of topic {name}"
            entry = self._answer(what, futures[resource]).get(_POLICY)
            if entry is None or entry.value() is None:
                raise ClientError(f"{what}: the cluster does not tell it")
            if "compact" in entry.value():
                compacted.append(name)
        return why_compacted(compacted) if compacted else None

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """The records of these ranges, read when they are first used, in the columns that
        `durability.foreign_lines.VALUE_SQL` wants."""
        parallelism = self._spark.sparkContext.defaultParallelism
        options = source_options(self._settings, ranges, self._timeout_ms, parallelism)
        if options is None:
            return self._spark.createDataFrame([], _NO_RECORDS)
        return self._spark.read.format("kafka").options(**options).load().selectExpr(*_COLUMNS)

    @property
    def _admin(self) -> Any:
        if self._made is None:
            missing = missing_artifacts(self._has_class)
            if missing:
                raise ClientError(why_no_source(missing, self._spark.version))
            self._settings = self._ours | self._connection()
            try:
                self._made = self._java.org.apache.kafka.clients.admin.Admin.create(dict(self._settings))
            except SPARK_ERRORS as error:
                raise ClientError(f"{self._ours['bootstrap.servers']}: {self.reason_of(error)}") from error
        return self._made

    def _connection(self) -> dict[str, str]:
        """What the user's properties say of it. Raises: ClientError for one that there is not."""
        if not self._given:
            return {}
        clients = self._java.org.apache.kafka.clients
        admin = set(clients.admin.AdminClientConfig.configNames())
        consumer = set(clients.consumer.ConsumerConfig.configNames())
        producer = set(clients.producer.ProducerConfig.configNames())
        if (why := unknown_properties(self._given, admin | consumer | producer)) is not None:
            raise ClientError(f"--command-config: {why}")
        return used_properties(self._given, admin & consumer)

    def reason_of(self, error: Exception) -> str:
        """What an error of Spark or of Kafka's clients says: one sentence without the user's secrets."""
        return without_secrets(said_by_java(error), self._given)

    def _has_class(self, name: str) -> bool:
        java = self._java.java.lang
        try:
            java.Class.forName(name, False, java.Thread.currentThread().getContextClassLoader())
        except SPARK_ERRORS:
            return False
        return True

    def _answer(self, what: str, future: Any) -> Any:
        unit = self._java.java.util.concurrent.TimeUnit.MILLISECONDS
        try:
            return future.get(self._timeout_ms + _GRACE_MS, unit)
        except SPARK_ERRORS as error:
            raise ClientError(f"{what}: {with_hint(self.reason_of(error))}") from error

    def _offsets(
        self, places: Sequence[tuple[str, int]], spec: Callable[[], Any]
    ) -> dict[tuple[str, int], int]:
        asked = {place: self._java.org.apache.kafka.common.TopicPartition(*place) for place in places}
        found = self._admin.listOffsets({partition: spec() for partition in asked.values()})
        return {
            place: self._answer(
                f"offsets of {place[0]}-{place[1]}", found.partitionResult(partition)
            ).offset()
            for place, partition in asked.items()
        }


def _topic_look(description: Any) -> TopicLook:
    partitions = {
        row.partition(): PartitionLook(
            tuple(node.id() for node in row.replicas()), tuple(node.id() for node in row.isr())
        )
        for row in description.partitions()
    }
    return TopicLook(description.topicId().toString(), partitions)


# --- in words and options ------------------------------------------------------------------------------


def missing_artifacts(is_there: Callable[[str], bool]) -> list[str]:
    """Artifacts of which Spark's Java does not have a class, by the name of one that is asked for."""
    return [artifact for name, artifact in _NEEDED if not is_there(name)]


def why_no_source(missing: Sequence[str], spark_version: str) -> str:
    """What to do about artifacts that Spark does not have."""
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
    return (
        f"Spark has no Kafka source ({', '.join(missing)}): --packages {package} fetches it from Maven "
        "Central (where it has none of this version: the newest before), --jars FILE,FILE names jars that "
        "are here"
    )


def client_settings(timeout_ms: int) -> dict[str, str]:
    """Of Kafka's Java clients: they end within this time."""
    return {
        "client.id": _CLIENT_ID,
        "request.timeout.ms": str(min(timeout_ms, _REQUEST_TIMEOUT_MAX_MS)),
        "default.api.timeout.ms": str(timeout_ms),
    }


def source_options(
    settings: Mapping[str, str], ranges: Sequence[OffsetRange], timeout_ms: int, min_partitions: int
) -> dict[str, str] | None:
    """Of Spark's `format("kafka")`, for exactly these ranges; None when they are empty. `settings` are those
    of Kafka's clients. Records of transactions are read whether committed or not: what is judged is the
    append."""
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for item in ranges:
        if item.start == item.end:
            continue
        assign.setdefault(item.topic, []).append(item.partition)
        starts.setdefault(item.topic, {})[str(item.partition)] = item.start
        ends.setdefault(item.topic, {})[str(item.partition)] = item.end
    if not assign:
        return None
    kafka = {**settings, "isolation.level": "read_uncommitted"}
    return {
        **{f"kafka.{name}": value for name, value in kafka.items()},
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "failOnDataLoss": "true",
        "minPartitions": str(min_partitions),
        "kafkaConsumer.pollTimeoutMs": str(timeout_ms),
    }


def said_by_java(error: Exception) -> str:
    """The last cause of an error of Java, without packages: one sentence. Why a certificate is not trusted
    is said in words that do not name TLS: what does stands before them."""
    if gone := _GONE.search(str(error)):
        return (
            f"records of {gone[2]} from offset {gone[1]} are not there any more: its log lost them, or its "
            "topic was deleted, while it was read"
        )
    causes, of_python = _CAUSE.findall(str(error)), reason_of(error)
    if not causes or of_python.startswith("holdfast."):
        return of_python
    named = [cause for cause in causes[:-1] if cause[0] == _OF_TLS]
    return ": ".join(word for cause in (*named[:1], causes[-1]) for word in cause if word)


def with_hint(said: str) -> str:
    """What the Admin said, with what may be behind it where that does not tell."""
    if not _NO_ANSWER.search(said):
        return said
    return f"{said} (no broker is there, or its listener wants TLS or a login: --command-config)"
