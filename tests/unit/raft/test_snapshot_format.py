"""The file of a snapshot: whole or refused (K15); and when one is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.raft.core.control_records import SnapshotHeaderRecord, VoterDirectory
from holdfast.raft.core.snapshot_format import (
    CorruptSnapshot,
    SnapshotDecoder,
    SnapshotEncoder,
    SnapshotId,
    parse_name,
)
from holdfast.raft.core.snapshot_policy import SnapshotPolicy

ID = SnapshotId(120, 7)
HEADER = SnapshotHeaderRecord(1_234, (1, 2, 3), (VoterDirectory(1, b"d" * 16),))
BATCHES = [[b"a", b"bb"], [b"c"], [b"d" * 500, b""]]


def encoded(batches: list[list[bytes]] = BATCHES) -> bytes:
    encoder = SnapshotEncoder(ID, HEADER.timestamp_ms)
    return b"".join([encoder.header(HEADER), *map(encoder.values, batches), encoder.footer()])


def decoded(content: bytes, piece_bytes: int = 64) -> tuple[SnapshotHeaderRecord, list[bytes]]:
    decoder = SnapshotDecoder(ID)
    values: list[bytes] = []
    for position in range(0, len(content), piece_bytes):
        values += decoder.feed(content[position : position + piece_bytes])
    return decoder.finish(), values


def test_names_are_kafkas_and_nothing_else_is_a_snapshot() -> None:
    assert ID.file_name == "00000000000000000120-0000000007.checkpoint"
    assert parse_name(ID.file_name) == ID
    for name in ("120-7.checkpoint", f"{ID.file_name}.tmp", "leader-epoch-checkpoint", f"x{ID.file_name}"):
        assert parse_name(name) is None


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=5), st.integers(1, 300))
def test_what_was_written_is_read_in_pieces_of_any_size(batches: list[list[bytes]], piece: int) -> None:
    header, values = decoded(encoded(batches), piece)
    assert header == HEADER
    assert values == [value for batch in batches for value in batch]


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    content = encoded()
    for size_bytes in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            decoded(content[:size_bytes])


def test_a_byte_that_has_changed_is_noticed_wherever_it_is() -> None:
    content = bytearray(encoded())
    for position in range(len(content)):
        content[position] ^= 0x10
        with pytest.raises(CorruptSnapshot):
            decoded(bytes(content))
        content[position] ^= 0x10


def test_parts_in_another_order_or_of_another_snapshot_are_refused() -> None:
    encoder = SnapshotEncoder(ID, 0)
    header, first, second, footer = (
        encoder.header(HEADER),
        encoder.values([b"a"]),
        encoder.values([b"b"]),
        encoder.footer(),
    )
    for parts in (
        (header, second, first, footer),
        (header, first, footer),
        (first, header, second, footer),
        (header, first, second, footer, first),
        (first, second, footer),
    ):
        with pytest.raises(CorruptSnapshot):
            decoded(b"".join(parts))
    with pytest.raises(CorruptSnapshot):
        SnapshotDecoder(SnapshotId(120, 8)).feed(header)


def test_a_snapshot_is_due_after_so_many_bytes() -> None:
    policy = SnapshotPolicy(100, None)
    policy.delivered(99)
    assert not policy.is_due(1 << 40)
    policy.delivered(1)
    assert policy.is_due(0)
    policy.made(0)
    assert not policy.is_due(1 << 40)


def test_a_snapshot_is_due_after_a_time_in_which_something_was_committed() -> None:
    policy = SnapshotPolicy(None, 50)
    assert not policy.is_due(1_000)
    assert not policy.is_due(1_050), "nothing is new"
    policy.delivered(1)
    assert policy.is_due(1_050)
    policy.made(1_050)
    policy.delivered(1)
    assert not policy.is_due(1_099)
    assert policy.is_due(1_100)
    policy.taken()
    policy.delivered(1)
    assert not policy.is_due(1_120)


def test_without_limits_none_is_made() -> None:
    policy = SnapshotPolicy(None, None)
    policy.delivered(1 << 40)
    assert not policy.is_due(1 << 40)
