"""`holdfast sim model`: exit codes, the page about a broken property, the table of mutants."""

import json

from click.testing import CliRunner

from holdfast.cli.sim.model import command


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def test_walks_that_break_nothing_end_well() -> None:
    code, output = run("--seeds", "3..5", "--steps", "300", "--output", "json", "--marks")
    row = json.loads(output)
    assert code == 0
    assert row["violations"] == {}
    assert row["steps"] == 900
    assert row["marks"]


def test_a_mutant_is_told_with_its_seed_its_property_and_the_way_to_see_it_again() -> None:
    code, output = run("--seeds", "0..9", "--mutant", "unclean-stays-in-elr")
    assert code == 0
    assert "A-8 UncleanExclusion" in output
    assert "--steps 2000 --band mixed --mutant unclean-stays-in-elr" in output
    assert "steps are enough" in output


def test_a_mutant_that_nothing_notices_is_a_failure() -> None:
    assert run("--seeds", "0", "--steps", "1", "--mutant", "no-gate")[0] == 1


def test_seeds_that_make_no_sense_are_a_usage_error() -> None:
    for seeds in ("5..3", "one", "1..x"):
        code, output = run("--seeds", seeds)
        assert code == 2
        assert "--seeds" in output


def test_without_elr_losses_are_counted_and_are_no_failure() -> None:
    code, output = run("--seeds", "0..19", "--band", "elr-off", "--output", "json")
    row = json.loads(output)
    assert code == 0
    assert row["walks_with_loss"] > 0
