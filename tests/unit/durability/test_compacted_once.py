"""What a topic was before is asked when something of it is missing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.compacted_once import with_compaction
from holdfast.durability.verdict import Verdict

LOST = Verdict(counts={"lost": 1}, samples={}, facts={})


class Spark:
    """Tells of one topic, which lost a record."""

    def sql(self, query: str) -> Any:
        row = SimpleNamespace(topic="t", found=1, suspect=1, lost=1, holes=1)
        return SimpleNamespace(collect=lambda: [row])


def test_a_log_dir_that_is_gone_hides_no_loss(tmp_path: Path) -> None:
    assert with_compaction(Spark(), LOST, {1: str(tmp_path / "gone")}, lambda topic: False) == LOST


def test_another_log_dir_tells_of_compaction_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "cleaner-offset-checkpoint").write_text("")
    found = with_compaction(Spark(), LOST, {1: f"{tmp_path / 'gone'},{tmp_path}"}, lambda topic: False)
    assert found.exit_code == 6
