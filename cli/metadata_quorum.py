"""`holdfast metadata-quorum readmit`: take in a voter's new directory after its disk was lost (K8).

Kafka does this in two steps, `kafka-metadata-quorum remove-controller` and `add-controller`.
"""

from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import INT32_MAX, CommandAnswer, bootstrap, output

_ID_BYTES = 16


@click.group()
def command() -> None:
    """Look after the voters of the metadata quorum."""


def _directory_id(_: click.Context, __: click.Parameter, value: str | None) -> bytes | None:
    try:
        raw = None if value is None else bytes.fromhex(value)
    except ValueError:
        raw = b""
    if raw is not None and len(raw) != _ID_BYTES:
        raise click.BadParameter("expected the 32 hexadecimal digits that the voter's log shows")
    return raw


@command.command(short_help="Take in the new, empty disk of a voter.")
@bootstrap
@click.option("--voter", "voter_id", type=click.IntRange(0, INT32_MAX), required=True, help="Its node.id.")
@click.option(
    "--directory-id",
    metavar="ID",
    callback=_directory_id,
    help="Its new directory; without it the one that asks and is refused.",
)
@output
def readmit(voter_id: int, directory_id: bytes | None, **given: Any) -> None:
    """Take in the new directory of a voter that lost its disk. Its old one never counts again."""
    answer = CommandAnswer("metadata-quorum-readmit")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        taken = await session.admin.add_raft_voter(voter_id, directory_id, timeout_ms=session.timeout_ms)
        answer.data = {"voter_id": voter_id, "directory_id": taken.hex()}
        text.append(f"Voter {voter_id} counts with directory {taken.hex()} from now on.")

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))
