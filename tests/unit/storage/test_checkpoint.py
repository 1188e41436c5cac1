"""Small files are old or new, and unreadable ones count as none (D5, R87)."""

import pytest

from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.disk import MemoryDisk
from holdfast.storage import checkpoint
from tests.unit.storage.crashing_disk import CrashingDisk

PATH = "/d/offsets"
OFFSETS = {("a", 0): 5, ("a", 10): 0, ("b-c", 2): 1 << 40}


async def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    await disk.make_folder("/d")
    return disk


async def test_offsets_are_stored_in_kafkas_lines() -> None:
    disk = await new_disk()
    await checkpoint.write_offsets(disk, PATH, OFFSETS)
    assert (
        await checkpoint.read_text(disk, PATH)
        == "0\n3\na 0 5\na 10 0\nb-c 2 1099511627776\ncrc32c 1b794941\n"
    )
    assert await checkpoint.read_offsets(disk, PATH) == OFFSETS


@pytest.mark.parametrize(
    "text",
    ["", "0\n", "0\n2\na 0 5\n", "1\n1\na 0 5\n", "0\n1\na 0 5", "0\n1\na 0\n", "0\n1\na 0 x\n", "\0\0\0\0"],
)
async def test_a_damaged_checkpoint_claims_nothing(text: str) -> None:
    disk = await new_disk()
    await checkpoint.write_atomically(disk, PATH, text)
    assert await checkpoint.read_offsets(disk, PATH) == {}


async def test_a_missing_checkpoint_claims_nothing() -> None:
    assert await checkpoint.read_offsets(await new_disk(), PATH) == {}


async def test_a_crash_at_any_step_leaves_the_old_or_the_new_text() -> None:
    seen = set()
    for crash_at in range(20):
        disk = await new_disk()
        await checkpoint.write_atomically(disk, PATH, "old")
        crashing = CrashingDisk(disk, crash_at)
        try:
            await checkpoint.write_atomically(crashing, PATH, "new")
        except DiskError:
            seen.add(await checkpoint.read_text(disk, PATH))
        else:
            disk.power_loss()
            assert await checkpoint.read_text(disk, PATH) == "new"
        # A temporary that was left over is no obstacle.
        await checkpoint.write_atomically(disk, PATH, "newer")
        assert await checkpoint.read_text(disk, PATH) == "newer"
    assert seen == {"old"}


async def test_many_offsets_are_encoded_in_turns_and_read_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "ROWS_PER_TURN", 2)
    disk = await new_disk()
    offsets = {("t", index): 10 * index for index in range(5)}
    await checkpoint.write_offsets(disk, PATH, offsets)
    assert await checkpoint.read_offsets(disk, PATH) == offsets
