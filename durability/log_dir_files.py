"""The small files of log dirs and of replicas' folders: what a broker has stored beside its segments.

Shares no code with the broker, as `durability.segments`. A checkpoint that is cut or garbled is none, as for
the broker.
"""

import json
import math
from collections.abc import Container
from pathlib import Path
from typing import Any

import google_crc32c

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
#: Holdfast's, and Kafka's.
_CLEAN_STOPS = (".holdfast_cleanshutdown", ".kafka_cleanshutdown")
#: In which epoch a broker of Holdfast was registered last.
_REGISTRATION = ".holdfast_registration"
#: Beside the segments of a log of which compaction has removed something.
_COMPACTED = "cleaner-offset-checkpoint"


def high_watermarks(log_dir: str) -> dict[tuple[str, int], int] | None:
    """{(topic, partition): high watermark} as the broker last wrote it to its checkpoint; None without one.

    A cut checkpoint is none, as for the broker.
    The checkpoint lags behind the truth, which is safe: below it everything is committed.
    """
    return _checkpoint(Path(log_dir) / HIGH_WATERMARKS)


def recovery_points(log_dir: str) -> dict[tuple[str, int], int] | None:
    """{(topic, partition): offset}: what lies below was flushed; empty without a checkpoint, None when there
    is one that is not whole."""
    path = Path(log_dir) / RECOVERY_POINTS
    return _checkpoint(path) if path.exists() else {}


def log_starts(log_dir: str) -> dict[tuple[str, int], int] | None:
    """{(topic, partition): first offset that is shown}; empty without a checkpoint, None when there is one
    that is not whole."""
    path = Path(log_dir) / LOG_STARTS
    return _checkpoint(path) if path.exists() else {}


def was_stopped_cleanly(log_dir: str) -> bool:
    """The broker of the log dir has flushed everything, and does not run."""
    return any((Path(log_dir) / name).exists() for name in _CLEAN_STOPS)


class _All:
    """Names of folders, all of them."""

    def __contains__(self, name: object) -> bool:
        return True


def closed_logs(log_dir: str) -> Container[str]:
    """Names of the folders whose logs the broker has flushed and closed, when it was not started since. What
    was written for another log dir, or before a later registration, says nothing, as for the broker.

    Of some thousand logs one look at the log dir is enough, and one for each is too much.
    """
    own, kafkas = (Path(log_dir) / name for name in _CLEAN_STOPS)
    mark = _json_object(own)
    if not mark:
        return _All() if kafkas.exists() else ()
    logs = mark.get("logs")
    is_ours = (
        isinstance(logs, dict)
        and mark.get("directoryId") == node_properties(log_dir).get("directory.id")
        and mark.get("brokerEpoch") == _json_object(Path(log_dir) / _REGISTRATION).get("brokerEpoch")
    )
    return frozenset(logs) if is_ours and isinstance(logs, dict) else ()


def _json_object(path: Path) -> dict[str, Any]:
    """{} when there is none to be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def node_properties(log_dir: str) -> dict[str, str]:
    """What `meta.properties` of a log dir says; {} without such a file."""
    try:
        lines = (Path(log_dir) / "meta.properties").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def topic_id_of(folder: str) -> str | None:
    """The topic id that `partition.metadata` of a replica says, as Kafka writes it; None without one."""
    try:
        lines = (Path(folder) / "partition.metadata").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    ids = [line.removeprefix("topic_id:").strip() for line in lines if line.startswith("topic_id:")]
    return ids[0] if len(ids) == 1 and ids[0] else None


def log_start(folder: str) -> int | None:
    """Where the leader epochs of a log say that it begins; None without a whole checkpoint of them, and when
    there are none.

    The broker stores them before it deletes segments: read this after the names of the segments.
    """
    rows = _epoch_rows(folder)
    return rows[0][1] if rows else None


def leader_epochs(folder: str) -> list[tuple[int, int]] | None:
    """(leader epoch, first offset) of a replica's checkpoint, rising; None without a whole one. A first row
    that stands there twice is of the record below the log's beginning, and left out."""
    rows = _epoch_rows(folder)
    return rows[2:] if rows is not None and len(rows) > 1 and rows[0] == rows[1] else rows


def _epoch_rows(folder: str) -> list[tuple[int, int]] | None:
    """All rows of the checkpoint as they stand there; None without a whole one."""
    return _rows_of_two(Path(folder) / "leader-epoch-checkpoint")


def _rows_of_two(path: Path) -> list[tuple[int, int]] | None:
    """The rows of a checkpoint of two numbers each; None without a whole one."""
    try:
        version, count, *lines = _sound_lines(path.read_text(encoding="utf-8"))
        rows = [(int(first), int(second)) for first, second in (line.split(" ") for line in lines[:-1])]
    except (FileNotFoundError, ValueError):
        return None
    return rows if version == "0" and int(count) == len(rows) and lines[-1:] == [""] else None


def _checkpoint(path: Path) -> dict[tuple[str, int], int] | None:
    """The rows behind version and number of rows; None when the file is missing, cut, no checkpoint or
    not to be read."""
    try:
        version, count, *lines = _sound_lines(path.read_text(encoding="utf-8"))
        rows = [line.rsplit(" ", 2) for line in lines[:-1]]
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
        is_whole = version == "0" and int(count) == len(rows) and lines[-1:] == [""]
    except (OSError, ValueError):
        return None
    # no broker writes these; one that stands for nothing known counts for no checkpoint
    is_odd = len(offsets) < len(rows) or min(offsets.values(), default=0) < 0
    return offsets if is_whole and not is_odd else None


def _sound_lines(text: str) -> list[str]:
    """The lines before `crc32c ########`, which covers them; older builds and Kafka write none.

    Raises: ValueError for another crc.
    """
    lines = text.split("\n")
    if len(lines) > 1 and lines[-2].startswith("crc32c "):
        crc = lines.pop(-2).removeprefix("crc32c ")
        if int(crc, 16) != google_crc32c.value("\n".join(lines).encode()):
            raise ValueError("the crc does not match")
    return lines


def was_compacted(folder: str) -> bool:
    """Compaction has removed something of this log: it may lack records anywhere."""
    return (Path(folder) / _COMPACTED).exists()


def changed_end(folder: Path) -> float:
    """Compaction has changed no batch that begins at this offset or behind it: 0 for a log that was never
    compacted. The broker says so before it changes one."""
    path = folder / _COMPACTED
    if not path.exists():
        return 0
    rows = _rows_of_two(path)
    return rows[0][1] if rows is not None and len(rows) == 1 else math.inf
