"""Which records compaction keeps, by Kafka's rules, and what becomes of their batches."""

from collections.abc import Sequence

import pytest

from holdfast.protocol.cleaned_batch import without_records
from holdfast.protocol.record_batch import (
    DELETE_HORIZON,
    BatchHeader,
    Buffer,
    Record,
    check_batch,
    decode_records,
    encode_batch,
    with_header,
)
from holdfast.storage.core.compaction import ENTRY_BYTES, Compactor, KeyMap

WALL_MS, RETENTION_MS = 50_000, 1_000
Pair = tuple[str | None, str | None]


def batch(base_offset: int, *pairs: Pair, epoch: int = 0, producer_id: int = -1, time_ms: int = 9) -> bytes:
    """(key, value) of each record."""
    records = [
        Record(base_offset + n, time_ms, None if k is None else k.encode(), None if v is None else v.encode())
        for n, (k, v) in enumerate(pairs)
    ]
    return encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_offset if producer_id >= 0 else -1,
    )


def mapped(batches: Sequence[bytes], memory_bytes: int = 1 << 20, start_offset: int = 0) -> KeyMap:
    keys = KeyMap(memory_bytes, start_offset)
    for one in batches:
        if not keys.take(one, check_batch(one)):
            break
    return keys


def compacted(
    batches: Sequence[bytes],
    keys: KeyMap | None = None,
    remembered: frozenset[tuple[int, int]] = frozenset(),
    wall_ms: int = WALL_MS,
) -> tuple[list[bytes], Compactor]:
    keys = mapped(batches) if keys is None else keys
    compactor = Compactor(keys, remembered, wall_ms, RETENTION_MS)
    out: list[Buffer] = []
    for one in batches:
        out += compactor.take(one, check_batch(one))
    return [bytes(one) for one in (*out, *compactor.end())], compactor


def shape(batches: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """(first offset, last offset, records) of each batch."""
    headers = [check_batch(one) for one in batches]
    return [(one.base_offset, one.last_offset, one.record_count) for one in headers]


def values(batches: Sequence[bytes]) -> dict[int, Pair]:
    return {
        one.offset: (
            None if one.key is None else one.key.decode(),
            None if one.value is None else one.value.decode(),
        )
        for batch in batches
        for one in decode_records(batch)
    }


@pytest.mark.parametrize(
    ("batches", "left"),
    [
        ([batch(0, ("a", "1"), ("b", "2"), ("a", "3"))], {1: ("b", "2"), 2: ("a", "3")}),
        ([batch(0, ("a", "1")), batch(1, ("a", "2"))], {1: ("a", "2")}),
        ([batch(0, ("a", "1"), (None, "x"))], {0: ("a", "1")}),
        ([batch(0, ("a", "1"), ("", "x"), ("", "y"))], {0: ("a", "1"), 2: ("", "y")}),
        ([batch(0, ("k" * 100, "1"), ("k" * 101, "2"))], {0: ("k" * 100, "1"), 1: ("k" * 101, "2")}),
        ([batch(0, ("k" * 100, "1"), ("k" * 100, "2"))], {1: ("k" * 100, "2")}),
        ([batch(0, ("a", "1"), ("a", None))], {1: ("a", None)}),
        ([batch(0, ("a", None), ("a", "1"))], {1: ("a", "1")}),
    ],
)
def test_the_last_record_of_each_key_is_left(batches: list[bytes], left: dict[int, Pair]) -> None:
    assert values(compacted(batches)[0]) == left


def test_batches_that_change_nothing_are_the_same_bytes() -> None:
    batches = [batch(0, ("a", "1"), ("b", "2")), batch(2, ("c", "1"), producer_id=5)]
    out, compactor = compacted(batches)
    assert out == batches
    assert not compactor.has_changed
    assert compactor.counts.read_bytes == compactor.counts.written_bytes == sum(map(len, batches))


def test_emptied_batches_are_joined_within_an_epoch() -> None:
    old = [batch(n, ("a", str(n)), epoch=n // 3, time_ms=100 - n) for n in range(6)]
    out, compactor = compacted([*old, batch(6, ("b", "x"), epoch=1), batch(7, ("a", "last"), epoch=1)])
    assert shape(out) == [(0, 2, 0), (3, 5, 0), (6, 6, 1), (7, 7, 1)]
    assert [check_batch(one).leader_epoch for one in out] == [0, 1, 1, 1]
    assert [check_batch(one).max_timestamp for one in out[:2]] == [100, 97]
    assert compactor.has_changed
    assert compactor.counts.removed_records == 6


def test_a_run_that_was_joined_before_is_the_same_and_grows() -> None:
    run = compacted([batch(n, ("a", str(n))) for n in range(4)] + [batch(4, ("a", "9"))])[0]
    assert shape(run) == [(0, 3, 0), (4, 4, 1)]
    again, compactor = compacted(run)
    assert again == run
    assert not compactor.has_changed
    grown, _ = compacted([*run, batch(5, ("a", "10"))])
    assert shape(grown) == [(0, 4, 0), (5, 5, 1)]


def test_headers_of_remembered_batches_stay_alone() -> None:
    batches = [batch(n, ("a", str(n)), producer_id=7) for n in range(4)] + [batch(4, ("a", "x"))]
    out, _ = compacted(batches, remembered=frozenset({(7, 2), (7, 3)}))
    assert shape(out) == [(0, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 1)]
    headers = [check_batch(one) for one in out]
    assert [one.producer_id for one in headers] == [-1, 7, 7, -1]
    assert [one.base_sequence for one in headers[1:3]] == [2, 3]
    forgotten, _ = compacted(out)
    assert shape(forgotten) == [(0, 3, 0), (4, 4, 1)]


def test_a_run_is_no_longer_than_a_batch_may_be() -> None:
    header = check_batch(without_records(check_batch(batch(0, ("a", "1")))))
    big = header._replace(last_offset_delta=(1 << 31) - 2)
    runs = [with_header(big, b""), with_header(big._replace(base_offset=big.next_offset), b"")]
    keys = mapped([*runs, batch(2 * big.next_offset, ("a", "1"))])
    assert shape(compacted(runs, keys)[0]) == shape(runs)


# --- tombstones -----------------------------------------------------------------------------------------


def test_a_tombstone_is_left_until_its_time_is_over() -> None:
    batches = [batch(0, ("a", "1"), ("b", "1")), batch(2, ("a", None), ("c", "1"))]
    first, _ = compacted(batches)
    assert values(first) == {1: ("b", "1"), 2: ("a", None), 3: ("c", "1")}
    header: BatchHeader = check_batch(first[1])
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == WALL_MS + RETENTION_MS
    assert header.max_timestamp == 9
    assert [one.timestamp_ms for one in decode_records(first[1])] == [9, 9]
    same, compactor = compacted(first, wall_ms=WALL_MS + RETENTION_MS - 1)
    assert same == first
    assert not compactor.has_changed
    gone, _ = compacted(first, wall_ms=WALL_MS + RETENTION_MS)
    assert values(gone) == {1: ("b", "1"), 3: ("c", "1")}


def test_a_tombstone_may_be_kept_for_ever() -> None:
    batches = [batch(0, ("a", None))]
    compactor = Compactor(mapped(batches), frozenset(), WALL_MS, (1 << 63) - 1)
    (kept,) = compactor.take(batches[0], check_batch(batches[0]))
    assert check_batch(kept).base_timestamp == (1 << 63) - 1
    assert [one.timestamp_ms for one in decode_records(kept)] == [9]


def test_a_batch_of_old_tombstones_is_emptied() -> None:
    first, _ = compacted([batch(0, ("a", None))])
    gone, _ = compacted(first, wall_ms=WALL_MS + RETENTION_MS)
    assert shape(gone) == [(0, 0, 0)]


# --- the map --------------------------------------------------------------------------------------------


def test_a_full_map_ends_at_a_batch_and_what_is_behind_it_stays() -> None:
    batches = [
        batch(0, ("a", "1"), ("b", "1")),
        batch(2, ("a", "2")),
        batch(3, ("c", "1")),
        batch(4, ("a", "3")),
    ]
    keys = mapped(batches, memory_bytes=3 * ENTRY_BYTES)
    assert (keys.end_offset, keys.is_full, len(keys)) == (4, True, 3)
    assert values(compacted(batches, keys)[0]) == {1: ("b", "1"), 2: ("a", "2"), 3: ("c", "1"), 4: ("a", "3")}


def test_the_next_map_goes_on_behind_the_first() -> None:
    batches = [batch(n, (f"k{n}", "1")) for n in range(6)]
    ends, at = [], 0
    while at < 6:
        at = mapped(batches, memory_bytes=2 * ENTRY_BYTES, start_offset=at).end_offset
        ends.append(at)
    assert ends == [2, 4, 6]


def test_a_batch_of_more_keys_than_there_is_room_for_is_taken_alone() -> None:
    keys = mapped([batch(0, ("a", "1"), ("b", "1")), batch(2, ("c", "1"))], memory_bytes=1)
    assert (keys.end_offset, len(keys)) == (2, 2)
