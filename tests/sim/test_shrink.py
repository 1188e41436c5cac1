"""A failing run becomes smaller and still fails in the same way."""

from array import array
from dataclasses import replace

import pytest

from holdfast.sim.campaign import run as sim_run
from holdfast.sim.campaign.artifact import Artifact, artifact_of
from holdfast.sim.campaign.recording import record
from holdfast.sim.campaign.run_spec import RunSpec
from holdfast.sim.campaign.shrink import (
    NotFailing,
    passing_neighbour,
    played_faults,
    shrink,
    without_faults,
    without_gaps,
)
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.nodes import SimBroker
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan

pytestmark = pytest.mark.slow

STORY = RunSpec(
    "9",
    ClusterSpec(partitions=2, producers=2, topics=2),
    2.0,
    Plan(gap_ms=200, only=("pause_broker", "reset", "kill_broker")),
)


class NoBrokerEnds(Property):
    """For these tests: one kill is enough to violate it."""

    name = "T-1 NoBrokerEnds"

    def broker_ends(self, seen: Observer, broker: SimBroker) -> None:
        seen.broken(self, None, broker.name)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """A run in which a broker is killed, after other faults."""
    monkeypatch.setattr(sim_run, "all_properties", lambda: [NoBrokerEnds()])
    recording = record(STORY)
    return artifact_of(STORY, recording.tape, recording.result)


def test_one_fault_is_left_of_many_where_one_is_enough(failing: Artifact) -> None:
    assert failing.property_name == "T-1"
    told: list[str] = []
    small = shrink(failing, 40, told.append)
    assert small.property_name == "T-1"
    assert len(played_faults(small.tape)) == 1 < len(played_faults(failing.tape))
    shape = small.spec.shape
    assert (shape.partitions, shape.producers, shape.topics) == (1, 1, 1)
    assert small.spec.seconds < failing.spec.seconds
    assert not any(small.tape["net"])
    assert not any(small.tape["sched"])
    assert record(small.spec, small.tape).result.trace_hash == small.trace_hash
    assert told


def test_the_budget_of_replays_is_kept_and_what_was_reached_fails_too(failing: Artifact) -> None:
    told: list[str] = []
    small = shrink(failing, 3, told.append)
    assert len(told) <= 3
    assert small.property_name == "T-1"


def test_a_run_that_does_not_fail_any_more_is_not_shrunk(
    failing: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_run, "all_properties", list)
    with pytest.raises(NotFailing, match="T-1"):
        shrink(failing)


def test_the_neighbour_that_passes_lacks_the_fault_that_decides(failing: Artifact) -> None:
    one_kill = shrink(failing, 20)
    found = passing_neighbour(one_kill, 1.0, 3)
    assert found is not None
    assert (found.fault, found.fails_at_s) == (0, None)
    assert not any(" kill b" in event for event in found.events)


def test_a_neighbour_may_fail_too_but_not_as_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(STORY, seconds=8.0, plan=Plan(gap_ms=2_500, only=("kill_broker",)))
    monkeypatch.setattr(sim_run, "all_properties", list)
    whole = record(spec)  # with the kills behind the one that will be too many
    monkeypatch.setattr(sim_run, "all_properties", lambda: [NoBrokerEnds()])
    failing = record(spec, whole.tape).result
    kept = artifact_of(spec, whole.tape, failing)
    count = len(played_faults(whole.tape))
    assert count > 2
    found = passing_neighbour(kept, failing.simulated_seconds, count)
    assert found is not None
    assert found.fault == 0
    assert found.fails_at_s is not None
    assert passing_neighbour(kept, found.fails_at_s - 0.5, count) is None, "half a second is as soon"
    assert passing_neighbour(kept, failing.simulated_seconds, count - 1) is None, "the others come later"


def test_a_fault_is_left_out_by_its_number_and_the_others_draw_what_they_drew() -> None:
    tape = {
        "fault": array("Q", [100, 7, 200, 0, 300, 9]),
        "fault.0": array("Q", [1]),
        "fault.2": array("Q", [2]),
        "net": array("Q", [5]),
    }
    assert played_faults(tape) == [0, 2]
    without = without_faults(tape, [0])
    assert played_faults(without) == [2]
    assert without["fault"] == array("Q", [100, 0, 200, 0, 300, 9])
    assert (without["fault.2"], without["net"]) == (tape["fault.2"], tape["net"])
    assert tape["fault"][1] == 7, "the tape that was given stays as it is"


def test_faults_move_up_with_what_they_drew() -> None:
    tape = {
        "fault": array("Q", [100, 0, 200, 8, 300, 0, 400, 9]),
        "fault.1": array("Q", [1]),
        "fault.3": array("Q", [3]),
        "work": array("Q", [5]),
    }
    assert without_gaps(tape) == {
        "fault": array("Q", [200, 8, 400, 9]),
        "fault.0": array("Q", [1]),
        "fault.1": array("Q", [3]),
        "work": array("Q", [5]),
    }


def test_leaving_out_the_last_fault_changes_nothing_before_it(failing: Artifact) -> None:
    spec = replace(STORY, plan=Plan(gap_ms=300, only=("pause_broker", "reset")))
    full = record(spec)
    last = played_faults(full.tape)[-1]
    without = record(spec, without_faults(full.tape, [last]))
    told = [line for line in full.events if " fault " in line]
    assert [line for line in without.events if " fault " in line] == told[:-1]
    at = full.events.index(told[-1])
    assert without.events[:at] == full.events[:at]
