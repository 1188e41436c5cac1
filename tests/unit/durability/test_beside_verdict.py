"""What is said beside a verdict, without Spark."""

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.beside_verdict import with_unnamed_topics
from holdfast.durability.verdict import Verdict


def test_records_are_lost_for_sure_only_of_the_topic_that_was_sent_to() -> None:
    """Without topic ids another topic of the same name cannot be told."""
    rows = {"lost": [{"topic": "a"}, {"topic": "b"}, {"topic": "b"}], "moved": [{"topic": "c"}]}
    verdict = Verdict(counts={"lost": 3, "moved": 1}, samples=rows, facts={})
    judged = with_unnamed_topics(verdict, {"a": ("id",)})
    (note,) = judged.notes
    assert (judged.exit_code, note.startswith("no line about b has a topic id")) == (4, True)
    assert with_unnamed_topics(verdict, {"a": ("id",), "b": ("id",)}) == verdict
