"""Logs of a cluster of processes as they lie on disk, while the processes run or stand still.

Bytes are read through the page cache: what a process has written is seen at once, flushed or not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.localcluster.nodes import Node
from holdfast.localcluster.processes import LocalCluster
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import decode_record
from holdfast.protocol.record_batch import CorruptBatch, check_batch, decode_records
from holdfast.storage.core.files import LOG_SUFFIX, METADATA_FOLDER


class BatchId(NamedTuple):
    """What tells batches apart: place, epoch, and the crc over all the rest."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


class State(NamedTuple):
    """A registration, and the length of the metadata log from which on it holds."""

    log_end: int
    registration: PartitionRegistration


def batches(folder: Path) -> Iterator[tuple[BatchId, memoryview]]:
    """Every whole batch of a log, up to the first that is not."""
    next_offset = None
    for path in sorted(folder.glob(f"*{LOG_SUFFIX}")):
        data = memoryview(path.read_bytes())
        position = 0
        while position < len(data):
            try:
                header = check_batch(data, position)
            except CorruptBatch:
                return
            if next_offset not in (None, header.base_offset):
                return
            next_offset = header.next_offset
            yield (
                BatchId(header.base_offset, header.next_offset, header.leader_epoch, header.crc),
                data[position : position + header.size_bytes],
            )
            position += header.size_bytes


def log_of(cluster: LocalCluster, node: Node, topic: str, partition: int) -> list[BatchId]:
    """The batches of a replica."""
    return [batch for batch, _ in batches(cluster.data_folder(node) / f"{topic}-{partition}")]


def metadata_folder(cluster: LocalCluster, controller: Node) -> Path:
    return cluster.home(controller) / "metadata" / METADATA_FOLDER


def metadata_end(cluster: LocalCluster, controller: Node) -> int:
    """How long the metadata log of that controller is by now."""
    end = 0
    for batch, _ in batches(metadata_folder(cluster, controller)):
        end = batch.next_offset
    return end


def history(cluster: LocalCluster, controller: Node, topic: str) -> dict[int, list[State]]:
    """Every state of every partition of a topic, in order, as the controller's log tells it. The records of a
    batch are one step (K21); each must be sound by itself all the same."""
    image = MetadataImage()
    states: dict[int, list[State]] = {}
    for batch, data in batches(metadata_folder(cluster, controller)):
        header = check_batch(data)
        if header.is_control:
            continue
        delta = MetadataDelta(image)
        for record in decode_records(data):
            assert record.value is not None
            delta.replay(decode_record(record.value), record.offset, header.leader_epoch)
        assert delta.violations == []
        image = delta.apply(batch.next_offset)
        found = image.topic(topic)
        for index, registration in sorted(found.partitions.items()) if found is not None else ():
            known = states.setdefault(index, [])
            if not known or known[-1].registration != registration:
                known.append(State(batch.next_offset, registration))
    return states


def assert_sound(registration: PartitionRegistration) -> None:
    """R9, B4, B28: said once more, not as the code under test says it."""
    replicas, isr, elr = map(set, (registration.replicas, registration.isr, registration.elr))
    known = set(registration.last_known_elr)
    assert isr | elr | known <= replicas, f"a broker that is no replica: {registration}"
    assert len(isr) + len(elr) + len(known) == len(isr | elr | known), f"in two sets: {registration}"
    assert not elr or len(isr) < registration.min_isr, f"eligible replicas beside a full ISR: {registration}"
    assert registration.last_known_leader is None or registration.last_known_leader in replicas
    assert registration.leader is None or registration.leader in isr
