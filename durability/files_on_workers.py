"""Files that Spark's workers read at the paths that the driver names."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class NotOnWorker(Exception):
    """A worker does not see what the driver sees. The text says what."""


@contextmanager
def read_on_worker() -> Iterator[None]:
    """Raises: NotOnWorker for a file of this block that is not there, or may not be read."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise _not_there(str(error.filename), str(error.strerror)) from error


def check_log_dir(folder: str) -> None:
    """Of a replica, whose own folder may be gone by now. Raises: NotOnWorker."""
    log_dir = Path(folder).parent
    if not log_dir.is_dir():
        raise _not_there(str(log_dir), "No such folder")


def _not_there(path: str, reason: str) -> NotOnWorker:
    return NotOnWorker(f"{path}: {reason} where Spark reads it: its workers must see it at the driver's path")
