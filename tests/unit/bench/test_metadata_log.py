"""What a node has on its disk is looked at while it works."""

from pathlib import Path

import pytest

from holdfast.bench.metadata_log import _Node
from holdfast.raft.core.config import RaftConfig
from holdfast.runtime.memory.machine import memory_runtime


def test_a_file_that_goes_while_the_disk_is_looked_at_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, _ = memory_runtime()
    node = _Node(runtime, RaftConfig(1, "bench", {}, str(tmp_path), True), lambda: None)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "there").write_bytes(b"12345")
    (tmp_path / "log" / "gone").symlink_to("nowhere")
    monkeypatch.setattr(Path, "is_file", lambda path: path.name != "log")
    assert (node.disk_bytes(), node.disk_max) == (5, 5)
