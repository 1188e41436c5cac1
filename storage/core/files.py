"""Names of the files in a partition folder and in a log dir (D5). Owns the spelling and touches no file."""

import posixpath
import re

from holdfast.protocol.topic_names import METADATA_TOPIC, TopicPartition
from holdfast.runtime.api import NAME_BYTES_MAX

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
#: Ending of the files of a segment that the cleaner writes, until they take the place of the old ones.
CLEANED_SUFFIX = ".cleaned"
#: Ending of a partition folder that is being deleted; the next start deletes the rest.
DELETED_SUFFIX = "-delete"
#: Ending of a partition folder whose log is damaged and was put aside (`storage.quarantine`).
QUARANTINE_SUFFIX = "-corrupt"
#: Stands for a topic id that could not be read, in such a name.
_NO_TOPIC_ID = "0" * 32
#: Digits of an offset in a file name, so that names sort as offsets do.
OFFSET_DIGITS = 20

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
#: Folder of the metadata log, which may lie in a log dir.
METADATA_FOLDER = f"{METADATA_TOPIC}-0"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CEILING_CHECKPOINT = "ceiling-offset-checkpoint"
SCRUB_CHECKPOINT = "scrub-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"


_QUARANTINE_NAME = re.compile(rf".+\.[0-9a-f]{{32}}{QUARANTINE_SUFFIX}")
_DELETED_NAME = re.compile(rf".+\.[0-9a-f]{{32}}{DELETED_SUFFIX}")
_NAMES_OF_LOG = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, CLEANER_CHECKPOINT)
_SUFFIXES_OF_LOG = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


def folder_name(partition: TopicPartition) -> str:
    """`<topic>-<partition>`."""
    return f"{partition.topic}-{partition.partition}"


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition of a folder; None when it is not a partition folder."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    return TopicPartition(topic, int(number))


def is_deleted_name(name: str) -> bool:
    """True for the name of a folder that was being deleted; no operator would choose such a name."""
    return _DELETED_NAME.fullmatch(name) is not None


def is_quarantine_name(name: str) -> bool:
    """True for the name of a folder that was put aside."""
    return _QUARANTINE_NAME.fullmatch(name) is not None


def is_file_of_log(name: str) -> bool:
    """True for a name that a file of a partition folder may have."""
    name = name.removesuffix(".tmp").removesuffix(CLEANED_SUFFIX)
    return name in _NAMES_OF_LOG or any(
        parse_offset_name(name, suffix) is not None for suffix in _SUFFIXES_OF_LOG
    )


def condemned_name(name: str, tag: str) -> str:
    """Name of a partition folder while it is deleted: `<name>.<tag>-delete`, in ASCII.

    The name of a long topic is cut to what a file system accepts; the tag keeps it unique.
    """
    return _tagged(name, f".{tag}{DELETED_SUFFIX}")


def quarantine_name(name: str, topic_id: str | None) -> str:
    """Name of the folder of a damaged log: `<name>.<topic id>-corrupt`; a long name is cut."""
    return _tagged(name, f".{topic_id or _NO_TOPIC_ID}{QUARANTINE_SUFFIX}")


def _tagged(name: str, tail: str) -> str:
    return name[: NAME_BYTES_MAX - len(tail)] + tail


def offset_path(folder: str, offset: int, suffix: str) -> str:
    """Path of a file that is named after an offset."""
    return posixpath.join(folder, f"{offset:0{OFFSET_DIGITS}}{suffix}")


def parse_offset_name(name: str, suffix: str) -> int | None:
    """The offset in a file name; None for another kind of file."""
    digits = name.removesuffix(suffix)
    if digits == name or len(digits) != OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits)
