"""What of a micro-batch of polls is none of the followed ledger, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.followed_polls import FollowedPolls


class Topics:
    """Topic t, which has got more partitions since the cluster was asked last."""

    named = ("t",)

    def __init__(self, before: int, now: int) -> None:
        self._partitions, self._now = before, now
        self.looks = 0

    def heard(self, topic_ids: object) -> None:
        pass

    def partitions_of(self, topic: str) -> int:
        return self._partitions

    def look(self) -> None:
        self._partitions = self._now
        self.looks += 1


@pytest.mark.parametrize(
    ("now", "doubts"), [(4, []), (3, ["polls: g: a poll of t-3, which has 3 partitions"])]
)
def test_a_partition_that_was_added_just_now_is_one(now: int, doubts: list[str]) -> None:
    rows = [
        SimpleNamespace(file=f, run="r", topic="t", topic_ids=[], partition=int(n)) for f, n in ("f2", "g3")
    ]
    spark: Any = SimpleNamespace(sql=lambda _: SimpleNamespace(collect=lambda: rows))
    topics: Any = Topics(2, now)
    nothing: Any = None
    polls = FollowedPolls(
        spark, 0, nothing, nothing, topics, frozenset("r"), {}, frozenset(), placed_schema=""
    )
    assert polls._wrong_topics() == doubts
    assert topics.looks == 1
