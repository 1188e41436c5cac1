"""What a topic was before is asked when something of it is missing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.compacted_once import with_compaction
from holdfast.durability.verdict import Verdict

LOST = Verdict(counts={"lost": 1}, samples={}, facts={})


class Found(NamedTuple):
    """What was found of a topic in one class."""

    topic: str
    name: str
    found: int
    holes: int


class Spark:
    """Tells of what was found, without a hint one lost record."""

    def __init__(self, *found: Found) -> None:
        self._found = found or (Found("t", "lost", 1, 1),)

    def sql(self, query: str) -> Any:
        return SimpleNamespace(collect=lambda: self._found)


def samples(*places: tuple[str, str]) -> dict[str, list[dict[str, str]]]:
    """Class -> rows, of (class, topic)."""
    made: dict[str, list[dict[str, str]]] = {}
    for name, topic in places:
        made.setdefault(name, []).append({"topic": topic})
    return made


@pytest.mark.parametrize(
    ("found", "others", "code", "left"),
    [
        ([Found("t", "lost", 2, 2)], {}, 6, {"lost": 2}),
        ([Found("t", "lost", 2, 2)], {"unexpected": 1}, 5, {"unexpected": 1}),
        ([Found("t", "lost", 2, 1)], {"unexpected": 1}, 4, {"lost": 2, "unexpected": 1}),
        ([Found("t", "lost", 2, 2), Found("u", "lost", 1, 0)], {}, 4, {"lost": 1}),
        ([Found("t", "lost", 2, 2), Found("u", "lost", 1, 0)], {"moved": 3}, 4, {"lost": 1, "moved": 3}),
        ([Found("t", "polled_and_gone", 1, 1)], {"moved": 3}, 5, {"moved": 3}),
    ],
)
def test_only_what_compaction_may_have_done_is_in_doubt(
    found: list[Found], others: dict[str, int], code: int, left: dict[str, int]
) -> None:
    counts = dict(others)
    for row in found:
        counts[row.name] = counts.get(row.name, 0) + row.found
    places = [(row.name, row.topic) for row in found] + [(name, "t") for name in others]
    verdict = Verdict(counts=counts, samples=samples(*places), facts={})
    judged = with_compaction(Spark(*found), verdict, {}, lambda topic: None)
    assert (judged.exit_code, {name: count for name, count in judged.counts.items() if count}) == (code, left)
    reasons = [*judged.inconclusive, *judged.doubts]
    assert [reason.split(":")[0] for reason in reasons] == ([] if left == counts and code == 4 else ["t"])
    if not judged.inconclusive:
        assert {name for name, rows in judged.samples.items() if rows} == left.keys()


def test_a_log_dir_that_is_gone_hides_no_loss(tmp_path: Path) -> None:
    assert with_compaction(Spark(), LOST, {1: str(tmp_path / "gone")}, lambda topic: False) == LOST


def test_another_log_dir_tells_of_compaction_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "cleaner-offset-checkpoint").write_text("")
    found = with_compaction(Spark(), LOST, {1: f"{tmp_path / 'gone'},{tmp_path}"}, lambda topic: False)
    assert found.exit_code == 6
