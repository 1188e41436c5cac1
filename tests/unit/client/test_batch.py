"""Batches: Kafka's bytes, limits, and a new sequence for what no log holds (D4)."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from holdfast.client.core import batch as batch_module
from holdfast.client.core.batch import Batch, Compression, ProducerIdAndEpoch, check_record
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.record_batch import check_batch, decode_records


def batch_of(*values: bytes, limit: int = 1_000, compression: Compression = Compression.NONE) -> Batch:
    batch = Batch("t", 3, 1, limit, compression, 10, 20)
    for value in values:
        assert batch.append(1_000, b"k", value, [("h", b"1")])
    return batch


def test_the_plain_codec_of_protocol_reads_what_the_c_codec_wrote() -> None:
    batch = batch_of(b"a", b"bb", compression=Compression.GZIP)
    batch.seal(ProducerIdAndEpoch(9, 2), 40)
    assert batch.payload is not None
    header = check_batch(batch.payload)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    records = decode_records(batch.payload)
    assert [(r.offset, r.key, r.value, r.headers) for r in records] == [
        (0, b"k", b"a", (("h", b"1"),)),
        (1, b"k", b"bb", (("h", b"1"),)),
    ]


Sent = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([(5_000, None, b"v", [])], id="one record"),
        pytest.param([(0, None, None, [])], id="a tombstone from 1970"),
        pytest.param([(5, b"k", b"v", []), (9, None, b"w", []), (7, b"", None, [])], id="late ones"),
        pytest.param([(5, b"k", b"v", [("h", None)]), (2, None, bytes(300), [])], id="an earlier one"),
        pytest.param([(9 + index, None, bytes(1_000), []) for index in range(200)], id="many"),
    ],
)
@pytest.mark.parametrize("gives_copies", [False, True])
def test_the_bytes_are_those_of_the_codec_with_its_own_header_and_crc(
    records: list[Sent], gives_copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = DefaultRecordBatchBuilder(2, 0, 0, 9, 3, 40, 1 << 20)
    if gives_copies:
        monkeypatch.setattr(batch_module, "DefaultRecordBatchBuilder", _CopyingBuilder)
    batch = Batch("t", 3, 1, 1 << 20, Compression.NONE, 10, 20)
    for index, record in enumerate(records):
        codec.append(index, *record)
        assert batch.append(*record)
    batch.seal(ProducerIdAndEpoch(9, 3), 40)
    assert batch.payload == codec.build()


class _CopyingBuilder:
    """A codec that keeps its buffer to itself."""

    def __init__(self, *given: Any) -> None:
        self._builder = DefaultRecordBatchBuilder(*given)
        self.append, self.set_producer_state = self._builder.append, self._builder.set_producer_state

    def build(self) -> bytearray:
        return bytearray(self._builder.build())


def test_a_record_that_does_not_fit_is_not_taken_but_the_first_always_is() -> None:
    batch = batch_of(bytes(5_000), limit=1_000)
    assert batch.append(1, None, b"x", ()) == 0
    assert batch.count == 1


def test_a_new_sequence_changes_identity_and_crc_and_nothing_else() -> None:
    batch = batch_of(b"a")
    batch.seal(ProducerIdAndEpoch(9, 2), 40)
    before = bytes(batch.payload or b"")
    batch.seal(ProducerIdAndEpoch(9, 3), 0)
    header = check_batch(batch.payload or b"")
    assert (header.producer_epoch, header.base_sequence) == (3, 0)
    assert decode_records(batch.payload or b"") == decode_records(before)


def test_size_is_that_of_the_encoded_bytes() -> None:
    batch = batch_of(b"a" * 100, b"b" * 100)
    size = batch.size_bytes
    batch.seal(ProducerIdAndEpoch(1, 0), 0)
    assert len(batch.payload or b"") == size


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_halves_have_the_records_in_order_with_their_tags_and_who_waits_for_them(
    compression: Compression,
) -> None:
    whole = batch_of(b"a", b"b", b"c", compression=compression)
    whole.tags = [10, 11, 12]
    woken: list[str] = []
    whole.waiters = [(2, lambda: woken.append("c")), (0, lambda: woken.append("a"))]
    whole.seal(ProducerIdAndEpoch(9, 2), 40)
    records = decode_records(whole.payload or b"")
    first, second = halves = whole.split()
    assert whole.halves == halves
    found = []
    for half, sequence in ((first, 40), (second, 41)):
        half.seal(ProducerIdAndEpoch(9, 2), sequence)
        assert check_batch(half.payload or b"").compression == compression
        found += decode_records(half.payload or b"")
    assert [r._replace(offset=0) for r in found] == [r._replace(offset=0) for r in records]
    assert [(half.tags, half.serial, half.deadline_ms) for half in halves] == [
        ([10], 1, 20),
        ([11, 12], 1, 20),
    ]
    ((index, wake),) = second.waiters
    wake()
    assert (index, woken) == (1, ["c"])


def test_what_may_be_in_a_log_is_not_split() -> None:
    batch = batch_of(b"a", b"b")
    batch.seal(ProducerIdAndEpoch(9, 2), 40)
    batch.unanswered = 1
    with pytest.raises(AssertionError):
        batch.split()


def test_an_outcome_never_changes() -> None:
    batch = batch_of(b"a")
    batch.finish(DeliveryOutcome.OK, base_offset=5)
    assert batch.is_done
    with pytest.raises(AssertionError):
        batch.finish(DeliveryOutcome.FAIL)


@pytest.mark.parametrize(
    ("key", "value", "headers", "timestamp_ms", "told"),
    [
        (None, "text", (), None, "value is of type str, not bytes: encode it first"),
        (7, b"v", (), None, "key is of type int, not bytes: give bytes or None"),
        (None, memoryview(b"abcd")[::2], (), None, "memoryview with gaps"),
        (None, b"v", (), 1.5, "timestamp_ms is of type float"),
        (None, b"v", (), -1, "milliseconds since 1970"),
        (None, b"v", (), 1 << 63, "milliseconds since 1970"),
        (None, b"v", {"h": b"1"}, None, "headers are of type dict"),
        (None, b"v", [("h",)], None, "tuple of a str and bytes"),
        (None, b"v", [["h", b"1"]], None, "tuple of a str and bytes"),
        (None, b"v", [("h", "1")], None, "the value bytes or None"),
        (None, b"v", [(b"h", b"1")], None, "the name must be a str"),
        (None, b"v", [("\ud800", b"1")], None, "no UTF-8 form"),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_a_hint(
    key: Any, value: Any, headers: Any, timestamp_ms: Any, told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        check_record(key, value, headers, timestamp_ms)


@pytest.mark.parametrize("value", [None, b"", b"v", bytearray(b"v"), memoryview(b"v")])
def test_what_passes_the_check_is_encoded(value: Any) -> None:
    headers = [("h", None), ("ü", b"1")]
    size = check_record(b"key", value, headers, (1 << 63) - 1)
    assert size == len(b"key" + (value or b"") + b"h" + "ü".encode() + b"1")
    assert Batch("t", 0, 1, 1_000, Compression.NONE, 0, 0).append((1 << 63) - 1, None, value, headers) > 0
