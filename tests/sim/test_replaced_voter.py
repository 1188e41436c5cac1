"""Voters whose disks are replaced: by documented commands alone, and nothing that was committed is lost."""

from dataclasses import replace

import pytest

from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.checks import liveness
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.table import Faults, Plan
from holdfast.sim.machine.choices import Choices
from tests.cases import long, slow

SHAPE = replace(ClusterSpec(), producers=2, partitions=2, snapshots=True, replaces_voters=True)


def test_a_voter_with_an_empty_disk_is_another_one_and_votes_again() -> None:
    world = World(SHAPE, Choices("5"))
    faults = Faults(world, Plan(script=((3_000, "replace_voter"),)))
    world.boot()
    world.start_load()
    faults.start()
    world.eventually("the log names the voters", lambda: liveness.do_all_vote(world))
    before = world.named_voters()
    world.eventually("a disk is replaced", lambda: faults.counts.get("replace_voter", 0) == 1)
    world.eventually("it has been removed", lambda: len(world.named_voters()) == 2)
    world.eventually("it votes again", lambda: liveness.do_all_vote(world))
    changed = [voter for voter, directory in world.named_voters().items() if before[voter] != directory]
    replaced = [voter.node_id for voter in world.controllers if voter.machine.sim_disk.replacements]
    assert changed == replaced
    assert len(replaced) == 1
    world.eventually("every node has the same image", lambda: liveness.have_equal_images(world))
    world.close()


#: how many faults are played at least: more than 500 in the long rows together
@pytest.mark.parametrize(
    ("seed", "seconds", "faults_min"),
    [*slow(("3", 15.0, 15)), *long(("1", 100.0, 190), ("2", 100.0, 160), ("3", 100.0, 155))],
)
def test_kills_wipes_and_replacements_of_all_nodes_leave_one_image(
    seed: str, seconds: float, faults_min: int
) -> None:
    """What each run checks at its end: no acknowledged record is lost, every image is the same (Q-8)."""
    template = RunTemplate(ClusterSpec(), seconds=seconds, gap_ms=350, band="replaced-voters")
    result = play(template.spec(seed))
    assert result.violation is None, result.as_text()
    assert result.faults["replace_voter"] >= 1
    assert sum(result.faults.values()) >= faults_min
