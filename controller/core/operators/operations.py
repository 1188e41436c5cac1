"""What operators ask of the controller, one thing each, and the answer.

Plain values that the core takes as requests. A request of the wire that names many things becomes one of
these for each of them.
"""

from dataclasses import dataclass
from enum import Enum

from holdfast.protocol.errors import ErrorCode


class ElectionType(Enum):
    """How a leader is to be found; the values are the words of the tools."""

    #: the preferred replica, if nothing can be lost by it
    PREFERRED = "preferred"
    #: any replica that is there, for a partition without a leader
    UNCLEAN = "unclean"
    #: the replica that the operator names and no other (R18)
    DESIGNATED = "designated"
    #: the best log of those replicas that are there (R65)
    LONGEST_LOG_AGGRESSIVE = "longest_log_aggressive"
    #: the best log, once every last known eligible replica has shown its own (R64)
    LONGEST_LOG_BALANCED = "longest_log_balanced"


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Set one key of a topic or of the cluster; None takes the value away."""

    #: `metadata.image.RESOURCE_TOPIC` with a name, or `CLUSTER_RESOURCE`
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
    """Move one partition to other brokers; None ends a move that runs, and restores the list before it."""

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
    """Take a broker out for good (R28)."""

    broker_id: int


OPERATIONS = (AlterConfig, ElectLeader, Reassign, UpdateFeature, UnregisterBroker)


@dataclass(frozen=True, slots=True)
class OperationResult:
    """Answer to an operation. With an error nothing was changed, and the text says what to do."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


DONE = OperationResult()
