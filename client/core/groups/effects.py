"""What the core of a member is given, what the application has to do for it, and what it asks its shell to do
(`client.core.groups.membership`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.errors import ClientError
from holdfast.client.core.groups.assignors import ASSIGNORS, COOPERATIVE
from holdfast.protocol.topic_names import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The settings of a member. `Consumer` tells what they mean and what they are by default."""

    group_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    #: names, the preferred one first
    assignors: tuple[str, ...]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    request_timeout_ms: int
    retry: Backoff

    def __post_init__(self) -> None:
        if not self.group_id or self.group_instance_id == "":
            raise ValueError("group_id and group_instance_id must not be empty; leave them out instead")
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise ValueError(f"assignors {self.assignors}: expected some of {', '.join(ASSIGNORS)}")
        if len({name in COOPERATIVE for name in self.assignors}) > 1:
            raise ValueError("cooperative-sticky does not mix with other assignors: members would not agree")
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be above 0 and below session_timeout_ms")
        if min(self.max_poll_interval_ms, self.auto_commit_interval_ms) <= 0:
            raise ValueError("max_poll_interval_ms and auto_commit_interval_ms must be above 0")

    @property
    def is_cooperative(self) -> bool:
        """Members read on while the group rebalances, what they keep."""
        return self.assignors[0] in COOPERATIVE


class Coordinator(NamedTuple):
    """The broker that coordinates the group."""

    node_id: int
    host: str
    port: int


class Position(NamedTuple):
    """How far a partition is read, to be committed or as it was committed.

    `leader_epoch`: of the record before `offset`, -1 when not known. `topic_id`: of the topic that was read;
    None for the one that has the name now.
    """

    offset: int
    leader_epoch: int = -1
    topic_id: bytes | None = None


class Phase(Enum):
    """Where a member is on its way into a generation."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SHARING = "sharing"
    SYNCING = "syncing"
    JOINED = "joined"


class StepKind(Enum):
    """What happens to partitions of a member."""

    #: it reads them from now on
    ASSIGNED = "assigned"
    #: it is to let go of them, and may commit first
    REVOKED = "revoked"
    #: others may have them already
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Step:
    """A change for the application, made between two polls. `offsets`: {assigned partition: where the group
    has come to}, None for one without commit."""

    kind: StepKind
    partitions: tuple[TopicPartition, ...]
    offsets: Mapping[TopicPartition, Position | None]


# --- effects -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Ask any broker; answer with `coordinator_found` or `coordinator_not_found`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send it to the coordinator; answer with `answered` or `failed`."""

    request_id: int
    coordinator: Coordinator
    request: Any
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Settle:
    """What `token` stands for has this result, or failed with this error; None: an automatic commit."""

    token: Any
    result: Any
    error: ClientError | None


@dataclass(frozen=True, slots=True)
class WantTopics:
    """Keep the metadata of these fresh."""

    topics: tuple[str, ...]


Effect: TypeAlias = FindCoordinator | Send | Settle | WantTopics | RefreshMetadata
