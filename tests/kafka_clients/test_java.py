"""Kafka's own tools, against our brokers: what they print is true; what is missing fails at once."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.metadata.records import ELR_FEATURE, METADATA_VERSION
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.programs import Done, KafkaTools, jars

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kafka tools"),
]

RECORDS = 1_000


@pytest.fixture
def tools(cluster: HoldfastCluster) -> KafkaTools:
    """The tools, and every broker up."""
    jars("java")
    cluster.restart()
    return KafkaTools(cluster.kafka_bootstrap)


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: HoldfastCluster, tools: KafkaTools) -> str:
    """A topic of the test's own, with three partitions."""
    return cluster.create_topic(request.node.name.replace("_", "-")[:80], partitions=3)


def described(tools: KafkaTools, topic: str) -> dict[int, dict[str, str]]:
    """{partition: {word: value}}, as `kafka-topics --describe` prints it."""
    lines = tools.succeeds("TopicCommand", "--describe", "--topic", topic).lines
    rows = [dict(re.findall(r"(\w+): ([^\t]*)", line)) for line in lines if "Partition: " in line]
    return {int(row["Partition"]): row for row in rows}


def test_kafka_topics_prints_eligible_and_last_known_leaders(
    tools: KafkaTools, cluster: HoldfastCluster
) -> None:
    words = ("--topic", "java-topics")
    configs = ("--config", "min.insync.replicas=2", "--config", "retention.ms=123456")
    tools.succeeds("TopicCommand", "--create", *words, "--replica-assignment", "1:2:3,2:3:1", *configs)
    cluster.kill(cluster.broker(1), cluster.broker(2))
    cluster.wait_until(lambda: [node.node_id for node in cluster.isr("java-topics", 1)] == [3])
    (eligible,) = (str(node.node_id) for node in cluster.elr("java-topics", 0))
    for row in described(tools, "java-topics").values():
        assert (row["Leader"], row["Isr"], row["Elr"], row["LastKnownElr"]) == ("3", "3", eligible, "")

    cluster.kill(cluster.broker(3))
    back = cluster.broker(int(eligible))
    cluster.restart(back)
    cluster.wait_until(lambda: [node.node_id for node in cluster.elr("java-topics", 0)] == [3])
    for row in described(tools, "java-topics").values():
        assert (row["Leader"], row["Elr"], row["LastKnownElr"]) == ("none", "3", eligible)

    cluster.restart()
    cluster.wait_until(lambda: len(cluster.isr("java-topics", 1)) == 3)
    tools.succeeds("TopicCommand", "--alter", *words, "--partitions", "4")
    assert set(described(tools, "java-topics")) == {0, 1, 2, 3}
    assert "java-topics" in tools.succeeds("TopicCommand", "--list").lines
    tools.succeeds("TopicCommand", "--delete", *words)
    cluster.wait_until(lambda: "java-topics" not in tools.succeeds("TopicCommand", "--list").lines)


def test_a_topic_that_cannot_be_created_is_refused_with_our_sentence(tools: KafkaTools) -> None:
    done = tools.run("TopicCommand", "--create", "--topic", "bad", "--replication-factor", "9")
    assert (done.code, "replication factor 9: there are 3 brokers" in done.out + done.err) == (1, True)


def test_lines_go_through_the_console_tools_and_groups_are_administered(
    tools: KafkaTools, topic: str
) -> None:
    values = [f"line {number}" for number in range(RECORDS)]
    tools.succeeds("ConsoleProducer", "--topic", topic, stdin="\n".join(values) + "\n")
    offsets = tools.succeeds("GetOffsetShell", "--topic", topic).lines
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == RECORDS
    words = ("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS))
    read = tools.succeeds("consumer.ConsoleConsumer", *words, "--timeout-ms", "60000", "--group", topic)
    assert sorted(read.lines) == sorted(values)

    command, group = "consumer.group.ConsumerGroupCommand", ("--group", topic)
    assert topic in tools.succeeds(command, "--list").lines
    assert lag(tools, topic) == 0
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    tools.succeeds(command, *group, *reset)
    assert lag(tools, topic) == RECORDS
    assert tools.succeeds(command, *group, "--delete-offsets", "--topic", topic).out.count("Successful") == 3
    tools.succeeds(command, *group, "--delete")
    assert topic not in tools.succeeds(command, "--list").lines


def lag(tools: KafkaTools, group: str) -> int:
    """Of a group without members, as `kafka-consumer-groups --describe` prints it."""
    lines = tools.succeeds("consumer.group.ConsumerGroupCommand", "--group", group, "--describe").lines
    return sum(int(line.split()[5]) for line in lines if line.startswith(f"{group} "))


def test_the_verifiable_tools_agree_on_what_was_written_while_leaders_are_killed(
    tools: KafkaTools, topic: str, cluster: HoldfastCluster, tmp_path: Path
) -> None:
    retrying = tmp_path / "producer.properties"
    retrying.write_text("retries=2147483647\nenable.idempotence=true\n")
    count = 6 * RECORDS
    words = ["--topic", topic, "--acks", "-1", "--max-messages", str(count), "--throughput", "1000"]
    with tools.start("VerifiableProducer", *words, "--command-config", str(retrying)) as producer:
        acknowledged = Acknowledged(producer)
        for due in (count // 6, count // 2):
            acknowledged.until(due)
            leader = cluster.wait_until(lambda: cluster.leader(topic))
            assert leader is not None
            cluster.kill(leader)
            acknowledged.until(due + count // 6)
            cluster.restart(leader)
            cluster.wait_until(lambda: all(len(cluster.isr(topic, index)) == 3 for index in range(3)))
        acknowledged.until(count)
    assert producer.returncode == 0
    assert len(set(acknowledged.places)) == count

    words = ["--topic", topic, "--group-id", topic, "--max-messages", str(count)]
    done = tools.succeeds("VerifiableConsumer", *words, "--reset-policy", "earliest", "--verbose")
    events = [json.loads(line) for line in done.lines]
    read = [(one["partition"], one["offset"]) for one in events if one["name"] == "record_data"]
    assert sorted(read) == sorted(acknowledged.places)
    assert all(one["success"] for one in events if one["name"] == "offsets_committed")


class Acknowledged:
    """What a VerifiableProducer says was acknowledged, line by line."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._lines: Iterator[str] = iter(process.stdout)
        #: (partition, offset)
        self.places: list[tuple[int, int]] = []

    def until(self, count: int) -> None:
        """Read on until so many are acknowledged."""
        while len(self.places) < count:
            event = json.loads(next(self._lines))
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                self.places.append((event["partition"], event["offset"]))


def test_the_performance_tools_measure(tools: KafkaTools, topic: str) -> None:
    words = ("--topic", topic, "--num-records", str(20 * RECORDS))
    done = tools.succeeds("ProducerPerformance", *words, "--record-size", "1024", "--throughput", "-1")
    assert f"{20 * RECORDS} records sent" in done.out
    done = tools.succeeds("ConsumerPerformance", *words)
    names, figures = (line.split(", ") for line in done.lines[-2:])
    assert int(dict(zip(names, figures, strict=True))["data.consumed.in.nMsg"]) >= 20 * RECORDS


def test_configurations_are_set_removed_and_refused(tools: KafkaTools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)

    def values() -> str:
        return tools.succeeds("ConfigCommand", *entity, "--describe").out

    tools.succeeds("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=3600000")
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=3600000, DEFAULT_CONFIG:retention.ms=604800000" in values()
    tools.succeeds("ConfigCommand", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in values()
    done = tools.run("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=soon")
    assert (done.code, "retention.ms=soon: expected an integer" in done.err) == (1, True)
    cluster_wide = ("--entity-type", "brokers", "--entity-default")
    assert "min.insync.replicas=2" in tools.succeeds("ConfigCommand", *cluster_wide, "--describe").out


def test_replicas_are_moved_and_the_preferred_ones_elected(
    tools: KafkaTools, topic: str, cluster: HoldfastCluster, tmp_path: Path
) -> None:
    moves = [{"topic": topic, "partition": index, "replicas": [3, 2, 1]} for index in range(3)]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    command, file = "reassign.ReassignPartitionsCommand", ("--reassignment-json-file", str(plan))
    begun = tools.succeeds(command, *file, "--execute", "--throttle", "100000000").out
    assert "limit was set to 100000000 B/s" in begun
    assert "Successfully started" in begun
    entity = ("--entity-type", "brokers", "--entity-name", "2")
    throttled = tools.succeeds("ConfigCommand", "--describe", *entity).out
    assert "DYNAMIC_BROKER_CONFIG:leader.replication.throttled.rate=100000000" in throttled
    verified = tools.succeeds(command, *file, "--verify").out
    assert verified.count("is completed.") == 3
    for one in (entity, ("--entity-type", "topics", "--entity-name", topic)):
        assert "throttled" not in tools.succeeds("ConfigCommand", "--describe", *one).out
    assert tools.succeeds(command, "--list").out.strip() == "No partition reassignments found."

    tools.succeeds("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    cluster.wait_until(lambda: cluster.leader(topic, 2) == cluster.broker(3))
    assert {row["Leader"] for row in described(tools, topic).values()} == {"3"}
    found = tools.succeeds("LogDirsCommand", "--describe", "--topic-list", topic)
    dirs = json.loads(found.lines[-1])["brokers"]
    sizes = {
        (row["broker"], partition["partition"])
        for row in dirs
        for log_dir in row["logDirs"]
        for partition in log_dir["partitions"]
    }
    assert sizes == {(broker, f"{topic}-{index}") for broker in (1, 2, 3) for index in range(3)}


def test_the_quorum_and_the_features_are_described(tools: KafkaTools, cluster: HoldfastCluster) -> None:
    status = tools.succeeds("MetadataQuorumCommand", "describe", "--status").out
    assert re.search(r"LeaderId: +101\n", status)
    assert finalized(tools) == {ELR_FEATURE: "1", METADATA_VERSION: "1"}
    versions = tools.succeeds("BrokerApiVersionsCommand").out
    assert versions.count("Produce(0): 3 to 13 [usable: 13]") == len(cluster.brokers)


def test_the_level_of_the_metadata_is_lowered_and_raised_and_a_level_that_no_build_has_is_refused(
    tools: KafkaTools,
) -> None:
    def update(verb: str, level: int, *words: str) -> Done:
        return tools.run("FeatureCommand", verb, "--feature", f"{METADATA_VERSION}={level}", *words)

    refused = update("upgrade", 99)
    assert refused.code == 1
    assert "metadata.version has the levels 0 to 1 on all brokers, not 99" in refused.out + refused.err
    assert update("downgrade", 0, "--dry-run").code == 0
    assert finalized(tools)[METADATA_VERSION] == "1"
    for verb, level in (("downgrade", 0), ("upgrade", 1)):
        done = update(verb, level)
        assert done.code == 0, done
        assert finalized(tools)[METADATA_VERSION] == str(level)


def finalized(tools: KafkaTools) -> dict[str, str]:
    """{feature: level}, as `kafka-features describe` prints it; it has a word before a level that is no
    release of Kafka's."""
    out = tools.succeeds("FeatureCommand", "describe").out
    return dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (?:\w+ )?(\d+)\s", out))


NOT_SERVED = {
    "transactions": ("TransactionsCommand", ("list",), "does not support LIST_TRANSACTIONS"),
    "client metrics": ("ClientMetricsCommand", ("--list",), "does not support LIST_CONFIG_RESOURCES"),
    # it keeps the reason to its log, but it gives up
    "group protocol of KIP-848": (
        "consumer.ConsoleConsumer",
        ("--topic", "any", "--command-property", "group.protocol=consumer"),
        "Processed a total of 0 messages",
    ),
}


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_is_not_served_fails_at_once(tools: KafkaTools, name: str) -> None:
    tool, words, says = NOT_SERVED[name]
    done = tools.run(tool, *words)
    assert says in done.out + done.err
