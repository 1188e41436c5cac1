"""The mark that proves a clean stop: every byte was flushed, in which broker epoch, and which logs it vouches
for (R33-R36, B25, A-19).

Owns the files' content and the order of names and syncs around them. A mark is believed only in the log dir
that it was written for, only in the epoch that was registered last there, and only for logs that are still
what they were: a copied mark, or an old disk under a new mark, proves nothing. Never decides whether a stop
was clean: callers write marks as the very last thing, and only when every log was flushed and closed. One in
every log dir, all must agree.
"""

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from holdfast.runtime.api import Disk, FileMissing
from holdfast.storage import checkpoint
from holdfast.storage.log import Log
from holdfast.storage.meta_properties import decode_id, encode_id

FILE_NAME = ".holdfast_cleanshutdown"
#: The epoch of the last registration of this dir's broker (R36), and the last one that it found in the
#: metadata log: not the same when it stopped in between.
REGISTRATION_NAME = ".holdfast_registration"
FILE_VERSION = 0
#: What a broker registers with when no clean stop is proven.
UNKNOWN_EPOCH = -1
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """What one file says."""

    broker_epoch: int
    #: the log dir that it was written in
    directory_id: bytes
    #: {folder name: digest}, of every partition folder of the dir
    logs: Mapping[str, str] = field(default_factory=dict)


class Registration(NamedTuple):
    """A registration that this dir's broker has found in the metadata log."""

    #: -1 for none
    broker_epoch: int = UNKNOWN_EPOCH
    #: empty when it was not noted
    incarnation_id: bytes = b""


NEVER_REGISTERED = Registration()


def digest(log: Log) -> str:
    """What identifies the content of a log: a leader epoch writes an offset once (N-1), so two logs of a
    topic with the same epochs and ends hold the same."""
    start, end = log.log_start_offset, log.log_end_offset
    entries = [entry for entry in log.leader_epoch_cache.entries if entry.start_offset < end]
    kept = [one for one, after in pairwise(entries) if after.start_offset > start] + entries[-1:]
    epochs = [(epoch, max(start, start_offset)) for epoch, start_offset in kept]
    text = f"{log.topic_id!r} {start} {end} {log.size_bytes} {epochs}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def encode(mark: Mark) -> str:
    """The content of the file."""
    content = {
        "version": FILE_VERSION,
        "brokerEpoch": mark.broker_epoch,
        "directoryId": encode_id(mark.directory_id),
        "logs": dict(sorted(mark.logs.items())),
    }
    return json.dumps(content, separators=(",", ":"))


def decode(text: str | None) -> Mark | None:
    """The mark in a file's text, None when it is missing or anything but our own writing."""
    content = _decode_object(text)
    broker_epoch = _epoch_of(content)
    directory, logs = content.get("directoryId"), content.get("logs")
    directory_id = decode_id(directory) if isinstance(directory, str) else None
    if broker_epoch == UNKNOWN_EPOCH or directory_id is None or not isinstance(logs, dict):
        return None
    if not all(isinstance(one, str) for one in logs.values()):
        return None
    return Mark(broker_epoch, directory_id, logs)


async def read(disk: Disk, log_dir: str, directory_id: bytes) -> Mark | None:
    """The mark of a dir, None when there is none for this dir in the epoch that was registered last. Raises:
    DiskError."""
    mark = decode(await checkpoint.read_text(disk, posixpath.join(log_dir, FILE_NAME)))
    registered = await checkpoint.read_text(disk, posixpath.join(log_dir, REGISTRATION_NAME))
    if mark is None or mark.directory_id != directory_id:
        return None
    return mark if _epoch_of(_decode_object(registered)) == mark.broker_epoch else None


async def take(disk: Disk, log_dir: str, directory_id: bytes) -> Mark | None:
    """Read the mark of a dir and delete it.

    On return the name is durably gone: no later crash can make this start look clean (R35). Raises:
    DiskError.
    """
    mark = await read(disk, log_dir, directory_id)
    for name in (FILE_NAME, FILE_NAME + checkpoint.TEMPORARY_SUFFIX):
        try:
            await disk.unlink(posixpath.join(log_dir, name))
        except FileMissing:
            continue
    # Also when nothing was there: an unlink by a start that crashed right here may not be durable yet.
    await disk.sync_folder(log_dir)
    return mark


def agreed_epoch(marks: Sequence[Mark | None]) -> int:
    """The broker epoch that the marks of all dirs agree on, else UNKNOWN_EPOCH (R33)."""
    assert marks
    epochs = {UNKNOWN_EPOCH if mark is None else mark.broker_epoch for mark in marks}
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_EPOCH


async def read_registration(disk: Disk, log_dir: str) -> Registration:
    """The last registration that the dir's broker has found in the metadata log. Raises: DiskError."""
    content = _decode_object(await checkpoint.read_text(disk, posixpath.join(log_dir, REGISTRATION_NAME)))
    replayed = content.get("replayed")
    if not isinstance(replayed, dict):  # of an older version: what was registered was committed too
        return Registration(_epoch_of(content))
    incarnation = replayed.get("incarnationId")
    incarnation_id = decode_id(incarnation) if isinstance(incarnation, str) else None
    return Registration(_epoch_of(replayed), incarnation_id or b"")


async def note_registration(
    disk: Disk, log_dir: str, broker_epoch: int, replayed: Registration = NEVER_REGISTERED
) -> None:
    """Store durably which epoch was registered last: marks of other epochs are not believed any more (R36).
    `replayed`: what `read_registration` is to find. Raises: DiskError."""
    row: dict[str, object] = {"brokerEpoch": replayed.broker_epoch}
    if replayed.incarnation_id:
        row["incarnationId"] = encode_id(replayed.incarnation_id)
    content = {"version": FILE_VERSION, "brokerEpoch": broker_epoch, "replayed": row}
    text = json.dumps(content, separators=(",", ":"))
    await checkpoint.write_atomically(disk, posixpath.join(log_dir, REGISTRATION_NAME), text)


async def write(disk: Disk, log_dir: str, mark: Mark) -> None:
    """Store the proof in a dir; the last step of A-19. A process that never got an epoch has none to store
    and must not call this. Raises: DiskError."""
    assert mark.broker_epoch >= 0
    await checkpoint.write_atomically(disk, posixpath.join(log_dir, FILE_NAME), encode(mark))


def _decode_object(text: str | None) -> dict[str, object]:
    try:
        content = json.loads(text) if text is not None else None
    except ValueError:
        return {}
    return content if isinstance(content, dict) and content.get("version") == FILE_VERSION else {}


def _epoch_of(content: Mapping[str, object]) -> int:
    epoch = content.get("brokerEpoch")
    return epoch if type(epoch) is int and epoch >= 0 else UNKNOWN_EPOCH
