"""Stories of the spec tests: commands of the scenario files, and after them what matters of their answers.

A line that begins with `=>` is one line that the command above must print: all its words must be among the
words
printed. A command without such lines may print anything but an error.
"""

from collections.abc import Callable

from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.grammar import Command
from holdfast.scenario.partition_commands import PartitionScenario

MARK = "=>"


def run_script(text: str, scenario: Scenario | None = None) -> Scenario:
    """Tell it to a controller, a new one unless given; returns the controller for further looks."""
    scenario = scenario or Scenario()
    _run(text, scenario.execute)
    return scenario


def run_leader_script(text: str) -> PartitionScenario:
    """Tell it to the partition of broker 1."""
    partition = PartitionScenario()
    _run(text, partition.execute)
    return partition


def _run(text: str, execute: Callable[[Command], list[str]]) -> None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        expected: list[str] = []
        while at < len(lines) and lines[at].startswith(MARK):
            expected.append(lines[at].removeprefix(MARK).strip())
            at += 1
        printed = execute(Command(line, line))
        if not expected:
            assert not any("error=" in answer for answer in printed), f"{line}: {printed}"
            continue
        told = f"{line}: expected {expected}, seen {printed}"
        assert len(printed) == len(expected), told
        for wanted, answer in zip(expected, printed, strict=True):
            assert set(wanted.split()) <= set(answer.split()), told
