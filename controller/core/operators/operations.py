"""Operations of operators, one change each, and their outcome.

Plain values that the core takes as requests. A request on the wire with many changes becomes one operation
per change.
"""

from dataclasses import dataclass
from enum import Enum

from holdfast.protocol.errors import ErrorCode


class ElectionType(Enum):
    """How to find a leader; the values are the words of the tools."""

    #: the preferred replica, if it can lead without loss
    PREFERRED = "preferred"
    #: any active replica, for a partition without a leader
    UNCLEAN = "unclean"
    #: the replica that the operator names, or none (R18)
    DESIGNATED = "designated"
    #: the best log of the active replicas that answer (R65)
    LONGEST_LOG_AGGRESSIVE = "longest_log_aggressive"
    #: the best log, once every member of the last known ELR has answered (R64)
    LONGEST_LOG_BALANCED = "longest_log_balanced"


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Set one key of a topic, of a client, of a broker or of the cluster; None removes the value."""

    #: `metadata.image.RESOURCE_TOPIC`, `RESOURCE_CLIENT` or `RESOURCE_BROKER` with a name, or
    #: `CLUSTER_RESOURCE`
    resource: tuple[int, str]
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ElectLeader:
    """Elect a leader of one partition."""

    election_type: ElectionType
    topic_name: str
    partition_index: int
    #: with DESIGNATED only
    leader: int | None = None


@dataclass(frozen=True, slots=True)
class Reassign:
    """Reassign one partition to other brokers; None cancels a reassignment and restores the former
    replicas."""

    topic_name: str
    partition_index: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class UpdateFeature:
    """Finalize another level of a feature."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Remove a broker permanently (R28)."""

    broker_id: int


OPERATIONS = (AlterConfig, ElectLeader, Reassign, UpdateFeature, UnregisterBroker)


@dataclass(frozen=True, slots=True)
class OperationResult:
    """Outcome of an operation. With an error nothing was changed, and the text says what to do."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


DONE = OperationResult()
