"""Mutants that serve what no correct peer asks for: only an intruder would notice.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.protocol.record_batch import BatchHeader, parse_header
from holdfast.raft.core import answers
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

INTRUDED = Setting(faults={"kill_leader": 1}, shape={"intrudes": True}, gap_ms=3_000)


@replacing(ProducePath, "_check", breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_control_batches(original: Any, self: Any, partition: Any, row: Any, acks: int) -> Any:
    """Clients may write control batches."""
    checked = original(self, partition, row, acks)
    is_control = not isinstance(checked, BatchHeader) and "control batches" in checked[1]
    return parse_header(row.records) if is_control else checked


@mutant(breaks="D6", by="D3", setting=INTRUDED, killed_by="D3@1")
def any_acks_will_do() -> Changes:
    """Who asks for two acknowledgements gets the leader's."""
    return patch(
        ProducePath, "request", "acks = request.required_acks", "acks = min(1, request.required_acks)"
    )


@mutant(breaks="R55", by="D3", setting=INTRUDED, killed_by="D3@1")
def later_epochs_are_now() -> Changes:
    """Who knows of a later leader is served by the former one."""
    return patch(Partition, "check_leader", "current_leader_epoch > known", "False")


@mutant(breaks="K6", by="D3", setting=INTRUDED, killed_by="D3@1")
def serves_other_clusters() -> Changes:
    """Voters of another cluster are heard."""
    return begin(answers, "_check_cluster", "return None")


@mutant(breaks="K6", by="D3", setting=INTRUDED, killed_by="K4@1")
def answers_for_others() -> Changes:
    """A voter that is reached votes, also when another one was meant."""
    return begin(answers, "_check_voter_key", "return None")


@mutant(breaks="K6, Q-1", by="D3", setting=INTRUDED, killed_by="D3@1")
def follows_strangers() -> Changes:
    """Who is no voter may say that a leader has resigned, or that it leads."""
    return patch(answers, "_check_leader", "leader_id not in config.other_voters", "False")


@mutant(breaks="K10", by="D3", setting=INTRUDED, killed_by="D3@1")
def other_quorums_fetch() -> Changes:
    """Two quorums with a node in common go on."""
    return patch(answers, "check_fetch", "request.voter_ids is not None", "False")


@mutant(breaks="R30", by="R25", setting=INTRUDED, killed_by="D3@1")
def registers_whoever_asks() -> Changes:
    """A registration may be without address, or share a log dir with another."""
    return patch(ClusterControl, "_registration_error", "problem is not None", "False")
