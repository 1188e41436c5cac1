"""Which property sees which mutant when it is asked alone: the teeth of each. In `holdfast sim mutants` the
one that is first speaks up.

Owns the pairs, and a wrong rule that only these tests use.
"""

from dataclasses import dataclass

from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.sim.mutants.mutant import Mutant, Setting
from holdfast.sim.mutants.source_patch import begin
from holdfast.sim.mutants.table import MUTANTS

WAITS_FOR_EVER = Mutant(
    "waits-for-ever",
    "Writes that cannot be acknowledged any more wait until their time is over.",
    "A-18",
    ("A-18",),
    (begin(ProducePath, "state_changed", "return []"),),
    Setting(faults={"isolate_leader": 3, "kill_broker": 3, "isolate_broker": 3, "cut_controllers": 2}),
)


@dataclass(frozen=True)
class Pair:
    """A mutant and what must see it."""

    mutant: Mutant
    #: the beginning of its name
    by: str
    #: other properties that are asked besides; the rules of the history always are
    only: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.mutant.name} {self.by}"


def _pairs(name: str, *properties: str) -> list[Pair]:
    return [Pair(MUTANTS[name], one) for one in properties]


DECISIONS, REPLICAS = "Refinement DecisionsRefineModel", "Refinement ReplicasRefineModel"

PAIRS = (
    *_pairs("no-gate", "A-2", "I-8", "I-9", REPLICAS),
    *_pairs("gate-by-maximal-isr", "A-2", REPLICAS),
    *_pairs("counts-nobody-else", "I-8", REPLICAS),
    *_pairs("shrinks-before-confirmed", "I-10", REPLICAS),
    *_pairs("acknowledges-at-append", "I-16"),
    *_pairs("joins-below-epoch-start", "A-5", REPLICAS),
    *_pairs("shows-lagging-high-watermark", "A-6", "rule 12"),
    Pair(MUTANTS["shows-lagging-high-watermark"], "rule 13", only=("I-16",)),
    *_pairs("followers-count-unflushed", "A-2", "rule 24"),
    *_pairs("no-divergence-check", "I-10", REPLICAS),
    *_pairs("truncates-everything", "A-1", "A-16", REPLICAS),
    *_pairs("epochs-not-truncated", "I-18"),
    *_pairs("flush-covers-completion", "A-21"),
    *_pairs("file-before-flush", "I-17"),
    *_pairs("keeps-file", "I-17"),
    *_pairs("roles-before-registration", "I-2"),
    *_pairs("leader-epoch-not-bumped", DECISIONS),
    *_pairs("unclean-stays-in-elr", "A-8", DECISIONS),
    *_pairs("elr-forgets", DECISIONS),
    *_pairs("elects-any-unfenced", DECISIONS),
    *_pairs("elects-fenced-elr", DECISIONS),
    *_pairs("last-known-elr-forgets-unclean", DECISIONS),
    *_pairs("every-start-is-clean", "A-8"),
    *_pairs("any-epoch-proves-a-clean-stop", "R32"),
    *_pairs("finds-no-file", "R33"),
    *_pairs("proves-only-its-own-epoch", "R33"),
    *_pairs("fences-without-taking-out", DECISIONS),
    *_pairs("unfencing-elects-nobody", "L-9", DECISIONS),
    *_pairs("answers-before-commit", REPLICAS),
    *_pairs("learns-before-it-truncates", REPLICAS),
    *_pairs("lowers-ceilings-late", "G-4 CeilingsHoldWhatIsCommitted"),
    *_pairs("finds-ceilings-too-high-out-of-sync", "G-4 CeilingsHoldWhatIsCommitted"),
    *_pairs("producer-epochs-not-bumped", "D12"),
    *_pairs("refuses-repetitions", "R91"),
    *_pairs("leaves-full-segments-to-the-page-cache", "D6"),
    *_pairs("high-watermarks-not-stored", "F6"),
    *_pairs("new-folders-not-durable", "A-21"),
    *_pairs("believes-later-epochs", "A-14"),
    *_pairs("shortest-log-wins", "A-14", DECISIONS),
    *_pairs("recovers-on-first-reply", "A-14"),
    *_pairs("wins-without-majority", "Q-1"),
    *_pairs("elects-shorter-logs", "Q-3"),
    *_pairs("half-is-a-majority", "Q-7"),
    *_pairs("votes-before-durable", "Q-9"),
    *_pairs("commits-former-epochs", "K12"),
    Pair(WAITS_FOR_EVER, "A-18 WaitingWritesAreGivenUp"),
    *_pairs("acknowledges-acks-one-at-append", "D6"),
    *_pairs("tells-latest-too-early", "A-6 OffsetsAreTold"),
    *_pairs("tells-log-end-as-end-of-epochs", "A-6 OffsetsAreTold"),
    *_pairs("producers-outlive-cuts", "R94"),
    *_pairs("snapshots-taken-late", "R94"),
    *_pairs("appends-behind-gaps", "R92"),
    *_pairs("recovery-points-outlive-cuts", "R87"),
    *_pairs("tells-what-is-committed", "R66"),
    *_pairs("moves-sort-their-targets", "K20 DoneIsCommitted"),
    *_pairs("large-batches-are-never-read", "R55 ReadersGetWhatThereIs"),
    *_pairs("refuses-leader-acks-below-min-isr", "F5"),
    *_pairs("refusals-of-acks-zero-are-for-nobody", "F4"),
    *_pairs("counts-as-it-was-made", "D6 TopicsAreHeeded"),
    *_pairs("logs-keep-their-first-settings", "D6 TopicsAreHeeded"),
    *_pairs("files-say-nothing-of-topics", "D6 TopicsAreHeeded"),
    *_pairs("segments-grow-for-ever", "D5 SegmentsRoll"),
    *_pairs("deletes-nothing", "D5 OldIsDeleted"),
    *_pairs("describes-seats-as-eligible", "R113"),
    *_pairs("any-failure-is-evidence", "K4"),
    *_pairs("snapshots-outlive-cuts", "R94 SnapshotsAreOfTheLog"),
    *_pairs("cuts-leave-the-newest-time", "D5 TimesAreOfBatches"),
    *_pairs("nothing-is-ever-old", "D5 OldIsDeleted"),
    *_pairs("goes-to-the-end-when-something-was-deleted", "rule 10 ReadersGoOnAtAStart"),
    *_pairs("new-epochs-keep-the-crc", "misjudged"),
    *_pairs("deliveries-tell-where-their-batch-begins", "misled"),
    *_pairs("gives-up-at-once", "impatient"),
    *_pairs("tells-of-every-trouble", "troubled"),
    *_pairs("reads-on-in-any-past", "mended"),
    *_pairs("brokers-answer-before-they-know", "R113"),
    *_pairs("brokers-tell-of-what-was", "R113"),
    *_pairs("any-acks-will-do", "D3"),
    *_pairs("later-epochs-are-now", "D3"),
    *_pairs("follows-strangers", "D3"),
    *_pairs("other-quorums-fetch", "D3"),
    *_pairs("believes-stale-heartbeats", "D3"),
    *_pairs("registers-whoever-asks", "D3"),
)
