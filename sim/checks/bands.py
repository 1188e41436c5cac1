"""Which rule allows a property about loss to break, in runs that leave the fault budget (G-4).

In budget nothing is allowed. Beyond it G-4 lets committed records go, but only where the controller has
elected a replica that may have lacked them: a loss without that report is a violation in every band. A disk
that lies excuses the partitions that it lied about, no ELR those of which some log has lost its tail.
"""

from typing import NamedTuple

from holdfast.sim.checks.observe.views import Property
from holdfast.sim.cluster.world import ClusterSpec

LYING_DISKS = "P7: a disk has lost what it had promised to keep"
LAST_REPLICA_STANDING = "KIP-966 motivation: without ELR the last replica standing leads"
COPIES_GONE = "G-4: beyond the budget every copy may be gone"


class LossEvidence(NamedTuple):
    """What could explain a loss of committed records of a partition."""

    #: how a replica was elected that may have lacked them, as the controller has told; None: never
    unclean: str | None = None
    #: the disk of a replica has lost what it had called durable
    has_lied: bool = False
    #: some replica has lost a tail, flushed or not
    has_lost_tail: bool = False


def excuse(one: Property, shape: ClusterSpec, evidence: LossEvidence) -> str | None:
    """The rule by which the property may break now, None when it may not."""
    if not one.is_about_loss:
        return None
    if shape.over_budget and one.is_about_copies and evidence.has_lost_tail:
        return COPIES_GONE
    return excuse_of_loss(shape, evidence)


def excuse_of_loss(shape: ClusterSpec, evidence: LossEvidence) -> str | None:
    """The rule by which a partition may have lost committed records."""
    if shape.disks_lie and evidence.has_lied:
        return LYING_DISKS
    if not shape.elr and evidence.has_lost_tail:
        return LAST_REPLICA_STANDING
    if shape.over_budget and evidence.unclean is not None:
        return f"G-4: beyond the budget, elected as {evidence.unclean}"
    return None
