"""The tables of replicas that the rules look at, out of log dirs, and what in these dirs is not understood.

Reads small files here and segments on workers. A folder that is none of the cluster's by its metadata is not
compared: brokers leave such ones when a partition moves away, or a topic was deleted while they were down.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from holdfast.durability.cluster_look import TopicLook
from holdfast.durability.judge import EPOCHS_SCHEMA, MARKS_SCHEMA, MEMBERS_SCHEMA, SHORT_MAX
from holdfast.durability.read_here import replicas_here
from holdfast.durability.scale import Little, Scale
from holdfast.durability.segments import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    ReplicaFolder,
    has_batches,
    has_replicas,
    high_watermarks,
    leader_epochs,
    node_properties,
    recovery_points,
    replica_folders,
    topic_id_of,
    was_stopped_cleanly,
)
from holdfast.durability.stray_records import StrayReader

_EpochRow = tuple[int, str, int, int | None, int, int | None, int]


@dataclass(slots=True)
class _Found:
    """What the folders of log dirs say, without their segments."""

    marks: list[tuple[int, str, int, int]] = field(default_factory=list)
    epochs: list[_EpochRow] = field(default_factory=list)
    #: folders that are compared
    paths: list[str] = field(default_factory=list)
    #: folders of replicas that the metadata does not have, and of other topics of the same name
    others: list[str] = field(default_factory=list)
    #: folders of flushed replicas without a checkpoint to compare
    without_epochs: list[str] = field(default_factory=list)
    without_marks: list[str] = field(default_factory=list)
    #: flushed ones of which nothing is known to be committed
    marked_0: list[str] = field(default_factory=list)
    without_id: list[str] = field(default_factory=list)
    #: (broker, topic, partition) -> folders
    places: dict[tuple[int, str, int], list[str]] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


def replica_tables(
    spark: Any,
    scale: Scale,
    log_dirs: Mapping[int, str],
    looks: Mapping[str, TopicLook],
    cluster_id: str,
    *,
    is_foreign: bool,
    is_told: Callable[[], bool],
) -> dict[str, Any]:
    """Tables of `judge` by name, and doubts and notes; none without log dirs.

    `is_told` is asked when everything was read: the ledger has not grown since it was read.
    """
    if not log_dirs:
        return {}
    paths = [(broker, path) for broker, text in sorted(log_dirs.items()) for path in text.split(",")]
    members = [
        (broker, topic, index, broker in partition.isr)
        for topic, seen in sorted(looks.items())
        for index, partition in sorted(seen.partitions.items())
        for broker in partition.replicas
        if broker in log_dirs
    ]
    found = _Found()
    there = [f"{broker}={path}" for broker, path in paths if Path(path).is_dir()]
    for broker, path in paths:
        _look_into(found, broker, path, looks, {member[:3] for member in members}, cluster_id)
    folders = ",".join(there or (f"{broker}={path}" for broker, path in paths))
    if isinstance(scale, Little):
        batches = scale.table(spark, replicas_here(folders, looks, found.paths))
    else:
        read = spark.read.format("holdfast.segments").option("rows", "batches")
        read = read.option("topics", ",".join(sorted(looks))).option("folders", "\n".join(found.paths))
        # several rules look at it, and files of a live broker change
        batches = read.load(folders).cache()
    return {
        "replica": batches,
        "marks": scale.rows(spark, found.marks, MARKS_SCHEMA),
        "epochs": scale.rows(spark, found.epochs, EPOCHS_SCHEMA),
        "members": scale.rows(spark, members, MEMBERS_SCHEMA),
        "strays": partial(_strays, spark, scale, StrayReader(dict(log_dirs), is_foreign), is_told),
        "replicas_assigned": sum(
            len(partition.replicas) for seen in looks.values() for partition in seen.partitions.values()
        ),
        "doubts": _doubts(found),
        "notes": _notes(found),
    }


def _strays(spark: Any, scale: Scale, reader: StrayReader, is_told: Callable[[], bool], batches: Any) -> Any:
    """View `stray` of durability.rules.rule. There are few such batches, or the log is a ruin."""
    found = reader.read(row.asDict() for row in batches.collect())
    return scale.table(spark, found).withColumn("is_told", F.lit(is_told()))


def _look_into(
    found: _Found,
    broker: int,
    path: str,
    looks: Mapping[str, TopicLook],
    members: set[tuple[int, str, int]],
    cluster_id: str,
) -> None:
    """Add what one log dir says."""
    flushed = recovery_points(path)  # first: what it says is flushed has its epochs stored
    marks = high_watermarks(path)
    if marks is None and has_replicas(path, looks):
        found.doubts.append(
            f"{path} of broker {broker} has no whole {HIGH_WATERMARKS}: nothing of it was compared"
        )
    if not Path(path).is_dir():
        found.doubts.append(f"{path} of broker {broker} is not there")
        return
    said = node_properties(path)
    for name, expected in (("node.id", str(broker)), ("cluster.id", cluster_id)):
        if said.get(name, expected) != expected:
            found.doubts.append(
                f"{path} is given as that of broker {broker}, {name} {expected}, and its meta.properties say "
                f"{name}={said[name]}"
            )
    if flushed is None or (not flushed and was_stopped_cleanly(path) and has_replicas(path, looks)):
        found.doubts.append(
            f"{path} of broker {broker} has no whole {RECOVERY_POINTS}: what was flushed is not known"
        )
    for folder in replica_folders({path: broker}, frozenset(looks)):
        place = (broker, folder.topic, folder.partition)
        topic_id = topic_id_of(folder.path)
        if place not in members or topic_id not in (None, looks[folder.topic].topic_id):
            found.others.append(folder.path)
            continue
        found.paths.append(folder.path)
        found.places.setdefault(place, []).append(folder.path)
        if topic_id is None and has_batches(folder.path):
            found.without_id.append(folder.path)
        until = (flushed or {}).get(place[1:], 0)
        if marks is not None and place[1:] in marks:
            found.marks.append((*place, marks[place[1:]]))
            if until > marks[place[1:]] == 0:
                found.marked_0.append(folder.path)
        elif marks is not None and until > 0:
            found.without_marks.append(folder.path)
        _take_epochs(found, folder, until)


def _take_epochs(found: _Found, folder: ReplicaFolder, until: int) -> None:
    """Add the rows of a replica's leader epoch checkpoint, where there is something flushed to compare."""
    epochs = leader_epochs(folder.path) if until else ()
    if epochs is None:
        found.without_epochs.append(folder.path)
        return
    place = (folder.broker, folder.topic, folder.partition)
    if until and not epochs:
        found.epochs.append((*place, None, 0, None, until))
    ends = [*(start for _, start in epochs[1:]), None]
    found.epochs += [
        (*place, epoch, start, end, until)
        for (epoch, start), end in zip(epochs, ends, strict=False)
        if start < until
    ]


def _doubts(found: _Found) -> tuple[str, ...]:
    twice = [", ".join(paths) for paths in found.places.values() if len(paths) > 1]
    said = (
        (
            found.without_epochs,
            "replicas without a whole leader epoch checkpoint, of which nothing was compared",
        ),
        (found.without_marks, f"replicas that were flushed and are not in {HIGH_WATERMARKS}, not compared"),
        (
            found.without_id,
            "replicas without a readable partition.metadata, which says of which topic they are",
        ),
        (twice, "replicas that are in two log dirs of their broker"),
    )
    return (*found.doubts, *(_named(folders, what) for folders, what in said if folders))


def _notes(found: _Found) -> tuple[str, ...]:
    said = (
        (found.others, "folders of replicas that the cluster's metadata does not have, not compared"),
        (found.marked_0, "flushed replicas whose high watermark is 0, not compared"),
    )
    return tuple(_named(folders, what) for folders, what in said if folders)


def _named(folders: Sequence[str], what: str) -> str:
    return f"{len(folders)} {what}: {', '.join(folders[:SHORT_MAX])}"
