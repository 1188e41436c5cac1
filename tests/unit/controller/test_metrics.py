"""What the controller reports: cluster-wide series from the active controller only."""

import pytest

from holdfast.controller.core.metrics import (
    ROLE_CATCHING_UP,
    ROLE_ELR,
    ROLE_FENCED,
    ROLE_ISR,
    ROLE_LAST_KNOWN_ELR,
    ROLE_LEADER,
    ROLE_OFFLINE,
    families,
    replica_role,
)
from holdfast.controller.core.quorum_controller import QuorumController
from holdfast.metadata.partition import PartitionRegistration
from holdfast.runtime.stats import HistogramValue
from tests.unit.controller.harness import NODE_ID, Quorum, make_config
from tests.unit.controller.test_topics import create


def values(core: QuorumController) -> dict[str, dict[str, float]]:
    """{name without prefix: {label values joined: value, of a histogram how often it was observed}}."""
    found: dict[str, dict[str, float]] = {}
    for family in families(core):
        name = family.name.removeprefix("kafka_controller_")
        assert name not in found
        found[name] = {}
        for sample in family.samples:
            value = sample.value
            if isinstance(value, HistogramValue):
                value = sum(count for _, count in value.buckets)
            found[name][",".join(text for _, text in sample.labels)] = value
    return found


def test_the_active_controller_counts_the_cluster() -> None:
    quorum = Quorum(make_config(min_insync_replicas="2", unclean_recovery_manager_enabled="false"))
    quorum.start_brokers(1, 2, 3)
    create(quorum, "t", -1, -1, (1, 2, 3), (2, 3, 1))
    create(quorum, "alone", -1, -1, (3,))
    quorum.vanish(3)
    quorum.register(3)
    quorum.vanish(1)
    seen = values(quorum.core)
    assert {name: row[""] for name, row in seen.items() if "" in row} | {} == {
        "active_controller": 1,
        "metadata_offset": quorum.image.offset,
        "events_total": quorum.core.counts.events,
        "records_appended_total": len(quorum.entries),
        "replay_violations_total": 0,
        "active_brokers": 1,
        "fenced_brokers": 2,
        "controlled_shutdown_brokers": 0,
        "offline_partitions": 1,
        "global_under_min_isr_partition_count": 3,
        "preferred_replica_imbalance": 2,
        "global_topics": 2,
        "global_partitions": 3,
        "low_on_space_replicas": 0,
        "unclean_recovery_partitions_count": 0,
        "unclean_recovery_finished_total": 0,
        "unclean_recovery_finished_count": 0,
        # partition 0 of alone waits for its last known leader (D8.8)
        "manual_leader_election_required_partition_count": 0,
        # one of t-0, when 1 vanished; `alone` has none since
        "leader_election_seconds": 1,
        "partition_leaderless_seconds": 0,
    }
    assert seen["leader_elections_total"]["isr"] == 1
    # a series that begins above 0 shows no increase
    assert seen["unclean_shutdown_registrations_total"] == {"1": 0, "2": 0, "3": 1}
    assert seen["partition_leader"] == {"alone,0": -1, "t,0": 2, "t,1": 2}
    assert seen["partition_leader_epoch"] == {"alone,0": 1, "t,0": 1, "t,1": 0}
    assert seen["partition_electable_leaders"] == {"alone,0": 0, "t,0": 2, "t,1": 2}
    assert seen["partition_effective_min_isr"]["alone,0"] == 1
    assert seen["partition_replica_role"] == {
        "alone,0,3": 3,
        "t,0,1": 4,
        "t,0,2": 6,
        "t,0,3": 1,
        "t,1,1": 4,
        "t,1,2": 6,
        "t,1,3": 1,
    }
    # of t-0: one short of min ISR, 2 leads and no other broker is there, two complete copies are left
    tolerated = seen["partition_failures_tolerated"]
    assert [tolerated[f"t,0,{kind}"] for kind in ("writes", "online", "lossy")] == [-1, 0, 1]
    assert [tolerated[f"alone,0,{kind}"] for kind in ("writes", "online", "lossy")] == [-1, -1, -1]


def test_a_standby_reports_itself_only() -> None:
    quorum = Quorum(make_config())
    quorum.start_brokers(1)
    quorum.lose(NODE_ID + 1)
    seen = values(quorum.core)
    assert seen["active_controller"][""] == 0
    assert "global_topics" not in seen
    assert "partition_leader" not in seen


def test_series_of_partitions_can_be_switched_off() -> None:
    config = make_config(**{"holdfast_metrics_partition_level": "false"})
    quorum = Quorum(config)
    assert "global_partitions" in values(quorum.core)
    assert "partition_leader" not in values(quorum.core)


@pytest.mark.parametrize(
    ("replica", "role"),
    [
        (1, ROLE_LEADER),
        (2, ROLE_ISR),
        (3, ROLE_ELR),
        (4, ROLE_LAST_KNOWN_ELR),
        (5, ROLE_CATCHING_UP),
        (6, ROLE_FENCED),
        (7, ROLE_OFFLINE),
    ],
)
def test_a_replica_is_shown_as_the_best_that_it_is(replica: int, role: int) -> None:
    partition = PartitionRegistration((7, 6, 5, 4, 3, 2, 1), (1, 2), 1, 0, 0, 3, (3,), last_known_elr=(4,))
    unfenced = (1, 2, 5, 7)  # members of the ELR and of the last known one are mostly fenced
    assert replica_role(partition, replica, unfenced, offline=(7,)) == role
