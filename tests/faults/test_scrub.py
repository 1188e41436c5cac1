"""Replicas that are not what they must be, on running brokers: found by the scrub, or by comparing them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from holdfast.localcluster.faults.damage import FlipBit
from holdfast.localcluster.faults.places import Field, Part, Place
from holdfast.localcluster.processes import LocalCluster
from holdfast.protocol.record_batch import HEADER_SIZE, iter_batches
from holdfast.storage.core.files import SCRUB_CHECKPOINT
from tests.e2e.load import produce, wait_until, watch
from tests.e2e.log_reading import log_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.xdist_group("faults")]


def test_flipped_bit_that_nothing_reads_is_found_and_heals(shared: LocalCluster) -> None:
    shared.up()
    look = watch(shared.bootstrap_servers)
    configs = {"segment.bytes": "4096", "min.insync.replicas": "2"}
    look.ask(lambda admin: admin.create_topic("scrubbed", assignments={0: (1, 2, 3)}, configs=configs))
    look.wait_full_isr("scrubbed")
    for first in range(0, 60, 10):
        produce(shared.bootstrap_servers, "scrubbed", 10, first=first)
    node = shared.broker(3)
    shared.stop([node])
    # A clean start reads no payloads, and neither does a follower.
    FlipBit(shared, node, Place(Part.CLOSED_SEGMENT, "scrubbed-0"), 1, Field.PAYLOAD).apply()
    (shared.data_folder(node) / SCRUB_CHECKPOINT).unlink(missing_ok=True)  # a pass is due
    shared.start(node)
    wait_until(lambda: any(shared.data_folder(node).glob("scrubbed-0.*-corrupt")), 90)

    def is_healed() -> bool:
        logs = [log_of(shared, shared.broker(id), "scrubbed", 0) for id in (1, 2, 3)]
        return bool(logs[0]) and logs[0] == logs[1] == logs[2]

    wait_until(is_healed, 90)
    look.wait_full_isr("scrubbed")


def verified(cluster: LocalCluster, topic: str) -> dict[str, Any]:
    """What `holdfast replica-verification` says."""
    words = ["replica-verification", "--topic", topic, "--output", "json", "--timeout-ms", "60000"]
    line = [sys.executable, "-m", "holdfast.cli", *words, "--bootstrap-server", cluster.bootstrap_servers]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    body: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if body["ok"] else 1), done.stderr
    return body


def forge(folder: Path) -> int:
    """Change a record of the second batch, and its batch's crc with it; the batch's offset."""
    path = min(folder.glob("*.log"))
    data = bytearray(path.read_bytes())
    (_, first), (header, _) = list(iter_batches(bytes(data)))[:2]
    start, end = len(first), len(first) + header.size_bytes
    data[end - 2] ^= 1
    crc = google_crc32c.value(bytes(data[start + HEADER_SIZE - 40 : end]))
    data[start + 17 : start + 21] = crc.to_bytes(4, "big")
    path.write_bytes(data)
    return header.base_offset


def test_a_replica_with_other_records_and_a_right_crc_is_named_as_the_odd_one(shared: LocalCluster) -> None:
    shared.up()
    look = watch(shared.bootstrap_servers)
    configs = {"min.insync.replicas": "2"}
    look.ask(lambda admin: admin.create_topic("compared", assignments={0: (1, 2, 3)}, configs=configs))
    look.wait_full_isr("compared")
    for first in range(0, 60, 10):
        produce(shared.bootstrap_servers, "compared", 10, first=first)
    body = verified(shared, "compared")
    assert body["errors"] == []
    assert (body["data"][0]["end_offset"], body["data"][0]["same"]) == (60, True)
    node = shared.broker(3)
    shared.stop([node])
    offset = forge(shared.data_folder(node) / "compared-0")
    shared.start(node)
    look.wait_full_isr("compared")
    (error,) = verified(shared, "compared")["errors"]
    assert (error["code"], error["broker"], error["offset"]) == ("REPLICA_DIFFERS", 3, offset)
    look.ask(lambda admin: admin.delete_topic("compared"))
