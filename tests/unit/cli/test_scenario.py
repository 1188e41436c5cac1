"""`holdfast scenario`: exit codes, differences by block, rewriting, the tables of docs/scenarios.md."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.scenario import command, speaker
from holdfast.scenario.controller_commands import Scenario
from holdfast.scenario.partition_commands import PartitionScenario
from holdfast.scenario.raft_commands import RaftScenario

ROOT = Path(__file__).parents[3]

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
        ("failover now\n----\nok\n", "failover does not know what to do with now"),
        ("broker 1\nalter t-0 isr=(1,x)\n----\nok\n", "a.txt:2: expected a number, got x"),
        ("broker 1\nalter t-0 isr=1,2\n----\nok\n", "expected ids as (1,2), got 1,2"),
        ("broker 1\nregister 1 first\n----\nok\n", "a.txt:2: broker 1 is registered already"),
        ("elect best t-0\n----\nok\n", "expected preferred|unclean|"),
        ("broker 1\ncluster\n----\nok\n", "a.txt:2: cluster comes first"),
        ("broker 1\nbroker 2 1\n----\nok\n", "a.txt:2: register and unfence bring a known broker back"),
        (
            "broker 1 2\npartition t-0 replicas=(1,2) min_isr=2 elr=(1)\n----\nok\n",
            "a.txt:2: no partition can be in this state: ",
        ),
        ("----\nok\n", "a.txt:1: ---- without commands"),
        ("cluster elr=maybe\n----\nok\n", "expected on|off, got maybe"),
        ("config topic t a=1 b=2\n----\nok\n", "config needs one KEY=VALUE"),
        ("registration leader=1 isr=(1)\nfence x\n----\nok\n", "a.txt:2: expected a number, got x"),
        ("registration leader=1 isr=(1)\nbroker 1\n----\nok\n", "a.txt:2: unknown command broker"),
        ("registration leader=1 isr=(1)\nanswer isr=(1)\n----\nok\n", "a.txt:2: nothing was proposed"),
        ("node 1 voters=(1,2,3) log=1\n----\nok\n", "a.txt:1: expected a log as 1:3,2:2, got 1"),
        ("node 1 voters=(1,2,3)\nanswer 2 granted\n----\nok\n", "a.txt:2: nothing was asked of 2"),
        ("node 1 voters=(1,2,3)\nvote from=2 epoch=1 last=3\n----\nok\n", "a.txt:2: expected a number"),
    ],
)
def test_what_cannot_be_parsed_is_named_and_exits_with_2(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    result = run(str(path))
    assert result.exit_code == 2
    assert hint in result.output


def test_a_file_that_breaks_off_is_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("broker 1\n----\n\ndance\n----\n")
    assert run(str(path), "--rewrite").exit_code == 2
    assert path.read_text() == "broker 1\n----\n\ndance\n----\n"


def test_a_file_that_cannot_be_parsed_outweighs_one_that_differs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT.format(answer="ok"))
    (tmp_path / "b.txt").write_text("dance\n----\n")
    result = run(str(tmp_path))
    assert result.exit_code == 2
    assert "2 scenarios, 1 differ, 1 cannot be parsed" in result.output


def test_programs_get_the_differences_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT.format(answer="ok"))
    (tmp_path / "b.txt").write_text("dance\n----\n")
    result = run(str(tmp_path), "--output", "json")
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["ok"], answer["data"]["scenarios"]) == (2, False, 2)
    assert [Path(row["file"]).name for row in answer["data"]["differing"]] == ["a.txt"]
    assert "b.txt" in answer["errors"][0]["message"]


def test_spaces_in_sets_indented_comments_and_blank_lines_are_no_difference(tmp_path: Path) -> None:
    text = TEXT.format(answer=RIGHT).replace("(1,2) min_isr", "( 2, 1 ) leader=1 min_isr")
    (tmp_path / "a.txt").write_text(
        "\n\n" + text.replace("fence 2\n", "  # so\n\nfence 2\n\n") + "\n\n# end\n"
    )
    assert run(str(tmp_path)).output == "1 scenarios, 0 differ, 0 cannot be parsed\n"


def test_one_run_takes_files_of_all_tables(tmp_path: Path) -> None:
    folder = ROOT / "tests" / "scenarios"
    seen = set()
    for kind in ("controller", "partition", "raft"):
        file = sorted((folder / kind).glob("*.txt"))[0]
        shutil.copy(file, tmp_path)
        seen.add(type(speaker(file)))
    assert seen == {Scenario, PartitionScenario, RaftScenario}
    before = {file: file.read_text() for file in tmp_path.iterdir()}
    assert run(str(tmp_path)).output == "3 scenarios, 0 differ, 0 cannot be parsed\n"
    assert run(str(tmp_path), "--rewrite").exit_code == 0
    assert {file: file.read_text() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("title", "table"),
    [("Controller", Scenario()), ("Partition", PartitionScenario()), ("Raft node", RaftScenario())],
)
def test_the_page_about_scenarios_names_every_command_and_its_example_passes(
    title: str, table: Scenario | PartitionScenario | RaftScenario, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text()
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(title))
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    names = [example.split()[0] for row in rows for example in re.findall(r"`([^`]+)`", row)]
    assert sorted(set(names)) == sorted(table.commands)
    example = [line[4:] for line in text.splitlines() if line.startswith("    ")]
    (tmp_path / "a.txt").write_text("\n".join(example))
    result = run(str(tmp_path / "a.txt"))
    assert result.exit_code == 0, result.output
