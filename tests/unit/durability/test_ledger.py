"""What of a ledger can be seen without Spark: the topics that it is about, and where a send is written."""

import gzip
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.client.core.history import RowWriter
from holdfast.durability import ledger
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


def test_of_many_files_little_is_looked_at_for_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_HEADS_BYTES", 4_000)
    monkeypatch.setattr(ledger, "_HEAD_BYTES_MIN", 300)
    rows, files = RowWriter("run", "p"), []
    for number in range(10):
        path = tmp_path / f"{number}.jsonl"
        path.write_text("".join(rows.invoke(n, f"t{n}", 0, 7, -1, 1) for n in range(9)))
        files.append(str(path))
    assert topics_named(files[:1]) == {f"t{n}" for n in range(9)}
    assert topics_named(files) == {f"t{n}" for n in range(400 // len(rows.invoke(0, "t0", 0, 7, -1, 1)))}
