"""Consumer groups in stories: their rules find what breaks them, and members do something to judge."""

from dataclasses import replace

import pytest

from holdfast.sim.campaign.run import run
from holdfast.sim.campaign.run_spec import RunTemplate
from holdfast.sim.checks import group_rules
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.table import Plan
from holdfast.sim.load.group_members import GroupAssignment, GroupHistory
from holdfast.sim.machine.choices import Choices


def history(*assignments: GroupAssignment) -> GroupHistory:
    return GroupHistory(list(assignments))


def assigned(member: str, generation_id: int, *partitions: int, start: int | None = 5) -> GroupAssignment:
    """Three offsets were committed of each partition before."""
    return GroupAssignment(
        member, generation_id, partitions, dict.fromkeys(partitions, start), dict.fromkeys(partitions, 3)
    )


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        ([assigned("a", 1, 0), assigned("b", 1, 1), assigned("a", 2, 0, 1)], ""),
        ([assigned("a", 2, 0), assigned("b", 1, 0)], ""),
        ([assigned("a", 2, 0), assigned("a", 1, 1)], "group: generation grows: a got 1 after 2"),
        ([assigned("a", 1, 0), assigned("b", 1, 0)], "group: one owner a partition and generation: t-0"),
        ([assigned("a", 1, 0, start=2)], "group: an acknowledged commit survives: a begins t-0 at 2"),
        ([assigned("a", 1, 0, start=None)], "group: an acknowledged commit survives: a begins t-0 at None"),
    ],
)
def test_the_rules_find_what_breaks_them(told: list[GroupAssignment], broken: str) -> None:
    found = group_rules.broken_rules(history(*told))
    assert [text[: len(broken)] for text in found] == ([broken] if broken else [])


def test_a_commit_that_no_coordinator_has_in_the_end_is_lost() -> None:
    told = history()
    told.committed({0: 7, 1: 2})
    told.committed({0: 6})  # the answer came late
    assert group_rules.lost_commits(told, {0: 7, 1: 2}) == []
    (lost,) = group_rules.lost_commits(told, {0: 6, 1: 9})
    assert lost.startswith("group: an acknowledged commit survives: t-0 at 7")


@pytest.mark.parametrize(
    ("shape", "is_judged"),
    [
        ({}, False),
        ({"members": 2}, True),
        *[
            ({"members": 2, "over_budget": True}, False),
            ({"members": 2, "on_edge": True}, False),
            ({"members": 2, "disks_lie": True}, False),
            ({"members": 2, "elr": False}, False),
            ({"members": 2, "switches_elr": True}, False),
        ],
    ],
)
def test_groups_are_judged_within_the_budget(shape: dict[str, bool | int], is_judged: bool) -> None:
    assert group_rules.is_judged(replace(ClusterSpec(), **shape)) is is_judged  # type: ignore[arg-type]


def test_no_story_has_members_unless_they_are_asked_for() -> None:
    assert not any(RunTemplate().spec(str(seed)).shape.members for seed in range(20))
    spec = RunTemplate(base=replace(ClusterSpec(), members=3)).spec("1")
    assert (spec.shape.members, spec.shape.brokers, spec.shape.recovery_manager) == (3, 3, True)
    assert RunTemplate(base=spec.shape).command("1").endswith("--members 3")


@pytest.mark.slow
def test_members_share_and_commit_while_brokers_die() -> None:
    shape = replace(ClusterSpec(), voters=1, partitions=3, members=3, recovery_manager=True)
    weights = {"kill_broker": 3, "kill_leader": 2, "pause_leader": 1, "isolate_leader": 1}
    told: list[GroupHistory] = []

    class Told(World):
        def __init__(self, *given: object) -> None:
            super().__init__(*given)  # type: ignore[arg-type]
            told.append(self.group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.sim.campaign.run.World", Told)
        result = run(Choices("1"), shape, 15, plan=Plan(1_500, weights=weights))
    assert result.violation is None, result.as_text()
    (group,) = told
    assert len(group.assignments) > 5
    assert group.commits > 20
    assert len({one.generation_id for one in group.assignments}) > 2
