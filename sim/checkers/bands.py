"""Which rule allows a property about loss to break, in runs that leave the fault budget (verification §1.6).

In budget nothing is allowed. Beyond it B-4 lets committed records go, but only where the controller has
elected somebody who may have lacked them: a loss without that report is a violation in every band.
"""

from sim.checkers.views import Ghost, Property
from sim.world import Shape

LYING_DISKS = "P7: flushes of logs were lies"
LAST_REPLICA_STANDING = "KIP-966 motivation: without ELR the last replica standing leads"


def excuse(one: Property, shape: Shape, ghost: Ghost | None) -> str | None:
    """The rule by which the property may break now, None when it may not."""
    if not one.is_about_loss:
        return None
    if shape.over_budget and one.is_about_copies:
        return "B-4: beyond the budget every copy may be gone"
    return excuse_of_loss(shape, ghost)


def excuse_of_loss(shape: Shape, ghost: Ghost | None) -> str | None:
    """The rule by which a partition may have lost committed records."""
    if shape.disks_lie:
        return LYING_DISKS
    if not shape.elr:
        return LAST_REPLICA_STANDING
    if shape.over_budget and ghost is not None and ghost.unclean is not None:
        return f"B-4: beyond the budget, elected as {ghost.unclean}"
    return None
