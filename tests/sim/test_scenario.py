"""Stories that a person wrote: what is read, what is refused, and that they are played as written."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.sim.command import command
from holdfast.sim.campaign.artifact import artifact_of, load, save
from holdfast.sim.campaign.recording import record
from holdfast.sim.campaign.scenario import BadScenario, read_scenario
from holdfast.sim.faults.table import Plan

TEXT = """
# the leader goes, then another broker
brokers 4
partitions 1   # one is enough
producers 1
every_write
no elr
seconds 2
at 0.5 kill_leader
at 1 pause b4
at 1.2 stop c101
"""


def test_a_story_is_read_and_the_rest_is_as_usual() -> None:
    spec = read_scenario(TEXT, "7")
    shape = spec.shape
    assert (shape.brokers, shape.partitions, shape.producers, shape.voters) == (4, 1, 1, 3)
    assert (shape.every_write, shape.elr) == (True, False)
    assert (spec.seed, spec.seconds) == ("7", 2.0)
    assert spec.plan == Plan(script=((500, "kill_leader"), (1000, "pause b4"), (1200, "stop c101")))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("moons 3", "line 1: moons 3: no such fact"),
        ("\nbrokers three", "line 2: brokers three"),
        ("at soon kill b1", "line 1: at soon kill b1"),
        ("at 1 kill b9", "the nodes are b1, b2, b3, c101, c102, c103"),
        ("at 1 tickle b1", "one of kill, power, stop, pause, isolate"),
        ("at 1 earthquake", "no such fault; there are kill_broker"),
        ("brokers 2", "none may be above the next"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_line(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(BadScenario, match=told):
        read_scenario(text, "7")
    (tmp_path / "story.txt").write_text(text)
    refused = CliRunner().invoke(command, ["run", "--seed", "1", "--scenario", str(tmp_path / "story.txt")])
    assert refused.exit_code == 2
    assert told in refused.output


@pytest.mark.slow
def test_a_story_is_played_at_its_times_and_kept_like_any_other(tmp_path: Path) -> None:
    spec = read_scenario(TEXT.replace("no elr", ""), "7")
    recording = record(spec)
    assert recording.result.violation is None, recording.result.as_text()
    assert recording.result.faults == {"kill_leader": 1, "pause b4": 1, "stop c101": 1}
    times = [int(line.split()[0]) for line in recording.events if line.split()[1] == "fault"]
    assert [after - times[0] for after in times] == [0, 500_000_000, 700_000_000]
    save(artifact_of(spec, recording.tape, recording.result), tmp_path / "run.json")
    kept = load(tmp_path / "run.json")
    assert kept.spec == spec
    assert record(kept.spec, kept.tape).result.trace_hash == recording.result.trace_hash
