"""The load of a chaos run, its faults, and what is noted about them; the same on every ground.

Owns producers, consumers and the history while the cluster is broken. Which faults come when is decided by
`drills.soak` or `drills.chaos_scenarios`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.client.core.errors import ClientError
from holdfast.drills.chaos_report import ChaosReport
from holdfast.drills.checking import CheckingConsumer
from holdfast.drills.demo.watch import ClusterWatch
from holdfast.drills.fault_kinds import Undoable
from holdfast.drills.ground import Ground
from holdfast.drills.load import DrillLoad
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.report.history import History

#: A broker whose processor and disk others use opens logs after a power cut for a minute.
PATIENCE_S = 240.0
_PROGRESS_S = 10.0
_BETWEEN_NODES = ("partition", "slow-links")

Say = Callable[[str], None]


class Session:
    """One run on a cluster that is up."""

    def __init__(self, ground: Ground, ledger: Path, report: ChaosReport, history: History, say: Say) -> None:
        self.ground = ground
        self.report = report
        self.say = say
        self.look = ClusterWatch(ground.nodes.bootstrap_servers, PATIENCE_S)
        self.loads: list[DrillLoad] = []
        self.readers: list[CheckingConsumer] = []
        self.topics: list[str] = []
        self.ledger = ledger
        self._history = history
        self._began = time.monotonic()
        self._last_progress = 0.0
        #: nodes under which faults were noted, by the identity of the fault
        self._noted: dict[int, list[Node]] = {}

    # --- load ------------------------------------------------------------------------------------------

    def make_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """A topic with three replicas, all in sync when this returns. Raises: ClusterError."""
        self.look.ask(lambda admin: admin.create_topic(topic, partitions, 3, configs=dict(configs)))
        self.look.wait_full_isr(topic)
        self.topics.append(topic)

    def add_load(self, load: DrillLoad) -> None:
        """One more producer; it writes when this returns."""
        self.loads.append(load)
        load.start()

    def add_reader(self, name: str, topic: str) -> None:
        """One more consumer that checks what it reads."""
        servers = self.ground.nodes.bootstrap_servers
        reader = CheckingConsumer(servers, topic, name=name, ledger=self.ledger, says=self.say)
        self.readers.append(reader)
        reader.start()

    def note_controller(self) -> None:
        """Note which controller is active, if the brokers know."""
        try:
            active = self.look.ask(lambda admin: admin.describe_cluster()).controller_id
        except (ClusterError, ClientError):
            return
        if active >= 0:
            self._history.write(kind="controller", controller=active)

    @property
    def acked(self) -> int:
        """Records that are acknowledged so far."""
        return sum(load.acked for load in self.loads)

    @property
    def seconds(self) -> float:
        """Since the session began."""
        return time.monotonic() - self._began

    def progress(self, text: str) -> None:
        """Say how far it is, every ten seconds."""
        self.report.seconds = self.seconds
        if self.seconds - self._last_progress >= _PROGRESS_S:
            self._last_progress = self.seconds
            faults = sum(self.report.faults.values())
            self.say(f"{text}: {faults} faults, {self.acked:,} records acknowledged")

    # --- faults ----------------------------------------------------------------------------------------

    def apply(self, fault: Undoable) -> None:
        """Do one step of a fault, and note it. Raises: ClusterError."""
        text = fault.apply()
        self.say(text)
        self._noted[id(fault)] = _about(fault, text)
        for node in self._noted[id(fault)]:
            self._history.fault_begins(fault.name, node.name, text)

    def heal(self, faults: Sequence[Undoable]) -> None:
        """Undo faults in the order given. Raises: ClusterError."""
        for fault in faults:
            fault.heal()
            for node in self._noted.pop(id(fault), ()):
                self._history.fault_ends(node.name)
        if any(node.role == "controller" for fault in faults for node in fault.nodes):
            self.note_controller()

    def check_alive(self, before: Mapping[Node, str | None], faults: Sequence[Undoable]) -> None:
        """Complain about nodes that have ended and were not asked to."""
        may_end = {node for fault in faults if fault.ends_nodes for node in fault.nodes}
        for node, life in self.ground.lives().items():
            if node not in may_end and before[node] is not None and life != before[node]:
                what = ", ".join(fault.name for fault in faults)
                words = self.ground.last_words(node)
                self.complain(f"{node.name} has ended under {what} and was not asked to: {words}")

    def come_back(self) -> None:
        """Until all nodes are ready and all replicas in sync. Raises: ClusterError."""
        try:
            self.ground.up(PATIENCE_S)
        except ClusterError as error:
            self.complain(str(error))
            self.ground.up(PATIENCE_S)
        for topic in self.topics:
            self.look.wait_full_isr(topic)

    def complain(self, text: str) -> None:
        """Something is not as it must be."""
        self.say(f"NOT AS IT MUST BE: {text}")
        self.report.complaints.append(text)

    # --- end -------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Wait for the answer of every record, end the consumers, count. Raises: ClusterError."""
        for load in self.loads:
            load.stop()
        self._end_readers()
        self._count()

    def abandon(self) -> None:
        """End everything at once, after a failure that is reported elsewhere."""
        for load in self.loads:
            load.abandon()
        try:
            self._end_readers()
        except ClusterError as error:
            self.report.complaints.append(str(error))
        self._count()

    def _end_readers(self) -> None:
        for reader in self.readers:
            reader.stop()

    def _count(self) -> None:
        self.report.acked = self.acked
        self.report.seconds = self.seconds
        self.report.checked = sum(reader.check.count for reader in self.readers)
        for reader in self.readers:
            self.report.complaints += [f"{reader.name}: {text}" for text in reader.check.complaints]


def _about(fault: Undoable, text: str) -> list[Node]:
    """The nodes under which it is noted; of faults between nodes the one that is named first."""
    if fault.name not in _BETWEEN_NODES:
        return list(fault.nodes)
    return [min(fault.nodes, key=lambda node: text.find(node.name) % len(text))]
