"""How commands end when no process answers, listens or waits any more: the exit codes, no tracebacks."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.__main__ import main
from holdfast.cli.options import run_client
from holdfast.runtime.api import DiskError, Runtime


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """Takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def start(server: socket.socket, *arguments: str) -> "subprocess.Popen[bytes]":
    address = f"127.0.0.1:{server.getsockname()[1]}"
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", arguments[0], "--bootstrap-server", address, *arguments[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [("topics", "--list"), ("console-producer", "--topic", "t")])
def test_a_signal_ends_a_command_that_waits_with_128_and_its_number(
    silent_server: socket.socket, command: tuple[str, ...], number: signal.Signals
) -> None:
    """The producer's standard input stays open and silent: no operator presses Enter to let it go."""
    process = start(silent_server, *command)
    with silent_server.accept()[0]:
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.communicate()


async def wait_for_ever(said: list[str]) -> int:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        said.append("how far it got")
        raise
    return 0


async def end_well(said: list[str]) -> int:
    await asyncio.sleep(0.01)
    return 0


async def end_in_spite_of_it(said: list[str]) -> int:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return 0


@pytest.mark.parametrize("work", [wait_for_ever, end_well, end_in_spite_of_it])
def test_a_background_task_that_fails_ends_the_command_with_1(
    capsys: pytest.CaptureFixture[str], work: Callable[[list[str]], Coroutine[Any, Any, int]]
) -> None:
    said: list[str] = []

    async def fails() -> None:
        raise DiskError("/data/t-0", "write", 5, "Input/output error")

    async def both(runtime: Runtime) -> int:
        runtime.tasks.start("ledger", fails())
        return await work(said)

    assert run_client(both) == 1
    assert capsys.readouterr().err == "error: write /data/t-0: Input/output error\n"
    assert said == (["how far it got"] if work is wait_for_ever else [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_work_has_the_effect_that_it_had_before(number: signal.Signals) -> None:
    """A command that asks a cluster something, and then waits for processes or Spark."""
    received: list[int] = []
    before = signal.signal(number, lambda number, _: received.append(number))
    try:
        assert run_client(lambda runtime: end_well([])) == 0
        signal.raise_signal(number)
        assert received == [number]
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_unwinds_a_command_without_event_loop(number: signal.Signals) -> None:
    """What it started is stopped on the way: the demo leaves no cluster behind."""
    code = (
        "import os, signal, sys\n"
        "import click\n"
        "from holdfast.cli.__main__ import COMMANDS, LazyGroup\n"
        "class Group(LazyGroup):\n"
        "    def get_command(self, ctx, name):\n"
        "        return click.Command('work', callback=work)\n"
        "def work():\n"
        "    try:\n"
        "        os.kill(os.getpid(), int(sys.argv[1]))\n"
        "        signal.pause()\n"
        "    finally:\n"
        "        print('tidied up')\n"
        "Group().main(['demo'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(int(number))], capture_output=True, timeout=20)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, b"tidied up\n", b"")


def test_closed_standard_files_are_not_taken_for_sockets() -> None:
    done = subprocess.run(
        [
            *(
                "sh",
                "-c",
                '"$0" -m holdfast.cli topics --bootstrap-server 127.0.0.1:1 --timeout-ms 1000 --list <&- >&-',
            ),
            sys.executable,
        ],
        capture_output=True,
        text=True,
        timeout=20,
        env=dict(os.environ),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert "no process listens there" in done.stderr


#: Commands that ask once, with what they need to be asked.
QUESTIONS = [
    ["topics", "--list"],
    ["topics", "--describe", "--durability"],
    ["topics", "--create", "--topic", "t"],
    ["topics", "--alter", "--topic", "t", "--partitions", "3"],
    ["configs", "--describe", "--entity-type", "cluster"],
    ["configs", "--alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "a=b"],
    ["features", "describe"],
    ["features", "upgrade", "--feature", "x=1"],
    ["leader-election", "--election-type", "unclean", "--all-topic-partitions"],
    ["leader-election", "--election-type", "unclean", "--all-topic-partitions", "--dry-run"],
    ["unclean-recovery", "--all-offline-partitions", "--automated-recovery"],
    ["reassign-partitions", "--list"],
    ["cluster", "unregister", "--id", "3"],
    ["metadata-quorum", "readmit", "--voter", "3"],
    ["metadata-quorum", "resign"],
    ["metadata-quorum", "upgrade"],
    ["metadata-quorum", "add-controller", "--controller", "4@h:1"],
    ["metadata-quorum", "remove-controller", "--controller", "4"],
    ["get-offsets"],
    ["consumer-groups", "--list"],
    ["consumer-groups", "--describe", "--group", "g"],
]


@pytest.mark.parametrize("arguments", QUESTIONS)
def test_an_absent_cluster_is_one_sentence_within_the_time_given(arguments: list[str]) -> None:
    """A closed port refuses at once; the command goes on asking until its time is over."""
    words = ["--bootstrap-server", "127.0.0.1:1", "--timeout-ms", "1000", "--output", "json"]
    result = CliRunner().invoke(main, [*arguments, *words])
    assert result.exit_code == 1
    (error,) = json.loads(result.stdout)["errors"]
    assert error["code"] == "NETWORK_EXCEPTION"
    assert "no process listens there" in error["message"]
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", QUESTIONS)
def test_a_server_that_says_nothing_is_given_up(silent_server: socket.socket, arguments: list[str]) -> None:
    address = f"127.0.0.1:{silent_server.getsockname()[1]}"
    words = ["--bootstrap-server", address, "--timeout-ms", "50"]
    result = CliRunner().invoke(main, [*arguments, *words])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        *QUESTIONS,
        ["console-consumer", "--topic", "t"],
        ["console-producer", "--topic", "t"],
        ["verifiable-producer", "--topic", "t"],
        ["verifiable-consumer", "--topic", "t"],
        ["validate", "--ledger", "/"],
    ],
)
def test_what_is_no_address_is_wrong_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", "127.0.0.1:9092,foo"])
    assert result.exit_code == 2
    assert "'foo': expected host:port" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["get-offsets", "--topic", "["],
        ["consumer-groups"],
        ["consumer-groups", "--list", "--delete", "--group", "g"],
        ["consumer-groups", "--describe"],
        ["consumer-groups", "--delete"],
        ["consumer-groups", "--reset-offsets", "--group", "g", "--to-latest"],
        ["consumer-groups", "--reset-offsets", "--group", "g", "--all-topics"],
        ["consumer-groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-datetime", "soon"],
        ["consumer-groups", "--reset-offsets", "--all-topics", "--to-latest"],
        ["get-offsets", "--topic-partitions", "t"],
        ["get-offsets", "--topic-partitions", "t:x"],
        ["console-consumer", "--topic", "t", "--partition", "0", "--offset", "soon"],
        ["console-consumer", "--topic", "t", "--offset", "3"],
        ["console-consumer", "--topic", "t", "--partition", "0", "--group", "g"],
        ["console-consumer", "--topic", "t", "--partition", "0", "--offset", "3", "--from-beginning"],
        ["verifiable-producer", "--topic", "t", "--max-messages", "-2"],
        ["verifiable-consumer", "--topic", "t", "--max-messages", "0"],
        ["verifiable-consumer", "--topic", "t", "--group-id", "g", "--partition", "0"],
        # what int() refuses though it is a digit, and what no field of a request holds
        ["get-offsets", "--time", "²"],
        ["get-offsets", "--time", "99999999999999999999999"],
        ["get-offsets", "--topic-partitions", "t:²"],
        ["get-offsets", "--topic-partitions", "t:2147483648"],
        ["get-offsets", "--timeout-ms", "99999999999999999999999"],
        ["console-consumer", "--topic", "t", "--partition", "0", "--offset", "²"],
        ["console-consumer", "--topic", "t", "--partition", "0", "--offset", "9223372036854775808"],
        ["console-consumer", "--topic", "t", "--partition", "2147483648"],
        ["console-producer", "--topic", "t", "--partition", "2147483648"],
        ["verifiable-producer", "--topic", "t", "--partition", "2147483648"],
        ["verifiable-consumer", "--topic", "t", "--partition", "2147483648"],
        ["topics", "--create", "--topic", "t", "--partitions", "2147483648"],
        ["topics", "--create", "--topic", "t", "--replica-assignment", "1:2147483648"],
        ["topics", "--create", "--topic", "t", "--replica-assignment", "1:-2"],
        ["configs", "--describe", "--entity-type", "brokers", "--entity-name", "2147483648"],
        [
            *("leader-election", "--election-type", "designation", "--topic", "t", "--partition", "0"),
            *("--designated-leader", "2147483648"),
        ],
        ["cluster", "unregister", "--id", "2147483648"],
        ["validate", "--ledger", "/", "--log-dirs", "²=/"],
    ],
)
def test_wrong_usage_is_seen_before_anybody_is_asked(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", "127.0.0.1:1"])
    assert result.exit_code == 2
