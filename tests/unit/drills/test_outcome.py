"""The verdict held against the expectation."""

import pytest

from holdfast.drills.outcome import (
    DrillEvidence,
    DrillResult,
    Election,
    LostRecord,
    Run,
    judge,
    predicted_loss,
    some_of_each,
    worst,
)
from holdfast.drills.settings import Expectation, ExpectedLoss, Settings
from holdfast.durability.verdict import FORBIDDEN

NONE = Expectation(ExpectedLoss.NONE, "R1")
POSSIBLE = Expectation(ExpectedLoss.POSSIBLE, "rule")
CERTAIN = Expectation(ExpectedLoss.CERTAIN, "R2")
TOLD = Expectation(ExpectedLoss.POSSIBLE, "R3", is_told=True)


def evidence(
    code: int = 0,
    *,
    predicted: tuple[int | None, ...] = (),
    complaints: tuple[str, ...] = (),
    doubts: tuple[str, ...] = (),
    **counts: int,
) -> DrillEvidence:
    elections = tuple(Election(1, "longest_log", loss) for loss in predicted)
    return DrillEvidence(
        code, counts, {"acked": 100}, elections=elections, complaints=complaints, doubts=doubts
    )


@pytest.mark.parametrize(
    ("expectation", "found", "result"),
    [
        (NONE, evidence(), DrillResult.EXPECTED),
        (NONE, evidence(4, lost=1), DrillResult.LOST),
        (NONE, evidence(5, duplicated=1), DrillResult.ANOMALY),
        (NONE, evidence(6), DrillResult.INCONCLUSIVE),
        (NONE, evidence(complaints=("F4: the high watermark moved",)), DrillResult.BROKEN),
        # a doubt hides no deviation that the drill has found itself
        (NONE, evidence(6, complaints=("a hole",), doubts=("no mark",)), DrillResult.BROKEN),
        # a drill that expects loss fails if there is none
        (CERTAIN, evidence(), DrillResult.NOT_LOST),
        (CERTAIN, evidence(4, lost=7), DrillResult.EXPECTED),
        # who writes again where records were lost breaks the order; nothing else follows from a loss
        (CERTAIN, evidence(4, lost=7, reordered=7), DrillResult.EXPECTED),
        (NONE, evidence(5, reordered=7), DrillResult.ANOMALY),
        (NONE, evidence(5, polled_and_gone=7), DrillResult.ANOMALY),
        (POSSIBLE, evidence(5, polled_and_gone=7, watermark_back=1), DrillResult.EXPECTED),
        (CERTAIN, evidence(6), DrillResult.INCONCLUSIVE),
        # R68: a possible loss is reported, and not too small
        (TOLD, evidence(), DrillResult.EXPECTED),
        (TOLD, evidence(4, lost=7, predicted=(7,)), DrillResult.EXPECTED),
        (TOLD, evidence(4, lost=7, predicted=(9,)), DrillResult.EXPECTED),
        (TOLD, evidence(4, lost=7, predicted=(3, 4)), DrillResult.EXPECTED),
        (TOLD, evidence(4, lost=7, predicted=(6,)), DrillResult.UNTOLD),
        (TOLD, evidence(4, lost=7, predicted=(None,)), DrillResult.UNTOLD),
        (TOLD, evidence(4, lost=7), DrillResult.UNTOLD),
        # what was not compared may be what breaks a rule, or is lost
        (CERTAIN, evidence(4, lost=7, doubts=("nothing was compared",)), DrillResult.INCONCLUSIVE),
        (CERTAIN, evidence(doubts=("nothing was compared",)), DrillResult.INCONCLUSIVE),
        (NONE, evidence(4, lost=7, doubts=("nothing was compared",)), DrillResult.LOST),
    ],
)
def test_the_verdict_is_held_against_the_expectation(
    expectation: Expectation, found: DrillEvidence, result: DrillResult
) -> None:
    assert judge(expectation, found)[0] is result


#: What an allowed loss causes by itself.
OF_A_LOSS = {"lost", "reordered", "polled_and_gone", "watermark_back"}


@pytest.mark.parametrize("name", sorted(set(FORBIDDEN) - OF_A_LOSS))
def test_an_anomaly_beside_an_allowed_loss_is_one(name: str) -> None:
    """Of an unclean election the log of the new leader is a prefix of what was sent, and the others truncate
    to it: each record is where it was or nowhere, once, and behind the prefix offsets are given again."""
    counts = dict.fromkeys(OF_A_LOSS, 7) | {"recovered": 3, "lost_weakly_acked": 3}
    assert judge(CERTAIN, DrillEvidence(4, counts, {}))[0] is DrillResult.EXPECTED
    assert judge(CERTAIN, DrillEvidence(4, counts | {name: 1}, {}))[0] is DrillResult.ANOMALY


def test_the_reason_of_a_run_in_doubt_is_the_doubt() -> None:
    assert judge(NONE, evidence(6, doubts=("a file", "a mark")))[1] == "a file; a mark"
    assert judge(CERTAIN, evidence(4, lost=1, doubts=("a mark",)))[1] == "a mark"


def test_of_each_loss_some_records_are_named() -> None:
    first = [LostRecord("t", 0, offset, f"first{offset}", 0, given_in=3) for offset in range(5, 90)]
    second = [LostRecord("t", 0, offset, f"second{offset}", 3, given_in=5) for offset in range(4, 6)]
    named = [one.value for one in some_of_each([*first, *second], 5)]
    assert sorted(named) == ["first5", "first6", "first7", "second4", "second5"]


def test_a_story_that_shows_nothing_of_what_it_is_about_did_not_take_place() -> None:
    assert judge(NONE, evidence(), ("lost_weakly_acked",))[0] is DrillResult.BROKEN
    assert judge(NONE, evidence(lost_weakly_acked=3), ("lost_weakly_acked",))[0] is DrillResult.EXPECTED


def test_predictions_of_several_elections_add_up_and_unknown_ones_are_none() -> None:
    assert predicted_loss([]) is None
    assert predicted_loss([Election(1, "longest_log", None)]) is None
    assert predicted_loss([Election(1, "longest_log", 2), Election(2, "longest_log", 3)]) == 5


def run(result: DrillResult) -> Run:
    return Run("drill", Settings(), NONE, result)


def test_the_worst_run_decides() -> None:
    assert (
        worst([run(DrillResult.EXPECTED), run(DrillResult.LOST), run(DrillResult.VOID)]) is DrillResult.LOST
    )
    assert worst([run(DrillResult.EXPECTED), run(DrillResult.VOID)]) is DrillResult.VOID
    assert worst([run(DrillResult.EXPECTED)]) is DrillResult.EXPECTED


def test_among_many_seeds_void_runs_are_only_counted_but_not_if_all_are() -> None:
    assert (
        worst([run(DrillResult.EXPECTED), run(DrillResult.VOID)], forgives_void=True) is DrillResult.EXPECTED
    )
    assert worst([run(DrillResult.VOID), run(DrillResult.VOID)], forgives_void=True) is DrillResult.VOID


def test_every_result_has_an_exit_code_of_its_own() -> None:
    codes = [result.exit_code for result in DrillResult]
    assert len(set(codes)) == len(codes)
    assert 2 not in codes, "2 is wrong usage"
    assert [result for result in DrillResult if result.exit_code == 0] == [DrillResult.EXPECTED]
