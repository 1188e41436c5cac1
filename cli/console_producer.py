"""`holdfast console-producer`: lines of standard input become records."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

import click

from holdfast.cli.options import ACKS, INT32_MAX, bootstrap, client_properties, pairs, run_client, yes_or_no
from holdfast.client.core.errors import ClientError
from holdfast.client.producer import Delivery, Producer
from holdfast.protocol.errors import ErrorCode
from holdfast.runtime.api import Runtime

#: After a signal, what was read already has so long to be acknowledged.
_STOP_MS = 3_000
#: No record is larger: the frame of its request would not be read anywhere.
LINE_BYTES_MAX = 64 << 20
_READER_KEYS = frozenset({"parse.key", "key.separator", "null.marker"})


@click.command()
@bootstrap
@click.option("--topic", required=True, help="An existing topic.")
@click.option("--partition", type=click.IntRange(0, INT32_MAX), help="Only this partition.")
@click.option("--sync", is_flag=True, help="Wait for each acknowledgement before the next line.")
@click.option(
    "--request-required-acks",
    "--acks",
    "acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
)
@click.option(
    "--compression-codec",
    type=click.Choice(["none", "gzip", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option(
    "--batch-size", type=click.IntRange(1, 4 << 20), default=256 << 10, show_default=True, help="Bytes."
)
@click.option("--linger-ms", type=click.IntRange(0, INT32_MAX), default=5, show_default=True)
@click.option(
    "--reader-property",
    "--property",
    multiple=True,
    metavar="KEY=VALUE",
    help="parse.key, key.separator, null.marker.",
)
def command(
    command_config: str | None,
    command_property: tuple[str, ...],
    reader_property: tuple[str, ...],
    **given: Any,
) -> None:
    """Send every line of standard input; exit 0 when all were acknowledged.

    A line that is too large is left out; at one without key separator the sending ends. Both exit 1.
    """
    client_properties(command_config, command_property, frozenset())
    reader = pairs(reader_property, "--reader-property")
    for key in sorted(set(reader) - _READER_KEYS):
        click.echo(f"warning: reader property {key} is not known and has no effect", err=True)
    has_keys = yes_or_no(reader, "parse.key", False, "--reader-property")
    if has_keys and not reader.get("key.separator", "\t"):
        raise click.UsageError("--reader-property key.separator=: a separator has at least one character")
    failed: list[str] = []

    def judge(delivery: Delivery) -> None:
        try:
            delivery.result()
        except ClientError as error:
            failed.append(str(error))

    async def send_all(producer: Producer) -> None:
        number = 0
        async for line in lines():
            number += 1
            try:
                key, value = split_line(line, reader, has_keys)
                delivery = await producer.submit(given["topic"], value, key, given["partition"])
            except ClientError as error:
                if error.code is ErrorCode.MESSAGE_TOO_LARGE:
                    failed.append(f"line {number}: {error}")
                    continue
                raise ClientError(f"line {number}: {error}; it and what follows was not sent") from error
            delivery.add_done_callback(judge)
            if given["sync"]:
                await producer.flush()

    async def work(runtime: Runtime) -> int:
        delivery_timeout_ms = max(given["timeout_ms"], given["linger_ms"] + 1)
        producer = Producer(
            given["bootstrap_server"],
            acks=ACKS[given["acks"]],
            compression=given["compression_codec"],
            batch_size_bytes=given["batch_size"],
            linger_ms=0 if given["sync"] else given["linger_ms"],
            max_block_ms=given["timeout_ms"],
            delivery_timeout_ms=delivery_timeout_ms,
            runtime=runtime,
        )
        await producer.start()
        try:
            await send_all(producer)
        except ClientError as error:
            failed.append(str(error))
        except asyncio.CancelledError:
            await producer.close(_STOP_MS)
            raise
        await producer.close(delivery_timeout_ms)
        return 1 if failed else 0

    code = run_client(work)
    if failed:
        click.echo(f"error: not acknowledged: {len(failed)}; the first: {failed[0]}", err=True)
    sys.exit(code)


async def lines() -> AsyncIterator[bytes]:
    """Lines of standard input as they come. Raises: ClientError when it cannot be read, and for a line
    without end."""
    parts: list[bytes] = []
    size = 0
    async for chunk in _chunks():
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            parts.append(end)
            yield b"".join(parts).removesuffix(b"\r")
            parts, size = [], 0
        if rest:
            parts.append(rest)
            size += len(rest)
        if size > LINE_BYTES_MAX:
            raise ClientError(
                f"a line of more than {LINE_BYTES_MAX} bytes: no record is so large; "
                "it and what follows was not sent"
            )
    if parts:
        yield b"".join(parts)


async def _chunks() -> AsyncIterator[bytes]:
    """What there is on standard input, read beside the event loop: what was typed is sent meanwhile.

    A thread of its own and not the executor's: nothing interrupts its read; this process must end without.
    """
    loop = asyncio.get_running_loop()
    read: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    wanted = threading.Semaphore(2)

    def read_all() -> None:
        found: bytes | OSError = b"?"
        while found and not isinstance(found, OSError):
            wanted.acquire()
            try:
                found = os.read(0, 1 << 16)
            except OSError as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(read.put_nowait, found)

    threading.Thread(target=read_all, name="standard input", daemon=True).start()
    while chunk := await read.get():
        if isinstance(chunk, OSError):
            raise ClientError(f"standard input cannot be read: {chunk.strerror}")
        wanted.release()
        yield chunk


def split_line(line: bytes, reader: Mapping[str, str], has_key: bool) -> tuple[bytes | None, bytes | None]:
    """Key and value of a line. Raises: ClientError for a line without separator where a key is wanted."""
    key: bytes | None = None
    value: bytes | None = line
    if has_key:
        separator = reader.get("key.separator", "\t").encode()
        key, found, value = line.partition(separator)
        if not found:
            shown = line[:80].decode("utf-8", "backslashreplace")
            raise ClientError(f"no key separator {separator.decode()!r} in {shown!r}")
    marker = reader.get("null.marker")
    if marker is not None:
        key, value = (None if part == marker.encode() else part for part in (key, value))
    return key, value
