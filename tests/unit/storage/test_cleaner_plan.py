"""Which part of a log may be compacted, and when it is due."""

import pytest

from holdfast.storage.core.cleaner_plan import Dirt, SegmentShape, dirt_of, group_sizes, is_due
from holdfast.storage.core.config import LogConfig
from holdfast.storage.core.pacer import Pacer
from holdfast.storage.core.retention import SegmentAge

WALL_MS = 1_000_000
#: ends at 10, 20, 30
CLOSED = [SegmentAge(10, 100, 100), SegmentAge(20, 300, 999_000), SegmentAge(30, 50, -1)]


@pytest.mark.parametrize(
    ("clean", "kept", "lag_ms", "dirt"),
    [
        (0, 30, 0, Dirt(0, 450, 0, 30)),
        (0, 29, 0, Dirt(0, 400, 0, 20)),
        (0, 9, 0, Dirt(0, 0, 0, 0)),
        (10, 30, 0, Dirt(100, 350, 10, 30)),
        (15, 30, 0, Dirt(100, 350, 10, 30)),
        (20, 30, 0, Dirt(400, 50, 20, 30)),
        (30, 30, 0, Dirt(450, 0, 30, 30)),
        (0, 30, 1_000, Dirt(0, 450, 0, 30)),
        (0, 30, 1_001, Dirt(0, 100, 0, 10)),
        (0, 30, 2_000_000, Dirt(0, 0, 0, 0)),
    ],
)
def test_closed_committed_old_segments_may_be_cleaned(clean: int, kept: int, lag_ms: int, dirt: Dirt) -> None:
    config = LogConfig(compacts=True, min_compaction_lag_ms=lag_ms)
    found = dirt_of(CLOSED, config, base_offset=0, clean_offset=clean, kept_offset=kept, wall_ms=WALL_MS)
    assert found == dirt


def test_a_log_without_closed_segments_has_no_dirt() -> None:
    found = dirt_of([], LogConfig(), base_offset=7, clean_offset=0, kept_offset=9, wall_ms=WALL_MS)
    assert found == Dirt(0, 0, 7, 7)
    assert found.ratio == 0


@pytest.mark.parametrize(
    ("dirt", "ratio", "max_lag_ms", "oldest_ms", "due"),
    [
        (Dirt(50, 51), 0.5, None, -1, True),
        (Dirt(50, 50), 0.5, None, -1, False),
        (Dirt(0, 1), 0.99, None, -1, True),
        (Dirt(0, 1), 1.0, None, -1, False),
        (Dirt(9, 1), 0.0, None, -1, True),
        (Dirt(9, 0), 0.0, 1, 0, False),
        (Dirt(9, 1), 0.5, 1_000, WALL_MS - 1_000, True),
        (Dirt(9, 1), 0.5, 1_000, WALL_MS - 999, False),
        (Dirt(9, 1), 0.5, 1_000, -1, False),
    ],
)
def test_a_log_is_due_when_it_is_dirty_enough_or_has_waited(
    dirt: Dirt, ratio: float, max_lag_ms: int | None, oldest_ms: int, due: bool
) -> None:
    config = LogConfig(min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms=max_lag_ms)
    assert is_due(dirt, config, oldest_ms=oldest_ms, wall_ms=WALL_MS) is due


def shapes(*sizes: int, offsets: int = 10, index_bytes: int = 0) -> list[SegmentShape]:
    """Neighbours of these sizes."""
    return [
        SegmentShape(offsets * number, offsets * (number + 1), size, index_bytes)
        for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("closed", "start", "end", "sizes"),
    [
        ([], 0, 0, []),
        (shapes(100), 0, 10, [1]),
        (shapes(60, 40), 0, 20, [2]),
        (shapes(60, 41), 0, 20, [1, 1]),
        (shapes(10, 100, 10, 10, 80, 1), 0, 60, [1, 1, 3, 1]),
        (shapes(120, 1, 1), 0, 30, [1, 2]),
        # what begins below the epochs, or ends above the map of keys, stays alone
        (shapes(1, 1, 1, 1), 1, 40, [1, 3]),
        (shapes(1, 1, 1, 1), 0, 39, [3, 1]),
        (shapes(1, 1, 1, 1), 11, 30, [1, 1, 1, 1]),
        # limits of the index, and of its offsets
        (shapes(1, 1, 1, index_bytes=500), 0, 30, [2, 1]),
        (shapes(1, 1, 1, offsets=1 << 30), 0, 3 << 30, [1, 1, 1]),
        (shapes(1, 1, 1, offsets=1 << 29), 0, 3 << 29, [3]),
    ],
)
def test_neighbours_become_one_as_long_as_a_segment_may_be(
    closed: list[SegmentShape], start: int, end: int, sizes: list[int]
) -> None:
    config = LogConfig(segment_bytes=100, index_max_bytes=1_000)
    assert group_sizes(closed, config, start, end) == sizes


def test_pauses_keep_the_rate() -> None:
    pacer = Pacer(1000)
    assert pacer.pause_ms(500, 10_000) == 500
    assert pacer.pause_ms(500, 10_000) == 1_000
    assert pacer.pause_ms(100, 20_000) == 100
