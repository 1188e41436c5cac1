"""The folder of a damaged log, put aside: `<topic>-<n>.<topic id>-corrupt`, with a note of what is damaged.

Owns the name and the note. The rename is durable, so that no later start takes the log for a sound one:
damage of a payload shows only when it is read. Nothing in the folder is changed or read again; it is there
for the operator, at most one for each partition in a log dir. Does not decide what is damaged, or when it
goes.
"""

import json
import posixpath
from dataclasses import asdict, dataclass

from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Disk
from holdfast.storage import checkpoint
from holdfast.storage.core.files import folder_name, quarantine_name

NOTE_NAME = "damage.json"
NOTE_VERSION = 0
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class DamageNote:
    """What was found. Offsets are -1 when they were not known: the log could not be loaded."""

    topic: str
    partition: int
    #: hexadecimal, None when `partition.metadata` could not be read
    topic_id: str | None
    #: file, byte and what is wrong there
    reason: str
    log_start_offset: int = -1
    #: exclusive
    log_end_offset: int = -1
    high_watermark: int = -1

    @property
    def place(self) -> TopicPartition:
        """Topic name and partition index."""
        return TopicPartition(self.topic, self.partition)


def quarantine_path(log_dir: str, note: DamageNote) -> str:
    """Where the folder of this log is put."""
    return posixpath.join(log_dir, quarantine_name(folder_name(note.place), note.topic_id))


async def put_aside(disk: Disk, log_dir: str, note: DamageNote) -> None:
    """Put the partition's folder aside durably, in place of one that was put aside before. Raises:
    DiskError."""
    folder = posixpath.join(log_dir, folder_name(note.place))
    target = quarantine_path(log_dir, note)
    text = json.dumps({"version": NOTE_VERSION, **asdict(note)}, indent=1) + "\n"
    await checkpoint.write_atomically(disk, posixpath.join(folder, NOTE_NAME), text)
    if await disk.exists(target):
        await disk.remove_folder(target)
    await disk.rename(folder, target)
    await disk.sync_folder(log_dir)


async def read_note(disk: Disk, folder: str) -> DamageNote | None:
    """The note in a folder that was put aside; None when it is missing or not one. Raises: DiskError."""
    text = await checkpoint.read_text(disk, posixpath.join(folder, NOTE_NAME))
    try:
        content = json.loads(text or "")
        if content.pop("version") != NOTE_VERSION:
            return None
        topic_id = content["topic_id"]
        if topic_id is not None and len(bytes.fromhex(topic_id)) != _ID_BYTES:
            return None
        content["partition"] = int(content["partition"])
        return DamageNote(**content)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
