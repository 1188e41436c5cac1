"""The result of a run: the verdict compared with the expectation, and the exit codes.

Pure. Owns the order of the checks and the meaning of the codes (docs/drills.md); never imports Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

from holdfast.drills.settings import Expectation, ExpectedLoss, Settings
from holdfast.durability.verdict import EXIT_INCONCLUSIVE, FORBIDDEN, Verdict


class DrillResult(Enum):
    """How a run ended; the worst of several runs comes first here."""

    LOST = "acknowledged records are lost where none may be"
    ANOMALY = "nothing is lost that may not be, but the log is not what was sent"
    UNTOLD = "more records are lost than the elections reported"
    NOT_LOST = "a loss was expected and there is none: the run shows nothing"
    BROKEN = "the failure did not happen as described"
    INCONCLUSIVE = "the verdict proves nothing"
    VOID = "the power cut did not take what the drill needs lost: the run shows nothing"
    EXPECTED = "as the rules say"

    @property
    def exit_code(self) -> int:
        """See docs/drills.md."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    DrillResult.EXPECTED: 0,
    DrillResult.BROKEN: 1,
    DrillResult.LOST: 4,
    DrillResult.ANOMALY: 5,
    DrillResult.INCONCLUSIVE: 6,
    DrillResult.NOT_LOST: 7,
    DrillResult.VOID: 8,
    DrillResult.UNTOLD: 9,
}
#: Classes that a loss causes by itself: after a loss, the producer gets the same offsets again.
_OF_A_LOSS = ("lost", "reordered")
#: And those of consumers that were given what is lost, which need not have been acknowledged.
_OF_POLLS_BEFORE = ("polled_and_gone", "watermark_back")


@dataclass(frozen=True, slots=True)
class LostRecord:
    """A record that was acknowledged with acks=all and is lost."""

    topic: str
    partition: int
    offset: int
    #: the part that identifies a record: checksum, producer, number
    value: str
    #: of the acknowledgement, where the ledger says them: leader epoch, and monotonic time
    leader_epoch: int = -1
    acked_ns: int | None = None
    #: as in durability.loss_story
    given_in: int | None = None
    outlived: int | None = None


def some_of_each(lost: Sequence[LostRecord], most: int) -> list[LostRecord]:
    """At most so many, by offset: of each loss, which is what one election lost, before more of another."""
    losses: dict[tuple[object, ...], list[LostRecord]] = {}
    for one in lost:
        key = (one.topic, one.partition, one.leader_epoch, one.given_in, one.outlived)
        losses.setdefault(key, []).append(one)
    in_turn = [one for row in zip_longest(*losses.values()) for one in row if one is not None]
    return sorted(in_turn[:most], key=lambda one: (one.topic, one.partition, one.offset))


@dataclass(frozen=True, slots=True)
class Election:
    """An unclean election of the run, from the metadata log."""

    leader: int
    #: by which rule
    reason: str
    #: at least; None when the controller could not know, or did not compare logs
    predicted_loss: int | None
    #: at most; None when unknown
    most_lost: int | None = None


@dataclass(frozen=True, slots=True)
class DrillEvidence:
    """What was found at the end of a run."""

    #: exit code of the Spark verdict
    verdict_code: int
    #: class -> count, as in durability.verdict
    counts: Mapping[str, int]
    #: acked, ok, sent, ...
    facts: Mapping[str, object]
    lost: tuple[LostRecord, ...] = ()
    elections: tuple[Election, ...] = ()
    #: deviations that the drill itself found
    complaints: tuple[str, ...] = ()
    #: why the verdict proves nothing, or not that all is well
    doubts: tuple[str, ...] = ()
    #: remarks of the verdict
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a drill."""

    drill: str
    settings: Settings
    expectation: Expectation
    result: DrillResult
    #: the reason, where the result alone does not say it
    reason: str = ""
    evidence: DrillEvidence | None = None
    seconds: float = 0.0
    #: Spark's, from which the evidence is
    verdict: Verdict | None = None

    @property
    def lost_count(self) -> int:
        """Acknowledged records that are lost."""
        return 0 if self.evidence is None else self.evidence.counts.get("lost", 0)


def judge(
    expectation: Expectation, evidence: DrillEvidence, shows: Sequence[str] = ()
) -> tuple[DrillResult, str]:
    """The result and its reason. `shows`: classes of the verdict that must occur."""
    lost = evidence.counts.get("lost", 0)
    complaints, doubts = "; ".join(evidence.complaints), "; ".join(evidence.doubts)
    if evidence.verdict_code == EXIT_INCONCLUSIVE:  # no count says anything
        return (DrillResult.BROKEN, complaints) if complaints else (DrillResult.INCONCLUSIVE, doubts)
    if expectation.loss is ExpectedLoss.NONE and lost:
        return DrillResult.LOST, f"{lost} lost; {expectation.rule}"
    of_polls = () if expectation.loss is ExpectedLoss.NONE else _OF_POLLS_BEFORE
    excused = (*of_polls, *(_OF_A_LOSS if lost else ()))
    if any(evidence.counts.get(name, 0) for name in FORBIDDEN if name not in excused):
        return DrillResult.ANOMALY, "see the table"
    if complaints:
        return DrillResult.BROKEN, complaints
    for name in shows:
        if not evidence.counts.get(name, 0):
            return DrillResult.BROKEN, f"nothing is {name.replace('_', ' ')}: the run shows nothing"
    if expectation.is_told and lost:
        least, most = predicted_loss(evidence.elections), most_lost(evidence.elections)
        bound = least if most is None else most
        if bound is None:
            return DrillResult.UNTOLD, f"{lost} lost, no election reported how many"
        if bound < lost:
            return DrillResult.UNTOLD, f"{lost} lost, {bound} predicted"
    if doubts:
        return DrillResult.INCONCLUSIVE, doubts
    if expectation.loss is ExpectedLoss.CERTAIN and not lost:
        return DrillResult.NOT_LOST, expectation.rule
    return DrillResult.EXPECTED, ""


def predicted_loss(elections: Sequence[Election]) -> int | None:
    """Sum of the losses that the unclean elections of a run reported; None when none was known."""
    known = [election.predicted_loss for election in elections if election.predicted_loss is not None]
    return sum(known) if known else None


def most_lost(elections: Sequence[Election]) -> int | None:
    """Most records that the unclean elections of a run may have lost; None when it is unknown of one."""
    if not elections or any(election.most_lost is None for election in elections):
        return None
    return sum(election.most_lost or 0 for election in elections)


def worst(runs: Sequence[Run], *, forgives_void: bool = False) -> DrillResult:
    """The result of several runs. `forgives_void`: void runs are only counted while others are not."""
    results = [run.result for run in runs]
    if forgives_void and any(result is not DrillResult.VOID for result in results):
        results = [result for result in results if result is not DrillResult.VOID]
    return next((result for result in DrillResult if result in results), DrillResult.EXPECTED)
