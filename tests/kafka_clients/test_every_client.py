"""Every client does the same task: undisturbed, in the versions that docs/kafka.md tells (REWRITE_GOLDEN=1
writes them); and while leaders and coordinators are killed -9 in
turn, until each broker was killed or for HOLDFAST_KILL_MINUTES.
"""

import os
import re
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.judges import JUDGES, PARTITIONS, Judge, check
from tests.kafka_clients.kills import kills_in_turn

MINUTES = float(os.environ.get("HOLDFAST_KILL_MINUTES", "0"))
PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
RECORDS = 1_000

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(900 + 60 * MINUTES),
    pytest.mark.filterwarnings("ignore"),  # theirs are not ours
]


def judge_of(name: str, cluster: HoldfastCluster, folder: Path) -> Judge:
    """The client, with every broker up."""
    module, make = JUDGES[name]
    if module is not None:
        pytest.importorskip(module, reason=f"{name} is not installed: pip install '.[dev]'")
    cluster.restart()
    return make(cluster.kafka_bootstrap, folder)


def spoken(cluster: HoldfastCluster) -> Counter[tuple[str, int]]:
    """{(API, version): requests of Kafka clients} at all brokers."""
    found: Counter[tuple[str, int]] = Counter()
    for node in cluster.brokers:
        with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            for family in families:
                if family.name == "kafka_server_request_versions":
                    for one in family.samples:
                        found[one.labels["request"], int(one.labels["version"])] += int(one.value)
    return found


def told(name: str) -> dict[str, str] | None:
    """{API: versions} of the client in the page's table."""
    lines = PAGE.read_text().splitlines()
    (head,) = (line for line in lines if line.startswith("| Client | "))
    titles = [word.strip() for word in head.strip("|").split("|")]
    for line in lines:
        words = [word.strip() for word in line.strip("|").split("|")]
        if re.match(rf"{re.escape(name)}\b", words[0]) and len(words) == len(titles):
            return dict(zip(titles[1:], words[1:], strict=True))
    return None


def rewrite(name: str, by_api: dict[str, str]) -> None:
    """The client's row of the page, made anew."""
    text = PAGE.read_text()
    (line,) = re.findall(rf"^\| {re.escape(name)}\b[^\n]*\|$", text, re.MULTILINE)
    client = line.strip("|").split("|")[0].strip()
    PAGE.write_text(text.replace(line, f"| {' | '.join([client, *by_api.values()])} |"))


@pytest.mark.parametrize("name", JUDGES)
def test_the_task_is_done_in_the_versions_that_the_page_tells(
    name: str, cluster: HoldfastCluster, tmp_path: Path
) -> None:
    judge = judge_of(name, cluster, tmp_path)
    topic = cluster.create_topic(f"every-{name}", partitions=PARTITIONS)
    before = spoken(cluster)
    check(judge, cluster, topic, RECORDS)
    row = told(name)
    if row is None:  # which version there is depends on the machine
        assert name == "kcat"
        return
    used = spoken(cluster) - before
    by_api = {
        title: " ".join(
            str(version) for api, version in sorted(used) if api.replace("_", "") == title.lower()
        )
        for title in row
    }
    if os.environ.get("REWRITE_GOLDEN"):
        rewrite(name, by_api)
    assert by_api == told(name)


#: kcat ends after so many lines, and when it reads one again it has not read all; kafka-go writes without
#: idempotence; KafkaJS throws when a connection ends while it connects.
KILLED = [name for name in JUDGES if name not in ("kcat", "kafka-go", "KafkaJS")]


@pytest.mark.parametrize("name", KILLED)
def test_nothing_is_lost_or_doubled_while_leaders_and_coordinators_are_killed(
    name: str, cluster: HoldfastCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Its figures are properties of the test in a report (`--junitxml`)."""
    judge, records = judge_of(name, cluster, tmp_path), 0
    with kills_in_turn(cluster) as kills:
        for number in kills.rounds(MINUTES):
            topic = cluster.create_topic(f"killed-{name}-{number}", partitions=PARTITIONS)
            check(judge, cluster, topic, RECORDS)
            records += RECORDS
    record_property("brokers killed", kills.count)
    record_property("records acknowledged and committed", records)
