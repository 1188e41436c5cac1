"""What a topic was before is asked when something of it is missing."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.compacted_once import with_compaction
from holdfast.durability.rules import SHOWN
from holdfast.durability.verdict import SAMPLES_MAX, Verdict

LOST = Verdict(counts={"lost": 1}, samples={}, facts={})


class Found(NamedTuple):
    """What was found of a topic in one class."""

    topic: str
    name: str
    found: int
    holes: int


class Spark:
    """Tells of what was found, without a hint one lost record, and of other violations (class, topic)."""

    def __init__(self, *found: Found, others: Sequence[tuple[str, str]] = ()) -> None:
        self._found = found or (Found("t", "lost", 1, 1),)
        self._rows = [*((row.name, row.topic) for row in self._found), *others]

    def sql(self, query: str) -> Any:
        if "is_hole" in query:
            return SimpleNamespace(collect=lambda: self._found)
        rows = [dict.fromkeys(SHOWN) | {"topic": topic, "class": name} for name, topic in self._rows]
        return SimpleNamespace(collect=lambda: rows)

    def table(self, name: str) -> Any:
        """View violations, of which a part takes its place."""

        def where(condition: str) -> Any:
            left = [
                (name, topic)
                for name, topic in self._rows
                if f"topic = '{topic}' AND class = '{name}'" not in condition
            ]
            kept = SimpleNamespace(createOrReplaceTempView=lambda _: setattr(self, "_rows", left))
            return SimpleNamespace(localCheckpoint=lambda: kept)

        return SimpleNamespace(where=where)


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
    spark = Spark(*found, others=[(name, "t") for name in others])
    judged = with_compaction(spark, verdict, {}, {}, lambda topic: None)
    assert (judged.exit_code, {name: count for name, count in judged.counts.items() if count}) == (code, left)
    reasons = [*judged.inconclusive, *judged.doubts]
    assert [reason.split(":")[0] for reason in reasons] == ([] if left == counts and code == 4 else ["t"])
    if not judged.inconclusive:
        assert {name for name, rows in judged.samples.items() if rows} == left.keys()


def test_what_is_left_is_shown_when_all_samples_were_of_what_compaction_did() -> None:
    spark = Spark(Found("t", "lost", 20, 20), Found("u", "lost", 1, 0))
    verdict = Verdict(counts={"lost": 21}, samples=samples(*[("lost", "t")] * SAMPLES_MAX), facts={})
    judged = with_compaction(spark, verdict, {}, {}, lambda topic: None)
    assert [row["topic"] for row in judged.samples["lost"]] == ["u"]
    assert spark._rows == [("lost", "u")], "stories and reports read the view behind the verdict"


def test_a_log_dir_that_is_gone_hides_no_loss(tmp_path: Path) -> None:
    assert with_compaction(Spark(), LOST, {1: str(tmp_path / "gone")}, {}, lambda topic: False) == LOST


@pytest.mark.parametrize(
    ("metadata", "code"),
    [(None, 6), ("topic_id: now", 6), ("topic_id: earlier", 4)],
    ids=["of which topic it is, is not known", "of this topic", "of an earlier one"],
)
def test_another_log_dir_tells_of_compaction_all_the_same(
    tmp_path: Path, metadata: str | None, code: int
) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "cleaner-offset-checkpoint").write_text("")
    if metadata is not None:
        (tmp_path / "t-0" / "partition.metadata").write_text(f"version: 0\n{metadata}\n")
    dirs = {1: f"{tmp_path / 'gone'},{tmp_path}"}
    assert with_compaction(Spark(), LOST, dirs, {"t": "now"}, lambda topic: False).exit_code == code
