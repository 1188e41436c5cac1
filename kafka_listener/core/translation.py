"""What a translation works with: the broker's view of the cluster, and what can come of a Kafka request.

A translation is a function `(request, cluster) -> Outcome`. It answers at once, asks the broker first, or
ends the connection; `Ask.answer` may ask again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.protocol.errors import ErrorCode

#: Topic id of a topic that is named, not numbered.
NO_TOPIC_ID = bytes(16)


class LogDirView(NamedTuple):
    """A log dir of this broker. `replicas`: (topic name, partition, bytes, records behind the high
    watermark) of its logs."""

    path: str
    is_online: bool
    replicas: tuple[tuple[str, int, int, int], ...]
    #: of its device, -1 when unknown
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the answering broker knows."""

    image: MetadataImage
    broker_id: int
    cluster_id: str
    #: the one that the request came through
    listener_name: str
    #: values of the broker's file by key
    static: Mapping[str, Any]
    #: (high watermark, log start offset) of a partition that this broker leads, else None
    offsets_of: Callable[[PartitionId], tuple[int, int] | None]
    log_dirs: Callable[[], tuple[LogDirView, ...]]

    def topic_id(self, name: str | None, topic_id: bytes | None = None) -> bytes | None:
        """The id of a topic that a client has named or numbered, None when there is none."""
        if topic_id is not None and topic_id != NO_TOPIC_ID:
            return topic_id if topic_id in self.image.topics else None
        return self.image.topic_ids.get(name) if name is not None else None

    def row_code(self, code: int, key: PartitionId, *, by_id: bool = False) -> int:
        """Kafka's code for a row about a partition; a partition that lies elsewhere is not unknown."""
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if self.image.partition(*key) is not None:
                return kafka_code(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if by_id:
                return kafka_code(ErrorCode.UNKNOWN_TOPIC_ID)
        return kafka_code(code)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the broker, and what becomes of its response."""

    message: Any
    #: our response -> the fields of Kafka's, or the next question
    answer: "Callable[[Any], Outcome]"
    #: (code, text) when the broker refuses the request as a whole -> the fields of Kafka's response
    refused: "Callable[[int, str], Outcome]"
    #: what comes of it when the broker answers nothing (acks 0)
    unanswered: "HangUp | None" = None


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the connection: there is no response that says it."""

    reason: str


#: None: there is no answer (acks=0).
Outcome: TypeAlias = Fields | Ask | HangUp | None
Translation: TypeAlias = Callable[[Request, ClusterView], Outcome]
