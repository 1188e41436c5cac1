"""Options that several commands share, spelled as in Kafka's tools, and how an answer is printed.

Text goes to stdout, one JSON object with `--output json`, everything about progress and errors to stderr.
Exit codes: 0 all asked-for work done, 1 any failure, 2 usage, 130 and 143 after a signal.
"""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from holdfast.client.core.errors import ClientError
    from holdfast.client.producer import Acks

F = TypeVar("F", bound=Callable[..., Any])

#: What fields of requests hold: ids, indexes and times to wait; offsets and points in time.
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
#: What `--bootstrap-server` is when it is not given.
SERVERS_VARIABLE = "HOLDFAST_BOOTSTRAP_SERVER"
#: What `--command-config` is when it is not given; the servers may stand in that file, too.
CONFIG_VARIABLE = "HOLDFAST_COMMAND_CONFIG"
_SERVERS_KEY = "bootstrap.servers"
#: `--acks` in Kafka's spellings, as the producer takes it.
ACKS: "dict[str, Acks]" = {"all": "all", "-1": "all", "0": 0, "1": 1}


def read_properties(path: str) -> dict[str, str]:
    """The pairs of a Java properties file. Raises: click.UsageError when it cannot be read."""
    import javaproperties  # takes as long as all the rest of a command that prints its help

    try:
        return dict(javaproperties.loads(Path(path).read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as error:
        raise click.UsageError(f"cannot read {path}: {error}") from error


def whole_number(text: str, most: int) -> int | None:
    """The number from 0 to `most` that the digits 0 to 9 spell, None for any other text."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most
    return int(text) if is_number else None


def pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """`("a=1", "b=2")` as a dict. Raises: click.UsageError for an item without `=`."""
    made = {}
    for value in values:
        key, separator, rest = value.partition("=")
        if not separator:
            raise click.UsageError(f"{option} {value}: expected key=value")
        made[key.strip()] = rest
    return made


def yes_or_no(values: Mapping[str, str], key: str, default: bool, option: str) -> bool:
    """The value of a switch among `values`. Raises: click.UsageError for anything but true and false."""
    word = values.get(key, "true" if default else "false").strip().lower()
    if word not in ("true", "false"):
        raise click.UsageError(f"{option} {key}={values[key]}: expected true or false")
    return word == "true"


def one_action(chosen: tuple[str, ...], actions: Sequence[str]) -> str:
    """The one of `--create`, `--list`, ... that was given. Raises: click.UsageError."""
    if len(set(chosen)) != 1:
        every = ", ".join(f"--{action}" for action in actions)
        raise click.UsageError(f"exactly one of {every} is needed")
    return chosen[0]


def refuse_strangers(
    action: str, given: Mapping[str, Any], actions_of: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse options that belong to other actions, by {option: its actions}. Raises: click.UsageError."""
    for name, meant in actions_of.items():
        if given[name] not in (None, False, ()) and action not in meant:
            raise click.UsageError(f"--{name.replace('_', '-')} belongs to --{', --'.join(meant)}")


def checked_servers(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Callback of `--bootstrap-server`. Raises: click.BadParameter for what is no list of addresses."""
    from holdfast.client.core.metadata_cache import parse_addresses

    name, group = parameter.name or "", context.parent
    source = context.get_parameter_source(name)
    if source is click.core.ParameterSource.ENVIRONMENT and group is not None and group.default_map:
        before = group.default_map.get(context.info_name or "") or {}
        value = before.get(name, value)  # what stands before the command was given, too
    try:
        parse_addresses(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return value


def take_servers(context: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Callback of `--command-config`: `bootstrap.servers` of the file stands for the option of that name.

    Raises: click.UsageError when it cannot be read.
    """
    servers = read_properties(path).get(_SERVERS_KEY) if path else None
    if servers is not None:
        context.default_map = {"bootstrap_server": servers, **(context.default_map or {})}
    return path


def servers_of_environment() -> str | None:
    """The variable, for commands that may do without a cluster. Raises: click.UsageError."""
    value = os.environ.get(SERVERS_VARIABLE)
    if not value:
        return None
    try:
        return checked_servers(click.get_current_context(), click.Argument(["server"]), value)
    except click.BadParameter as error:
        raise click.UsageError(f"{SERVERS_VARIABLE}: {error.message}") from error


def _in_utf8(function: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse words that no request can hold before anybody is asked."""

    @functools.wraps(function)
    def checked(**given: Any) -> Any:
        for name, value in given.items():
            for word in value if isinstance(value, tuple) else (value,):
                try:
                    str(word).encode()
                except UnicodeEncodeError:
                    raise click.UsageError(f"--{name.replace('_', '-')} {word!a} is not UTF-8") from None
        return function(**given)

    return checked


def connection(function: Callable[..., Any]) -> Any:
    """`--bootstrap-server` and the client's properties."""
    function = _in_utf8(function)
    for option in reversed(
        (
            click.option(
                "--bootstrap-server",
                "--bootstrap-controller",
                "bootstrap_server",
                required=True,
                envvar=SERVERS_VARIABLE,
                show_envvar=True,
                callback=checked_servers,
                metavar="HOST:PORT[,HOST:PORT]",
                help="Brokers; or controllers, which know the metadata when no broker is left.",
            ),
            click.option(
                "--command-config",
                "--admin.config",
                envvar=CONFIG_VARIABLE,
                show_envvar=True,
                is_eager=True,
                callback=take_servers,
                metavar="FILE",
                help="Properties of the client, also bootstrap.servers; unknown keys warn.",
            ),
            click.option(
                "--command-property", multiple=True, metavar="KEY=VALUE", help="One property of the client."
            ),
        )
    ):
        function = option(function)
    return function


def bootstrap(function: Callable[..., Any]) -> Any:
    """What belongs to every command that asks and gives up: `connection` and `--timeout-ms`."""
    return connection(
        click.option(
            "--timeout-ms",
            type=click.IntRange(1, INT32_MAX),
            default=30_000,
            show_default=True,
            help="Give up after.",
        )(function)
    )


def before_the_command(function: F) -> F:
    """`--bootstrap-server` and `--command-config` of a group, where Kafka's tool takes them: its callback
    hands them to `as_with_the_commands`."""
    for option in (
        click.option("--command-config", metavar="FILE", help="As with the commands."),
        click.option(
            "--bootstrap-server",
            "--bootstrap-controller",
            "bootstrap_server",
            metavar="HOST:PORT[,HOST:PORT]",
            help="As with the commands; Kafka's tool takes it here.",
        ),
    ):
        function = option(function)
    return function


def as_with_the_commands(given: Mapping[str, Any]) -> None:
    """What was given to the group stands for what its commands are not given."""
    context = click.get_current_context()
    assert isinstance(context.command, click.Group)
    values = {name: value for name, value in given.items() if value is not None}
    context.default_map = dict.fromkeys(context.command.commands, values)


def output(function: F) -> F:
    """`--output text|json`."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Form of the answer.",
    )(function)


@dataclass
class CommandAnswer:
    """What a command found out; `finish` prints it and ends the process, `show` only prints."""

    command: str
    data: Any = None
    errors: list[Mapping[str, Any]] = field(default_factory=list)
    #: on stderr instead of the errors, where the text tells each of them already
    summary: str = ""

    def refused(self, error: "ClientError", topic: str | None = None) -> None:
        """Take down what a client call raised; topic and code stand in front already."""
        code = error.code.name if error.code is not None else "CLIENT_ERROR"
        # what was asked stands before the code, what to do behind it
        _, _, reason = str(error).partition(f"{code}: ")
        message = reason or str(error)
        self.errors.append({"code": code, **({"topic": topic} if topic else {}), "message": message})

    def finish(self, form: str, text: str) -> None:
        """Print as text or JSON, errors to stderr, and exit 0 or 1."""
        self.show(form, text)
        sys.exit(1 if self.errors else 0)

    def show(self, form: str, text: str) -> None:
        """Print as text or JSON, errors to stderr."""
        if form == "json":
            body = {
                "schema": f"holdfast.{self.command}/1",
                "ok": not self.errors,
                "data": self.data,
                "errors": self.errors,
            }
            click.echo(json.dumps(body))
        elif text:
            click.echo(text)
        if self.summary:
            click.echo(self.summary, err=True)
            return
        for error in self.errors:
            where = error.get("topic") or error.get("node") or ""
            if "partition" in error:
                where += f"-{error['partition']}"
            click.echo(
                f"error: {where}{': ' if where else ''}{error['code']}: {error.get('message', '')}", err=True
            )


def client_properties(
    command_config: str | None, command_property: tuple[str, ...], known: frozenset[str]
) -> dict[str, str]:
    """Properties of the command line over those of the file; unknown keys warn, never fail."""
    properties = read_properties(command_config) if command_config else {}
    properties.pop(_SERVERS_KEY, None)  # `--bootstrap-server` has taken it
    properties.update(pairs(command_property, "--command-property"))
    for key in sorted(set(properties) - known):
        click.echo(f"warning: {key} is not known here and has no effect", err=True)
    return {key: value for key, value in properties.items() if key in known}


def run_client(work: Callable[..., Coroutine[Any, Any, int]]) -> int:
    """Run `work(runtime)` on the real runtime; a failing network becomes one line and exit code 1.

    So does a background task that fails: what it was to do would be waited for in vain.

    SIGINT and SIGTERM cancel the work, which may say how far it got; the exit code is 130 or 143 then.
    A second signal cancels that as well.
    """
    import asyncio

    from holdfast.runtime.api import NetworkError, Runtime
    from holdfast.runtime.real.machine import run

    async def until_signal(runtime: Runtime) -> int:
        received: list[signal.Signals] = []
        failures: list[BaseException] = []
        working = asyncio.current_task()
        assert working is not None

        def stop(number: signal.Signals) -> None:
            received.append(number)
            working.cancel()

        async def until_failure() -> None:
            failures.append(await runtime.tasks.failure())
            working.cancel()

        runtime.tasks.start("failure", until_failure())
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        code = 1
        try:
            code = await work(runtime)
        except asyncio.CancelledError:
            if received:
                return 128 + received[0]
            if not failures:
                raise
        if failures:
            click.echo(f"error: {str(failures[0]) or repr(failures[0])}", err=True)
            return 1
        return code

    try:
        return run(until_signal)
    except NetworkError as error:
        click.echo(f"error: {error}", err=True)
        return 1
