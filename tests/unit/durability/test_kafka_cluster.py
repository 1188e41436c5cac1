"""What is asked of any Kafka cluster, and how its answers and errors are put."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from py4j.protocol import Py4JError

from holdfast.client.core.errors import ClientError
from holdfast.durability.kafka_cluster import (
    KafkaCluster,
    client_settings,
    missing_artifacts,
    said_by_java,
    source_options,
    why_no_source,
    with_hint,
)
from holdfast.durability.read_options import OffsetRange

NO_TOPIC = """An error occurred while calling o51.get.
: java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.NoTopic: There is none.
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
Caused by: org.apache.kafka.common.errors.NoTopic: There is none.
"""
NO_SERVER = """An error occurred while calling z:org.apache.kafka.clients.admin.Admin.create.
: org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient
\tat org.apache.kafka.clients.admin.KafkaAdminClient.createInternal(KafkaAdminClient.java:552)
Caused by: org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given
\tat org.apache.kafka.clients.ClientUtils.parseAndValidateAddresses(ClientUtils.java:105)
"""
BAD_JAAS = "m.Module required password=s3cret"


# --- words and options -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NO_TOPIC, "NoTopic: There is none."),
        (NO_SERVER, "ConfigException: No resolvable bootstrap urls given"),
        (
            "An error occurred.\n: java.util.concurrent.TimeoutException\n\tat a.b(C.java:1)",
            "TimeoutException",
        ),
        (
            "An error.\n: a.Execution: b\nCaused by: o.SslAuthenticationException: SSL handshake failed\n"
            "Caused by: j.SignatureException: Signature does not match.\n",
            "SslAuthenticationException: SSL handshake failed: SignatureException: Signature does not match.",
        ),
        (
            "Job aborted: Task 0 in stage 9.0: [KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE]"
            " Some data may have been lost.\nReason:\nCould not read records in offset [5, 20) for topic "
            "partition t-0\nwith consumer group g.\nCaused by: a.OffsetOutOfRangeException: out of range\n",
            "records of t-0 from offset 5 are not there any more: its log lost them, or its topic was "
            "deleted, while it was read",
        ),
        (
            "Job aborted.\nTraceback (most recent call last):\nholdfast.durability.Unreadable: line 3\n"
            "Caused by: a.PythonException: Traceback\n",
            "holdfast.durability.Unreadable: line 3",
        ),
        ("An error occurred.\n: a.Outer: b.Inner: \n\tat a.b(C.java:1)\nCaused by: b.Inner: \n", "Inner"),
        ("Answer from Java side is empty", "Answer from Java side is empty"),
    ],
)
def test_an_error_of_java_is_its_last_cause(text: str, said: str) -> None:
    assert said_by_java(Py4JError(text)) == said


@pytest.mark.parametrize(
    ("said", "has_hint"),
    [
        ("TimeoutException: Timed out waiting for a node assignment. Call: listNodes", True),
        ("TimeoutException: The AdminClient thread has exited. Call: listNodes", True),
        (
            "TimeoutException: Timed out waiting for a node assignment. Call: listOffsets(api=LIST_OFFSETS)",
            False,
        ),
    ],
)
def test_where_nobody_understands_the_admin_tls_may_be_what_is_missing(said: str, has_hint: bool) -> None:
    assert ("--command-config" in with_hint(said)) is has_hint


def test_spark_reads_exactly_the_ranges_and_never_passes_over_what_is_gone() -> None:
    ranges = [OffsetRange("t", 0, 0, 5), OffsetRange("t", 1, 3, 3), OffsetRange("u", 2, 7, 9)]
    settings = {"bootstrap.servers": "h:1", "security.protocol": "SSL", "isolation.level": "read_committed"}
    options = source_options(settings, ranges, 45_000, 4)
    assert options is not None
    assert json.loads(options["assign"]) == {"t": [0], "u": [2]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 0}, "u": {"2": 7}}
    assert json.loads(options["endingOffsets"]) == {"t": {"0": 5}, "u": {"2": 9}}
    assert options["failOnDataLoss"] == "true"
    assert options["kafka.bootstrap.servers"] == "h:1"
    assert options["kafka.security.protocol"] == "SSL"
    assert options["kafka.isolation.level"] == "read_uncommitted"
    assert options["kafkaConsumer.pollTimeoutMs"] == "45000"


def test_of_empty_ranges_nothing_is_read() -> None:
    assert source_options({}, [OffsetRange("t", 0, 4, 4)], 1000, 1) is None


@pytest.mark.parametrize("timeout_ms", [1000, 30_000, 2_000_000_000])
def test_no_request_of_a_client_may_take_longer_than_all_of_its_time(timeout_ms: int) -> None:
    settings = client_settings(timeout_ms)
    assert int(settings["request.timeout.ms"]) <= int(settings["default.api.timeout.ms"]) == timeout_ms


def test_what_spark_lacks_is_named_with_the_way_to_get_it() -> None:
    missing = missing_artifacts(lambda name: name.startswith("org.apache.kafka."))
    assert missing == ["spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "commons-pool2"]
    said = why_no_source(missing, "4.2.0")
    assert "commons-pool2" in said
    assert "--packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0" in said


# --- questions -------------------------------------------------------------------------------------------


class Answer:
    """A KafkaFuture that is done; an error is raised when it is asked for."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self, timeout: int, unit: str) -> Any:
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class FakeAdmin:
    """Kafka's Admin of a cluster with topic t."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.topic_id = "id-1"
        self.policy: str | None = "delete"
        self.logs = {0: (0, 10), 1: (4, 9)}
        self.leaderless: set[int] = set()
        self.is_slow = False
        self.is_open = True

    def describeTopics(self, names: list[str]) -> Any:
        nodes = [SimpleNamespace(id=lambda: 1)]
        rows = [
            SimpleNamespace(
                partition=lambda p=p: p,
                replicas=lambda: nodes,
                isr=lambda: nodes,
                leader=lambda p=p: None if p in self.leaderless else nodes[0],
            )
            for p in self.logs
        ]
        topic_id = self.topic_id
        there = SimpleNamespace(
            topicId=lambda: SimpleNamespace(toString=lambda: topic_id), partitions=lambda: rows
        )
        found = {name: Answer(there if name == "t" else Py4JError(NO_TOPIC)) for name in names}
        return SimpleNamespace(topicNameValues=lambda: found)

    def listOffsets(self, asked: dict[tuple[str, int], int]) -> Any:
        def offset(place: tuple[str, int]) -> Answer:
            if place[1] in self.leaderless or self.is_slow:
                return Answer(Py4JError("An error.\n: java.util.concurrent.TimeoutException: slow\n"))
            return Answer(SimpleNamespace(offset=lambda: self.logs[place[1]][asked[place]]))

        return SimpleNamespace(partitionResult=offset)

    def describeConfigs(self, resources: list[str]) -> Any:
        entry = None if self.policy is None else SimpleNamespace(value=lambda: self.policy)
        found = {name: Answer({"cleanup.policy": entry}) for name in resources}
        return SimpleNamespace(values=lambda: found)

    def close(self, duration: Any) -> None:
        self.is_open = False


def java_with(admin: FakeAdmin, lacks: str | None = None) -> Any:
    """What py4j has, as far as it is asked for."""

    def create(settings: dict[str, str]) -> FakeAdmin:
        if settings.get("sasl.jaas.config") == BAD_JAAS:
            raise Py4JError(f"An error occurred.\n: a.KafkaException: no\nCaused by: a.Bad: {BAD_JAAS}\n")
        admin.settings = settings
        return admin

    def names(*more: str) -> Any:
        common = ("bootstrap.servers", "security.protocol", "sasl.jaas.config")
        return SimpleNamespace(configNames=lambda: [*common, *more])

    def class_for_name(name: str, initialize: bool, loader: str) -> str:
        if name == lacks:
            raise Py4JError(f"java.lang.ClassNotFoundException: {name}")
        return name

    def resource(kind: str, name: str) -> str:
        return name

    config_resource: Callable[[str, str], str] = resource
    config_resource.Type = SimpleNamespace(TOPIC="topic")  # type: ignore[attr-defined]
    return SimpleNamespace(
        java=SimpleNamespace(
            lang=SimpleNamespace(
                Class=SimpleNamespace(forName=class_for_name),
                Thread=SimpleNamespace(
                    currentThread=lambda: SimpleNamespace(getContextClassLoader=lambda: "loader")
                ),
            ),
            util=SimpleNamespace(concurrent=SimpleNamespace(TimeUnit=SimpleNamespace(MILLISECONDS="ms"))),
            time=SimpleNamespace(Duration=SimpleNamespace(ZERO=0)),
        ),
        org=SimpleNamespace(
            apache=SimpleNamespace(
                kafka=SimpleNamespace(
                    clients=SimpleNamespace(
                        admin=SimpleNamespace(
                            Admin=SimpleNamespace(create=create),
                            AdminClientConfig=names(),
                            OffsetSpec=SimpleNamespace(earliest=lambda: 0, latest=lambda: 1),
                        ),
                        consumer=SimpleNamespace(ConsumerConfig=names("group.id")),
                        producer=SimpleNamespace(ProducerConfig=names("acks")),
                    ),
                    common=SimpleNamespace(
                        TopicPartition=lambda topic, partition: (topic, partition),
                        config=SimpleNamespace(ConfigResource=config_resource),
                    ),
                ),
            )
        ),
    )


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def cluster(admin: FakeAdmin) -> KafkaCluster:
    return KafkaCluster(SimpleNamespace(_jvm=java_with(admin), version="4.2.0"), "h:1", 1000)


def test_without_a_part_of_the_source_no_question_is_asked(admin: FakeAdmin) -> None:
    java = java_with(admin, lacks="org.apache.commons.pool2.ObjectPool")
    cluster = KafkaCluster(SimpleNamespace(_jvm=java, version="4.2.0"), "h:1", 1000)
    with pytest.raises(ClientError, match=r"no Kafka source \(commons-pool2\): --packages .*:4\.2\.0 "):
        cluster.look(["t"])
    cluster.close()


def test_the_whole_of_each_partition_is_its_range(cluster: KafkaCluster) -> None:
    assert cluster.ranges(["t", "t"]) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 4, 9)]


def test_a_log_that_shrinks_between_two_questions_is_an_empty_range(
    cluster: KafkaCluster, admin: FakeAdmin
) -> None:
    admin.logs = {0: (7, 5)}
    assert cluster.ranges(["t"]) == [OffsetRange("t", 0, 5, 5)]


def test_a_partition_without_leader_is_named(cluster: KafkaCluster, admin: FakeAdmin) -> None:
    """The Admin waits for one as long as it may, and then speaks of its last request."""
    admin.is_slow = True
    with pytest.raises(ClientError, match=r"^offsets of t-0: TimeoutException: slow$"):
        cluster.ranges(["t"])
    admin.leaderless = {1}
    with pytest.raises(ClientError, match=r"^t-1: no leader within 1000 ms$"):
        cluster.ranges(["t"])
    admin.leaderless, admin.logs = set(range(9)), dict.fromkeys(range(9), (0, 1))
    with pytest.raises(ClientError, match=r"^t-0, t-1, t-2, t-3, t-4 and 4 more: no leader"):
        cluster.ranges(["t"])


def test_a_topic_that_there_is_not_is_a_sentence(cluster: KafkaCluster) -> None:
    with pytest.raises(ClientError, match=r"^topic u: NoTopic: There is none\.$"):
        cluster.ranges(["t", "u"])


def test_a_topic_must_be_the_same_whenever_it_is_asked_about(cluster: KafkaCluster, admin: FakeAdmin) -> None:
    assert cluster.look(["t"])["t"].topic_id == "id-1"
    admin.topic_id = "id-2"
    for _ in range(2):
        with pytest.raises(ClientError, match="deleted and created again while it was judged: .* is id-2"):
            cluster.ranges(["t"])


@pytest.mark.parametrize(
    ("policy", "is_judged"), [("delete", True), ("compact", False), ("compact,delete", False)]
)
def test_what_is_compacted_is_not_judged(
    cluster: KafkaCluster, admin: FakeAdmin, policy: str, is_judged: bool
) -> None:
    admin.policy = policy
    why_not = cluster.why_not_judged(["t"])
    assert (why_not is None) is is_judged
    assert why_not is None or "t: cleanup.policy has compact" in why_not


def test_a_cluster_that_does_not_tell_how_it_cleans_up_is_not_judged(
    cluster: KafkaCluster, admin: FakeAdmin
) -> None:
    admin.policy = None
    with pytest.raises(ClientError, match="of topic t: the cluster does not tell it"):
        cluster.why_not_judged(["t"])


def test_properties_of_its_user_say_how_to_connect(admin: FakeAdmin) -> None:
    """Those of other clients in the same file are passed over, and ours count."""
    given = {"security.protocol": "SSL", "acks": "all", "group.id": "g", "bootstrap.servers": "x:1"}
    spark = SimpleNamespace(_jvm=java_with(admin), version="4.2.0")
    KafkaCluster(spark, "h:1", 1000, given).look(["t"])
    assert admin.settings == {"bootstrap.servers": "h:1", **client_settings(1000), "security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"security.protocl": "SSL"},
            r"--command-config: .*security.protocl \(did you mean security.protocol",
        ),
        ({"sasl.jaas.config": BAD_JAAS}, r"^h:1: Bad: \[hidden\]$"),
    ],
)
def test_a_bad_property_is_a_sentence_without_secrets(
    admin: FakeAdmin, given: dict[str, str], said: str
) -> None:
    cluster = KafkaCluster(SimpleNamespace(_jvm=java_with(admin), version="4.2.0"), "h:1", 1000, given)
    with pytest.raises(ClientError, match=said):
        cluster.look(["t"])


def test_its_connections_are_ended(cluster: KafkaCluster, admin: FakeAdmin) -> None:
    cluster.look(["t"])
    cluster.close()
    assert not admin.is_open
