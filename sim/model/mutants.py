"""Wrong rules, by name: patches of the text of `Rules`, one of which stands while a walk is played.

Owns wrong rules only; each description says which rule is gone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.sim.model.rules import Rules
from holdfast.sim.mutants.source_patch import SourcePatch, begin, patch, patched


@dataclass(frozen=True, slots=True)
class ModelMutant:
    """One rule broken, which the properties must notice."""

    name: str
    description: str
    #: PROPERTY@SEED of the walk of 2000 steps that notices it; empty where a directed walk of the tests does
    killed_by: str
    patches: tuple[SourcePatch, ...]
    #: the band in which it matters
    band: str = "mixed"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Wrong inside, right again afterwards."""
        with patched(self.patches):
            yield


def _wrong(rule: str, old: str, new: str) -> SourcePatch:
    return patch(Rules, rule, old, new)


def _always(rule: str, answer: str) -> SourcePatch:
    return begin(Rules, rule, f"return {answer}")


_ALL = (
    # --- the high watermark ---
    ModelMutant(
        "gate-by-maximal-isr",
        "The size of the maximal ISR opens the high watermark, not that of the committed one.",
        "A-2 HighWatermarkQuorum@0",
        (_wrong("high_watermark", "replica.isr.bit_count()", "replica.maximal_isr.bit_count()"),),
    ),
    ModelMutant(
        "no-gate",
        "The high watermark moves below min ISR too, as before KIP-966.",
        "A-2 HighWatermarkQuorum@0",
        (_wrong("high_watermark", "replica.isr.bit_count() < replica.min_isr", "False"),),
    ),
    ModelMutant(
        "ignores-pending-expansion",
        "The high watermark counts the committed ISR, not the members asked for.",
        "I-7 ReplicationQuorumSuperset@0",
        (_always("after_proposal", "replica.isr, replica.isr"),),
    ),
    ModelMutant(
        "shrinks-before-confirmed",
        "A proposed shrink counts at once.",
        "I-7 ReplicationQuorumSuperset@0",
        (_always("after_proposal", "replica.isr, proposal[0]"),),
    ),
    ModelMutant(
        "new-leader-commits-all",
        "A new leader takes its log end for the high watermark (the primer).",
        "A-2 HighWatermarkQuorum@0",
        (_always("high_watermark_at_start", "len(replica.log)"),),
    ),
    ModelMutant(
        "shows-lagging-high-watermark",
        "A new leader tells consumers its high watermark at once (A-6).",
        "A-6 AppliedHighWatermark@4",
        (_always("is_visible", "True"),),
    ),
    ModelMutant(
        "counts-unflushed",
        "With every write flushed, log ends count instead of flushed ends (G-3).",
        "A-2 HighWatermarkQuorum@20",
        (_always("position", "end"),),
    ),
    # --- joining the ISR, replication ---
    ModelMutant(
        "joins-below-epoch-start",
        "A follower may join before it has reached the start of the leader's epoch.",
        "A-5 CaughtUpJoins@0",
        (_wrong("may_join", "position >= replica.start_offset", "True"),),
    ),
    ModelMutant(
        "joins-in-old-incarnation",
        "What a former incarnation fetched counts for the present one, at the leader and at the controller.",
        "I-8 LeaderCandidateCompleteness@22",
        (begin(Rules, "may_join", "replica.position_epochs[follower] = broker.known_epochs[follower]"),),
    ),
    ModelMutant(
        "no-divergence-check",
        "The leader does not compare the follower's last epoch with its own log.",
        "I-8 LeaderCandidateCompleteness@0",
        (_always("divergence", "None"),),
    ),
    ModelMutant(
        "takes-stale-answers",
        "A follower takes any answer of the leader epoch, asked for or not.",
        "A-15 FollowerAppends@0",
        (_always("takes_answer", "True"),),
    ),
    ModelMutant(
        "matches-answers-by-offset",
        "A follower matches answers by leader epoch and offset instead of by request (N-4).",
        "A-1 CommittedOnlyGrows@121",
        (_always("takes_answer", "answer[2] == len(replica.log)"),),
    ),
    ModelMutant(
        "truncates-to-high-watermark",
        "A follower truncates to its own high watermark (the primer).",
        "A-16 TruncationPoint@0",
        (_always("truncation", "high_watermark"),),
    ),
    ModelMutant(
        "never-truncates",
        "A follower keeps what diverges. Safe, and stuck for ever.",
        "L-6 AllCatchUp@0",
        (_always("truncation", "len(log)"),),
    ),
    ModelMutant(
        "serves-former-epochs",
        "The leader serves fetches of any leader epoch.",
        "A-15 FollowerAppends@16",
        (_wrong("accepts_fetch", "leader_epoch == replica.leader_epoch", "True"),),
    ),
    ModelMutant(
        "keeps-high-watermark-when-cut",
        "The high watermark stays where it was when the log is cut below it.",
        "I-1 TypeOK@0",
        (_always("high_watermark_after_cut", "replica.high_watermark"),),
    ),
    # --- brokers that stop and come back ---
    ModelMutant(
        "file-before-flush",
        "The clean-shutdown file is written before the logs are flushed.",
        "A-19 CleanStopOrder@3",
        (_always("flushes_before_file", "False"),),
    ),
    ModelMutant(
        "keeps-file",
        "The clean-shutdown file stays after the start.",
        "I-17 CleanFileDiscipline@3",
        (_always("removes_file_at_start", "False"),),
    ),
    ModelMutant(
        "registers-over-live-epoch",
        "A registration is granted while the old epoch is unfenced.",
        "A-7 RegistrationGranted@0",
        (_always("grants_registration", "True"),),
    ),
    ModelMutant(
        "every-start-is-clean",
        "Any epoch in the file counts as a clean stop, and so does none.",
        "A-8 UncleanExclusion@0",
        (_always("is_clean", "True"),),
    ),
    ModelMutant(
        "roles-before-registration",
        "A broker takes roles before it has replayed its own registration (N-2).",
        "I-18 EpochsInLog@3",
        (_always("takes_roles", "broker.epoch >= 0"),),
    ),
    ModelMutant(
        "flush-covers-completion",
        "The durable offset becomes the log end at the completion of an fsync (A-21).",
        "A-21 FlushCovers@0",
        (_always("flushed_by", "len(replica.log)"),),
    ),
    ModelMutant(
        "goes-on-after-failed-flush",
        "EIO on fsync is retried instead of ending the broker (A-20).",
        "A-20 FailStop@1",
        (_always("survives_failed_flush", "True"),),
    ),
    # --- ELR and elections ---
    ModelMutant(
        "unclean-stays-in-elr",
        "A broker that registers unclean stays in the ELR.",
        "A-8 UncleanExclusion@0",
        (begin(Rules, "eligible", "unclean = 0"),),
    ),
    ModelMutant(
        "elr-not-cleared",
        "The ELR outlives the ISR's return to min ISR.",
        "A-9 ElrUpdate@2",
        (_wrong("eligible", "return 0, 0", "return part.elr & ~isr & replicas, 0"),),
    ),
    ModelMutant(
        "last-known-elr-forgets-unclean",
        "Unclean members do not become last known.",
        "I-14 MinIsrRecoveryQuorum@0",
        (_wrong("eligible", "& ~isr & ~elr & replicas", "& ~isr & ~elr & replicas & ~unclean"),),
    ),
    ModelMutant(
        "last-known-elr-cleared-by-election",
        "The last known ELR is forgotten when a replica is elected, not when min ISR is reached.",
        "A-12 LastKnownElrGains@0",
        (_always("seats_after_recovery", "0"),),
    ),
    ModelMutant(
        "elects-any-unfenced",
        "The first active replica is elected, in the ISR or not.",
        "A-3 IsrGrowth@0",
        (
            begin(
                Rules,
                "elect",
                "for replica in order:\n"
                "    if active >> replica & 1:\n"
                "        return replica, FROM_ISR if isr >> replica & 1 else FROM_ELR",
            ),
        ),
    ),
    ModelMutant(
        "elects-fenced-last-known-leader",
        "The last known leader is elected without a look at whether it is there.",
        "A-13 ElectionOrder@0",
        (_wrong("elect", "and active >> known & 1:", "and known >= 0:"),),
        "manager-off",
    ),
    ModelMutant(
        "leader-epoch-not-bumped",
        "A new leader keeps the leader epoch.",
        "A-11 EpochsGrow@0",
        (_always("leader_epoch", "part.leader_epoch + (leader < 0 and part.leader >= 0)"),),
    ),
    # --- AlterPartition ---
    ModelMutant(
        "grants-late-copies",
        "A refused proposal may be granted by a late copy of itself once its member is unfenced again.",
        "",
        (_always("is_late", "False"),),
    ),
    ModelMutant(
        "accepts-stale-broker-epochs",
        "AlterPartition does not compare the members' broker epochs.",
        "A-4 AcceptedProposal@61",
        (_wrong("judge", "epochs[member] != world.epochs[member]", "False"),),
    ),
    ModelMutant(
        "accepts-fenced-members",
        "AlterPartition does not look at whether the members are active.",
        "A-4 AcceptedProposal@1",
        (_wrong("judge", "if isr & ~world.active:", "if False:"),),
    ),
    ModelMutant(
        "accepts-old-partition-epoch",
        "AlterPartition does not compare the partition epoch.",
        "A-4 AcceptedProposal@0",
        (_wrong("judge", "if partition_epoch < part.partition_epoch:", "if False:"),),
    ),
    # --- unclean recovery ---
    ModelMutant(
        "recovers-on-first-reply",
        "Balanced recovery elects on the first answer.",
        "A-14 BalancedRecovery@0",
        (_always("recovery_choice", "next((b for b in ids(world.active) if recovery.replies[b]), -1)"),),
    ),
    ModelMutant(
        "recovers-from-outsiders",
        "A replica outside last known ELR may win a balanced recovery by its later epoch (R61, R66).",
        "A-14 BalancedRecovery@220",
        (_always("candidates_of_recovery", "valid"),),
    ),
    ModelMutant(
        "recovers-without-revalidation",
        "Answers are checked when they arrive and not when the choice is made (N-3).",
        "A-14 BalancedRecovery@1",
        (
            _wrong("recovery_choice", "for broker in ids(active):", "for broker in ids(part.replicas):"),
            _wrong("recovery_choice", "and reply[0] == world.epochs[broker]", ""),
        ),
    ),
    # --- operators ---
    ModelMutant(
        "min-isr-by-config",
        "A leader learns of a new min ISR from a record of its own, after the controller used it (N-5, B6).",
        "A-11 EpochsGrow@3",
        (_always("changes_min_isr_in_registration", "False"),),
    ),
    ModelMutant(
        "completes-without-adding",
        "A reassignment completes with enough in sync, also when no new replica is.",
        "A-17 ReassignmentKeepsData@0",
        (_wrong("completes_reassignment", "not adding & ~staying and", ""),),
    ),
    ModelMutant(
        "redirects-drop-last-known",
        "A redirected move may drop members of the last known ELR: one of them alone may be complete.",
        "A-17 ReassignmentKeepsData@191",
        (_wrong("may_redirect", "(part.isr | part.elr | part.last_known_elr)", "(part.isr | part.elr)"),),
    ),
)
#: by the name of the command line
MUTANTS = {one.name: one for one in _ALL}
