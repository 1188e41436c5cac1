"""Mutants that serve what no correct peer asks for: only an intruder would notice.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker import log_effects
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests import produce_path
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.controller.core import producer_ids
from holdfast.controller.core.brokers.cluster_control import ClusterControl
from holdfast.controller.core.operators import config_control, topics
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.record_batch import BatchHeader, parse_header
from holdfast.raft.core import answers
from holdfast.sim.mutants.mutant import Setting, mutant

INTRUDED = Setting(faults={"kill_leader": 1}, shape={"intrudes": True}, gap_ms=3_000)


@mutant(produce_path, "check_batch", breaks="D4", by="D3", setting=INTRUDED, killed_by="L-6@1")
def takes_turned_bits(original: Any, buffer: Any, position: int = 0) -> Any:
    """The leader does not look at the crc of what a client sends."""
    return parse_header(buffer, position)


@mutant(ProducePath, "_check", breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_control_batches(original: Any, self: Any, partition: Any, row: Any, acks: int) -> Any:
    """Clients may write control batches."""
    checked = original(self, partition, row, acks)
    is_control = not isinstance(checked, BatchHeader) and "control batches" in checked[1]
    return parse_header(row.records) if is_control else checked


@mutant(log_effects, "record_fault", breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_what_are_no_records(
    original: Any,
    batch: Any,
    header: Any,
    taken: Any,
    *,
    in_one_turn: bool = False,
    needs_keys: bool = False,
) -> Any:
    """The leader does not read the records of a batch."""
    return None


@mutant(log_effects, "timestamp_range", breaks="D4", by="D3", setting=INTRUDED, killed_by="D3@1")
def takes_any_timestamp(original: Any, wall_ms: int, before_max_ms: int, after_max_ms: int) -> Any:
    """The leader takes batches of the far future."""
    return original(wall_ms, before_max_ms, (1 << 63) - 1)


@mutant(
    ProducePath,
    "_check",
    breaks="D4",
    by="D3",
    setting=INTRUDED,
    masked="bytes behind the last record of a batch are no record of it, and the leader reads the records; "
    "the pair is takes-what-are-no-records",
)
def takes_the_first_of_several(original: Any, self: Any, partition: Any, row: Any, acks: int) -> Any:
    """What stands behind a batch goes into the log with it."""
    checked = original(self, partition, row, acks)
    is_first = not isinstance(checked, BatchHeader) and "exactly one" in checked[1]
    return parse_header(row.records) if is_first else checked


@mutant(ProducePath, "request", breaks="D6", by="D3", setting=INTRUDED, killed_by="D3@1")
def any_acks_will_do(original: Any, self: Any, reply_to: object, request: Any, now_ms: int) -> Any:
    """Who asks for two acknowledgements gets the leader's."""
    return original(self, reply_to, replace(request, required_acks=min(1, request.required_acks)), now_ms)


@mutant(Partition, "check_leader", breaks="R55", by="D3", setting=INTRUDED, killed_by="D3@1")
def later_epochs_are_now(original: Any, self: Any, current_leader_epoch: int) -> Any:
    """Who knows of a later leader is served by the former one."""
    return original(self, min(current_leader_epoch, self.leader_epoch))


@mutant(Partition, "check_follower", breaks="R27", by="D3", setting=INTRUDED, killed_by="D3@1")
def former_incarnations_fetch(
    original: Any,
    self: Any,
    replica_id: int,
    broker_epoch: int,
    current_leader_epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
) -> Any:
    """A fetch counts whichever registration it is of."""
    return original(self, replica_id, -1, current_leader_epoch, fetch_offset, last_fetched_epoch)


@mutant(answers, "_check_cluster", breaks="K6", by="D3", setting=INTRUDED, killed_by="D3@1")
def serves_other_clusters(original: Any, cluster_id: Any, config: Any) -> Any:
    """Voters of another cluster are heard."""
    return None


@mutant(answers, "_check_voter_key", breaks="K6", by="D3", setting=INTRUDED, killed_by="K4@1")
def answers_for_others(original: Any, voter_id: int, config: Any) -> Any:
    """A voter that is reached votes, also when another one was meant."""
    return None


@mutant(answers, "_check_leader", breaks="K6, Q-1", by="D3", setting=INTRUDED, killed_by="D3@1")
def follows_strangers(original: Any, leader_id: int, raft_epoch: int, config: Any, state: Any) -> Any:
    """Who is no voter may say that a leader has resigned, or that it leads."""
    refusal = original(leader_id, raft_epoch, config, state)
    return None if refusal is not None and "another voter" in refusal[1] else refusal


@mutant(answers, "check_fetch", breaks="K10", by="D3", setting=INTRUDED, killed_by="D3@1")
def other_quorums_fetch(original: Any, request: Any, config: Any) -> Any:
    """Two quorums with a node in common go on."""
    return original(replace(request, voter_ids=None), config)


@mutant(ClusterControl, "_registration_error", breaks="R30", by="R25", setting=INTRUDED, killed_by="R25@1")
def registers_whoever_asks(original: Any, self: Any, image: Any, request: Any) -> Any:
    """A registration may be without address, or share a log dir with another."""
    code, text = original(self, image, request)
    return (ErrorCode.NONE, None) if code is ErrorCode.INVALID_REGISTRATION else (code, text)


@mutant(ClusterControl, "_registration_error", breaks="R30", by="R25", setting=INTRUDED, killed_by="D3@1")
def registers_for_any_cluster(original: Any, self: Any, image: Any, request: Any) -> Any:
    """A broker of another cluster is taken in."""
    return original(self, image, replace(request, cluster_id=self._config.cluster_id))


@mutant(producer_ids, "allocate", breaks="R24, D12", by="D3", setting=INTRUDED, killed_by="D3@1")
def gives_ids_to_whoever_asks(original: Any, draft: Any, request: Any) -> Any:
    """A block of ids is given to an incarnation that is over."""
    broker = draft.image.brokers.get(request.broker_id)
    epoch = request.broker_epoch if broker is None else broker.broker_epoch
    return original(draft, replace(request, broker_epoch=epoch))


@mutant(topics, "topic_name_problem", breaks="K20", by="D3", setting=INTRUDED, killed_by="D3@1")
def any_name_will_do(original: Any, name: object) -> Any:
    """A topic may have a name that no folder can have."""
    return None


@mutant(
    config_control.ConfigControl, "problem", breaks="R109", by="D3", setting=INTRUDED, killed_by="OwnBug@1"
)
def any_value_will_do(original: Any, self: Any, image: Any, request: Any) -> Any:
    """A value is configured without a look at it."""
    return None
