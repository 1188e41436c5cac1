"""Nodes of one cluster whose `controller.quorum.voters` differ: nothing is committed twice."""

from dataclasses import replace

import pytest

from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.quorum import BadQuorumState
from holdfast.storage.core.config import LogConfig
from tests.unit.raft.cluster import Cluster, Machine

LOG = LogConfig(retention_ms=None)


class Misconfigured(Machine):
    """A machine whose configuration names these voters only."""

    named: tuple[int, ...] = ()

    @property
    def config(self) -> RaftConfig:
        config = super().config
        return replace(config, voters={id: config.voters[id] for id in self.named})


@pytest.mark.parametrize("boots_first", [1, 2])
async def test_a_controller_that_names_itself_only_commits_for_no_other(boots_first: int) -> None:
    """Left from a trial with one controller: it leads a quorum of its own at once. The first election of the
    others needs its vote (K8), so they commit nothing until the operator has corrected it."""
    cluster = Cluster(3, observer_count=1)
    lonely = Misconfigured(cluster, 1, is_voter=True, log_config=LOG)
    lonely.named = (1,)
    cluster.machines[1] = lonely
    for node_id in sorted((1, 2, 3), key=lambda id: (id == 1) != (boots_first == 1)):
        await cluster[node_id].boot()
        await cluster.clock.advance(1500)
    await cluster[101].boot()
    await cluster.clock.advance(2000)
    for machine in cluster.machines.values():
        if machine.driver.is_leader:
            machine.driver.append([b"by %d" % machine.id], machine.driver.raft_epoch)
    await cluster.clock.advance(2000)
    assert lonely.recorder.values == [b"by 1"]
    for node_id in (2, 3, 101):
        assert cluster[node_id].recorder.values == []
    await cluster.stop()


async def test_a_broker_with_the_id_of_a_controller_counts_for_no_majority_k7() -> None:
    """It names the leader only, which is a legal number of voters; what it fetches waits for no flush."""
    cluster = Cluster(3)
    leader = await cluster.boot()
    others = [id for id in cluster.voters if id != leader.id]
    for node_id in others:
        await cluster[node_id].kill()
    broker = Misconfigured(cluster, others[0], is_voter=False, log_config=LOG)
    broker.named = (leader.id,)
    await broker.boot()
    leader.driver.append([b"acked by whom"], leader.driver.raft_epoch)
    await cluster.clock.advance(10_000)
    assert leader.recorder.values == []
    assert not leader.driver.is_leader
    await broker.kill()
    await cluster.stop()


@pytest.mark.parametrize(("voter_count", "then"), [(1, (1, 2, 3)), (3, (1,))])
async def test_a_voter_does_not_start_with_a_log_that_other_voters_wrote(
    voter_count: int, then: tuple[int, ...]
) -> None:
    """Two new voters would elect each other with empty logs, and the third would cut its own to follow."""
    cluster = Cluster(3)
    if voter_count == 1:
        alone = Misconfigured(cluster, 1, is_voter=True, log_config=LOG)
        alone.named = (1,)
        await alone.boot()
        await cluster.clock.advance(1000)
    else:
        await cluster.boot()
        alone = Misconfigured(cluster, 1, is_voter=True, log_config=LOG)
        await cluster.stop()
        alone.disk = cluster[1].disk
    if alone.is_running:
        await alone.kill()
    alone.named = then
    with pytest.raises(BadQuorumState, match=r"was written by the voters .* let the log name them first"):
        await alone.boot()
    assert alone.server is not None
    await alone.server.close()
    await alone.log.close(flush=True)
    alone.named = (1,) if voter_count == 1 else (1, 2, 3)
    await alone.boot()
    await alone.kill()
