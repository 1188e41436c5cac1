"""Holdfast: a replicated log cluster that keeps what it acknowledged.

What applications use is here: `from holdfast import Producer, Consumer, Admin` (docs/client.md). A name is
loaded when it is first asked for, so that `import holdfast` costs next to nothing.
"""

from typing import TYPE_CHECKING

__version__: str

if TYPE_CHECKING:
    from holdfast.client.admin import Admin as Admin
    from holdfast.client.admin import CreatedTopic as CreatedTopic
    from holdfast.client.admin_configs import Resource as Resource
    from holdfast.client.admin_partitions import NewPartitions as NewPartitions
    from holdfast.client.consumer import Consumer as Consumer
    from holdfast.client.core.consumer_records import ConsumerRecord as ConsumerRecord
    from holdfast.client.core.batch import Batch as Batch
    from holdfast.client.core.errors import BufferFull as BufferFull
    from holdfast.client.core.errors import ClientError as ClientError
    from holdfast.client.core.errors import CommitFailed as CommitFailed
    from holdfast.client.core.errors import CorruptRecords as CorruptRecords
    from holdfast.client.core.errors import LogTruncated as LogTruncated
    from holdfast.client.core.errors import NoSuchOffset as NoSuchOffset
    from holdfast.client.core.errors import ProduceFailed as ProduceFailed
    from holdfast.client.core.errors import RowError as RowError
    from holdfast.client.core.errors import TimedOut as TimedOut
    from holdfast.client.core.metrics import ConsumerMetrics as ConsumerMetrics
    from holdfast.client.core.metrics import ProducerMetrics as ProducerMetrics
    from holdfast.client.core.outcomes import DeliveryOutcome as DeliveryOutcome
    from holdfast.client.delivery import Delivery as Delivery
    from holdfast.client.delivery import RecordMetadata as RecordMetadata
    from holdfast.client.group_session import RebalanceListener as RebalanceListener
    from holdfast.client.ledger import Ledger as Ledger
    from holdfast.client.producer import Producer as Producer
    from holdfast.protocol.errors import ErrorCode as ErrorCode
    from holdfast.protocol.topic_names import TopicPartition as TopicPartition
    from holdfast.runtime.api import DiskError as DiskError

#: `holdfast.__version__` is there as well.
__all__ = [
    "Admin",
    "Batch",
    "BufferFull",
    "ClientError",
    "CommitFailed",
    "Consumer",
    "ConsumerMetrics",
    "ConsumerRecord",
    "CorruptRecords",
    "CreatedTopic",
    "Delivery",
    "DeliveryOutcome",
    "DiskError",
    "ErrorCode",
    "Ledger",
    "LogTruncated",
    "NewPartitions",
    "NoSuchOffset",
    "ProduceFailed",
    "Producer",
    "ProducerMetrics",
    "RebalanceListener",
    "RecordMetadata",
    "Resource",
    "RowError",
    "TimedOut",
    "TopicPartition",
]

if not TYPE_CHECKING:  # else every name would be there for a type checker
    #: where each name lives
    _HOMES = {
        "holdfast.client.admin": ("Admin", "CreatedTopic"),
        "holdfast.client.admin_configs": ("Resource",),
        "holdfast.client.admin_partitions": ("NewPartitions",),
        "holdfast.client.consumer": ("Consumer",),
        "holdfast.client.core.batch": ("Batch",),
        "holdfast.client.core.consumer_records": ("ConsumerRecord",),
        "holdfast.client.core.errors": (
            "BufferFull",
            "ClientError",
            "CommitFailed",
            "CorruptRecords",
            "LogTruncated",
            "NoSuchOffset",
            "ProduceFailed",
            "RowError",
            "TimedOut",
        ),
        "holdfast.client.core.metrics": ("ConsumerMetrics", "ProducerMetrics"),
        "holdfast.client.core.outcomes": ("DeliveryOutcome",),
        "holdfast.client.delivery": ("Delivery", "RecordMetadata"),
        "holdfast.client.group_session": ("RebalanceListener",),
        "holdfast.client.ledger": ("Ledger",),
        "holdfast.client.producer": ("Producer",),
        "holdfast.protocol.errors": ("ErrorCode",),
        "holdfast.protocol.topic_names": ("TopicPartition",),
        "holdfast.runtime.api": ("DiskError",),
    }
    _MODULES = {name: module for module, names in _HOMES.items() for name in names}

    def __getattr__(name: str) -> object:
        from importlib import import_module, metadata

        if name == "__version__":
            return metadata.version("holdfast")
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
