"""`holdfast scenario`: exit codes, differences by block, rewriting."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.scenario import command

TEXT = """\
# a comment stays
broker 1 2
partition t-0 replicas=(1,2) min_isr=2
----
ok
t-0 leader=1@0 isr=(1,2) elr=() last_known_elr=() last_known_leader=none min_isr=2 pe=0

fence 2
----
{answer}
"""
RIGHT = "t-0 leader=1@0 isr=(1) elr=(2) last_known_elr=() last_known_leader=none min_isr=2 pe=1"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_a_folder_passes_when_every_answer_matches(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT.format(answer=RIGHT))
    (tmp_path / "README.md").write_text("no scenario")
    result = run(str(tmp_path))
    assert (result.exit_code, result.output) == (0, "1 scenarios, 0 differ, 0 cannot be parsed\n")


def test_a_wrong_answer_shows_the_difference_of_its_block_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(TEXT.format(answer="ok"))
    result = run(str(path))
    assert result.exit_code == 1
    assert "--- a.txt:8 expected" in result.output
    assert "-ok\n+" + RIGHT in result.output
    assert "isr=(1,2)" not in result.output


def test_rewrite_fills_in_the_answers_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(TEXT.format(answer="ok"))
    assert run(str(path), "--rewrite").exit_code == 0
    assert path.read_text() == TEXT.format(answer=RIGHT)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("broker 1\n", "the last block has no ----"),
        ("dance 1\n----\nok\n", "a.txt:1: unknown command dance"),
        ("broker one\n----\nok\n", "a.txt:1: expected a number"),
        ("broker 1 colour=red\n----\nok\n", "knows no colour="),
        ("broker 1\nshow t\n----\nok\n", "a.txt:2: expected a partition"),
        ("fence\n----\nok\n", "fence needs more words"),
    ],
)
def test_what_cannot_be_parsed_is_named_and_exits_with_2(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    result = run(str(path))
    assert result.exit_code == 2
    assert hint in result.output
