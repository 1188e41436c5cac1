"""Where partitions could be instead, and how far a move is: the decisions of `holdfast reassign-partitions`.

Owns the proposal (the controller's own placement) and the comparison of plan and state; sends nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from holdfast.client.admin_partitions import Reassignment
from holdfast.controller.core.partitions.placement import place_replicas
from holdfast.protocol.topic_names import TopicPartition

#: {partition: replicas, the preferred one first}
Assignment = Mapping[TopicPartition, tuple[int, ...]]


class CannotPropose(ValueError):
    """There are not brokers enough; the text says what is missing."""


def propose(
    current: Assignment, brokers: Sequence[tuple[int, str | None]], *, rack_aware: bool = True
) -> dict[TopicPartition, tuple[int, ...]]:
    """Every partition on `brokers` (id, rack), leaders even, replicas over racks; factors stay as they are.

    Raises: CannotPropose. A broker without a rack among others with one is refused, as in Kafka.
    """
    racks = [rack for _, rack in brokers]
    if rack_aware and None in racks and any(rack is not None for rack in racks):
        raise CannotPropose(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    placed = [(broker_id, rack if rack_aware else None) for broker_id, rack in brokers]
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for number, (partition, replicas) in enumerate(sorted(current.items())):
        if len(replicas) > len(brokers):
            raise CannotPropose(
                f"{partition.topic}-{partition.partition} has {len(replicas)} replicas, --broker-list names "
                f"{len(brokers)} brokers; name more"
            )
        (proposed[partition],) = place_replicas(
            placed, (), partition_count=1, replication_factor=len(replicas), start=number
        )
    return proposed


class MoveProgress(Enum):
    """How far a partition is on its way."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    #: nothing moves, and it is not where it should be
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MoveStep:
    """One partition of --verify, and its line."""

    partition: TopicPartition
    progress: MoveProgress
    line: str


def verify(
    wanted: Assignment, current: Assignment, moving: Mapping[TopicPartition, Reassignment]
) -> list[MoveStep]:
    """How far each wanted partition is, in Kafka's sentences."""
    return [_step(partition, wanted[partition], current, moving) for partition in sorted(wanted)]


def _step(
    partition: TopicPartition,
    target: tuple[int, ...],
    current: Assignment,
    moving: Mapping[TopicPartition, Reassignment],
) -> MoveStep:
    name = f"{partition.topic}-{partition.partition}"
    there = current.get(partition)
    if there is None:
        text = f"There is no partition {name}."
        return MoveStep(partition, MoveProgress.UNKNOWN, text)
    if partition in moving:
        move = moving[partition]
        staying = tuple(replica for replica in move.replicas if replica not in move.removing)
        if set(staying) == set(target):
            text = f"Reassignment of partition {name} is still in progress."
            return MoveStep(partition, MoveProgress.IN_PROGRESS, text)
        text = f"Partition {name} is being moved to {_ids(staying)} rather than {_ids(target)}."
        return MoveStep(partition, MoveProgress.DIFFERENT, text)
    if there == target:
        return MoveStep(partition, MoveProgress.COMPLETED, f"Reassignment of partition {name} is completed.")
    text = (
        f"There is no active reassignment of partition {name}, but replica set is {_ids(there)} rather than "
        f"{_ids(target)}."
    )
    return MoveStep(partition, MoveProgress.DIFFERENT, text)


def _ids(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))
