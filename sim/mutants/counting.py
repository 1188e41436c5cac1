"""Mutants of what is counted and never taken off: nothing is lost by them, but one day no client is served.

Owns wrong functions only; each docstring says which rule is gone.
"""

from holdfast.broker.core.requests.producer_ids import ProducerIds
from holdfast.broker.core.requests.purgatory import ProducePurgatory
from holdfast.sim.mutants.mutant import Changes, Setting, mutant
from holdfast.sim.mutants.source_patch import patch

#: followers are cut off and come back while there is load
CUT_OFF = Setting(
    faults={"cut_followers": 4, "isolate_broker": 3, "kill_broker": 3, "kill_leader": 2, "hang_disk": 1},
    gap_ms=500,
)


@mutant(breaks="A-18, F5", by="A-18", setting=CUT_OFF, killed_by="A-18@1")
def writes_stay_counted() -> Changes:
    """A write that has waited counts as one that waits for ever: after 20 000 the broker takes no more."""
    return patch(ProducePurgatory, "finish", "self.size -= 1", "pass")


@mutant(breaks="D12", by="D12", killed_by="D12@1")
def blocks_of_ids_overlap() -> Changes:
    """The end of a block of ids is inclusive: its last id is the first one of another broker's."""
    return patch(ProducerIds, "allocated", "response.producer_id_length", "response.producer_id_length + 1")
