"""Lines of another client's ledger: read, or named with the reason; none disappears."""

import hashlib
import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `spark`")

from holdfast.durability.foreign_lines import ForeignRow, foreign_row, number_and_checksum
from holdfast.durability.ledger import line_of, topics_named
from holdfast.durability.ledger_lines import PROBLEM, TOPIC_ID, TORN, LedgerRange, read_rows

NAME = hashlib.sha256(b"a value").hexdigest()
SENT = {"kind": "invoke", "topic": "t", "value_sha256": NAME, "acks": "all"}
ANSWERED = {
    "kind": "complete",
    "topic": "t",
    "value_sha256": NAME,
    "outcome": "ok",
    "partition": 2,
    "offset": 5,
}


def test_a_send_and_its_answer_have_one_number() -> None:
    number, checksum = number_and_checksum(NAME)
    assert foreign_row(json.dumps(SENT).encode()) == ForeignRow(
        1, "t", number, checksum, -1, None, None, None
    )
    assert foreign_row(json.dumps(ANSWERED).encode()) == ForeignRow(2, "t", number, checksum, None, 1, 2, 5)
    assert 0 <= number < 1 << 60
    assert number != number_and_checksum(hashlib.sha256(b"another").hexdigest())[0]


@pytest.mark.parametrize("digit", range(64))
def test_each_digit_of_a_hash_tells_values_apart(digit: int) -> None:
    other = NAME[:digit] + ("0" if NAME[digit] != "0" else "1") + NAME[digit + 1 :]
    assert number_and_checksum(other) != number_and_checksum(NAME)


@pytest.mark.parametrize("line", [SENT, ANSWERED], ids=["send", "answer"])
@pytest.mark.parametrize(
    "text",
    [
        "E1yb/TWvQ9e4Qo+jEEuIzg",  # librdkafka
        "E1yb/TWvQ9e4Qo+jEEuIzg==",  # franz-go
        "135c9bfd-35af-43d7-b842-8fa3104b88ce",  # kafka-python
        "135C9BFD35AF43D7B8428FA3104B88CE",
    ],
)
def test_a_topic_id_is_the_same_in_the_text_of_each_client(line: dict[str, object], text: str) -> None:
    kafka = "E1yb_TWvQ9e4Qo-jEEuIzg"
    theirs, known = (foreign_row(json.dumps(line | {"topic_id": one}).encode()) for one in (text, kafka))
    assert isinstance(known, ForeignRow)
    assert (known.topic_id, theirs) == (kafka, known)


@pytest.mark.parametrize(
    "text", ["E1yb_TWvQ9e4Qo-jEEuIz", "E1yb_TWvQ9e4Qo-jEEuIzg=", "135c9bfd-35af-43d7-b842"]
)
def test_a_cut_topic_id_is_none(text: str) -> None:
    assert isinstance(foreign_row(json.dumps(SENT | {"topic_id": text}).encode()), str)


@pytest.mark.parametrize("acks", ["all", -1, 0, 1, "-1", "0", "1"])
def test_acks_are_words_or_numbers(acks: object) -> None:
    found = foreign_row(json.dumps(SENT | {"acks": acks}).encode())
    assert isinstance(found, ForeignRow)
    assert found.acks == (-1 if acks == "all" else int(str(acks)))


@pytest.mark.parametrize("line", [SENT, ANSWERED | {"outcome": "info", "offset": -1}], ids=["send", "answer"])
def test_a_partition_that_a_client_does_not_know_is_minus_one_or_none(line: dict[str, object]) -> None:
    """Java's producer reports -1 with each error."""
    unknown, none = (foreign_row(json.dumps(line | {"partition": to}).encode()) for to in (-1, None))
    assert isinstance(unknown, ForeignRow)
    assert (unknown.partition, unknown) == (None, none)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ([1], "no JSON object"),
        (SENT | {"kind": "sent"}, "kind 'sent'"),
        (SENT | {"topic": ""}, "topic ''"),
        (SENT | {"topic": "\ud800"}, "half a surrogate pair in its text"),
        (ANSWERED | {"topic": "\ud800"}, "half a surrogate pair in its text"),
        (SENT | {"other": {"\udfff": 1}}, "half a surrogate pair in its text"),
        (SENT | {"value_sha256": NAME[:-1]}, "value_sha256 "),
        (SENT | {"value_sha256": NAME.upper()}, "value_sha256 "),
        (SENT | {"acks": 2}, "acks 2"),
        (SENT | {"acks": True}, "acks True"),
        (SENT | {"acks": None}, "acks None"),
        (SENT | {"partition": -2}, "partition -2"),
        (SENT | {"acks": "2"}, "acks '2'"),
        (ANSWERED | {"partition": -1}, "acknowledged without"),
        (SENT | {"topic_id": "short"}, "topic_id 'short'"),
        (ANSWERED | {"topic_id": 22}, "topic_id 22"),
        (SENT | {"acks": 1.0}, "acks 1.0"),
        (ANSWERED | {"offset": float("nan")}, "offset nan"),
        (ANSWERED | {"offset": 5.0}, "offset 5.0"),
        (ANSWERED | {"outcome": ["ok"]}, "outcome ['ok']"),
        (ANSWERED | {"outcome": "acked"}, "outcome 'acked'"),
        (ANSWERED | {"offset": -1}, "acknowledged without"),
        (ANSWERED | {"partition": None}, "acknowledged without"),
        (ANSWERED | {"offset": 1 << 63}, "offset 9223372036854775808 cannot be"),
        (ANSWERED | {"outcome": "info"}, "outcome info with offset 5"),
    ],
)
def test_what_is_not_understood_has_a_reason(row: object, problem: str) -> None:
    found = foreign_row(json.dumps(row).encode())
    assert isinstance(found, str)
    assert found.startswith(problem)


def test_a_line_that_says_something_twice_says_nothing() -> None:
    line = json.dumps(ANSWERED).replace('"offset": 5', '"offset": 4, "offset": 5')
    assert foreign_row(line.encode()) == "says offset twice"


def test_json_that_is_nested_too_deeply_is_named_and_is_no_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "sends.jsonl"
    path.write_text(json.dumps(SENT) + "\n" + '{"kind":' + "[" * 100_000)
    rows = [
        row
        for is_foreign in (True, False)
        for batch in read_rows([LedgerRange(str(path), 0, path.stat().st_size, is_foreign=is_foreign)])
        for row in batch.to_pylist()
    ]
    said = [row["run"] for row in rows if row["kind"] in (PROBLEM, TORN)]
    assert len([text for text in said if "line 2: JSON that is nested too deeply: " in text]) == 2


def test_the_line_about_a_send_is_found_by_its_value(tmp_path: Path) -> None:
    path = tmp_path / "sends.jsonl"
    other = hashlib.sha256(b"another").hexdigest()
    lines = (SENT, ANSWERED, SENT | {"value_sha256": other}, SENT | {"topic": "u"})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, line in ((NAME, 2), (other, 3)):
        number = number_and_checksum(name)[0]
        found = line_of([str(path)], "foreign", "client", number, "t", is_foreign=True)
        assert found == f"{path}, line {line}"


def test_topic_ids_of_all_lines_are_told(tmp_path: Path) -> None:
    path, ids = tmp_path / "sends.jsonl", ["1zG4I36ITtWtFU2qyyMGYw", "E1yb/TWvQ9e4QoRjoEuIzg"]
    lines = [SENT | {"topic_id": ids[0]}, ANSWERED | {"topic_id": ids[1]}, SENT | {"topic": "u"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [
        row
        for batch in read_rows([LedgerRange(str(path), 0, path.stat().st_size, is_foreign=True)])
        for row in batch.to_pylist()
        if row["pseq"] == -TOPIC_ID
    ]
    assert [(row["topic"], row["run"]) for row in rows] == [("t", ids[0]), ("t", ids[1].replace("/", "_"))]


def test_lines_are_named_and_only_the_last_may_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "sends.jsonl"
    good = json.dumps(SENT) + "\n"
    path.write_text(good + "rubbish\n" + good + '{"kind":')
    rows = [
        row
        for batch in read_rows([LedgerRange(str(path), 0, path.stat().st_size, is_foreign=True)])
        for row in batch.to_pylist()
    ]
    assert [row["run"] for row in rows if row["kind"] == PROBLEM] == [f"{path}, line 2: no JSON: rubbish"]
    assert [row["run"] for row in rows if row["kind"] == TORN] == [f"{path}, line 4"]
    assert len(rows) == 4
    assert topics_named([str(path)], is_foreign=True) == {"t"}
