"""What of a ledger can be seen without Spark: the topics that it is about, and where a send is written."""

import gzip
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.history import RowWriter
from holdfast.durability.ledger import line_of, topics_named

LINE = RowWriter("run", "p").invoke(7, "t", 0, 1, -1, 1)


def test_topics_and_places_of_sends_are_found_in_plain_and_packed_files(tmp_path: Path) -> None:
    plain, packed, broken = (str(tmp_path / name) for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.gz"))
    Path(plain).write_text("no line\n" + LINE)
    Path(packed).write_bytes(gzip.compress(LINE.replace('"t"', '"u"').replace(":", ": ").encode()))
    Path(broken).write_bytes(b"no gzip")
    assert topics_named([plain, packed, broken]) == {"t", "u"}
    assert line_of([plain, packed], "run", "p", 7, "t") == f"{plain}, line 2"
    assert line_of([plain, packed], "run", "p", 7, "u") == f"{packed}, line 1"
    assert line_of([plain], "run", "p", 8, "t") == plain
