"""The tour of the tree names files and functions that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = [
    link.name for link in (ROOT / "holdfast").iterdir() if link.is_dir() and link.name != "__pycache__"
]
FILES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def places(name: str) -> list[Path]:
    """Files of that path, or whose path ends so."""
    return [path for path in FILES if f"/{path.relative_to(ROOT)}".endswith(f"/{name}")]


def test_every_file_on_the_page_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", PAGE))
    assert named
    assert sorted(name for name in named if not places(name)) == []


def test_every_function_on_the_page_is_in_the_file_that_is_named_before_it() -> None:
    text = " ".join(PAGE.split())
    named = re.findall(r"`([\w/]+\.py)`:? `(\w+)`", text)
    assert named
    lost = [
        f"{file}: {name}"
        for file, name in named
        if not any(re.search(rf"(def|class) {name}\b", path.read_text()) for path in places(file))
    ]
    assert lost == []
