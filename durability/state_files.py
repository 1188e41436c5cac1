"""Small JSON files of the state folder: one is there whole, or following says that it cannot be read."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class UnreadableState(Exception):
    """A file of the state folder is damaged or is none of this build's."""


def read_json(path: Path, take: Callable[[Any], T]) -> T:
    """What `take` makes of the object in the file. Raises: UnreadableState."""
    try:
        return take(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UnreadableState(f"{path.name} cannot be read ({type(error).__name__}: {error})") from error


def write_whole(path: Path, text: str) -> None:
    """Replace the file: a power loss leaves the old one or the new one, whole. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
