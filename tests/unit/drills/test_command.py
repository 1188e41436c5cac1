"""Usage of `holdfast drill`: wrong words are refused before anything is started."""

import json

import pytest
from click.testing import CliRunner

from cli.__main__ import main
from drills.catalogue import DRILLS


def test_all_drills_are_listed() -> None:
    shown = CliRunner().invoke(main, ["drill", "--list"])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()[1:]] == list(DRILLS)
    rows = json.loads(CliRunner().invoke(main, ["drill", "--list", "--output", "json"]).output)["data"]
    assert {row["name"]: row["compares"] for row in rows}["power-outage"] == "manager"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which drill?"),
        (["outage"], "no drill outage"),
        (["stale-reply", "--compare"], "nothing to compare"),
        (["stale-reply", "--manager", "off"], "cannot be played with manager off"),
        (["kip-timeline", "--elr", "off"], "cannot be played with manager on, elr off"),
        (["power-outage", "--strategy", "none"], "cannot be played with"),
        (["power-outage", "--seed", "1", "--seeds", "1..2"], "exclude each other"),
        (["power-outage", "--seeds", "2..1"], "--seeds"),
        (["power-outage", "--power-loss", "hammer"], "hammer"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(words: list[str], said: str) -> None:
    result = CliRunner().invoke(main, ["drill", *words])
    assert result.exit_code == 2
    assert said in result.output
