"""Beyond the fault budget losses are seen and counted with their rule, and never come unreported."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from holdfast.controller.core.decisions import CauseKind
from holdfast.controller.core.partitions.election import ElectionReason
from holdfast.sim.campaign.run import run
from holdfast.sim.checks.bands import COPIES_GONE, LAST_REPLICA_STANDING, LYING_DISKS, LossEvidence, excuse
from holdfast.sim.checks.properties.logs import (
    EpochOffsetUniqueness,
    LeaderCompleteness,
    NoCommittedRecordLostGlobally,
)
from holdfast.sim.checks.properties.loss_reports import UncleanElectionsAreTold
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices
from tests.sim.checks.histories import Scene, change, mark, row, view_of

LYING = replace(ClusterSpec(), every_write=True, disks_lie=True)
NO_ELR = replace(ClusterSpec(), elr=False)
OVER = replace(ClusterSpec(), over_budget=True)
RECOVERED = LossEvidence(unclean=ElectionReason.LAST_KNOWN_LEADER.value)
LIED = LossEvidence(has_lied=True, has_lost_tail=True)
SHORTER = LossEvidence(has_lost_tail=True)


@pytest.mark.parametrize(
    ("shape", "evidence", "rule"),
    [
        (ClusterSpec(), RECOVERED, None),
        (ClusterSpec(), LIED, None),
        (OVER, LossEvidence(), None),
        (OVER, SHORTER, None),
        (OVER, RECOVERED, "G-4: beyond the budget, elected as last_known_leader"),
        (LYING, RECOVERED, None),
        (LYING, SHORTER, None),
        (LYING, LIED, LYING_DISKS),
        (NO_ELR, RECOVERED, None),
        (NO_ELR, SHORTER, LAST_REPLICA_STANDING),
    ],
)
def test_a_loss_is_excused_where_there_is_evidence_of_what_the_band_allows_b4(
    shape: ClusterSpec, evidence: LossEvidence, rule: str | None
) -> None:
    assert excuse(LeaderCompleteness(), shape, evidence) == rule


def test_beyond_the_budget_copies_may_go_before_anybody_is_elected_once_a_tail_was_lost() -> None:
    assert excuse(NoCommittedRecordLostGlobally(), OVER, SHORTER) == COPIES_GONE
    assert excuse(NoCommittedRecordLostGlobally(), OVER, LossEvidence()) is None
    assert excuse(LeaderCompleteness(), OVER, SHORTER) is None


@pytest.mark.parametrize("shape", [LYING, NO_ELR, OVER])
def test_what_is_not_about_loss_holds_in_every_band(shape: ClusterSpec) -> None:
    assert excuse(EpochOffsetUniqueness(), shape, LossEvidence("last_known_leader", True, True)) is None


@pytest.mark.parametrize(
    ("broken", "index", "expected"), [("t-0", 0, True), ("t-1", 0, False), ("t-1", None, True)]
)
def test_a_disk_is_held_to_have_lied_about_the_log_that_it_lied_about(
    broken: str, index: int | None, expected: bool
) -> None:
    scene = Scene(LeaderCompleteness(), LYING)
    view_of(scene, 1, [mark(0)])
    scene.world.brokers[2].machine.sim_disk.broken.add(f"/data/{broken}")
    assert scene.seen.evidence(index).has_lied is expected


@pytest.mark.parametrize(("survives", "expected"), [(None, False), (2, False), (1, True)])
def test_a_tail_is_lost_when_less_survives_than_there_was(survives: int | None, expected: bool) -> None:
    scene = Scene(LeaderCompleteness(), NO_ELR)
    view_of(scene, 1, [mark(0), mark(1)], survives=survives)
    assert scene.seen.evidence(0).has_lost_tail is expected


def warned(scene: Scene, lines: list[str], counted: int) -> None:
    """Voter 101 tells operators, and counts."""
    node = scene.world.controllers[0]
    if not hasattr(node, "process"):
        node.process = scene.world.loop.process("c101.1")
    elections = dict.fromkeys(ElectionReason, 0) | {
        ElectionReason.LONGEST_LOG: counted,
        ElectionReason.ISR: 7,
    }
    core = SimpleNamespace(counts=SimpleNamespace(elections=elections))
    node.server = SimpleNamespace(core=core)  # type: ignore[assignment]
    scene.property.controller_warned(scene.seen, node, lines)


TOLD = "t-0: leader none@6 -> 2@7 (some cause; elected as longest_log; records may be lost, passed over ())"


@pytest.mark.parametrize(
    ("lines", "counted", "expected"),
    [
        ([TOLD], 1, None),
        ([], 0, "not told of"),
        ([TOLD.replace("t-0", "t-1")], 1, "not told of"),
        ([TOLD.replace("longest_log", "designated")], 1, "not told of"),
        ([TOLD], 0, "counts 0 elections"),
        (["records may be lost"], 1, "does not tell which"),
    ],
    ids=["told", "silent", "of another", "of another rule", "not counted", "of none"],
)
def test_who_may_lack_records_is_elected_with_a_word_and_a_count_b4(
    lines: list[str], counted: int, expected: str | None
) -> None:
    scene = Scene(UncleanElectionsAreTold())
    leaderless = row(isr=(), leader=None, last_known_leader=1)
    elected = change(
        leaderless, CauseKind.LOGS_COMPARED, None, ElectionReason.LONGEST_LOG, leader=2, isr=(2,)
    )

    def tell() -> None:
        if lines:
            warned(scene, lines, counted)
        scene.property.partition_changed(scene.seen, 0, elected)

    said = scene.violation(tell)
    assert (said is None) if expected is None else (said is not None and expected in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "faults", "rule"),
    [
        (LYING, ("power_all",), LYING_DISKS),
        (OVER, ("power_broker", "power_leader", "power_all"), "G-4"),
        (
            NO_ELR,
            ("isolate_broker", "kill_broker", "power_leader", "power_broker", "cut_controllers"),
            LAST_REPLICA_STANDING,
        ),
    ],
    ids=["disks lie", "over budget", "without ELR"],
)
def test_the_loss_that_a_rule_allows_is_observed_b5(
    shape: ClusterSpec, faults: tuple[str, ...], rule: str
) -> None:
    plan = Plan(gap_ms=500, only=faults)
    allowed: Counter[str] = Counter()
    for seed in range(8):
        result = run(Choices(str(seed)), shape, 10, plan=plan)
        assert result.violation is None, result.as_text()
        allowed.update(result.allowed)
    lost = sum(count for name, count in allowed.items() if name.startswith("lost") and rule in name)
    assert lost > 0, allowed
