"""The second decoder agrees with the codecs that write, and stops where a segment stops being batches."""

import gzip
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cramjam
import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durability import segments
from holdfast.durability.log_dir_files import (
    high_watermarks,
    leader_epochs,
    log_start,
    node_properties,
    recovery_points,
    topic_id_of,
)
from holdfast.durability.segments import (
    ReplicaFolder,
    SegmentBatch,
    SegmentRow,
    Torn,
    Undecodable,
    Window,
    batch_at,
    batch_records,
    has_batches,
    has_replicas,
    parse_log_dirs,
    read_segment,
    replica_folders,
)
from holdfast.protocol import record_batch
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.storage.checkpoint import encode_rows


def batch_of(base_offset: int, values: list[bytes], epoch: int = 4) -> bytes:
    records = [
        Record(base_offset + index, 1_700_000_000_000 + index, b"key", value, (("h", b"x"), ("none", None)))
        for index, value in enumerate(values)
    ]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)


def only_batch(data: bytes) -> SegmentBatch:
    (found,) = read_segment(data)
    assert isinstance(found, SegmentBatch)
    return found


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300)),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 1 << 40),
)
def test_what_the_plain_codec_writes_is_read_back(
    pairs: list[tuple[bytes | None, bytes | None]], base_offset: int
) -> None:
    records = [Record(base_offset + i, 1_000 + 7 * i, key, value) for i, (key, value) in enumerate(pairs)]
    batch = only_batch(encode_batch(records, base_offset=base_offset, leader_epoch=9))
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (
        base_offset,
        base_offset + len(pairs) - 1,
        9,
    )
    assert batch.crc_ok
    assert batch_records(batch) == [SegmentRow(r.offset, r.timestamp_ms, r.key, r.value) for r in records]


def recompressed(data: bytes, codec: int, payload: bytes) -> bytes:
    """The batch with its records in another form, as a client that compresses writes it."""
    head = bytearray(data[:61])
    struct.pack_into(">i", head, 8, 61 - 12 + len(payload))
    struct.pack_into(">h", head, 21, codec)
    struct.pack_into(">I", head, 17, google_crc32c.value(bytes(head[21:]) + payload))
    return bytes(head) + payload


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_compression_are_read(codec: int) -> None:
    values = [b"value %d " % index * 20 for index in range(50)]
    plain = batch_of(100, values)
    codecs: dict[int, Callable[[bytes], Any]] = {
        1: gzip.compress,
        2: cramjam.snappy.compress_raw,
        3: cramjam.lz4.compress,
        4: cramjam.zstd.compress,
    }
    batch = only_batch(recompressed(plain, codec, bytes(codecs[codec](plain[61:]))))
    assert batch.crc_ok
    assert [row.value for row in batch_records(batch)] == values


def test_snappy_blocks_of_javas_clients_are_read() -> None:
    plain = batch_of(0, [b"a" * 100, b"b" * 100])
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (plain[61:100], plain[100:])]
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    framed += b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    batch = only_batch(recompressed(plain, 2, framed))
    assert [row.value for row in batch_records(batch)] == [b"a" * 100, b"b" * 100]


def test_one_changed_byte_behind_the_crc_is_seen_and_reading_goes_on() -> None:
    first, second = batch_of(0, [b"one"]), batch_of(1, [b"two"])
    damaged = first[:-2] + bytes([first[-2] ^ 1]) + first[-1:]
    found = list(read_segment(damaged + second))
    assert [item.crc_ok for item in found if isinstance(item, SegmentBatch)] == [False, True]
    assert [item.position for item in found] == [0, len(first)]


@pytest.mark.parametrize("missing", [1, 30, 70])
def test_a_torn_tail_ends_the_segment_behind_the_last_whole_batch(missing: int) -> None:
    first, second = batch_of(0, [b"one" * 10]), batch_of(1, [b"two" * 10])
    whole, torn = read_segment(first + second[:-missing])
    assert isinstance(whole, SegmentBatch)
    assert isinstance(torn, Torn)
    assert torn.position == len(first)


def test_zeros_behind_the_last_batch_are_a_torn_tail() -> None:
    first = batch_of(0, [b"one"])
    _, torn = read_segment(first + bytes(500))
    assert isinstance(torn, Torn)
    assert "magic 0" in torn.reason


@pytest.mark.parametrize("at", [8, 16, 23], ids=["length", "magic", "last offset"])
def test_behind_a_damaged_header_reading_goes_on_at_the_next_batch(at: int) -> None:
    first, *behind = (batch_of(offset, [b"\x02 value"] * 5) for offset in (100, 105, 110))
    damaged = first[:at] + bytes([first[at] ^ 0xFF]) + first[at + 1 :]
    torn, *found = read_segment(damaged + b"".join(behind), 100)
    assert isinstance(torn, Torn)
    assert [item.base_offset for item in found if isinstance(item, SegmentBatch)] == [105, 110]
    assert [item.position for item in (torn, *found)] == [0, len(first), 2 * len(first)]


def of_file(path: Path) -> list[SegmentBatch | Torn]:
    with path.open("rb") as file:
        return list(read_segment(Window.of(file)))


@pytest.mark.parametrize("window", [61, 100, 1000, 1 << 20])
def test_a_file_is_read_in_windows_as_its_bytes_are_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    batches = [batch_of(base, [b"v" * (base % 90)] * 3) for base in range(0, 90, 3)]
    batches[4] = batches[4][:-1] + b"?"
    batches[9] = bytes(700)
    batches[20] = batches[20][:16] + b"\xfd" + batches[20][17:]
    data = b"".join(batches) + batches[0][:50]
    whole = list(read_segment(data))
    assert len(whole) == 31
    monkeypatch.setattr(segments, "WINDOW_BYTES", window)
    path = tmp_path / "0.log"
    path.write_bytes(data)
    assert of_file(path) == whole


@pytest.mark.parametrize("kept", [0, 1, 100, 2_000_000])
def test_a_file_that_a_broker_truncates_while_it_is_read_ends_there(tmp_path: Path, kept: int) -> None:
    """A map of it would end the process."""
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(batch_of(base, [b"v" * 50_000] * 2) for base in range(0, 80, 2)))
    with path.open("rb") as file:
        log = read_segment(Window.of(file))
        next(log)
        os.truncate(path, kept)
        rest = list(log)
    assert len(rest) < 39
    assert all(isinstance(one, SegmentBatch) and one.crc_ok for one in rest[:-1])


def test_a_length_that_cannot_be_right_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    with path.open("wb") as file:
        file.write(batch_of(0, [b"v"])[:8] + struct.pack(">i", (64 << 20) - 12) + batch_of(0, [b"v"])[12:])
        file.truncate(64 << 20)
    tracemalloc.start()
    (found,) = of_file(path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, SegmentBatch)
    assert not found.crc_ok
    assert peak_bytes < 4 * segments.WINDOW_BYTES


def test_what_a_power_cut_may_leave_has_zeros_up_to_the_end_of_a_sector() -> None:
    first, long = batch_of(0, [b"v"]), batch_of(1, [b"v" * 2000])
    behind = batch_of(2, [b"v"])
    for hole, is_blank in (
        (long[:300] + bytes(len(long) - 300), True),
        (bytes(len(long)), True),
        (long[:-1] + b"?", False),
        (long[:16] + b"\xfd" + long[17:], False),
        (long[:100] + bytes(50) + long[150:], False),
        (bytes(60) + long[60:], False),
    ):
        found = list(read_segment(first + hole + behind))
        assert [getattr(one, "is_blank", None) for one in found] == [False, is_blank, False], hole[:20]


def test_a_batch_within_a_value_is_not_taken_for_the_next_one() -> None:
    inner = batch_of(3, [b"old"])
    first = batch_of(10, [inner])
    (torn,) = read_segment(first[:-1], 10)
    assert isinstance(torn, Torn)


def test_records_that_contradict_their_batch_are_refused() -> None:
    plain = batch_of(0, [b"value"])
    for payload in (plain[61:-4], b"\xff" * 30, b""):
        batch = only_batch(recompressed(plain, 0, payload))
        with pytest.raises(Undecodable):
            batch_records(batch)
    with pytest.raises(Undecodable, match="unpacked"):
        batch_records(only_batch(recompressed(plain, 4, b"no zstd frame")))


def _framed(block: bytes, count: int) -> bytes:
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * count


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        (1, gzip.compress),
        (1, lambda data: gzip.compress(data[: len(data) // 2]) * 3),  # members, as gzip may have several
        (2, cramjam.snappy.compress_raw),
        (2, lambda data: _framed(bytes(cramjam.snappy.compress_raw(data[: len(data) // 2])), 3)),
        (2, lambda data: b"\xff\xff\xff\xff\x0f"),  # says that it gives 4 GiB
        (3, cramjam.lz4.compress),
        (4, cramjam.zstd.compress),
    ],
    ids=["gzip", "gzip members", "snappy", "snappy blocks", "snappy that lies", "lz4", "zstd"],
)
def test_a_batch_that_gives_more_than_a_broker_takes_is_damaged_and_held_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, codec: int, pack: Callable[[bytes], Any]
) -> None:
    assert segments.UNPACKED_BYTES_MAX == record_batch.UNPACKED_MAX_BYTES
    monkeypatch.setattr(segments, "UNPACKED_BYTES_MAX", 4 << 20)
    bomb = only_batch(recompressed(batch_of(0, [b"value"]), codec, bytes(pack(bytes(64 << 20)))))
    tracemalloc.start()
    with pytest.raises(Undecodable, match="unpack"):
        batch_records(bomb)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_gzip_members_are_read_one_behind_the_other() -> None:
    plain = batch_of(0, [b"a" * 100, b"b" * 100])
    packed = gzip.compress(plain[61:100]) + gzip.compress(plain[100:])
    batch = only_batch(recompressed(plain, 1, packed))
    assert [row.value for row in batch_records(batch)] == [b"a" * 100, b"b" * 100]
    with pytest.raises(Undecodable):
        batch_records(only_batch(recompressed(plain, 1, packed[:-9])))


def test_log_dirs_name_their_broker_or_know_it(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.mkdir()
    (known / "meta.properties").write_text("version=1\nnode.id = 7\n")
    named = tmp_path / "named"
    named.mkdir()
    assert parse_log_dirs(f"replica:3={named}, {known}") == {str(named): 3, str(known): 7}
    for text, reason in (
        (str(named), "meta.properties"),
        (f"1={tmp_path}/nothing", "no such"),
        ("", "no log dir"),
    ):
        with pytest.raises(ValueError, match=reason):
            parse_log_dirs(text)


def test_replica_folders_are_the_partitions_of_the_topics_asked_for(tmp_path: Path) -> None:
    for name in (
        "my-topic-0",
        "my-topic-11",
        "other-0",
        "__cluster_metadata-0",
        "lost+found",
        "stray-x",
        "t-²",
    ):
        (tmp_path / name).mkdir()
    found = replica_folders({str(tmp_path): 2}, frozenset({"my-topic"}))
    assert found == [
        ReplicaFolder(2, "my-topic", 0, str(tmp_path / "my-topic-0")),
        ReplicaFolder(2, "my-topic", 11, str(tmp_path / "my-topic-11")),
    ]
    assert {folder.topic for folder in replica_folders({str(tmp_path): 2})} == {"my-topic", "other"}


def test_high_watermarks_come_from_the_checkpoint(tmp_path: Path) -> None:
    assert high_watermarks(str(tmp_path)) is None
    assert recovery_points(str(tmp_path)) == {}
    text = "0\n2\nmy-topic 0 17\nother 3 0\n"
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (tmp_path / name).write_text(text)
    assert high_watermarks(str(tmp_path)) == {("my-topic", 0): 17, ("other", 3): 0}
    assert recovery_points(str(tmp_path)) == high_watermarks(str(tmp_path))


@pytest.mark.parametrize("row", ["my-topic 0 -1", "my-topic 0 17\nmy-topic 0 18"], ids=["below 0", "twice"])
def test_a_checkpoint_with_offsets_that_cannot_be_is_none(tmp_path: Path, row: str) -> None:
    text = f"0\n{len(row.splitlines())}\n{row}\n"
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (tmp_path / name).write_text(text)
    assert high_watermarks(str(tmp_path)) is None
    assert recovery_points(str(tmp_path)) is None


def test_log_dirs_and_folders_say_what_they_are_of(tmp_path: Path) -> None:
    assert node_properties(str(tmp_path)) == {}
    assert topic_id_of(str(tmp_path)) is None
    (tmp_path / "meta.properties").write_text("#note\nversion=1\ncluster.id = c=1\n")
    assert node_properties(str(tmp_path)) == {"version": "1", "cluster.id": "c=1"}
    metadata = tmp_path / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: LrSwQ7lMtqqc3i7BVcl8pw\n")
    assert topic_id_of(str(tmp_path)) == "LrSwQ7lMtqqc3i7BVcl8pw"
    for content in (b"version: 0\n", b"version: 0\ntopic_id: \n", b"\xff"):
        metadata.write_bytes(content)
        assert topic_id_of(str(tmp_path)) is None


def test_a_batch_is_read_by_its_place(tmp_path: Path) -> None:
    first, second = batch_of(5, [b"a", b"b"]), batch_of(7, [b"c"])
    path = tmp_path / f"{5:020}.log"
    path.write_bytes(first + second[:-1])
    found = batch_at(path, 0)
    assert found is not None
    assert (found.base_offset, found.last_offset) == (5, 6)
    for position in (1, len(first), len(first) + len(second)):
        assert batch_at(path, position) is None
    assert batch_at(tmp_path / "gone.log", 0) is None
    assert has_batches(str(tmp_path))
    path.write_bytes(b"")
    assert not has_batches(str(tmp_path))


def test_a_log_dir_has_replicas_of_some_topics(tmp_path: Path) -> None:
    (tmp_path / "my-topic-0").mkdir()
    assert has_replicas(str(tmp_path), ("other", "my-topic"))
    assert not has_replicas(str(tmp_path), ("other",))
    assert not has_replicas(str(tmp_path / "missing"), ("my-topic",))


def test_a_checkpoint_that_is_cut_is_none(tmp_path: Path) -> None:
    text = "0\n2\nmy-topic 0 17\nother 3 15\n"
    for size in range(len(text)):
        (tmp_path / "replication-offset-checkpoint").write_text(text[:size])
        assert high_watermarks(str(tmp_path)) is None


def test_checkpoints_are_read_as_the_broker_writes_them(tmp_path: Path) -> None:
    """Without them no batch of a replica would lie below a high watermark, and nothing would be compared."""
    text = encode_rows([("my-topic", 0, 17), ("other", 3, 0)])
    (tmp_path / "replication-offset-checkpoint").write_text(text)
    (tmp_path / "recovery-point-offset-checkpoint").write_text(text)
    (tmp_path / "leader-epoch-checkpoint").write_text(encode_rows([(3, 5), (4, 9)]))
    assert high_watermarks(str(tmp_path)) == {("my-topic", 0): 17, ("other", 3): 0}
    assert recovery_points(str(tmp_path)) == high_watermarks(str(tmp_path))
    assert log_start(str(tmp_path)) == 5
    assert leader_epochs(str(tmp_path)) == [(3, 5), (4, 9)]
    (tmp_path / "leader-epoch-checkpoint").write_text(encode_rows([(2, 5), (2, 5), (3, 5)]))
    assert leader_epochs(str(tmp_path)) == [(3, 5)]
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n3 5\n")
    assert leader_epochs(str(tmp_path)) is None
    (tmp_path / "replication-offset-checkpoint").write_text(text.replace("17", "18"))
    assert high_watermarks(str(tmp_path)) is None
