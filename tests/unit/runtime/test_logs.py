"""One event is one line."""

import logging
import sys

from holdfast.runtime.logs import LineFormatter


def line(message: str, *args: object, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord("holdfast.broker", logging.WARNING, __file__, 1, message, args, info)
    record.created = 1_700_000_000.5
    return LineFormatter("broker-1").format(record)


def test_line_tells_time_level_node_and_logger() -> None:
    expected = "2023-11-14T22:13:20.500Z WARNING broker-1 holdfast.broker: lost 3 of 5"
    assert line("lost %d of %d", 3, 5) == expected


def test_message_of_several_lines_stays_one_line() -> None:
    assert line("a\nb\tc").endswith(": a\\nb\\tc")


def test_story_of_an_exception_stays_on_the_line() -> None:
    try:
        raise ValueError("own bug")
    except ValueError:
        text = line("task failed", error=sys.exception())
    assert "\n" not in text
    assert 'trace="Traceback' in text
    assert "ValueError: own bug" in text
