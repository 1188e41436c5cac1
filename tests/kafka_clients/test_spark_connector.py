"""Spark's own Kafka connector, unchanged: batches, a stream, and a stream of what is there now.

Spark plays in a process of its own: the session of other tests has been started without the connector.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.durability.java import prepare_environment
from holdfast.testing import HoldfastCluster
from tests.kafka_clients.programs import ended, jars

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pip install '.[spark]'"),
]

ROWS = 1_000


def test_spark_writes_and_reads_batches_and_streams(cluster: HoldfastCluster, tmp_path: Path) -> None:
    cluster.restart()
    topic = cluster.create_topic("spark-connector", partitions=3)
    copied = cluster.create_topic("spark-connector-copy", partitions=3)
    # the rest comes with Spark itself
    wanted = [str(path) for path in jars("spark_connector") if re.search("kafka|commons-pool2", path.name)]
    classpath = ",".join(wanted)
    script = str(Path(__file__).with_name("spark_job.py"))
    words = [
        sys.executable,
        script,
        classpath,
        cluster.kafka_bootstrap,
        topic,
        copied,
        str(ROWS),
        str(tmp_path),
    ]
    environment = {**os.environ, **prepare_environment(os.environ, sys.executable, on_loopback=True)}
    process = subprocess.Popen(
        words, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    done = ended(process, timeout_s=480)
    assert done.code == 0, done
    values = [str(number) for number in range(ROWS)]
    found = json.loads(done.lines[-1])
    assert sorted(found.pop("batch")) == sorted(values)
    assert sorted(found.pop("by_offset")) == sorted(values)
    assert found == {
        "by_time": ROWS,  # since the epoch
        "available_now": ROWS,
        "available_now_again": ROWS,  # nothing twice
        "available_now_after_more": 2 * ROWS,
        "stream": 2 * ROWS,
        "copied": 2 * ROWS,
    }
