"""Runs of confluent-kafka, judged through Spark's own Kafka source: of the cluster nothing is used but
Kafka's protocol. The program is that of the page.

Spark plays in a process of its own: the session of other tests has been started without the source.
"""

import hashlib
import importlib.util
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.durability.java import prepare_environment
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.clients import CLIENTS, KafkaClient
from tests.kafka_clients.programs import Done, jars, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pip install '.[spark]'"),
]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "validate-your-own-client.md"
RECORDS = 300


class Kafka(NamedTuple):
    """The cluster as confluent-kafka and Kafka's protocol have it."""

    cluster: HoldfastCluster
    client: KafkaClient
    folder: Path

    def sent(self, topic: str) -> Path:
        """The ledger of a run of the page's program that sends to this new topic."""
        self.cluster.create_topic(topic, partitions=3)
        folder = self.folder / topic
        folder.mkdir()
        done = run([sys.executable, "-c", program_of_page(topic, self.cluster.kafka_bootstrap)], cwd=folder)
        assert done.code == 0, done
        return folder / "sends.jsonl"


def program_of_page(topic: str, servers: str) -> str:
    """The page's program, for another topic and cluster and fewer records."""
    (block,) = re.findall(r"(?m)^    import .*\n(?:(?:    .*)?\n)+", PAGE.read_text(encoding="utf-8"))
    program = textwrap.dedent(block)
    for written, wanted in (
        ("127.0.0.1:19192", servers),
        ('"orders"', repr(topic)),
        ("10_000", str(RECORDS)),
    ):
        assert written in program
        program = program.replace(written, wanted)
    return program


@pytest.fixture
def kafka(cluster: HoldfastCluster, tmp_path: Path) -> Iterator[Kafka]:
    pytest.importorskip("confluent_kafka", reason="pip install confluent-kafka")
    cluster.restart()
    client = CLIENTS["confluent-kafka"][1](cluster.kafka_bootstrap)
    yield Kafka(cluster, client, tmp_path)
    client.close()


@pytest.fixture(scope="module")
def source() -> str:
    """The jars of the source, as Spark wants them named: the rest comes with Spark itself."""
    found = jars("spark_connector")
    return ",".join(str(path) for path in found if re.search("kafka|commons-pool2", path.name))


def spark(*words: str) -> Done:
    environment = {**os.environ, **prepare_environment(os.environ, sys.executable, on_loopback=True)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return run([sys.executable, *words], timeout_s=400, env=environment, cwd=ROOT)


def test_the_run_of_the_page_is_good(kafka: Kafka, source: str) -> None:
    ledger = kafka.sent("any-good")
    words = ["validate", "--foreign", str(ledger), "--source", "kafka", "--jars", source, "--output", "json"]
    done = spark("-m", "holdfast.cli", *words, "--bootstrap-server", kafka.cluster.kafka_bootstrap)
    assert done.code == 0, done
    facts = json.loads(done.out)["data"]["facts"]
    assert {name: facts[name] for name in ("sent", "acked", "ok", "served")} == dict.fromkeys(
        ("sent", "acked", "ok", "served"), RECORDS
    )
    assert (facts["topics"], facts["partitions"]) == (["any-good"], 3)


def rows_of(ledger: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ledger.read_text().splitlines()]


def write(ledger: Path, rows: list[dict[str, Any]]) -> None:
    ledger.write_text("".join(json.dumps(row) + "\n" for row in rows))


def cut_in_front(kafka: Kafka, ledger: Path) -> None:
    kafka.client.delete_records("any-cut", acknowledged(ledger)[0]["partition"], 1)


def forged(kafka: Kafka, ledger: Path) -> None:
    """One acknowledgement of what was never sent, in the place of a record."""
    name, answer = hashlib.sha256(b"never sent").hexdigest(), acknowledged(ledger)[0]
    sent = {"kind": "invoke", "topic": "any-forged", "value_sha256": name, "acks": "all"}
    write(ledger, [*rows_of(ledger), sent, answer | {"value_sha256": name}])


def moved(kafka: Kafka, ledger: Path) -> None:
    acknowledged_at = acknowledged(ledger)[0]
    rows = rows_of(ledger)
    place = rows.index(acknowledged_at)
    rows[place] = acknowledged_at | {"offset": acknowledged_at["offset"] + 1}
    write(ledger, rows)


def not_written_down(kafka: Kafka, ledger: Path) -> None:
    name = acknowledged(ledger)[0]["value_sha256"]
    write(ledger, [row for row in rows_of(ledger) if row["value_sha256"] != name])


def made_again(kafka: Kafka, ledger: Path) -> None:
    kafka.client.delete_topic("any-again")
    kafka.cluster.create_topic("any-again", partitions=3)


def made_compacted(kafka: Kafka, ledger: Path) -> None:
    """The very topic that the ledger names."""
    kafka.cluster.create_topic("any-compact-now", partitions=3, configs={"cleanup.policy": "compact"})
    rows = [{k: v for k, v in row.items() if k != "topic_id"} for row in rows_of(ledger)]
    write(ledger, [row | {"topic": "any-compact-now"} for row in rows])


def acknowledged(ledger: Path) -> list[dict[str, Any]]:
    """The answers, in the order of partitions and offsets."""
    rows = [row for row in rows_of(ledger) if row["kind"] == "complete"]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


class Fault(NamedTuple):
    plant: Callable[[Kafka, Path], None]
    code: int
    counts: dict[str, int]
    says: str


#: Topic -> what was done after all was sent, and what is found.
FAULTS = {
    "any-cut": Fault(cut_in_front, 6, {}, "1 answered sends lie before the beginning of their logs"),
    "any-forged": Fault(forged, 4, {"lost": 1}, "lost"),
    "any-moved": Fault(moved, 5, {"moved": 1}, "moved"),
    "any-unknown": Fault(not_written_down, 5, {"unexpected": 1}, "never sent"),
    "any-again": Fault(made_again, 6, {}, "topic any-again was deleted and created again"),
    "any-compacted": Fault(made_compacted, 6, {}, "any-compact-now: cleanup.policy has compact"),
}


def test_faults_are_found_as_on_a_cluster_of_our_own(kafka: Kafka, source: str) -> None:
    """One session judges all of them."""
    ledgers = {topic: kafka.sent(topic) for topic in FAULTS}
    for topic, fault in FAULTS.items():
        fault.plant(kafka, ledgers[topic])
    script = str(Path(__file__).with_name("kafka_verdicts.py"))
    servers = kafka.cluster.kafka_bootstrap
    asked = {topic: {"ledger": str(ledger), "servers": servers} for topic, ledger in ledgers.items()}
    done = spark(script, source, json.dumps(asked))
    assert done.code == 0, done
    found = json.loads(done.lines[-1])
    for topic, fault in FAULTS.items():
        verdict = found[topic]
        assert (verdict["code"], verdict["counts"]) == (fault.code, fault.counts), verdict["said"]
        assert fault.says in verdict["said"], verdict["said"]


def test_a_cluster_that_is_not_there_and_a_spark_without_the_source_are_sentences(
    kafka: Kafka, source: str
) -> None:
    ledger = str(kafka.sent("any-absent"))
    judged = ("-m", "holdfast.cli", "validate", "--foreign", ledger, "--source", "kafka")
    without = spark(*judged, "--bootstrap-server", kafka.cluster.kafka_bootstrap)
    assert (without.code, "--packages org.apache.spark:" in without.out) == (6, True), without
    where = ("--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "2000")
    absent = spark(*judged, "--jars", source, *where)
    assert (absent.code, "cluster: topic any-absent: TimeoutException" in absent.out) == (6, True), absent
