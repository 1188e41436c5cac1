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
