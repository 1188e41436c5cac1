"""The stage of a drill: a real cluster, one partition, its load, and what can be done to them.

Owns the steps that drills are made of: cut, pause, kill, start, wait. Every wait is for an observed state;
there is no sleep of a fixed length. The drill decides which states follow each other.
"""

import random
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from holdfast.client.admin_configs import FeatureUpdate, Resource
from holdfast.client.producer import Acks
from holdfast.drills.drill import Drill
from holdfast.drills.librdkafka_load import LibrdkafkaLoad
from holdfast.drills.load import DrillLoad
from holdfast.drills.log_ends import log_end
from holdfast.drills.partition_sets import NO_LEADER, Sets, Wanted
from holdfast.drills.settings import Settings
from holdfast.drills.view import View
from holdfast.durability.log_dir_files import high_watermarks
from holdfast.localcluster.nodes import ClusterError, Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.report.history import History

MANAGER = "unclean.recovery.manager.enabled"
STRATEGY = "unclean.recovery.strategy"
ELR_FEATURE = "eligible.leader.replicas.version"
_POLL_S = 0.03

#: receives the lines that a run prints
Said = Callable[[str], None]


class Void(Exception):
    """The power cut did not take what the drill needs lost. The text says what is still there."""


class Stage:
    """The cluster and load of one run, and the steps of drills."""

    def __init__(
        self,
        cluster: LocalCluster,
        drill: Drill,
        settings: Settings,
        topic: str,
        ledger: Path,
        say: Said,
        history: History,
    ) -> None:
        self._history = history
        self.cluster = cluster
        self.settings = settings
        self.drill = drill
        self.say = say
        self.topic = topic
        #: random choices from the seed: where to cut, how much to write before
        self.chance = random.Random(f"{settings.seed}:{drill.name}")
        self.view = View(cluster, topic)
        if settings.client == "librdkafka":
            self.load: DrillLoad = LibrdkafkaLoad(cluster.kafka_bootstrap, ledger, topic, name=f"all-{topic}")
        else:
            self.load = DrillLoad(cluster.bootstrap_servers, ledger, topic, name=f"all-{topic}")
        self.ledger = ledger
        #: deviations that the drill itself found
        self.complaints: list[str] = []
        self._others: list[DrillLoad] = []
        self._silent: list[int] = []
        #: {broker id: its broker epoch when it was last taken down}
        self._former_epochs: dict[int, int] = {}
        self._cuts = 0

    # --- the beginning and the end ---------------------------------------------------------------------

    def begin(self, replicas: Sequence[int]) -> None:
        """Apply the settings, make the topic with these replicas, preferred first, and start the load."""
        if not self.settings.elr:
            self.view.ask(
                lambda admin: admin.update_features({ELR_FEATURE: FeatureUpdate(0, allow_downgrade=True)})
            )
        self.configure(MANAGER, "true" if self.settings.manager else "false", of_cluster=True)
        configs = {
            "min.insync.replicas": str(self.drill.min_isr),
            STRATEGY: self.settings.strategy,
            **self.drill.topic_configs,
        }
        self.view.ask(
            lambda admin: admin.create_topic(self.topic, assignments={0: replicas}, configs=configs)
        )
        self.wait(leader=replicas[0], isr=replicas)
        self.load.start()

    def write(self, low: int = 100, high: int = 400) -> None:
        """Wait until further records are acknowledged, as many as the seed draws."""
        self.load.wait_acked(self.chance.randint(low, high))
        self.say(
            f"{self.load.acked:,} records are acknowledged (acks=all), below offset {self.load.acked_end}"
        )

    def hold(self) -> None:
        """Pause the load until `end`: every record has its answer, and all in-sync logs have the same end."""
        self.load.hold()
        self.say(f"the load pauses: {self.load.acked:,} records are acknowledged")

    def rest(self) -> None:
        """Pause the load until every broker has stored the high watermark, which bounds a loss (R68)."""
        self.hold()
        end = self.load.acked_end
        folders = [str(self.cluster.data_folder(node)) for node in self.cluster.brokers]
        self.wait_until(
            lambda: all((high_watermarks(folder) or {}).get((self.topic, 0), 0) >= end for folder in folders),
            f"not every broker has stored the high watermark {end}",
        )
        self.say(f"every broker has stored the high watermark {end}")

    def end(self) -> None:
        """Wait until all running brokers are in sync and the load has continued, then for every answer."""
        self.wait_readmitted()
        self.load.go_on()
        self.load.wait_acked(50)
        self.stop_loads()

    def abandon_loads(self) -> None:
        """End all producers at once, after the run has failed."""
        for load in (*self._others, self.load):
            load.abandon()

    def stop_loads(self) -> None:
        """Wait for the answers of all producers."""
        for load in (*self._others, self.load):
            load.stop()

    def other_load(self, name: str, acks: Acks) -> DrillLoad:
        """A further producer; it has begun to write when this returns."""
        load = DrillLoad(
            self.cluster.bootstrap_servers, self.ledger, self.topic, name=f"{name}-{self.topic}", acks=acks
        )
        self._others.append(load)
        load.start()
        return load

    # --- waiting ---------------------------------------------------------------------------------------

    def wait(
        self,
        *,
        leader: int | None = None,
        isr: Collection[int] | None = None,
        elr: Collection[int] | None = None,
        known: Collection[int] | None = None,
        never: Callable[[Sets], bool] = lambda seen: False,
        timeout_s: float = 40.0,
    ) -> Sets:
        """Wait until the sets match; a state for which `never` is true must not occur on the way.

        The ELR counts only where it is on. Raises: ClusterError.
        """
        wanted = Wanted(leader, isr, elr if self.settings.elr else None, known if self.settings.elr else None)
        deadline = time.monotonic() + timeout_s
        while not wanted.is_met(seen := self.view.sets()):
            if never(seen):
                raise ClusterError(f"{seen}, on the way to {wanted}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{seen}, expected {wanted} within {timeout_s:.0f} s")
            time.sleep(_POLL_S)
        self.say(f"  {seen}")
        return seen

    def wait_readmitted(self, timeout_s: float = 60.0) -> Sets:
        """Wait until every running broker is in the ISR, in its present incarnation."""
        running = tuple(n.node_id for n in self.cluster.brokers if self.cluster.pid(n) is not None)
        seen: list[Sets] = []

        def is_full() -> bool:
            now = self.view.moment()
            seen.append(now.sets)
            is_new = all(
                now.epochs.get(broker, -1) > self._former_epochs.get(broker, -1) for broker in running
            )
            return is_new and now.sets.leader != NO_LEADER and now.sets.isr == running

        self.wait_until(is_full, f"not all of {_ids(running)} are in the ISR", timeout_s)
        self.say(f"  {seen[-1]}")
        return seen[-1]

    def wait_led(self, *, timeout_s: float = 40.0) -> Sets:
        """Wait until the partition has a leader."""
        self.wait_until(lambda: self.view.sets().leader != NO_LEADER, "there is no leader", timeout_s)
        seen = self.view.sets()
        self.say(f"  {seen}")
        return seen

    def wait_until(self, condition: Callable[[], bool], otherwise: str, timeout_s: float = 40.0) -> None:
        """Wait until the condition holds. Raises: ClusterError with the text `otherwise`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"{otherwise}, after {timeout_s:.0f} s")
            time.sleep(_POLL_S)

    def wait_unfenced(self, *broker_ids: int) -> None:
        """Wait until these brokers are unfenced."""
        self.cluster.wait_ready(self._brokers(broker_ids))

    def wait_fenced(self, broker_id: int) -> None:
        """Wait until this broker is fenced."""
        self.wait_until(lambda: broker_id in self.view.fenced(), f"broker {broker_id} is not fenced")

    def log_end(self, broker_id: int) -> int:
        """Where the log of a stopped broker ends on its disk, as recovery will find it."""
        return log_end(self.cluster.data_folder(self.cluster.broker(broker_id)) / f"{self.topic}-0")

    # --- acting ----------------------------------------------------------------------------------------

    def configure(self, key: str, value: str, *, of_cluster: bool = False) -> None:
        """Set a key of the topic, or of the cluster."""
        resource = Resource.cluster() if of_cluster else Resource.topic(self.topic)
        refusal = self.view.ask(lambda admin: admin.alter_configs({resource: {key: value}}))[resource]
        if refusal is not None:
            raise ClusterError(f"{key}={value}: {refusal}")

    def pause(self, *broker_ids: int) -> None:
        """Cut these brokers off from the network: SIGSTOP, nothing is lost."""
        self.say(f"cut off from the network: broker {_ids(broker_ids)}")
        self._note("cut off", self._brokers(broker_ids))
        for node in self._brokers(broker_ids):
            self.cluster.pause(node)
        self._silent += broker_ids

    def resume(self, *broker_ids: int) -> None:
        """Reconnect them."""
        self.say(f"reachable again: broker {_ids(broker_ids)}")
        for node in self._brokers(broker_ids):
            self.cluster.resume(node)
            self._history.fault_ends(node.name)
        self._silent = [broker for broker in self._silent if broker not in broker_ids]

    def kill(self, *broker_ids: int) -> None:
        """Kill them (kill -9): the page cache survives."""
        self.say(f"kill -9: broker {_ids(broker_ids)}")
        self._remember(self._brokers(broker_ids))
        self._note("kill -9", self._brokers(broker_ids))
        self.cluster.kill(self._brokers(broker_ids))

    def stop(self, *broker_ids: int) -> None:
        """Stop them cleanly."""
        self.say(f"clean stop: broker {_ids(broker_ids)}")
        self._remember(self._brokers(broker_ids))
        self._note("clean stop", self._brokers(broker_ids))
        self.cluster.stop(self._brokers(broker_ids))

    def cut_power(self, *broker_ids: int) -> None:
        """Cut their power: what was not synced is lost."""
        self.cut_power_of(self._brokers(broker_ids))

    def cut_power_of(self, nodes: Sequence[Node]) -> None:
        """Cut the power of these nodes at once."""
        self.say(f"power cut: {', '.join(node.name for node in nodes)}")
        self._remember([node for node in nodes if node.role == "broker"])
        self._cuts += 1
        self._note("power cut", nodes)
        self.cluster.power_loss(nodes, seed=self.settings.seed * 1000 + self._cuts)

    def start(self, *broker_ids: int) -> None:
        """Start them; returns at once."""
        self.say(f"started: broker {_ids(broker_ids)}")
        for node in self._brokers(broker_ids):
            self.cluster.start(node)
            self._history.fault_ends(node.name)

    def start_all(self) -> None:
        """Start every node that does not run; returns at once."""
        missing = [node for node in self.cluster.nodes if self.cluster.pid(node) is None]
        if missing:
            self.say(f"started: {', '.join(node.name for node in missing)}")
        for node in missing:
            self.cluster.start(node)
            self._history.fault_ends(node.name)

    def resume_all(self) -> None:
        """Reconnect every broker that is still cut off from the network."""
        if self._silent:
            self.resume(*self._silent)

    def tell_log_end(self, broker_id: int) -> None:
        """Print where a log ends."""
        self.say(f"  the log of broker {broker_id} ends at {self.log_end(broker_id)}")

    def need_gone(self, *broker_ids: int) -> None:
        """Check that acknowledged records are missing on these stopped brokers. Raises: Void."""
        for broker_id in broker_ids:
            end = self.log_end(broker_id)
            if end >= self.load.acked_end:
                raise Void(
                    f"broker {broker_id} still has all {self.load.acked_end} records, up to offset {end}"
                )
            self.say(f"  the log of broker {broker_id} ends at {end}: the tail is gone")

    def need_kept(self, broker_id: int) -> None:
        """Check that a broker that flushes every write has all acknowledged records. Raises: ClusterError."""
        end = self.log_end(broker_id)
        if end < self.load.acked_end:
            raise ClusterError(
                f"broker {broker_id} flushes every write and its log ends at {end}: "
                f"it lost what was acknowledged up to {self.load.acked_end}"
            )
        self.say(f"  the log of broker {broker_id} ends at {end}: everything acknowledged is there")

    def _note(self, fault: str, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._history.fault_begins(fault, node.name, f"{fault}: {node.name}")

    def _remember(self, nodes: Sequence[Node]) -> None:
        epochs = self.view.moment().epochs
        self._former_epochs.update({node.node_id: epochs.get(node.node_id, -1) for node in nodes})

    def _brokers(self, broker_ids: Sequence[int]) -> list[Node]:
        return [self.cluster.broker(broker_id) for broker_id in broker_ids]


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
