"""The budget of one answer to a fetch: which rows get records, and which wait for the next answer."""

from typing import Any

import pytest

from holdfast.broker.core.events import ReadRow
from holdfast.broker.core.requests.fetch_fill import FetchFill
from holdfast.metadata.ids import PartitionId
from holdfast.protocol.errors import ErrorCode

TOPIC = b"t" * 16
BATCH_BYTES = 100
CONSUMER, FOLLOWER = -1, 5


class Logs:
    """Logs of batches of 100 bytes: {partition: batches, or why there are none}."""

    def __init__(self, *content: int | ErrorCode | None) -> None:
        self.content = content
        self.sent_bytes: list[tuple[int, int]] = []

    def log_of(self, key: PartitionId) -> Any | None:
        return self.content[key.partition_index]

    def read(self, log: Any, row: ReadRow, max_bytes: int, *, at_least_one: bool) -> Any:
        if isinstance(log, ErrorCode):
            return log
        count = min(log, max(max_bytes // BATCH_BYTES, int(at_least_one)))
        return bytes(count * BATCH_BYTES)

    def sent(self, log: Any, row: ReadRow, size_bytes: int) -> None:
        self.sent_bytes.append((row.partition_index, size_bytes))


def row(index: int, asker: int, *, max_bytes: int = 1_000, error_code: int = 0) -> ReadRow:
    return ReadRow(TOPIC, index, error_code, 9, 0, asker, None, 1, 3, 0, 9, max_bytes)


def answer(
    logs: Logs, asker: int, max_bytes: int, room_bytes: int | None = None, row_bytes_max: int = 1_000
) -> list[tuple[int, str, int]]:
    """(partition, error, bytes) of each row of the answer; those that are left out have the bytes -1."""
    fill = FetchFill(logs, max_bytes, room_bytes)
    rows = fill.fill([row(index, asker, max_bytes=row_bytes_max) for index in range(len(logs.content))])
    found = [(one.partition_index, ErrorCode(one.error_code).name, len(one.records)) for one in rows]
    return found + [(key.partition_index, "omitted", -1) for key in fill.omitted]


GONE, LOST, LEADER = "KAFKA_STORAGE_ERROR", "OFFSET_OUT_OF_RANGE", "NOT_LEADER_OR_FOLLOWER"


@pytest.mark.parametrize(
    ("content", "asker", "max_bytes", "room_bytes", "rows"),
    [
        # a consumer: later rows get what is left, which may be nothing
        ((3, 3), CONSUMER, 400, 1_000, [(0, "NONE", 300), (1, "NONE", 100)]),
        ((3, 3), CONSUMER, 300, 1_000, [(0, "NONE", 300), (1, "NONE", 0)]),
        # the first batch is sent although it is larger, but not where there is no room at all
        ((3, 3), CONSUMER, 50, 1_000, [(0, "NONE", 100), (1, "NONE", 0)]),
        ((3, 3), CONSUMER, 1_000, 50, [(0, "NONE", 100), (1, "NONE", 0)]),
        ((3, 3), CONSUMER, 1_000, 0, [(0, "NONE", 0), (1, "NONE", 0)]),
        # a follower: each row is a whole batch or waits, and so does all behind one that waits
        ((3, 3), FOLLOWER, 600, None, [(0, "NONE", 300), (1, "NONE", 300)]),
        ((3, 3, 3), FOLLOWER, 300, None, [(0, "NONE", 300), (1, "omitted", -1), (2, "omitted", -1)]),
        ((3, 3, 3), FOLLOWER, 350, None, [(0, "NONE", 300), (1, "omitted", -1), (2, "omitted", -1)]),
        ((3, 3), FOLLOWER, 50, None, [(0, "NONE", 100), (1, "omitted", -1)]),
        # the trouble of one log costs its row
        ((None, 1), CONSUMER, 400, 400, [(0, GONE, 0), (1, "NONE", 100)]),
        ((ErrorCode.OFFSET_OUT_OF_RANGE, 1), FOLLOWER, 400, None, [(0, LOST, 0), (1, "NONE", 100)]),
        # what was to be read was cut meanwhile
        ((0, 1), FOLLOWER, 400, None, [(0, LEADER, 0), (1, "NONE", 100)]),
        ((0, 1), CONSUMER, 400, 400, [(0, LEADER, 0), (1, "NONE", 100)]),
    ],
)
def test_rows_share_the_bytes_of_an_answer(
    content: tuple[int | ErrorCode | None, ...],
    asker: int,
    max_bytes: int,
    room_bytes: int | None,
    rows: list[tuple[int, str, int]],
) -> None:
    logs = Logs(*content)
    assert answer(logs, asker, max_bytes, room_bytes) == rows
    counted = [(index, size) for index, size in logs.sent_bytes if size]
    assert counted == [(index, size) for index, _, size in rows if size > 0]


def test_rows_that_ask_for_nothing_keep_their_error_and_are_never_left_out() -> None:
    fill = FetchFill(Logs(3, 3, 3), 300, None)
    rows = [
        row(0, FOLLOWER),
        row(1, FOLLOWER),
        row(2, FOLLOWER, max_bytes=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]
    assert [(one.partition_index, one.error_code) for one in fill.fill(rows)] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]
    assert fill.omitted == [PartitionId(TOPIC, 1)]


def test_a_row_gets_no_more_than_it_asks_for() -> None:
    assert answer(Logs(3, 3), CONSUMER, 1_000, row_bytes_max=200) == [(0, "NONE", 200), (1, "NONE", 200)]
