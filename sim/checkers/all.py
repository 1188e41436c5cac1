"""The list of all properties. A new one is a class beside its like, and a line here."""

from sim.checkers import disks, logs, partitions, quorum, refinement, replica_refinement, replicas, told
from sim.checkers.views import Property

PROPERTIES: tuple[type[Property], ...] = (
    replicas.TypeOK,
    replicas.ValidBrokerState,
    replicas.ValidReplicaState,
    replicas.ValidFetcherState,
    partitions.ValidControllerState,
    partitions.ValidIsrElr,
    replicas.RegistrationsAreCommitted,
    replicas.ReplicationQuorumSuperset,
    replicas.HighWatermarkNeedsMinIsr,
    logs.LeaderCandidateCompleteness,
    logs.LeaderCompleteness,
    logs.LogMatching,
    quorum.MetadataLogMatching,
    logs.NoCommittedRecordLostGlobally,
    logs.ConsistentRead,
    partitions.MinIsrRecoveryQuorum,
    replicas.OneLeaderPerEpoch,
    logs.AckedIsCommitted,
    disks.CleanFileDiscipline,
    logs.EpochsInLog,
    logs.EpochOffsetUniqueness,
    logs.NoTruncationBelowHighWatermark,
    partitions.IsrGrowth,
    partitions.ProposalsAreChecked,
    replicas.JoinerIsComplete,
    replicas.HighWatermarkUnknownAtFirst,
    partitions.RegistrationsAreApart,
    disks.CleanIsTruth,
    partitions.ElrUpdate,
    partitions.CandidatesKept,
    partitions.EpochsOfARow,
    partitions.LastKnownElrGains,
    partitions.ElectionOrder,
    partitions.LastKnownLeaderByRule,
    partitions.BestLogWins,
    logs.TruncationKeepsWhatMatches,
    partitions.ReassignmentKeepsData,
    disks.FailStop,
    disks.FlushedIsDurable,
    disks.RecoveredLog,
    quorum.ElectionSafety,
    quorum.QuorumLogMatching,
    quorum.QuorumLeaderCompleteness,
    quorum.LegalRoles,
    quorum.QuorumEpochs,
    quorum.CommittedByMajority,
    quorum.VotesAreDurable,
    quorum.CommitsOwnEpoch,
    told.UncleanElectionsAreTold,
    # behind those that they contain: a property by name says more
    refinement.DecisionsRefineModel,
    replica_refinement.ReplicasRefineModel,
)


def all_properties() -> list[Property]:
    """Fresh ones for one run."""
    return [one() for one in PROPERTIES]
