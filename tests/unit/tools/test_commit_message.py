"""The commit-msg hook: which subjects it accepts."""

from pathlib import Path

import pytest

from holdfast.tools.commit_message import main, problems

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "message",
    [
        "broker: remove an unused parameter",
        "sim/checks: check fetch fairness",
        "broker, controller, cli: each timer event is a Tick",
        ".ci: run the long tests, too\n\nThey find what the short ones cannot.",
        "docs: " + "x" * 66,
        "# comments do not count\n\ndocs: fix a link",
        "Merge branch 'names'",
        'Revert "docs: a subject that was quoted and is therefore longer than seventy-two characters"',
        "fixup! docs: fix a link",
    ],
)
def test_a_subject_with_an_area_and_at_most_72_characters_is_accepted(message: str) -> None:
    assert problems(message) == []


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", "empty"),
        ("# only a comment", "empty"),
        ("remove an unused parameter", "area: what"),
        ("Broker: remove an unused parameter", "area: what"),
        ("broker:remove an unused parameter", "area: what"),
        ("broker: ", "area: what"),
        ("two words: remove an unused parameter", "area: what"),
        ("docs: " + "x" * 67, "73 characters"),
        ("docs: fix a link\nThe page has moved.", "blank line"),
    ],
)
def test_any_other_message_is_refused_with_the_reason(message: str, problem: str) -> None:
    (found,) = problems(message)
    assert problem in found


def test_the_hook_exits_with_1_and_names_the_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("no area here\n")
    assert main([str(message)]) == 1
    assert "area: what" in capsys.readouterr().err
    message.write_text("docs: an area\n")
    assert main([str(message)]) == 0


def test_pre_commit_runs_the_hook_at_the_stage_of_messages() -> None:
    config = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    hook = config.split("id: commit-message")[1].split("- id:")[0]
    assert "python -m holdfast.tools.commit_message" in hook
    assert "stages: [commit-msg]" in hook
