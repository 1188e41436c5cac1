"""docs/rules.md beside the repository: each code that is cited has a line, and no reference leads nowhere."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rules.md"
SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".sh", ""}
LEFT_OUT = {"__pycache__", "build", "dist", "node_modules"}

_FAMILY = "[ABDFGIKLNPQR]-?"
#: R62, A-21, D8.3; not within a word, a number or a name such as a.B-9_
_CODE = re.compile(rf"(?<![\w.-])(?:D8\.\d+|{_FAMILY}(?:0|[1-9]\d*))(?!\w)")
#: R60-R69, K1 to K16, A-20..A-22: cites each rule between the two that has a line
_RANGE = re.compile(rf"(?<![\w.-])(D8\.|{_FAMILY})(\d+)(?:-| to |\.\.)\1(\d+)(?!\w)")
#: rule 12; rules 12, 13 and 24; rules 1 to 5. `rules 2.6` is none
_NUMBERED = re.compile(r"\b[Rr]ules? (\d+(?:(?:, | and | to )\d+)*)(?![\w.]*\d)")
#: codes of ruff
_LINTER = re.compile(r"noqa: [A-Z0-9, ]+|\"[A-Z]+\d{3}\"")

_LINE = re.compile(r"\| (?P<code>[^|]+) \| (?P<words>[^|]+) \| (?P<source>[^|]+) \| (?P<home>[^|]+) \|")

#: a section needs the name of a public text, or of a page that is here
_SECTION = re.compile(r"(?<!KIP-\d\d\d )(?<!Raft )(?<!TLA\+ )(?<!\.md )§")
#: a number of a section, or of a document, behind a word that is no title here
_NAMELESS = re.compile(
    r"(?:design|style|verification|interfaces|rules|Rules|infrastructure) \d+\.\d"
    r"|[Ss]ource 00\d|design D\d|D8 Q\d"
)
#: pages that a command writes where it is told to
WRITTEN = {"runs.md"}
_PAGE_NAME = re.compile(r"(?<![\w./-])[\w./-]+\.md\b")


class Rule(NamedTuple):
    """One line of the page."""

    code: str
    words: str
    source: str
    home: str


@cache
def rules() -> list[Rule]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = [Rule(*match.groups()) for line in lines if (match := _LINE.fullmatch(line))]
    return [rule for rule in found if rule.code not in ("code", "---")]


@cache
def texts() -> dict[str, str]:
    """{path below the root: text} of all that people wrote here, without this test."""
    found = {}
    for folder, below, names in os.walk(ROOT):
        hidden = {name for name in below if name.startswith((".", "demo-")) and name != ".ci"}
        below[:] = sorted(set(below) - hidden - LEFT_OUT)
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix in SUFFIXES and path != Path(__file__):
                try:
                    found[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue
    return found


def codes_in(text: str, known: frozenset[str] = frozenset()) -> Iterator[str]:
    """The codes that a text cites; of a range both ends, and those between that are `known`."""
    text = _LINTER.sub("", text)
    yield from _CODE.findall(text)
    for family, first, last in _RANGE.findall(text):
        yield from (f"{family}{first}", f"{family}{last}")
        between = (f"{family}{number}" for number in range(int(first), int(last)))
        yield from (code for code in between if code in known)
    for numbers in _NUMBERED.findall(text):
        yield from (f"rule {number}" for number in re.findall(r"\d+", numbers))
        for first, last in re.findall(r"(\d+) to (\d+)", numbers):
            between = (f"rule {number}" for number in range(int(first), int(last)))
            yield from (code for code in between if code in known)


@cache
def citations() -> dict[str, str]:
    """{code: a file that cites it}, without the page itself."""
    known = frozenset(rule.code for rule in rules())
    page = str(PAGE.relative_to(ROOT))
    return {code: path for path, text in texts().items() if path != page for code in codes_in(text, known)}


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for path, text in texts().items()
        for match in pattern.finditer(text)
    ]


def test_codes_are_found_as_people_write_them() -> None:
    known = frozenset(("R61", "rule 2"))
    cited = codes_in("(R5, A-21: D8.10.) R60-R62, A-20..A-22; Rules 1 to 3, 7 and 9", known)
    assert sorted(cited) == [
        "A-20", "A-20", "A-21", "A-22", "D8.10", "R5", "R60", "R60", "R61", "R62",
        "rule 1", "rule 2", "rule 3", "rule 7", "rule 9",
    ]  # fmt: skip
    assert not list(codes_in("KIP-966 a.B-9_ noqa: B023 xR5 R5x 0..N-1 CRC32 rules 2.6"))


def test_each_code_has_one_line() -> None:
    assert len(rules()) > 250
    assert [code for code, count in Counter(rule.code for rule in rules()).items() if count > 1] == []


def test_every_code_that_is_cited_has_a_line() -> None:
    known = {rule.code for rule in rules()}
    assert {code: path for code, path in citations().items() if code not in known} == {}


def test_every_line_is_cited() -> None:
    assert [rule.code for rule in rules() if rule.code not in citations()] == []


def test_no_two_codes_differ_by_a_dash() -> None:
    bare = Counter(rule.code.replace("-", "") for rule in rules())
    assert [code for code, count in bare.items() if count > 1] == []


def test_every_rule_has_a_home() -> None:
    lost = []
    for rule in rules():
        path, _, name = rule.home.partition(": ")
        home = ROOT / path
        if not home.is_file() or (name and f"\nclass {name}" not in home.read_text(encoding="utf-8")):
            lost.append(f"{rule.code}: {rule.home}")
    assert not lost


def test_every_rule_is_a_sentence() -> None:
    assert [rule.code for rule in rules() if not re.fullmatch(r"[A-Z].*\.", rule.words)] == []


def test_sections_are_those_of_texts_that_a_reader_can_find() -> None:
    assert lines_with(_SECTION) == []
    assert lines_with(_NAMELESS) == []


def test_every_page_that_is_named_is_here() -> None:
    lost = []
    for path, text in texts().items():
        lines = [line for line in text.splitlines() if ".md" in line]
        for name in set(_PAGE_NAME.findall("\n".join(lines))):
            folders = (ROOT, ROOT / "docs", (ROOT / path).parent)
            if name not in WRITTEN and not any((folder / name).is_file() for folder in folders):
                lost.append(f"{path}: {name}")
    assert not lost
