"""A long command says how far it is: on a terminal, and nowhere else."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from holdfast.cli.progress import Progress, figures


@contextmanager
def terminal() -> Iterator[list[str]]:
    """Standard error is a terminal; afterwards the list has what stands there."""
    seen: list[str] = []
    ours, theirs = os.openpty()
    with pytest.MonkeyPatch.context() as patch, os.fdopen(theirs, "w") as file:
        patch.setattr(sys, "stderr", file)
        yield seen
        os.set_blocking(ours, False)
        with suppress(BlockingIOError):
            while text := os.read(ours, 1 << 16):
                seen.append(text.decode())
    os.close(ours)


@pytest.fixture(autouse=True)
def a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the terminal."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_shows_the_phase_and_how_much_of_it_is_done() -> None:
    with terminal() as seen, Progress() as progress:
        progress.phase("Producers write", 5_000, "records", lambda: 1_200)
    assert "Producers write" in "".join(seen)
    assert "1,200 of 5,000 records" in "".join(seen)


def test_the_phases_of_what_a_command_calls_are_shown_in_the_same_line() -> None:
    with terminal() as seen, Progress() as outer:
        outer.phase("Runs", 4, "runs")
        with Progress() as inner:
            inner.phase("Spark compares")
        outer.at(1, "the second run")
    text = "".join(seen)
    assert "the second run" in text
    assert text.count("\x1b[?25l") == 1, "one line: the cursor is hidden once"


@pytest.mark.parametrize("variable", [("CI", "true"), ("TERM", "dumb")])
def test_a_terminal_that_only_a_log_is_made_of_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    with terminal() as seen, Progress() as progress:
        progress.phase("Producers write", 5_000, "records")
        progress.at(10)
    assert seen == []


def test_a_pipe_gets_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        progress.phase("Producers write", 5_000, "records")
        progress.at(10)
        progress.rest()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("done", "total", "per_second", "unit", "text"),
    [
        (1_200, 5_000, 400.4, "records", "1,200 of 5,000 records, 400 records/s"),
        (2, 4, 0.25, "seeds", "2 of 4 seeds, 15 seeds/min"),
        (7, None, None, "records", "7 records"),
        (30, 60, 1.0, "s", "30 of 60 s"),
        (0, None, None, "", ""),
    ],
)
def test_what_is_counted_is_shown_with_its_rate(
    done: float, total: float | None, per_second: float | None, unit: str, text: str
) -> None:
    assert figures(done, total, per_second, unit) == text
