"""A power outage after librdkafka has written: some is lost with the manager off, and nothing with it on."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kafka_clients.programs import run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("confluent_kafka") is None, reason="pip install confluent-kafka"),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="pip install '.[spark]'"),
]


def test_in_a_power_outage_the_manager_keeps_what_librdkafka_was_acknowledged(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    words = ["drill", "power-outage", "--compare", "--seed", "1", "--power-loss", "tracked"]
    command = [sys.executable, "-m", "holdfast.cli", *words, "--client", "librdkafka"]
    done = run([*command, "--report", str(report)], timeout_s=880)
    assert done.code == 0, done
    off, on = json.loads(report.read_text())["data"]["runs"]
    assert (off["client"], off["manager"], off["result"]) == ("librdkafka", False, "EXPECTED")
    assert off["counts"]["lost"] == len(off["lost"]) > 0
    assert (on["manager"], on["result"], on["counts"].get("lost", 0)) == (True, "EXPECTED", 0)
    assert on["facts"]["ok"] == on["facts"]["acked"] > 0
