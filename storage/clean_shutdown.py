"""The file that proves a clean stop: every byte was flushed, and in which broker epoch (R33-R35, A-19).

Owns the file's content and the order of names and syncs around it. Never decides whether a stop was clean:
callers write it as the very last thing, and only when every log was flushed and closed. One in every log dir,
all must agree.
"""

import json
import posixpath
from collections.abc import Sequence

from runtime.api import Disk, FileMissing
from storage import checkpoint

FILE_NAME = ".holdfast_cleanshutdown"
FILE_VERSION = 0
#: What a broker registers with when no clean stop is proven.
UNKNOWN_EPOCH = -1


def encode(broker_epoch: int) -> str:
    """The content of the file."""
    return json.dumps({"version": FILE_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))


def decode(text: str | None) -> int:
    """The broker epoch in a file's text, UNKNOWN_EPOCH when it is missing or anything but our own writing."""
    try:
        content = json.loads(text) if text is not None else None
    except ValueError:
        return UNKNOWN_EPOCH
    if not isinstance(content, dict) or content.get("version") != FILE_VERSION:
        return UNKNOWN_EPOCH
    broker_epoch = content.get("brokerEpoch")
    return broker_epoch if type(broker_epoch) is int and broker_epoch >= 0 else UNKNOWN_EPOCH


async def take(disk: Disk, log_dirs: Sequence[str]) -> int:
    """Read the files of all dirs and delete them; the broker epoch that all agree on, else UNKNOWN_EPOCH
    (R33).

    On return the names are durably gone: no later crash can make this start look clean (R35). Raises:
    DiskError.
    """
    assert log_dirs
    epochs = [decode(await checkpoint.read_text(disk, posixpath.join(path, FILE_NAME))) for path in log_dirs]
    for path in log_dirs:
        for name in (FILE_NAME, FILE_NAME + checkpoint.TEMPORARY_SUFFIX):
            try:
                await disk.unlink(posixpath.join(path, name))
            except FileMissing:
                continue
        # Also when nothing was there: an unlink by a start that crashed right here may not be durable yet.
        await disk.sync_folder(path)
    return epochs[0] if len(set(epochs)) == 1 else UNKNOWN_EPOCH


async def write(disk: Disk, log_dirs: Sequence[str], broker_epoch: int) -> None:
    """Store the proof in every dir; the last step of A-19. A process that never got an epoch has none to
    store and must not call this. Raises: DiskError."""
    assert broker_epoch >= 0
    for path in log_dirs:
        await checkpoint.write_atomically(disk, posixpath.join(path, FILE_NAME), encode(broker_epoch))
