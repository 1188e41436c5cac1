"""Replicas of a compacted partition: the same when each key has the same last record, however compacted."""

from collections.abc import Sequence

import pytest

from holdfast.client.core.key_comparison import KeyComparison
from holdfast.client.core.replica_comparison import FindingKind
from holdfast.protocol.record_batch import BatchHeader, Record, encode_batch, iter_batches
from holdfast.storage.core.compaction import Compactor, KeyMap

Row = tuple[int, str, str | None]
DATA: list[Row] = [(n, f"k{n % 3}", f"v{n}") for n in range(9)] + [(9, "gone", "x"), (10, "gone", None)]
END = 11


def batches(rows: Sequence[Row]) -> bytes:
    """A batch for each record."""
    return b"".join(
        encode_batch(
            [Record(offset, 5, key.encode(), None if value is None else value.encode())],
            base_offset=offset,
            leader_epoch=0,
        )
        for offset, key, value in rows
    )


def compacted(rows: Sequence[Row], end: int, wall_ms: int = 1_000) -> bytes:
    """With what is below `end` compacted; tombstones stay until a second time, at 2,000."""
    data = batches(rows)
    for at_ms in (1_000, wall_ms):
        keys = KeyMap(1 << 20)
        for header, one in iter_batches(data):
            if header.next_offset <= end:
                keys.take(one, header)
        compactor = Compactor(keys, frozenset(), at_ms, 500)
        out = [bytes(one) for header, batch in iter_batches(data) for one in compactor.take(batch, header)]
        data = b"".join([*out, *map(bytes, compactor.end())])
    return data


def compare(
    replicas: dict[int, bytes], high_watermarks: dict[int, int] | None = None, first: int = END
) -> KeyComparison:
    """Replicas answer whole; high watermarks are `first` at the first answer, and these from then on."""
    known = high_watermarks or dict.fromkeys(replicas, first)
    comparison = KeyComparison(sorted(replicas), min(replicas))
    for broker_id in replicas:
        comparison.took(broker_id, first, [])
    for _ in range(5):
        for broker_id, offset in comparison.wanted().items():
            rows: list[tuple[BatchHeader, memoryview]] = [
                (header, view)
                for header, view in iter_batches(replicas[broker_id])
                if header.next_offset > offset
            ]
            comparison.took(broker_id, known[broker_id], rows)
    return comparison


@pytest.mark.parametrize("end", [0, 4, 8, 10, END])
@pytest.mark.parametrize("wall_ms", [1_000, 2_000])
def test_replicas_that_are_compacted_differently_are_the_same(end: int, wall_ms: int) -> None:
    replicas = {1: batches(DATA), 2: compacted(DATA, end), 3: compacted(DATA, END, wall_ms)}
    comparison = compare(replicas)
    assert comparison.findings == []
    assert not comparison.wanted()
    assert comparison.compared_offset == END


@pytest.mark.parametrize(
    "odd",
    [
        [row for row in DATA if row[1] != "k1"],
        [row for row in DATA if row[0] != 7],
        [(n, k, "other" if n == 7 else v) for n, k, v in DATA],
        [row for row in DATA if row[0] != 10],
    ],
    ids=["a key is gone", "its last record is gone", "another value", "the tombstone is gone"],
)
def test_the_replica_with_another_last_record_is_named(odd: list[Row]) -> None:
    rest: list[Row] = [(n, "filler", "x") for n in range(11, 13)]
    replicas = {1: batches(DATA + rest), 2: batches(odd + rest), 3: compacted(DATA + rest, END)}
    comparison = compare(replicas, first=13)
    assert [(one.broker_id, one.kind) for one in comparison.findings] == [(2, FindingKind.DIFFERS)]
    assert "brokers 1, 3" in comparison.findings[0].reason


def test_a_replica_that_goes_on_meanwhile_and_removes_what_is_superseded_is_not_odd() -> None:
    more: list[Row] = [*DATA, (11, "k1", "new"), (12, "k9", "x")]
    replicas = {1: batches(more), 2: batches(more), 3: compacted(more, 12)}
    comparison = compare(replicas, dict.fromkeys(replicas, 13))
    assert comparison.findings == []
    assert comparison.compared_offset == END
    lacks = [row for row in more if row[1] != "k0"]
    replicas[3] = compacted(lacks, 12)
    comparison = compare(replicas, dict.fromkeys(replicas, 13))
    assert [one.broker_id for one in comparison.findings] == [3]


def test_what_a_replica_keeps_no_more_is_left_out() -> None:
    comparison = KeyComparison([1, 2], 1)
    for broker_id in (1, 2):
        comparison.took(broker_id, END, [])
    comparison.begins_at(7)
    for broker_id, rows in ((1, DATA), (2, DATA[7:])):
        comparison.took(broker_id, END, list(iter_batches(batches(rows))))
    assert comparison.findings == []
    assert comparison.start_offset == 7
    assert not comparison.wanted()


def test_a_replica_that_is_behind_or_unreadable_is_left_out_and_the_others_go_on() -> None:
    comparison = KeyComparison([1, 2, 3], 1)
    for broker_id in (1, 2, 3):
        comparison.took(broker_id, END, [])
    comparison.give_up(3, FindingKind.BEHIND, "why")
    damaged = bytearray(batches(DATA))
    damaged[61] = 0x7F
    assert comparison.took(2, END, list(iter_batches(bytes(damaged))))
    comparison.took(1, END, list(iter_batches(batches(DATA))))
    assert [(one.broker_id, one.kind) for one in comparison.findings] == [
        (3, FindingKind.BEHIND),
        (2, FindingKind.UNREADABLE),
    ]
    assert not comparison.wanted()


def test_replicas_of_an_empty_partition_are_the_same() -> None:
    comparison = compare({1: b"", 2: b""}, first=0)
    assert (comparison.findings, comparison.wanted()) == ([], {})
