"""Kafka's murmur2, so that other clients put the same key into the same partition."""

import pytest

from holdfast.client.core.partitioner import murmur2, partition_of_key


@pytest.mark.parametrize(
    ("data", "expected"),
    # UtilsTest.testMurmur2 of Apache Kafka
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_kafkas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_partitions_are_within_the_count() -> None:
    assert {partition_of_key(b"%d" % i, 5) for i in range(100)} == set(range(5))
