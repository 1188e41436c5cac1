"""`holdfast dump-log` on files that a real log wrote."""

import json
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from click.testing import CliRunner, Result

from holdfast.cli.inspect.dump_log import command
from holdfast.metadata.records import TopicRecord, encode_record
from holdfast.protocol.id_text import encode_id
from holdfast.protocol.record_batch import Record, encode_batch
from holdfast.runtime.real.machine import real_runtime
from holdfast.storage import clean_shutdown
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log
from tests.unit.client.test_decoding import poisoned
from tests.unit.storage.batches import batch
from tests.unit.storage.cleaning import CONFIG, append, clean, records, updates

LOG = f"{0:020}.log"


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    made = tmp_path / "topic-0"
    log = await Log.open(real_runtime(), str(made), LogConfig(index_interval_bytes=100), clean=False)
    for number in range(6):
        data = batch(2, timestamp_ms=1000 + number, producer_id=7, producer_epoch=0, base_sequence=2 * number)
        log.append_as_leader(data, 1 + number // 3)
    await log.close(True)
    return made


def test_batches_are_lines_as_kafka_prints_them(folder: Path) -> None:
    result = dump("--files", folder / LOG)
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[0] == f"Dumping {folder / LOG}"
    assert lines[1] == "Log starting offset: 0"
    assert len(lines) == 8
    assert lines[5].startswith(
        "baseOffset: 6 lastOffset: 7 count: 2 baseSequence: 6 lastSequence: 7 producerId: 7 producerEpoch: 0 "
        "partitionLeaderEpoch: 2 isTransactional: false isControl: false position: "
    )
    assert lines[5].endswith("isvalid: true")


def test_records_and_their_data_are_shown_on_request(folder: Path) -> None:
    shallow = dump("--files", folder / LOG, "--deep-iteration")
    assert (
        "| offset: 3 CreateTime: 1001 keySize: -1 valueSize: 10 sequence: 3 headerKeys: []" in shallow.output
    )
    assert "payload" not in shallow.output
    deep = dump("--files", folder / LOG, "--print-data-log")
    assert "headerKeys: [] key: null payload: vvvvvvvvvv" in deep.output


def test_a_whole_folder_is_sound_and_json_is_a_line_a_row(folder: Path) -> None:
    result = dump("--files", folder, "--output", "json")
    assert result.exit_code == 0, result.output
    *rows, end = map(json.loads, result.output.splitlines())
    assert end == {"schema": "holdfast.dump-log/1", "ok": True, "errors": []}
    kinds = {row["kind"] for row in rows}
    assert kinds >= {"segment", "batch", "index", "timeindex", "snapshot", "checkpoint"}


async def test_a_compacted_folder_is_sound_and_shows_what_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    log = await Log.open(real_runtime(), str(folder), CONFIG, clean=False)
    await append(log, updates(0, 24))
    await clean(log)
    left = {record.offset for record in records(log)}
    await log.close(True)
    (folder / "cleaner-offset-checkpoint").write_text("0\n1\n30 40\n")
    result = dump("--files", folder, "--deep-iteration", "--output", "json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()[:-1]]
    assert {row["offset"] for row in rows if row["kind"] == "record"} == left
    assert any(row["count"] == 0 for row in rows if row["kind"] == "batch")
    stored = dump("--files", folder / "cleaner-offset-checkpoint").output
    assert "cleanOffset: 30 changedOffset: 40" in stored


def test_what_lies_behind_the_recovery_point_is_marked(folder: Path) -> None:
    (folder.parent / "recovery-point-offset-checkpoint").write_text("0\n1\ntopic 0 8\n")
    lines = dump("--files", folder / LOG).output.splitlines()
    assert lines[6] == "-- flushed below offset 8 (recovery point) --"


def test_what_replicas_promise_of_their_logs_is_shown(folder: Path) -> None:
    path = folder.parent / "ceiling-offset-checkpoint"
    path.write_text("0\n1\ntopic 0 1040\n")
    assert "topic: topic partition: 0 offset: 1040" in dump("--files", path).output


@pytest.mark.parametrize("tail", [bytes(300), b"rubbish" * 20, batch(base_offset=99, leader_epoch=9)])
def test_an_invalid_tail_is_shown_and_the_exit_code_says_so(folder: Path, tail: bytes) -> None:
    with (folder / LOG).open("ab") as file:
        file.write(tail)
    result = dump("--files", folder / LOG)
    assert result.exit_code == 1
    assert result.output.count("isvalid: true") == 6
    assert result.output.count("isvalid: false") == 1


def test_max_bytes_stops_early(folder: Path) -> None:
    assert dump("--files", folder / LOG, "--max-bytes", 190).output.count("baseOffset") == 2


def test_indexes_are_compared_with_their_log(folder: Path) -> None:
    assert dump("--files", folder, "--verify-index-only").output.count("passed verification") == 2
    for suffix, width in ((".index", 8), (".timeindex", 12)):
        path = folder / f"{0:020}{suffix}"
        content = bytearray(path.read_bytes())
        content[width + 3] ^= 1
        path.write_bytes(content)
        result = dump("--files", path, "--verify-index-only")
        assert result.exit_code == 1
        assert "INVALID" in result.output


def test_the_metadata_log_is_shown_in_words(tmp_path: Path) -> None:
    value = encode_record(TopicRecord(name="orders", topic_id=b"t" * 16))
    path = tmp_path / LOG
    path.write_bytes(encode_batch([Record(0, 5, None, value)], base_offset=0, leader_epoch=3))
    result = dump("--files", path, "--cluster-metadata-decoder")
    assert result.exit_code == 0
    payload = {"type": "TopicRecord", "data": {"name": "orders", "topic_id": encode_id(b"t" * 16)}}
    assert f"payload: {json.dumps(payload)}" in result.output


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_compressed_records_are_decoded(tmp_path: Path, codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 16)
    for number in range(30):
        assert builder.append(number, 1000, b"key", b"value" * 10, []) is not None
    path = tmp_path / LOG
    path.write_bytes(bytes(builder.build()))
    result = dump("--files", path, "--print-data-log")
    assert result.exit_code == 0, result.output
    assert result.output.count("key: key payload: valuevalue") == 30


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_compressed_records_that_do_not_unpack_are_a_problem_of_their_batch(
    tmp_path: Path, codec: int
) -> None:
    path = tmp_path / LOG
    path.write_bytes(poisoned(codec, b"junk"))
    result = dump("--files", path, "--print-data-log")
    assert result.exit_code == 1
    assert "records cannot be decoded" in result.output


def test_the_clean_shutdown_file_is_shown(tmp_path: Path) -> None:
    path = tmp_path / clean_shutdown.FILE_NAME
    path.write_text(clean_shutdown.encode(clean_shutdown.Mark(12, b"d" * 16, {"t-0": "0a1b"})))
    output = dump("--clean-shutdown-file", path).output
    assert "version: 0 brokerEpoch: 12" in output
    assert "log: t-0 digest: 0a1b" in output
    path.write_text("")
    assert dump("--clean-shutdown-file", path).exit_code == 1


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    assert dump("--files", tmp_path / LOG).exit_code == 2
    assert dump().exit_code == 2
