"""`holdfast console-producer`: how it reads lines; what becomes of them is in tests/e2e/test_tools.py."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
from click.testing import CliRunner

from holdfast.cli.console_producer import LINE_BYTES_MAX, command, lines, split_line
from holdfast.client.core.errors import ClientError


@contextmanager
def standard_input(text: bytes) -> Iterator[None]:
    """As if that were typed."""
    kept, (reading, writing) = os.dup(0), os.pipe()
    os.dup2(reading, 0)
    os.close(reading)

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            pipe.write(text)

    typing = Thread(target=write)
    typing.start()
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        typing.join()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\n\nb", [b"a", b"", b"b"]),
        (b"x" * 200_000 + b"\ny\n", [b"x" * 200_000, b"y"]),
    ],
)
async def test_lines_are_what_ends_and_the_rest(text: bytes, expected: list[bytes]) -> None:
    with standard_input(text):
        assert [line async for line in lines()] == expected


async def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    with standard_input(b"a\n" + bytes(LINE_BYTES_MAX + (1 << 17)) + b"\nb\n"):
        found = lines()
        assert await anext(found) == b"a"
        with pytest.raises(ClientError, match="what follows was not sent"):
            await anext(found)


@pytest.mark.parametrize(
    ("reader", "line", "expected"),
    [
        ({}, b"a\tb", (None, b"a\tb")),
        ({"parse.key": "true"}, b"a\tb", (b"a", b"b")),
        ({"parse.key": "true", "key.separator": ":"}, b"a:b:c", (b"a", b"b:c")),
        ({"parse.key": "true", "null.marker": "N"}, b"N\tN", (None, None)),
        ({"null.marker": "N"}, b"N", (None, None)),
    ],
)
def test_a_line_is_key_and_value(
    reader: dict[str, str], line: bytes, expected: tuple[bytes | None, bytes | None]
) -> None:
    assert split_line(line, reader, has_key="parse.key" in reader) == expected


@pytest.mark.parametrize("given", ["parse.key=yes", "parse.key=", "key.separator="])
def test_a_reader_property_that_cannot_be_is_refused_before_anything_is_sent(given: str) -> None:
    words = ["--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--property", "parse.key=true"]
    done = CliRunner().invoke(command, [*words, "--property", given])
    assert done.exit_code == 2
    assert given.split("=")[0] in done.output
