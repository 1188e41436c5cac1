"""The pages name what exists: files, modules, functions beside them, and other pages."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "bench").glob("*.md")])
PACKAGES = sorted(path.name for path in (ROOT / "holdfast").iterdir() if path.is_symlink())

_ANY = "|".join(PACKAGES)
#: `controller/core/partitions/elr.py`, and `: name` behind it for what it defines
FILE = re.compile(rf"`((?:{_ANY})/[\w/]+\.py)`((?:: `\w+`)?)")
#: `holdfast.tools.dashboards` or `python -m holdfast.tools.dashboards`, a name that a module defines included
MODULE = re.compile(rf"\bholdfast\.((?:{_ANY})(?:\.\w+)*)")
LINK = re.compile(r"\]\(([^)#:]+)\)")


def names_defined_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


def module_exists(dotted: str) -> bool:
    """A module, a package, or a name that a module defines."""
    path = ROOT / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    return path.parent.with_suffix(".py").is_file() and path.name in path.parent.with_suffix(".py").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_links_to_pages_that_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_files_and_functions_that_exist(page: Path) -> None:
    missing = []
    for name, defines in FILE.findall(page.read_text(encoding="utf-8")):
        path = ROOT / name
        if not path.is_file() or (defines and defines.strip(": `") not in names_defined_in(path)):
            missing.append(name + defines)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_modules_that_exist(page: Path) -> None:
    named = MODULE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not module_exists(name)] == []
