"""The rules of KIP-966 and where they are kept, read from the docstrings of the spec tests.

`python -m tests.spec.catalogue` writes docs/kip-966.md. A docstring is `Section: rule in short (numbers).`,
then `Kept in module, module.`. `untested` lists the rules without a test, with the reason.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from tests.spec.untested import UNTESTED

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "docs" / "kip-966.md"
#: modules of tests in the order of the document
CHAPTERS = {
    "test_motivation": "Motivation",
    "test_high_watermark": "Additional High Watermark advancement requirement",
    "test_eligible_leader_replicas": "Eligible Leader Replicas",
    "test_other_behaviors": "Other behaviors",
    "test_unclean_shutdown": "Detection of an unclean shutdown",
    "test_unclean_recovery": "Unclean recovery",
    "test_public_interfaces": "Public Interfaces",
    "test_compatibility": "Public-Facing Changes, migration, delivery, rejected alternatives",
    "test_asynchronous_storage": "Asynchronous storage and recovery (the replication text, chapter 5)",
}
_DOCSTRING = re.compile(
    r"(?P<section>[^:]+): (?P<rule>.+)\.\n\nKept in (?P<modules>[a-z0-9_., ]+)\.", re.DOTALL
)

HEAD = """# KIP-966, sentence by sentence

Each sentence of KIP-966 that states a rule, in our own words, with the module that keeps it and the test that
fails without it. Chapter 5 of the replication text follows, where the KIP is silent. The page is generated
by `python -m tests.spec.catalogue` from the docstrings of `tests/spec`; a test compares both. Code and tests
cite the rules by the numbers in brackets.
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A rule with its test."""

    chapter: str
    section: str
    rule: str
    modules: tuple[str, ...]
    test: str


def kept_rules() -> list[Kept]:
    """The rules of all spec tests in the order of the document. Raises: ValueError for a docstring without
    one.
    """
    found: list[Kept] = []
    for name, chapter in CHAPTERS.items():
        tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                said = _DOCSTRING.fullmatch(ast.get_docstring(node) or "")
                if said is None:
                    raise ValueError(f"{name}.{node.name}: expected `Section: rule.` and `Kept in module.`")
                modules = tuple(said["modules"].split(", "))
                rule = " ".join(said["rule"].split())
                found.append(
                    Kept(chapter, " ".join(said["section"].split()), rule, modules, f"{name}.{node.name}")
                )
    return found


def page() -> str:
    """The text of docs/kip-966.md."""
    kept = kept_rules()
    parts = [HEAD]
    for chapter in CHAPTERS.values():
        parts.append(f"## {chapter}\n\n| section | rule | kept in | test |\n|---|---|---|---|")
        parts += [
            f"| {row.section} | {row.rule} | {', '.join(row.modules)} | {row.test} |"
            for row in kept
            if row.chapter == chapter
        ]
        parts.append("")
    for kind, title in (("differs", "Different on purpose"), ("later", "Not yet")):
        parts.append(f"## {title}\n\n| section | rule | {kind} |\n|---|---|---|")
        parts += [f"| {row.section} | {row.rule} | {row.why} |" for row in UNTESTED if row.kind == kind]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
