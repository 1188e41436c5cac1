"""The same requests, good and bad, to Holdfast and to Kafka itself: the same error codes, or a reason."""

import os
from pathlib import Path

import pytest

from holdfast.testing import HoldfastCluster
from tests.kafka_clients.programs import jars, kafka_server
from tests.kafka_clients.raw_client import RawClient
from tests.kafka_clients.transcript import ROWS, play

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
BEGIN, END = "<!-- generated: differences -->\n", "<!-- end -->"


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_every_request_gets_the_error_codes_of_the_transcript(tmp_path: Path) -> None:
    with HoldfastCluster.running(tmp_path / "cluster", brokers=1) as cluster:
        client = RawClient(cluster.kafka_bootstrap)
        found = play(client)
        client.close()
    assert found == {row.name: row.says for row in ROWS}


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.timeout(600)
def test_kafka_says_the_same_but_for_the_differences_that_are_listed(tmp_path: Path) -> None:
    jars("java")
    with kafka_server(tmp_path) as addresses:
        address = addresses["PLAINTEXT"]
        client = RawClient(address)
        found = play(client)
        client.close()
    assert found == {row.name: row.kafka_says for row in ROWS}


def test_each_request_has_a_name_and_each_difference_a_reason() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert (row.kafka is not None) == bool(row.why), row.name
        assert row.kafka != row.says, row.name


def test_the_page_lists_the_differences() -> None:
    """REWRITE_GOLDEN=1 writes them."""
    rows = ["| Request | Holdfast | Kafka | Why |", "|---|---|---|---|"]
    rows += [
        f"| {row.name} | {row.says.upper()} | {row.kafka.upper()} | {row.why} |"
        for row in ROWS
        if row.kafka is not None
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    wanted = before + begin + "\n".join(rows) + "\n" + end + after
    if os.environ.get("REWRITE_GOLDEN"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted
    assert begin
