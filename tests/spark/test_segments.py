"""`format("holdfast.segments")` over what the broker's own code has written: compacted, merged segments."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.memory.disk import MemoryDisk
from tests.unit.storage.cleaning import FOLDER, append, clean, open_log, records, updates

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(400)]


async def test_merged_segments_are_read_like_any_others(spark: Any, tmp_path: Path) -> None:
    """Batches that lost all their records are there, and none of them is damage."""
    disk = MemoryDisk()
    log = await open_log(disk)
    for epoch in range(3):
        await append(log, updates(epoch * 40, 40), epoch)
    place = tmp_path / "t-0"
    place.mkdir()
    before = [name for name in await disk.listdir(FOLDER) if name.endswith(".log")]
    for _ in range(2):
        log.cleaning.clean_offset = 0
        await clean(log)
    names = [name for name in await disk.listdir(FOLDER) if name.endswith(".log")]
    assert len(names) < len(before) // 2, "compaction has merged them"
    for name in await disk.listdir(FOLDER):
        file = await disk.open(f"{FOLDER}/{name}", create=False)
        (place / name).write_bytes(file.read_at(0, file.size))
        await file.close()

    read = spark.read.format("holdfast.segments").option("topics", "t")
    rows = read.load(f"1={tmp_path}").orderBy("offset").collect()
    assert [(row.offset, row.key, row.value) for row in rows] == [
        (one.offset, one.key, one.value) for one in records(log)
    ]
    assert {row.leader_epoch for row in rows} <= {0, 1, 2}
    batches = read.option("rows", "batches").load(f"1={tmp_path}").orderBy("base_offset").collect()
    assert all(row.crc_ok and not row.damaged and row.problem is None for row in batches)
    assert any(row.records == 0 for row in batches)
    ends = [row.last_offset + 1 for row in batches]
    assert [row.base_offset for row in batches] == [0, *ends[:-1]]
    assert ends[-1] == log.log_end_offset
    await log.close(flush=True)
