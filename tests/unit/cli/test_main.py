"""The command group loads only what is asked for."""

import importlib
import json
import subprocess
import sys

import click
import pytest

from holdfast.cli.__main__ import COMMANDS, main

HEAVY = {"aiohttp", "aiokafka", "asyncio", "msgpack", "prometheus_client", "pyspark", "uvloop"}


@pytest.mark.parametrize("words", [["--help"], ["topics", "--help"], ["health", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys, json\n"
        "from click.testing import CliRunner\n"
        "before = set(sys.modules)\n"
        "from holdfast.cli.__main__ import main\n"
        f"result = CliRunner().invoke(main, {words})\n"
        "print(json.dumps([result.exit_code, sorted(set(sys.modules) - before)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, modules = json.loads(done.stdout)
    assert exit_code == 0
    assert HEAVY.isdisjoint(modules)
    assert "holdfast.client.admin" not in modules


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_exists_and_explains_itself(name: str) -> None:
    module = importlib.import_module(COMMANDS[name][0])
    assert module.__doc__
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Command)
    assert command.help


@pytest.mark.parametrize("words", ["--help", "--version", "topics --help", "drill --list"])
def test_a_closed_output_is_none_that_fails(words: str) -> None:
    command = ["sh", "-c", f'"$0" -m holdfast.cli {words} >&-', sys.executable]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["topics", "--help"], ["drill", "--list"]])
def test_a_full_disk_behind_the_output_is_told_in_a_sentence(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "Error: the output could not be written: No space left on device\n"


#: They run until they are told to end, or carry records and lines of JSON of their own.
WITHOUT_OUTPUT = {
    "broker", "controller", "console-producer", "verifiable-consumer",
    "verifiable-producer", "watch", "sim replay", "sim shrink",
}  # fmt: skip


def test_every_other_command_has_an_answer_for_programs() -> None:
    assert {words for words in commands(click.Context(main), "") if words not in WITHOUT_OUTPUT} == {
        words for words, options in commands(click.Context(main), "").items() if "--output" in options
    }


def commands(context: click.Context, path: str) -> dict[str, set[str]]:
    """The options of each command, with those of the groups that it is in."""
    own = {option for parameter in context.command.params for option in parameter.opts}
    if not isinstance(context.command, click.Group):
        return {path: own}
    found: dict[str, set[str]] = {}
    for name in context.command.list_commands(context):
        inner = context.command.get_command(context, name)
        assert inner is not None
        below = commands(click.Context(inner, parent=context, info_name=name), f"{path} {name}".strip())
        found |= {words: options | own for words, options in below.items()}
    return found
