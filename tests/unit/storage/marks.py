"""Marks of a clean stop in several log dirs, as a broker writes and takes them."""

from collections.abc import Mapping, Sequence

from holdfast.runtime.api import Disk
from holdfast.storage import clean_shutdown


def directory_id(log_dir: str) -> bytes:
    """The id of a test's log dir."""
    return log_dir.encode().rjust(16, b".")[-16:]


async def prove(
    disk: Disk, log_dirs: Sequence[str], broker_epoch: int, logs: Mapping[str, str] | None = None
) -> None:
    """A registration, and later a clean stop."""
    for path in log_dirs:
        await clean_shutdown.note_registration(disk, path, broker_epoch)
        mark = clean_shutdown.Mark(broker_epoch, directory_id(path), dict(logs or {}))
        await clean_shutdown.write(disk, path, mark)


async def take_all(disk: Disk, log_dirs: Sequence[str]) -> int:
    """The next start: the epoch that all dirs agree on."""
    return clean_shutdown.agreed_epoch(
        [await clean_shutdown.take(disk, path, directory_id(path)) for path in log_dirs]
    )
