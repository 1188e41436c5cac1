"""The tables of replicas that the rules look at, out of log dirs, and what in these dirs is not understood.

Reads small files here and segments on workers. A folder that is none of the cluster's by its metadata is not
compared: brokers leave such ones when a partition moves away, or a topic was deleted while they were down.
"""

import functools
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.durability.cluster_look import TopicLook
from holdfast.durability.flushed import Flushed, FlushedLogs
from holdfast.durability.judge import EPOCHS_SCHEMA, FLUSHED_SCHEMA, MARKS_SCHEMA, MEMBERS_SCHEMA, SHORT_MAX
from holdfast.durability.judged_cluster import JudgedCluster
from holdfast.durability.log_dir_files import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    closed_logs,
    high_watermarks,
    log_start,
    log_starts,
    node_properties,
    recovery_points,
    topic_id_of,
    was_stopped_cleanly,
)
from holdfast.durability.power_cuts import OPEN_COLUMNS, OpenRow, Replica, must_be_whole, surely_in_sync
from holdfast.durability.read_here import replicas_here
from holdfast.durability.scale import Little, Scale
from holdfast.durability.segments import (
    has_batches,
    has_replicas,
    replica_folders,
    segment_paths,
)
from holdfast.durability.stray_records import StrayReader, Strays

#: Brokers write the checkpoint every 5 s (`replica.high.watermark.checkpoint.interval.ms`).
_FIRST_MARKS_S = 8.0
_PAUSE_S = 0.25

#: As Kafka writes an id.
_ID = "[A-Za-z0-9_-]{22}"
#: Topic and partition.
_Place = tuple[str, int]
_EpochRow = tuple[int, str, int, int | None, int, int | None, int]


@dataclass(slots=True)
class _Found:
    """What the folders of log dirs say, without their segments."""

    marks: list[tuple[int, str, int, int]] = field(default_factory=list)
    #: of replicas that there should be, wherever their folders are
    told_marks: dict[tuple[int, str, int], int] = field(default_factory=dict)
    #: of replicas of which something is
    flushed: list[Flushed] = field(default_factory=list)
    #: folders that are compared
    paths: list[str] = field(default_factory=list)
    #: folders of replicas that the metadata does not have, and of other topics of the same name
    others: list[str] = field(default_factory=list)
    #: folders of flushed replicas without a checkpoint to compare
    without_epochs: list[str] = field(default_factory=list)
    without_marks: list[str] = field(default_factory=list)
    #: (replica, folder): flushed ones of which nothing is known to be committed
    marked_0: list[tuple[tuple[int, str, int], str]] = field(default_factory=list)
    #: those of them that are in sync with another, of which something is
    lost_marks: list[str] = field(default_factory=list)
    #: with records of which nothing is known to be flushed nor committed
    unknown: list[str] = field(default_factory=list)
    without_id: list[str] = field(default_factory=list)
    #: (replica, folder): by the log dir's checkpoint or leader epochs it begins behind what its files hold
    beginning_late: list[tuple[Replica, str]] = field(default_factory=list)
    #: directory id -> log dirs
    directories: dict[str, list[str]] = field(default_factory=dict)
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
    cluster: JudgedCluster,
) -> dict[str, Any]:
    """Tables of `judge` by name, and doubts and notes; none without log dirs.

    The cluster is asked again when the files were read: a broker that has left the ISR until then may have
    removed its replica before. `is_told` is asked when everything was read: neither the ledger nor the log
    has grown since they were. Raises: ClientError, ReadFailed.
    """
    if not log_dirs:
        return {}
    paths = [(broker, path) for broker, text in sorted(log_dirs.items()) for path in text.split(",")]
    members = {
        (broker, topic, index): broker in partition.isr
        for topic, seen in sorted(looks.items())
        for index, partition in sorted(seen.partitions.items())
        for broker in partition.replicas
        if broker in log_dirs
    }
    found = _Found()
    there = [f"{broker}={path}" for broker, path in paths if Path(path).is_dir()]
    for broker, path in paths:
        _look_into(found, broker, path, looks, members, cluster_id)
    found.marks += [(*place, mark) for place, mark in found.told_marks.items() if place not in found.places]
    folders = ",".join(there or (f"{broker}={path}" for broker, path in paths))
    if isinstance(scale, Little):
        here = replicas_here(folders, looks, found.paths)
        rows = here.filter(pc.is_null(here["damaged"])).select(OPEN_COLUMNS).to_pylist()
        batches = scale.table(spark, here)
    else:
        read = spark.read.format("holdfast.segments").option("rows", "batches")
        read = read.option("topics", ",".join(sorted(looks))).option("folders", "\n".join(found.paths))
        # several rules look at it, and files of a live broker change
        batches = read.load(folders).cache()
        rows = [row.asDict() for row in batches.where("damaged IS NULL").select(*OPEN_COLUMNS).collect()]
    later = cluster.look(looks)
    _pass_over_what_is_gone(found)
    epochs = _with_what_is_still_flushed(found)
    in_sync = {place for place, is_in_sync in members.items() if is_in_sync}
    still_in_sync = {place for place in in_sync if _is_in_sync(later, *place)}
    _look_for_late_starts(found, cluster, still_in_sync)
    _look_for_lost_marks(found, in_sync)
    surely_so = surely_in_sync(
        still_in_sync,
        [OpenRow(**row) for row in rows],
        must_be_whole(found.marks, [one.row for one in found.flushed]),
        {place: paths[0] for place, paths in found.places.items()},
        lambda: _in_sync_now(cluster, looks, still_in_sync),
    )
    return {
        "replica": batches,
        "flushed": scale.rows(spark, [one.row for one in found.flushed], FLUSHED_SCHEMA),
        "marks": scale.rows(spark, found.marks, MARKS_SCHEMA),
        "epochs": scale.rows(spark, sorted(epochs, key=str), EPOCHS_SCHEMA),
        "members": scale.rows(spark, [(*place, place in surely_so) for place in members], MEMBERS_SCHEMA),
        "strays": Strays(
            StrayReader(dict(log_dirs), is_foreign), lambda rows: scale.table(spark, rows), is_told
        ),
        "replicas_assigned": sum(
            len(partition.replicas) for seen in looks.values() for partition in seen.partitions.values()
        ),
        "doubts": _doubts(found),
        "notes": _notes(found),
    }


def _look_into(
    found: _Found,
    broker: int,
    path: str,
    looks: Mapping[str, TopicLook],
    members: Collection[tuple[int, str, int]],
    cluster_id: str,
) -> None:
    """Add what one log dir says."""
    flushed = recovery_points(path)  # first: what it says is flushed has its epochs stored
    marks = marks_of(path, {member[1:] for member in members if member[0] == broker}, flushed or {})
    if marks is None and has_replicas(path, looks):
        found.doubts.append(
            f"{path} of broker {broker} has no whole {HIGH_WATERMARKS}: nothing of it was compared"
        )
    found.told_marks |= {
        (broker, *place): mark for place, mark in (marks or {}).items() if (broker, *place) in members
    }
    if not Path(path).is_dir():
        found.doubts.append(f"{path} of broker {broker} is not there")
        return
    if has_replicas(path, looks):  # a new, empty disk says nothing before its broker begins with it
        _look_whose(found, broker, path, cluster_id)
    starts = log_starts(path)
    if starts is None:
        found.doubts.append(
            f"{path} of broker {broker} has no whole {LOG_STARTS}: where logs begin is not known"
        )
    compared, logs = len(found.paths), FlushedLogs(flushed or {}, closed_logs(path))
    for folder in replica_folders({path: broker}, frozenset(looks)):
        place = (broker, folder.topic, folder.partition)
        topic_id = topic_id_of(folder.path)
        if place not in members or topic_id not in (None, looks[folder.topic].topic_id):
            found.others.append(folder.path)
            continue
        folders = found.places.setdefault(place, [])
        folders.append(folder.path)
        if len(folders) > 1:
            continue  # two would be compared as one log
        found.paths.append(folder.path)
        if _hidden_from(folder.path, (starts or {}).get(place[1:], 0)):
            found.beginning_late.append((place, folder.path))
        if topic_id is None and has_batches(folder.path):
            found.without_id.append(folder.path)
        kept = Flushed.of(folder, lambda _: logs)
        until = kept.until
        if marks is not None and place[1:] in marks:
            found.marks.append((*place, marks[place[1:]]))
            if until > marks[place[1:]] == 0:
                found.marked_0.append((place, folder.path))
        elif marks is not None and until > 0:
            found.without_marks.append(folder.path)
        elif marks is not None and has_batches(folder.path):
            found.unknown.append(folder.path)
        if until or kept.is_closed:
            found.flushed.append(kept)
        if until and kept.epochs is None:
            found.without_epochs.append(folder.path)

    is_missing = was_stopped_cleanly(path) and not (Path(path) / RECOVERY_POINTS).exists()
    if flushed is None or (is_missing and len(found.paths) > compared):
        found.doubts.append(
            f"{path} of broker {broker} has no whole {RECOVERY_POINTS}: what was flushed is not known"
        )


def _look_whose(found: _Found, broker: int, path: str, cluster_id: str) -> None:
    """Add what the log dir says of its own identity, where that is not as it is given."""
    said = node_properties(path)
    said.setdefault("node.id", said.get("broker.id", ""))
    for name, expected in (("node.id", str(broker)), ("cluster.id", cluster_id)):
        if said.get(name, "") != expected:
            what = f"say {name}={said[name]}" if said.get(name) else f"say no {name}"
            found.doubts.append(
                f"{path} is given as that of broker {broker}, {name} {expected}, and its meta.properties "
                f"{what}"
            )
    directory_id = said.get("directory.id")
    if directory_id is None:
        return  # as of Kafka's older builds
    if not re.fullmatch(_ID, directory_id):
        found.doubts.append(f"{path} of broker {broker}: its meta.properties say no sound directory.id")
    found.directories.setdefault(directory_id, []).append(path)


def _hidden_from(folder: str, stored_start: int) -> int:
    """Where the log begins behind records that its files hold, by the log dir's checkpoint, or by its leader
    epochs: the next start deletes whole segments below these. 0 where it does not."""
    history_start = log_start(folder) or 0
    paths = segment_paths(folder)  # last: what is deleted is deleted after these were stored
    if not paths or not has_batches(folder):
        return 0
    start = stored_start if int(paths[0].stem) < stored_start else 0
    has_whole_segment = len(paths) > 1 and int(paths[1].stem) <= history_start
    return max(start, history_start) if has_whole_segment else start


def marks_of(
    log_dir: str,
    members: Collection[_Place],
    flushed: Mapping[_Place, int],
    pause: Callable[[float], object] = time.sleep,
) -> dict[_Place, int] | None:
    """The checkpointed high watermarks of a log dir; None without them. What a broker writes some seconds
    after it has begun with a replica, or has recovered one, is waited for.

    `members`: whose replicas should be there. `flushed`: recovery points.
    """
    waited_s = 0.0
    marks = high_watermarks(log_dir)
    while waited_s < _FIRST_MARKS_S and _may_come(log_dir, marks, members, flushed):
        pause(_PAUSE_S)
        waited_s += _PAUSE_S
        marks = high_watermarks(log_dir)
    return marks


def _may_come(
    log_dir: str,
    marks: Mapping[_Place, int] | None,
    members: Collection[_Place],
    flushed: Mapping[_Place, int],
) -> bool:
    """The broker may run, and has not yet told the high watermarks of replicas that are there."""
    if was_stopped_cleanly(log_dir):
        return False
    there = [place for place in members if (Path(log_dir) / f"{place[0]}-{place[1]}").is_dir()]
    if marks is not None:
        return any(flushed.get(place, 0) > 0 and place not in marks for place in there)
    is_new = not any((Path(log_dir) / name).exists() for name in (HIGH_WATERMARKS, RECOVERY_POINTS))
    return is_new and bool(there)


def _with_what_is_still_flushed(found: _Found) -> set[_EpochRow]:
    """What the leader epoch checkpoints say of it, before and after the batches were read: a log that was
    truncated meanwhile had other epochs, and less of it was flushed all the time."""
    before, dir_of = found.flushed, functools.cache(FlushedLogs.of)
    found.flushed = [one.still(dir_of) for one in before]
    return {
        row
        for had, has in zip(before, found.flushed, strict=True)
        for row in _epochs(replace(had, until=has.until)) & _epochs(has)
    }


def _epochs(flushed: Flushed) -> set[_EpochRow]:
    """What a leader epoch checkpoint says of what was flushed."""
    folder, until, epochs = flushed.folder, flushed.until, flushed.epochs
    if epochs is None:
        return set()
    place = (folder.broker, folder.topic, folder.partition)
    if not epochs:
        # a doubled row alone: what lies below it is being deleted
        return {(*place, None, log_start(folder.path) or 0, None, until)}
    # where the next one begins, unless that is behind all that is compared
    ends = [*(start if start < until else None for _, start in epochs[1:]), None]
    return {
        (*place, epoch, start, end, until)
        for (epoch, start), end in zip(epochs, ends, strict=False)
        if start < until
    }


def _pass_over_what_is_gone(found: _Found) -> None:
    """Replicas that were removed while log dirs were read have no files that could be understood."""
    for folders in (found.without_epochs, found.without_id, found.without_marks):
        folders[:] = [folder for folder in folders if Path(folder).is_dir()]


def _is_in_sync(looks: Mapping[str, TopicLook], broker: int, topic: str, index: int) -> bool:
    return (
        topic in looks and index in looks[topic].partitions and broker in looks[topic].partitions[index].isr
    )


def _in_sync_now(
    cluster: JudgedCluster, looks: Mapping[str, TopicLook], places: Collection[Replica]
) -> set[Replica]:
    later = cluster.look(looks)
    return {place for place in places if _is_in_sync(later, *place)}


def _look_for_late_starts(found: _Found, cluster: JudgedCluster, in_sync: Collection[Replica]) -> None:
    """Each replica deletes old segments of its own accord, and says first where its log begins then. A broker
    that is killed in between has both, until it starts again, and is in sync no more."""
    found.beginning_late = [(place, folder) for place, folder in found.beginning_late if place in in_sync]
    if not found.beginning_late:
        return
    kept = []
    for place, folder in found.beginning_late:
        start = (log_starts(str(Path(folder).parent)) or {}).get(place[1:], 0)
        kept.append((place, folder, _hidden_from(folder, start)))
    ranges = cluster.ranges({topic for (_, topic, _), _ in found.beginning_late})
    served = {(item.topic, item.partition): item.start for item in ranges}
    found.beginning_late = [
        (place, folder) for place, folder, start in kept if start > served.get(place[1:], 0)
    ]


def _look_for_lost_marks(found: _Found, in_sync: set[tuple[int, str, int]]) -> None:
    """A replica that is being filled has flushed and knows of nothing committed. One in sync with another
    that does has lost its mark, unless its broker has only now written it."""
    committed = {(topic, partition) for _, topic, partition, mark in found.marks if mark > 0}
    for place, folder in found.marked_0:
        if place in in_sync and place[1:] in committed:
            marks = high_watermarks(str(Path(folder).parent)) or {}
            if not marks.get(place[1:]):
                found.lost_marks.append(folder)


def _doubts(found: _Found) -> tuple[str, ...]:
    twice = [", ".join(paths) for paths in found.places.values() if len(paths) > 1]
    said = (
        (
            found.without_epochs,
            "replicas without a whole leader epoch checkpoint, of which nothing was compared",
        ),
        (found.without_marks, f"replicas that were flushed and are not in {HIGH_WATERMARKS}, not compared"),
        (
            found.lost_marks,
            "flushed replicas in sync whose high watermark is 0, and that of another is not: not compared",
        ),
        (
            found.without_id,
            "replicas without a readable partition.metadata, which says of which topic they are",
        ),
        (
            [folder for _, folder in found.beginning_late],
            "replicas that begin behind records that are served, and that their files hold",
        ),
        (
            [", ".join(paths) for paths in found.directories.values() if len(paths) > 1],
            "directory ids that several log dirs have, of which one is a copy",
        ),
        (twice, "replicas that are in two log dirs of their broker, of which the first is compared"),
    )
    return (*found.doubts, *(_named(folders, what) for folders, what in said if folders))


def _notes(found: _Found) -> tuple[str, ...]:
    marked_0 = [folder for _, folder in found.marked_0 if folder not in found.lost_marks]
    said = (
        (found.others, "folders of replicas that the cluster's metadata does not have, not compared"),
        (marked_0, "flushed replicas whose high watermark is 0, not compared"),
        (
            found.unknown,
            f"replicas with records that are neither flushed nor in {HIGH_WATERMARKS}, not compared",
        ),
    )
    return tuple(_named(folders, what) for folders, what in said if folders)


def _named(folders: Sequence[str], what: str) -> str:
    return f"{len(folders)} {what}: {', '.join(folders[:SHORT_MAX])}"
