"""The lines that a consumer keeps of its polls."""

import json
from typing import Any

import pytest

from holdfast.client.core.consumer_records import ConsumerRecord
from holdfast.client.core.history import make_value, value_crc32c
from holdfast.client.core.poll_rows import Polled, PollRows
from holdfast.protocol.id_text import encode_id

TOPIC_ID = bytes(range(16))


def record(offset: int, value: bytes | None) -> ConsumerRecord:
    return ConsumerRecord("t", 1, offset, 3, 1_000, None, value, ())


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_tells_where_each_record_was_and_who_sent_it() -> None:
    rows, value = PollRows("run", "c", "token"), make_value("p", 7, 64)
    rows.begin_session()
    polled = Polled("t", 1, 12, TOPIC_ID, [record(5, value), record(6, b"of a stranger"), record(7, None)])
    (line,) = lines(rows.poll([polled], 99))
    assert line == {
        "kind": "poll",
        "run": "run",
        "consumer": "c",
        "session": "token-1",
        "poll": 0,
        "topic": "t",
        "partition": 1,
        "high_watermark": 12,
        "t1": 99,
        "topic_id": encode_id(TOPIC_ID),
        "records": [
            [5, 3, value_crc32c(value), "p", 7],
            [6, 3, value_crc32c(b"of a stranger")],
            [7, 3, None],
        ],
    }


def test_polls_are_counted_and_sessions_have_names_of_their_own() -> None:
    rows = PollRows("run", "c", "token")
    rows.begin_session()
    polled = Polled("t", 0, -1, None, [record(0, b"x")])
    first = lines(rows.poll([polled, polled], 1))
    assert rows.poll([], 2) == ""
    rows.begin_session()
    found = [*first, *lines(rows.poll([polled], 3))]
    assert [(line["session"], line["poll"]) for line in found] == [
        ("token-1", 0),
        ("token-1", 0),
        ("token-2", 2),
    ]
    assert "topic_id" not in found[0]


@pytest.mark.parametrize("body", [b":7:", b"p:-7:", b"p:9223372036854775808:"])
def test_a_value_whose_name_no_ledger_has_is_none_of_a_ledger(body: bytes) -> None:
    value = b"%08x:%s" % (value_crc32c(body), body)
    (line,) = lines(PollRows("run", "c", "token").poll([Polled("t", 0, 1, None, [record(0, value)])], 1))
    assert line["records"] == [[0, 3, value_crc32c(value)]]


def test_names_that_need_escapes_are_refused() -> None:
    with pytest.raises(ValueError, match="ledger name"):
        PollRows("run", 'c"', "token")
