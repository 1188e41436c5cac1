"""The clean-shutdown file: in which broker epoch all logs of a dir were flushed and closed (R33-R36).

Owns the content of this file and of the registration file, and the order of names and syncs around them. A
clean-shutdown file counts only in the log dir that it was written for, only in the epoch that was registered
last there, and only for logs that have not changed since (B25): so a copied file, or an old disk under a new
file, proves nothing. Does not decide whether a stop was clean: the caller writes the file last of all, after
every log was flushed and closed. Each log dir has one, and all must agree.
"""

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from holdfast.protocol.id_text import decode_id, encode_id
from holdfast.runtime.api import Disk, FileMissing
from holdfast.storage import checkpoint
from holdfast.storage.log import Log

FILE_NAME = ".holdfast_cleanshutdown"
#: File with the last registered epoch of this dir's broker (R36), and with the last registration that it
#: found in the metadata log; they differ when the broker stopped in between.
REGISTRATION_NAME = ".holdfast_registration"
FILE_VERSION = 0
#: The previous epoch in a registration without a clean shutdown.
UNKNOWN_EPOCH = -1
_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """Content of a clean-shutdown file."""

    broker_epoch: int
    #: id of the log dir that it was written in
    directory_id: bytes
    #: {folder name: digest} of every partition folder in the dir
    logs: Mapping[str, str] = field(default_factory=dict)


class Registration(NamedTuple):
    """A registration that this dir's broker has found in the metadata log."""

    #: -1 for none
    broker_epoch: int = UNKNOWN_EPOCH
    #: empty when it was not stored
    incarnation_id: bytes = b""


NEVER_REGISTERED = Registration()


def digest(log: Log) -> str:
    """A digest of a log's content. A leader epoch writes an offset only once (N-1), so two logs of a topic
    with the same epochs and ends are the same."""
    start, end = log.log_start_offset, log.log_end_offset
    entries = [entry for entry in log.leader_epoch_cache.entries if entry.start_offset < end]
    kept = [one for one, after in pairwise(entries) if after.start_offset > start] + entries[-1:]
    epochs = [(epoch, max(start, start_offset)) for epoch, start_offset in kept]
    text = f"{log.topic_id!r} {start} {end} {log.size_bytes} {epochs}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def encode(mark: Mark) -> str:
    """The text of the file."""
    content = {
        "version": FILE_VERSION,
        "brokerEpoch": mark.broker_epoch,
        "directoryId": encode_id(mark.directory_id),
        "logs": dict(sorted(mark.logs.items())),
    }
    return json.dumps(content, separators=(",", ":"))


def decode(text: str | None) -> Mark | None:
    """The content of a file's text; None when it is missing or not written by `encode`."""
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
    """The clean-shutdown file of a dir; None when there is none for this dir and for the epoch registered
    last. Raises: DiskError."""
    mark = decode(await checkpoint.read_text(disk, posixpath.join(log_dir, FILE_NAME)))
    registered = await checkpoint.read_text(disk, posixpath.join(log_dir, REGISTRATION_NAME))
    if mark is None or mark.directory_id != directory_id:
        return None
    return mark if _epoch_of(_decode_object(registered)) == mark.broker_epoch else None


async def take(disk: Disk, log_dir: str, directory_id: bytes) -> Mark | None:
    """Read the clean-shutdown file of a dir and delete it.

    The deletion is durable on return, so that no later crash can make this start look clean (R35). Raises:
    DiskError.
    """
    mark = await read(disk, log_dir, directory_id)
    for name in (FILE_NAME, FILE_NAME + checkpoint.TEMPORARY_SUFFIX):
        try:
            await disk.unlink(posixpath.join(log_dir, name))
        except FileMissing:
            continue
    # Also when there was no file: an earlier start may have crashed here, before its unlink was durable.
    await disk.sync_folder(log_dir)
    return mark


def agreed_epoch(marks: Sequence[Mark | None]) -> int:
    """The broker epoch on which the files of all dirs agree, else UNKNOWN_EPOCH (R33)."""
    assert marks
    epochs = {UNKNOWN_EPOCH if mark is None else mark.broker_epoch for mark in marks}
    return epochs.pop() if len(epochs) == 1 else UNKNOWN_EPOCH


async def read_registration(disk: Disk, log_dir: str) -> Registration:
    """The last registration that the dir's broker found in the metadata log. Raises: DiskError."""
    content = _decode_object(await checkpoint.read_text(disk, posixpath.join(log_dir, REGISTRATION_NAME)))
    replayed = content.get("replayed")
    if not isinstance(replayed, dict):  # written by an older version: the registered epoch was committed
        return Registration(_epoch_of(content))
    incarnation = replayed.get("incarnationId")
    incarnation_id = decode_id(incarnation) if isinstance(incarnation, str) else None
    return Registration(_epoch_of(replayed), incarnation_id or b"")


async def note_registration(
    disk: Disk, log_dir: str, broker_epoch: int, replayed: Registration = NEVER_REGISTERED
) -> None:
    """Store durably which epoch was registered last; clean-shutdown files of other epochs are void then
    (R36). `replayed` is what `read_registration` will return. Raises: DiskError."""
    row: dict[str, object] = {"brokerEpoch": replayed.broker_epoch}
    if replayed.incarnation_id:
        row["incarnationId"] = encode_id(replayed.incarnation_id)
    content = {"version": FILE_VERSION, "brokerEpoch": broker_epoch, "replayed": row}
    text = json.dumps(content, separators=(",", ":"))
    await checkpoint.write_atomically(disk, posixpath.join(log_dir, REGISTRATION_NAME), text)


async def write(disk: Disk, log_dir: str, mark: Mark) -> None:
    """Write the clean-shutdown file of a dir, as the last step of a stop (A-19). Only for a process that has
    had a broker epoch. Raises: DiskError."""
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
