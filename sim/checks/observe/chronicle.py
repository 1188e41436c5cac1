"""What the quorum decided, and when, in simulated time: for a picture of the run. Judges nothing.

The metadata log itself has the clocks of its controllers, which a run may put wrong.
"""

from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord
from holdfast.raft.core.member import Snapshot
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.nodes import SimController
from holdfast.sim.load.clients import LEDGER_FOLDER, ledger_path
from holdfast.sim.machine.loop import START_NS


class Chronicle(Property):
    """Of one run."""

    name = "Chronicle"

    def __init__(self) -> None:
        #: (ms since the run began, offset, record) as committed
        self.records: list[tuple[int, int, MetadataRecord]] = []
        #: (ms since the run began, id of the active controller from here on)
        self.controllers: list[tuple[int, int]] = []
        self._epoch = -1
        self._seen: Observer | None = None

    def record_committed(
        self, seen: Observer, offset: int, record: MetadataRecord, before: MetadataImage
    ) -> None:
        self._seen = seen
        self.records.append((_now_ms(seen), offset, record))

    def voter_changed(self, seen: Observer, node: SimController, voter: Snapshot) -> None:
        if voter.role == "Leader" and voter.raft_epoch > self._epoch:
            self._epoch = voter.raft_epoch
            self.controllers.append((_now_ms(seen), node.node_id))

    def ledgers(self) -> list[bytes]:
        """What the producers' ledgers hold; after the run."""
        if self._seen is None:
            return []
        disks = [machine.sim_disk for machine in self._seen.world.producer_machines.values()]
        return [disk.read(ledger_path(name)) or b"" for disk in disks for name in disk.names(LEDGER_FOLDER)]


def _now_ms(seen: Observer) -> int:
    return (seen.world.loop.now_ns - START_NS) // 1_000_000
