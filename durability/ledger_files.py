"""Which files are a ledger, and which beside them are not."""

import os
from pathlib import Path

#: What a ledger file is called; `.gz` may follow.
SUFFIXES = (".jsonl", ".ndjson", ".json")


class UnreadableLedger(Exception):
    """The ledger proves nothing as it is. The text says which part and why."""


def ledger_files(path: str) -> list[str]:
    """The ledger files at `path`, a file or a folder that is searched all the way down; sorted.

    Raises: UnreadableLedger when there are none.
    """
    root = Path(path)
    found = [root] if root.is_file() else sorted(root.rglob("*"))
    files = [file for file in found if file.is_file() and (file == root or _is_ledger(file))]
    if not files:
        raise UnreadableLedger(f"{path}: no ledger file ({', '.join('*' + s for s in SUFFIXES)}) there")
    return [str(file) for file in files]


def passed_over(path: str) -> list[str]:
    """What in the ledger folder may hold something and is not read: other files, links to folders, links to
    nothing, folders that may not be looked into. What they say is not known."""
    root = Path(path)
    if not root.is_dir():
        return []
    return [str(file) for file in sorted(root.rglob("*")) if _is_passed_over(file)]


def _is_passed_over(file: Path) -> bool:
    if file.is_dir():
        return file.is_symlink() or not os.access(file, os.R_OK | os.X_OK)
    if file.is_file():
        return not _is_ledger(file) and file.stat().st_size > 0
    return True


def _is_ledger(file: Path) -> bool:
    return file.name.removesuffix(".gz").endswith(SUFFIXES)
