"""Which ranges of a task are asked for at once."""

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.range_reader import together
from holdfast.durability.read_options import OffsetRange


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(0, 0, 9_000), (1, 0, 1_000)], [2]),
        ([(0, 0, 9_000), (1, 0, 1_001)], [1, 1]),
        ([(0, 0, 50_000), (1, 0, 1), (2, 7, 8)], [1, 2]),
        ([(0, 0, 10), (1, 0, 10), (0, 10, 20), (1, 10, 20)], [2, 2]),
    ],
    ids=["none", "small", "more than is asked for at once", "a large one alone", "a partition twice"],
)
def test_small_ranges_of_different_partitions_are_asked_for_at_once(
    ranges: list[tuple[int, int, int]], expected: list[int]
) -> None:
    wanted = [OffsetRange("t", *item) for item in ranges]
    found = together(wanted)
    assert [len(few) for few in found] == expected
    assert [item for few in found for item in few] == wanted
