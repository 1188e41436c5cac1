"""`holdfast validate`: what is wrong with its arguments is said before Spark is started."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.validate import command, parse_log_dirs
from holdfast.durability.verdict import Verdict, inconclusive


def test_log_dirs_name_their_broker() -> None:
    assert parse_log_dirs(("1=/a", "replica:2=/b,/c")) == {1: "/a", 2: "/b,/c"}


@pytest.mark.parametrize(
    ("items", "reason"),
    [(("/a",), "expected ID=DIR"), (("x=/a",), "expected ID=DIR"), (("1=/a", "1=/b"), "named twice")],
)
def test_log_dirs_without_a_clear_broker_are_refused(items: tuple[str, ...], reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        parse_log_dirs(items)


def test_a_usage_error_is_exit_code_2(tmp_path: Path) -> None:
    missing = CliRunner().invoke(command, ["--ledger", str(tmp_path / "no"), "--bootstrap-server", "h:1"])
    assert missing.exit_code == 2
    unclear = ["--ledger", str(tmp_path), "--bootstrap-server", "h:1", "--log-dirs", "here"]
    assert CliRunner().invoke(command, unclear).exit_code == 2


@pytest.mark.parametrize("size", ["", "2", "2G", "0g", "511m", "1.5g", "2 g", "9999999g"])
def test_a_heap_of_no_size_is_refused(tmp_path: Path, size: str) -> None:
    arguments = ["--ledger", str(tmp_path), "--bootstrap-server", "127.0.0.1:1", "--memory", size]
    result = CliRunner().invoke(command, arguments)
    assert (result.exit_code, "expected a size like 800m or 4g" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    "more",
    [
        ("--metrics", "m.prom"),
        ("--follow-seconds", "5"),
        ("--follow", "state", "--one-clock"),
        ("--follow", "state", "--report", "r"),
    ],
)
def test_what_does_not_go_with_following_is_refused(tmp_path: Path, more: tuple[str, ...]) -> None:
    arguments = ["--ledger", str(tmp_path), "--bootstrap-server", "127.0.0.1:1", *more]
    result = CliRunner().invoke(command, arguments)
    assert (result.exit_code, "--follow" in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--follow", "state"),
        ("--log-dirs", "1=."),
        ("--one-clock", None),
        ("--history", "."),
        ("--jars", "no.jar"),
        ("--packages", "spark-sql-kafka-0-10_2.13"),
    ],
)
def test_what_does_not_go_with_the_kafka_source_is_refused_by_name(
    tmp_path: Path, option: str, value: str | None
) -> None:
    lines, history = tmp_path / "sends.jsonl", tmp_path / "history.jsonl"
    lines.touch()
    history.touch()
    given = str(history) if option == "--history" else value
    arguments = ["--foreign", str(lines), "--source", "kafka", "--bootstrap-server", "127.0.0.1:1", option]
    result = CliRunner().invoke(command, arguments if given is None else [*arguments, given])
    assert (result.exit_code, option in result.output.splitlines()[-1]) == (2, True), result.output


def test_packages_and_jars_may_have_spaces_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = pytest.importorskip("holdfast.durability.validate", exc_type=ImportError)
    seen = []

    def judged(options: Any, *_: Any) -> Verdict:
        seen.append(options)
        return inconclusive("enough")

    monkeypatch.setattr(run, "run", judged)
    lines, jars = tmp_path / "sends.jsonl", [tmp_path / "a.jar", tmp_path / "b.jar"]
    for path in (lines, *jars):
        path.touch()
    arguments = ["--foreign", str(lines), "--source", "kafka", "--bootstrap-server", "127.0.0.1:1"]
    more = ["--packages", "g:a:1, g:b:2 ,", "--jars", f" {jars[0]}, {jars[1]}"]
    result = CliRunner().invoke(command, [*arguments, *more])
    (options,) = seen or [pytest.fail(result.output)]
    assert options.spark_settings == {
        "spark.jars.packages": "g:a:1,g:b:2",
        "spark.jars": f"{jars[0]},{jars[1]}",
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--ledger", ".", "--source", "kafka"), "--ledger does not go with --source kafka"),
        (("--foreign", ".", "--jars", "a.jar"), "go with --source kafka"),
        (("--foreign", ".", "--packages", "a:b:1"), "go with --source kafka"),
        (("--foreign", ".", "--command-config", os.devnull), "go with --source kafka"),
        (("--foreign", ".", "--source", "kafka", "--command-config", "no.file"), "cannot read no.file"),
    ],
)
def test_the_kafka_source_goes_with_foreign_alone(more: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(command, [*more, "--bootstrap-server", "127.0.0.1:1"])
    assert (result.exit_code, said in result.output) == (2, True), result.output


@pytest.mark.parametrize(
    ("state", "metrics", "named"), [("ledger/state", "m.prom", "--follow"), ("s", "ledger/m", "--metrics")]
)
def test_following_writes_nothing_among_the_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, metrics: str, named: str
) -> None:
    """It would read it, and doubt it."""
    monkeypatch.chdir(tmp_path)
    Path("ledger").mkdir()
    arguments = ["--ledger", "ledger", "--bootstrap-server", "127.0.0.1:1", "--follow", state]
    result = CliRunner().invoke(command, [*arguments, "--metrics", metrics])
    assert (result.exit_code, f"{named} ledger/" in result.output) == (2, True), result.output


def test_a_log_dir_that_is_not_there_is_named_before_spark_starts(tmp_path: Path) -> None:
    arguments = ["--ledger", str(tmp_path), "--bootstrap-server", "127.0.0.1:1"]
    result = CliRunner().invoke(command, [*arguments, "--log-dirs", f"1={tmp_path},{tmp_path}/gone"])
    assert result.exit_code == 2
    assert f"{tmp_path}/gone is no folder" in result.output


#: Follows until it is told to end, and gets the signal argv[1] argv[2] times.
FOLLOWER = """
import os, sys
import holdfast.durability.follow as follow
from holdfast.cli.validate import command
from holdfast.durability.verdict import Verdict

def run(options, on_step, is_over, on_phase):
    for _ in range(int(sys.argv[2])):
        os.kill(os.getpid(), int(sys.argv[1]))
    assert is_over()
    return Verdict(counts={"lost": 0}, samples={}, facts={})

follow.run = run
command(["--follow", "state", "--ledger", "ledger", "--bootstrap-server", "127.0.0.1:1"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_following_ends_with_a_verdict_at_the_first_signal_and_at_once_at_the_second(
    number: signal.Signals, times: int, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `spark`")
    (tmp_path / "ledger").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FOLLOWER, str(int(number)), str(times)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ("VERDICT: " in done.stdout, done.returncode == -number) == (times == 1, times == 2), done
