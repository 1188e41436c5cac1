"""`holdfast console-producer`: lines of standard input become records."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import click

from cli.options import bootstrap, client_properties, pairs, run_client
from client.errors import ClientError
from client.producer import Delivery, Producer, ProducerConfig
from runtime.api import Runtime

_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_READER_KEYS = frozenset({"parse.key", "key.separator", "null.marker"})


@click.command()
@bootstrap
@click.option("--topic", required=True, help="An existing topic.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--sync", is_flag=True, help="Wait for each acknowledgement before the next line.")
@click.option(
    "--request-required-acks",
    "--acks",
    "acks",
    type=click.Choice(list(_ACKS)),
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
@click.option("--linger-ms", type=click.IntRange(0), default=5, show_default=True)
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
    """Send every line of standard input; exit 0 when all were acknowledged."""
    client_properties(command_config, command_property, frozenset())
    reader = pairs(reader_property, "--reader-property")
    for key in sorted(set(reader) - _READER_KEYS):
        click.echo(f"warning: reader property {key} is not known and has no effect", err=True)
    config = ProducerConfig(
        bootstrap_servers=given["bootstrap_server"],
        acks=_ACKS[given["acks"]],
        compression=given["compression_codec"],
        batch_size_bytes=given["batch_size"],
        linger_ms=0 if given["sync"] else given["linger_ms"],
        max_block_ms=given["timeout_ms"],
        delivery_timeout_ms=max(given["timeout_ms"], given["linger_ms"] + 1),
    )
    failed: list[str] = []

    def judge(delivery: Delivery) -> None:
        try:
            delivery.result()
        except ClientError as error:
            failed.append(str(error))

    async def work(runtime: Runtime) -> int:
        producer = Producer(runtime, config)
        await producer.start()
        async for line in _lines():
            key, value = _split(line, reader)
            delivery = await producer.send(given["topic"], value, key, given["partition"])
            delivery.add_done_callback(judge)
            if given["sync"]:
                await producer.flush()
        await producer.close()
        return 1 if failed else 0

    try:
        code = run_client(work)
    except ClientError as error:
        failed.append(str(error))
        code = 1
    if failed:
        click.echo(f"error: {len(failed)} records were not acknowledged; the first: {failed[0]}", err=True)
    sys.exit(code)


async def _lines() -> AsyncIterator[bytes]:
    """Lines of standard input as they come, read beside the event loop: what was typed is sent meanwhile."""
    rest = b""
    while chunk := await asyncio.to_thread(os.read, sys.stdin.fileno(), 1 << 16):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


def _split(line: bytes, reader: dict[str, str]) -> tuple[bytes | None, bytes | None]:
    """Key and value of a line. Raises: ClientError for a line without separator where a key is wanted."""
    key: bytes | None = None
    value: bytes | None = line
    if reader.get("parse.key", "false").lower() == "true":
        separator = reader.get("key.separator", "\t").encode()
        key, found, value = line.partition(separator)
        if not found:
            raise ClientError(f"no key separator {separator!r} in line {line[:80]!r}")
    marker = reader.get("null.marker")
    if marker is not None and value == marker.encode():
        value = None
    return key, value
