"""The map from what the cluster has committed to the state of the model (`sim.model`), and back for reports.

Owns what is mapped: brokers' registrations, partitions, the switches and configurations that decide. Not
mapped: `leader_recovery_state`, of which the model knows nothing. Decides nothing.
"""

from collections.abc import Iterable
from functools import lru_cache

from holdfast.controller.core.partitions.replication_control import RECOVERY_MANAGER_KEY
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.model.checker import Checker
from holdfast.sim.model.controller import Before
from holdfast.sim.model.properties import CHANGE_PROPERTIES, ValidControllerState, ValidIsrElr
from holdfast.sim.model.rules import Rules
from holdfast.sim.model.state import (
    AGGRESSIVE,
    BALANCED,
    NO_EPOCH,
    NONE,
    ModelWorld,
    PartitionState,
    Setup,
    ids,
    mask_of,
)

#: more than any simulated cluster has
BROKERS_MAX = 16
#: state properties that look at nothing but brokers and a row
_OF_A_ROW = (ValidControllerState, ValidIsrElr)
_STRATEGIES = {"Aggressive": AGGRESSIVE, "Balanced": BALANCED, "None": NONE}


def mask(members: Iterable[int]) -> int:
    """The set of these brokers."""
    return mask_of(tuple(members))


def partition_state(row: PartitionRegistration, configured_min_isr: int) -> PartitionState:
    """A partition as the model has it."""
    part = PartitionState(0, row.replicas, configured_min_isr, 0)
    part.adding = mask(row.adding_replicas)
    part.removing = mask(row.removing_replicas)
    part.original = row.original_replicas
    part.isr = mask(row.isr)
    part.elr = mask(row.elr)
    part.last_known_elr = mask(row.last_known_elr)
    part.last_known_leader = -1 if row.last_known_leader is None else row.last_known_leader
    part.leader = -1 if row.leader is None else row.leader
    part.leader_epoch = row.leader_epoch
    part.partition_epoch = row.partition_epoch
    part.min_isr = row.min_isr
    return part


def registration(part: PartitionState, leader_recovery_state: int) -> PartitionRegistration:
    """A partition of the model as the cluster would have committed it."""
    return PartitionRegistration(
        replicas=part.order,
        isr=tuple(ids(part.isr)),
        leader=None if part.leader < 0 else part.leader,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        min_isr=part.min_isr,
        elr=tuple(ids(part.elr)),
        last_known_elr=tuple(ids(part.last_known_elr)),
        last_known_leader=None if part.last_known_leader < 0 else part.last_known_leader,
        leader_recovery_state=leader_recovery_state,
        adding_replicas=tuple(ids(part.adding)),
        removing_replicas=tuple(ids(part.removing)),
        original_replicas=part.original,
    )


class Judge(Checker):
    """Judges what the cluster has committed instead of what the model does: both have the cause in common."""

    def __init__(self) -> None:
        super().__init__()
        #: (row before, cause, how the leader was elected, who is active, who unclean) of the last change
        self.told: tuple[Before, int, int, int, int] | None = None

    def changed(
        self,
        w: ModelWorld,
        part: PartitionState,
        old: Before,
        cause: int,
        how: int,
        active: int,
        unclean: int,
    ) -> None:
        self.told = old, cause, how, active, unclean

    def broken(self, w: ModelWorld, committed: PartitionState) -> list[str]:
        """The properties that a committed row breaks, where the model has changed the row before it."""
        if self.told is None:
            return []
        of_state = [(one.name, one.check(w, committed)) for one in _OF_A_ROW]
        of_change = [(one.name, one.check(w, committed, *self.told)) for one in CHANGE_PROPERTIES]
        return [f"{name}: {problem}" for name, problem in (*of_state, *of_change) if problem is not None]


class ModelCluster:
    """The model's controller beside the real ones: one world without partitions, brought to each image."""

    def __init__(self, shape: ClusterSpec) -> None:
        self.judge = Judge()
        self.model = ModelWorld(Setup(brokers=BROKERS_MAX, partitions=0), Rules(), self.judge)
        self._manager = shape.recovery_manager
        self._static = {"min.insync.replicas": shape.min_isr}
        self._brokers: object = None
        #: set of the brokers that are
        self._unfenced = 0

    def become(self, image: MetadataImage, topic: str, offline: int) -> ModelWorld:
        """The model's controller with the registrations of the image and the switches of the topic. The model
        has one log a broker: of a partition with `offline` replicas those brokers are as if fenced (R27)."""
        model, self.judge.told = self.model, None
        if image.brokers is not self._brokers:
            self._brokers = image.brokers
            self._register(image)
        model.unfenced = self._unfenced & ~offline
        del model.metadata[:]
        manager = image.cluster_config(RECOVERY_MANAGER_KEY)
        model.setup = _setup(
            image.elr_enabled,
            self._manager if manager is None else bool(manager),
            image.topic_config(topic, "unclean.recovery.strategy"),
            bool(image.topic_config(topic, "unclean.leader.election.enable")),
        )
        return model

    def configured_min_isr(self, image: MetadataImage, topic: str) -> int:
        """`min.insync.replicas` of the topic, not yet bounded by its replicas."""
        return int(image.topic_config(topic, "min.insync.replicas", self._static))

    def _register(self, image: MetadataImage) -> None:
        model = self.model
        self._unfenced = model.stopping = 0
        model.epochs = [NO_EPOCH] * BROKERS_MAX
        for broker in image.sorted_brokers():
            model.epochs[broker.broker_id] = broker.broker_epoch
            self._unfenced |= (not broker.is_fenced) << broker.broker_id
            model.stopping |= broker.in_controlled_shutdown << broker.broker_id


@lru_cache(maxsize=64)
def _setup(elr: bool, manager: bool, strategy: str | None, unclean_elections: bool) -> Setup:
    usual = AGGRESSIVE if unclean_elections else BALANCED
    if strategy is not None and manager:
        # without ELR no logs are compared, and the strategy says whether any replica may lead (R69)
        unclean_elections = strategy == "Aggressive"
    return Setup(
        brokers=BROKERS_MAX,
        partitions=0,
        elr=elr,
        manager=manager,
        strategy=usual if strategy is None else _STRATEGIES[strategy],
        unclean_elections=unclean_elections,
    )
