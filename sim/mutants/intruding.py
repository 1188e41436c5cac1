"""Mutants that serve what no correct peer asks for: only an intruder would notice.

Owns wrong functions only; each docstring says which rule is gone.
"""

from typing import Any

from holdfast.broker import log_effects
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests import produce_path
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.controller.core import producer_ids
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.operators import config_control, topics
from holdfast.protocol.record_batch import BatchHeader, parse_header
from holdfast.raft.core import answers
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.source_patch import begin, patch

INTRUDED = Setting(faults={"kill_leader": 1}, shape={"intrudes": True}, gap_ms=3_000)


@replacing(produce_path, "check_batch", breaks="D4", by="D3", setting=INTRUDED, killed_by="L-6@1")
def takes_turned_bits(original: Any, buffer: Any, position: int = 0) -> Any:
    """The leader does not look at the crc of what a client sends."""
    return parse_header(buffer, position)


@replacing(ProducePath, "_check", breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_control_batches(original: Any, self: Any, partition: Any, row: Any, acks: int) -> Any:
    """Clients may write control batches."""
    checked = original(self, partition, row, acks)
    is_control = not isinstance(checked, BatchHeader) and "control batches" in checked[1]
    return parse_header(row.records) if is_control else checked


@mutant(breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_what_are_no_records() -> Changes:
    """The leader does not read the records of a batch."""
    return begin(log_effects, "record_fault", "return None")


@mutant(breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_any_timestamp() -> Changes:
    """The leader takes batches of the far future."""
    return patch(log_effects, "timestamp_range", "wall_ms + after_max_ms", "wall_ms + (1 << 63)")


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


@mutant(breaks="R27", by="D3", setting=INTRUDED, killed_by="D3@1")
def former_incarnations_fetch() -> Changes:
    """A fetch counts whichever registration it is of."""
    return patch(
        Partition, "check_follower", "0 <= broker_epoch < self._brokers.epochs.get(replica_id, -1)", "False"
    )


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


@mutant(breaks="R30", by="R25", setting=INTRUDED, killed_by="D3@1")
def registers_for_any_cluster() -> Changes:
    """A broker of another cluster is taken in."""
    return patch(
        ClusterControl, "_registration_error", "request.cluster_id != self._config.cluster_id", "False"
    )


@mutant(breaks="R24, D12", by="D3", setting=INTRUDED, killed_by="D3@1")
def gives_ids_to_whoever_asks() -> Changes:
    """A block of ids is given to an incarnation that is over."""
    return patch(
        producer_ids,
        "allocate",
        "broker is None or broker.broker_epoch != request.broker_epoch",
        "broker is None",
    )


@mutant(breaks="K20", by="D3", setting=INTRUDED, killed_by="D3@1")
def any_name_will_do() -> Changes:
    """A topic may have a name that no folder can have."""
    return begin(topics, "topic_name_problem", "return None")


@mutant(breaks="R109", by="D3", setting=INTRUDED, killed_by="OwnBug@1")
def any_value_will_do() -> Changes:
    """A value is configured without a look at it."""
    return begin(config_control.ConfigControl, "problem", "return None")
