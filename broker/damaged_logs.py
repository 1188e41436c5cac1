"""The damaged logs of a broker: which folders were put aside, and of which partitions.

Owns the quarantine folders of all log dirs. A folder of a partition that has a log again was replaced, and is
kept for the operator until the next damage of that partition, or until the partition leaves this broker. Does
not decide when a replica begins anew: the core does.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.broker.core.events import DamagedReplica
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Disk, DiskError
from holdfast.storage import quarantine
from holdfast.storage.core.files import folder_name
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.quarantine import DamageNote

_log = logging.getLogger("holdfast.log_manager")


@dataclass(frozen=True, slots=True)
class _Aside:
    log_dir: LogDir
    note: DamageNote

    @property
    def path(self) -> str:
        return quarantine.quarantine_path(self.log_dir.path, self.note)


def note_of(partition: TopicPartition, log: Log, error: DiskError, high_watermark: int | None) -> DamageNote:
    """What is known of an open log that was found damaged."""
    assert log.topic_id is not None
    return DamageNote(
        *partition,
        log.topic_id.hex(),
        str(error),
        log.log_start_offset,
        log.log_end_offset,
        -1 if high_watermark is None else high_watermark,
    )


class DamagedLogs:
    """Of one broker. Coroutines raise DiskError."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        #: {path of a quarantine folder: what is in it}
        self._aside: dict[str, _Aside] = {}
        #: logs found damaged since the process started
        self.found_count = 0

    async def put_aside(self, log_dir: LogDir, note: DamageNote) -> None:
        """Put the partition's folder aside."""
        aside = _Aside(log_dir, note)
        self.found_count += 1
        await quarantine.put_aside(self._disk, log_dir.path, note)
        self._aside[aside.path] = aside
        _log.error(
            "replica %s is offline, its log of offsets %d to %d is damaged and put aside as %s: %s",
            folder_name(note.place),
            note.log_start_offset,
            note.log_end_offset,
            aside.path,
            note.reason,
        )

    async def look_at(self, log_dir: LogDir, name: str) -> None:
        """Remember a folder that an earlier process put aside. One without a note is the operator's."""
        note = await quarantine.read_note(self._disk, log_dir.file(name))
        if note is not None and quarantine.quarantine_path(log_dir.path, note) == log_dir.file(name):
            self._aside[log_dir.file(name)] = _Aside(log_dir, note)

    def without_log(self, has_log: Callable[[TopicPartition, bytes | None], bool]) -> list[DamagedReplica]:
        """The replicas whose log was put aside and not begun anew. `has_log(partition, topic_id)`: an open
        log of this partition, of any topic of that name when the id is None."""
        found: dict[tuple[TopicPartition, bytes | None], DamagedReplica] = {}
        for path, aside in sorted(self._aside.items()):
            note = aside.note
            topic_id = bytes.fromhex(note.topic_id) if note.topic_id else None
            if not has_log(note.place, topic_id):
                story = f"{note.reason}; put aside as {path}"
                found[note.place, topic_id] = DamagedReplica(note.topic, note.partition, topic_id, story)
        return list(found.values())

    async def remove(self, key: PartitionId) -> None:
        """Remove what was put aside of a partition that is no longer this broker's."""
        for path, aside in list(self._aside.items()):
            if (aside.note.topic_id, aside.note.partition) == (key.topic_id.hex(), key.partition_index):
                del self._aside[path]
                await self._disk.remove_folder(path)

    def name_of(self, key: PartitionId) -> str | None:
        """Folder name of a partition that has something aside."""
        for aside in self._aside.values():
            if (aside.note.topic_id, aside.note.partition) == (key.topic_id.hex(), key.partition_index):
                return folder_name(aside.note.place)
        return None

    def counts(self) -> Counter[str]:
        """{path of a log dir: folders put aside there}."""
        return Counter(aside.log_dir.path for aside in self._aside.values())
