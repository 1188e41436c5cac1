"""The verdict held against the expectation."""

import pytest

from holdfast.drills.outcome import Election, Evidence, Result, Run, judge, predicted_loss, worst
from holdfast.drills.settings import Expectation, Loss, Settings
from holdfast.durability.verdict import FORBIDDEN

NONE = Expectation(Loss.NONE, "R1")
CERTAIN = Expectation(Loss.CERTAIN, "R2")
TOLD = Expectation(Loss.POSSIBLE, "R3", is_told=True)


def evidence(
    code: int = 0,
    *,
    predicted: tuple[int | None, ...] = (),
    complaints: tuple[str, ...] = (),
    **counts: int,
) -> Evidence:
    elections = tuple(Election(1, "longest_log", loss) for loss in predicted)
    return Evidence(code, counts, {"acked": 100}, elections=elections, complaints=complaints)


@pytest.mark.parametrize(
    ("expectation", "found", "result"),
    [
        (NONE, evidence(), Result.PASSED),
        (NONE, evidence(4, lost=1), Result.LOST),
        (NONE, evidence(5, duplicated=1), Result.ANOMALY),
        (NONE, evidence(6), Result.INCONCLUSIVE),
        (NONE, evidence(complaints=("F4: the high watermark moved",)), Result.BROKEN),
        # a drill that expects loss fails if there is none
        (CERTAIN, evidence(), Result.NOT_LOST),
        (CERTAIN, evidence(4, lost=7), Result.PASSED),
        # who writes again where records were lost breaks the order; nothing else follows from a loss
        (CERTAIN, evidence(4, lost=7, reordered=7), Result.PASSED),
        (NONE, evidence(5, reordered=7), Result.ANOMALY),
        (CERTAIN, evidence(6), Result.INCONCLUSIVE),
        # R68: a loss that is possible is told, and not too small
        (TOLD, evidence(), Result.PASSED),
        (TOLD, evidence(4, lost=7, predicted=(7,)), Result.PASSED),
        (TOLD, evidence(4, lost=7, predicted=(9,)), Result.PASSED),
        (TOLD, evidence(4, lost=7, predicted=(3, 4)), Result.PASSED),
        (TOLD, evidence(4, lost=7, predicted=(6,)), Result.UNTOLD),
        (TOLD, evidence(4, lost=7, predicted=(None,)), Result.UNTOLD),
        (TOLD, evidence(4, lost=7), Result.UNTOLD),
    ],
)
def test_the_verdict_is_held_against_the_expectation(
    expectation: Expectation, found: Evidence, result: Result
) -> None:
    assert judge(expectation, found)[0] is result


@pytest.mark.parametrize("name", sorted(set(FORBIDDEN) - {"lost", "reordered"}))
def test_an_anomaly_beside_an_allowed_loss_is_one(name: str) -> None:
    """Of an unclean election the log of the new leader is a prefix of what was sent, and the others truncate
    to it: each record is where it was or nowhere, once, and behind the prefix offsets are given again."""
    counts = {"lost": 7, "reordered": 7, "recovered": 3, "lost_weakly_acked": 3}
    assert judge(CERTAIN, Evidence(4, counts, {}))[0] is Result.PASSED
    assert judge(CERTAIN, Evidence(4, counts | {name: 1}, {}))[0] is Result.ANOMALY


def test_a_story_that_shows_nothing_of_what_it_is_about_did_not_take_place() -> None:
    assert judge(NONE, evidence(), ("lost_weakly_acked",))[0] is Result.BROKEN
    assert judge(NONE, evidence(lost_weakly_acked=3), ("lost_weakly_acked",))[0] is Result.PASSED


def test_predictions_of_several_elections_add_up_and_unknown_ones_are_none() -> None:
    assert predicted_loss([]) is None
    assert predicted_loss([Election(1, "longest_log", None)]) is None
    assert predicted_loss([Election(1, "longest_log", 2), Election(2, "longest_log", 3)]) == 5


def run(result: Result) -> Run:
    return Run("drill", Settings(), NONE, result)


def test_the_worst_run_decides() -> None:
    assert worst([run(Result.PASSED), run(Result.LOST), run(Result.VOID)]) is Result.LOST
    assert worst([run(Result.PASSED), run(Result.VOID)]) is Result.VOID
    assert worst([run(Result.PASSED)]) is Result.PASSED


def test_among_many_seeds_void_runs_are_only_counted_but_not_if_all_are() -> None:
    assert worst([run(Result.PASSED), run(Result.VOID)], forgives_void=True) is Result.PASSED
    assert worst([run(Result.VOID), run(Result.VOID)], forgives_void=True) is Result.VOID


def test_every_result_has_an_exit_code_of_its_own() -> None:
    codes = [result.exit_code for result in Result]
    assert len(set(codes)) == len(codes)
    assert 2 not in codes, "2 is wrong usage"
    assert [result for result in Result if result.exit_code == 0] == [Result.PASSED]
