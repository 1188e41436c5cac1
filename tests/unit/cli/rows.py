"""Described topics and clusters for tests of the tools."""

from collections.abc import Collection

from holdfast.protocol.messages.metadata import DescribeClusterBroker, DescribeClusterResponse
from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic, TopicConfig


def partition(**changes: object) -> DescribedPartition:
    """A partition without a leader, that broker 3 could lead; with `changes`."""
    values: dict[str, object] = {
        "error_code": 0,
        "partition_index": 0,
        "leader_id": -1,
        "leader_epoch": 7,
        "partition_epoch": 9,
        "replicas": (1, 2, 3),
        "isr": (),
        "eligible_leader_replicas": (3,),
        "last_known_elr": (2,),
        "last_known_leader": 3,
        "min_isr": 2,
        "leader_recovery_state": 0,
        "offline_replicas": (),
        **changes,
    }
    return DescribedPartition(**values)  # type: ignore[arg-type]


def led(
    leader: int, isr: tuple[int, ...], elr: tuple[int, ...] = (), **changes: object
) -> DescribedPartition:
    """A partition with a leader."""
    return partition(
        leader_id=leader,
        isr=isr,
        **{
            "eligible_leader_replicas": elr,
            "last_known_elr": (),
            "last_known_leader": -1,
            "offline_replicas": (),
            **changes,
        },
    )


def topic(*partitions: DescribedPartition, name: str = "t", is_internal: bool = False) -> DescribedTopic:
    """A topic whose min ISR is 2."""
    configs = (TopicConfig("min.insync.replicas", "2"),)
    return DescribedTopic(0, name, bytes(range(16)), is_internal, configs, partitions)


def cluster(
    count: int = 3,
    *,
    fenced: Collection[int] = (),
    stopping: Collection[int] = (),
    racks: dict[int, str] | None = None,
) -> DescribeClusterResponse:
    """Brokers 1 to `count`."""
    brokers = tuple(
        DescribeClusterBroker(
            broker_id=broker_id,
            broker_epoch=10 + broker_id,
            incarnation_id=bytes(16),
            host="h",
            port=9092,
            rack=(racks or {}).get(broker_id),
            is_fenced=broker_id in fenced,
            in_controlled_shutdown=broker_id in stopping,
            clean_shutdown=True,
        )
        for broker_id in range(1, count + 1)
    )
    return DescribeClusterResponse(
        error_code=0,
        error_message=None,
        cluster_id="c",
        controller_id=101,
        controller_epoch=1,
        metadata_offset=50,
        brokers=brokers,
        features=(),
    )
