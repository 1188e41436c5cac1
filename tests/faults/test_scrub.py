"""The scrub finds damage that nothing reads, on a running broker, and the replica is fetched again."""

import pytest

from holdfast.localcluster.faults.damage import FlipBit
from holdfast.localcluster.faults.places import Field, Part, Place
from holdfast.localcluster.processes import LocalCluster
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
