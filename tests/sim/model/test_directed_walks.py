"""Stories that KIP-966 and the replication text tell, step by step in the model."""

from dataclasses import replace

import pytest

from holdfast.sim.model import lifecycle, proposals
from holdfast.sim.model.mutants import MUTANTS
from holdfast.sim.model.properties import ModelViolation
from holdfast.sim.model.state import NONE, STOPPING, Setup
from tests.sim.model.builders import DirectedWalk

#: three brokers, three replicas, min ISR 2
THREE = Setup(partitions=1)


def test_eligible_replica_leads_after_the_only_isr_member_died() -> None:
    """Replication text, example 5.2.2: [0,1,2] shrinks to its leader, which loses its tail."""
    walk = DirectedWalk(THREE)
    walk.produce(3)
    walk.replicate()
    walk.shrink(1)
    assert walk.sets() == ([0, 2], [], [])
    walk.shrink(2)
    assert walk.sets() == ([0], [2], [])
    walk.cut_power(0)
    walk.fence(0)
    walk.learn()
    assert walk.part.leader == 2
    walk.start(0)
    walk.replicate()
    walk.expand()
    assert walk.sets() == ([0, 1, 2], [], [])
    assert not walk.has_lost()


def test_after_a_power_outage_the_complete_member_of_last_known_elr_leads() -> None:
    """Example 5.3.3: all brokers register unclean, replica 1 alone has kept all."""
    walk = DirectedWalk(replace(THREE, budget_excess=3))
    walk.produce(5)
    walk.replicate()
    assert len(walk.part.acked) == 5
    walk.cut_power(0, keep=0)
    walk.cut_power(2, keep=2)
    walk.kill(1)
    walk.fence(0, 1, 2)
    assert walk.sets() == ([], [1, 2], [])
    walk.start(0)
    assert walk.sets() == ([], [1, 2], [])
    walk.start(2)
    assert walk.sets() == ([], [1], [2])
    walk.start(1, unfence=False)
    assert walk.sets() == ([], [], [1, 2])
    walk.recover()
    assert walk.part.leader == -1, "member 1 of last known ELR is still fenced"
    walk.unfence(1)
    walk.recover()
    assert walk.part.leader == 1
    assert walk.part.may_have_lost == 1, "every unclean recovery is reported (R68)"
    assert not walk.has_lost()


def test_kip_table_t0_to_t7() -> None:
    """KIP-966, four brokers, min ISR 3; the KIP's b1 to b4 are 0 to 3 here."""
    four = replace(THREE, brokers=4, replication_factor=4, min_isr=3, strategy=NONE)
    walk = DirectedWalk(four)
    leader = walk.world.brokers[0].replicas[0]
    walk.produce(1)
    walk.replicate()
    walk.shrink(2, 3)
    assert walk.sets() == ([0, 1], [2, 3], [])  # T1
    assert leader.high_watermark == 1
    walk.replicate(2)
    walk.fence(3)  # of the two that lag it is b3 that catches up
    walk.learn()
    walk.expand()
    assert walk.sets() == ([0, 1, 2], [], [])  # T2
    walk.fence(1, 2)
    assert walk.sets() == ([0], [1, 2], [])  # T3
    walk.learn()
    walk.unfence(3)
    walk.replicate(3)
    walk.expand()
    assert walk.sets() == ([0, 3], [1, 2], [])  # T4
    for broker in (0, 2, 3):
        walk.kill(broker)
    walk.fence(0, 3)
    walk.start(2, unfence=False)
    assert walk.sets() == ([], [0, 1, 3], [2])  # T5
    walk.start(0, unfence=False)
    assert walk.sets() == ([], [1, 3], [0, 2])
    walk.unfence(1)  # it was only cut off from the controller
    assert walk.part.leader == 1
    assert walk.sets()[0] == [1]  # T6
    walk.unfence(0)
    walk.unfence(2)
    walk.replicate(0, 2)
    walk.expand()
    assert walk.sets() == ([0, 1, 2], [], [])  # T7
    assert not walk.has_lost()


def test_maximal_isr_does_not_open_the_gate() -> None:
    """KIP-966: ISR=[0], ELR=[1], 2 is joining; the high watermark waits for the controller's word."""

    def wait_for_the_controller(walk: DirectedWalk) -> None:
        walk.produce(1)
        walk.replicate()
        walk.kill(2)
        walk.fence(2)
        walk.learn()
        walk.fence(1)
        walk.learn()
        assert walk.sets() == ([0], [1], [])
        walk.write_unacknowledged(2)
        walk.start(2)
        walk.replicate(2)
        leader = walk.world.brokers[0].replicas[0]
        before = leader.high_watermark
        walk.propose()
        assert leader.maximal_isr == 0b101
        walk.write_unacknowledged(1)
        walk.replicate(2)
        assert leader.high_watermark == before
        walk.deliver()
        walk.learn()
        walk.replicate(2)
        assert leader.high_watermark == walk.end(0)

    wait_for_the_controller(DirectedWalk(THREE))
    for name in ("gate-by-maximal-isr", "no-gate"):
        with MUTANTS[name].applied(), pytest.raises(ModelViolation, match=r"A-2"):
            wait_for_the_controller(DirectedWalk(THREE))


def last_replica_standing(elr: bool) -> DirectedWalk:
    """acks=all to [0,1,2], flushed on 0 and 1; cut 0, then 1, power loss on 2, and all come back."""
    walk = DirectedWalk(replace(THREE, elr=elr))
    walk.produce(4)
    walk.replicate()
    assert len(walk.part.acked) == 4
    walk.flush(0, 1)
    walk.kill(0)
    walk.fence(0)
    walk.learn()
    walk.kill(1)
    walk.fence(1)
    walk.learn()
    walk.cut_power(2)
    walk.fence(2)
    return walk


def test_last_replica_standing_loses_what_was_acknowledged_without_elr() -> None:
    walk = last_replica_standing(elr=False)
    assert walk.sets() == ([2], [], []), "the last member stays in the ISR (F7)"
    with pytest.raises(ModelViolation, match=r"I-8|I-9"):
        walk.start(2)
    assert len(walk.part.acked) == 4
    assert walk.end(2) == 0


def test_last_replica_standing_loses_nothing_with_elr() -> None:
    walk = last_replica_standing(elr=True)
    assert walk.sets() == ([], [1, 2], [])
    walk.start(2)
    assert walk.sets() == ([], [1], [2])
    walk.start(1, unfence=False)
    assert walk.sets() == ([], [], [1, 2])
    walk.unfence(1)
    walk.recover()
    assert walk.part.leader == 1
    assert not walk.has_lost()


def test_last_known_leader_of_a_power_outage_loses_what_another_has() -> None:
    """B1: with the manager off the last known leader leads, though its tail is gone; it is reported."""
    walk = DirectedWalk(replace(THREE, manager=False, budget_excess=0))
    walk.produce(4)
    walk.replicate()
    walk.kill(0)
    walk.kill(1)
    walk.cut_power(2)
    walk.fence(0, 1, 2)
    assert walk.sets() == ([], [1, 2], [])
    walk.start(0)
    walk.start(1)
    assert walk.sets() == ([], [2], [1])
    walk.start(2)
    assert walk.part.leader == 2
    assert walk.has_lost()
    assert walk.part.may_have_lost == 1


def test_a_clean_stop_keeps_eligibility() -> None:
    walk = DirectedWalk(THREE)
    walk.produce(2)
    walk.replicate()
    for broker in (0, 1, 2):
        walk.stop(broker)
        walk.fence(broker)
        walk.learn()
    assert walk.sets() == ([], [1, 2], [])
    walk.start(1)
    assert walk.part.leader == 1
    assert walk.part.may_have_lost == 0
    assert not walk.has_lost()


def test_a_broker_that_stops_before_it_had_an_epoch_is_unclean() -> None:
    """R36: its marker says -1."""
    walk = DirectedWalk(THREE)
    w = walk.world
    walk.stop(1)
    walk.fence(1)
    lifecycle.start(w, walk.at(1))
    lifecycle.stop(w, 1)
    while w.brokers[1].state == STOPPING:
        lifecycle.finish_stop(w, 1)
    assert w.brokers[1].clean_file == -1
    walk.start(1, unfence=False)
    assert w.marks["unclean registration"] == 1


def test_a_redirected_move_keeps_every_member_of_last_known_elr() -> None:
    """One of them alone may be complete: without it "all have answered" proves nothing (R103, A-17)."""

    def leaderless_on_the_move(walk: DirectedWalk) -> None:
        walk.move(2, 3)
        walk.learn()
        walk.produce(3)
        walk.replicate()
        walk.kill(3)
        walk.fence(3)
        walk.learn()
        walk.expand()
        walk.fence(1)
        walk.learn()
        walk.replicate(2)
        assert walk.sets() == ([0, 2], [], [])
        assert len(walk.part.acked) == 3
        walk.cut_power(0)
        walk.kill(2)
        walk.fence(0, 2)
        walk.start(0, unfence=False)
        walk.start(2, unfence=False)
        assert walk.sets() == ([], [], [0, 2])

    def drop_the_complete_one(walk: DirectedWalk) -> None:
        walk.move(0, 3)
        walk.unfence(0)
        walk.recover(timed_out=True)

    two = replace(THREE, brokers=4, replication_factor=2)
    walk = DirectedWalk(two)
    leaderless_on_the_move(walk)
    assert not walk.move(0, 3)
    walk.unfence(0)
    walk.unfence(2)
    walk.recover()
    assert walk.part.leader == 2
    assert not walk.has_lost()
    with MUTANTS["redirects-drop-last-known"].applied():
        walk = DirectedWalk(two)
        leaderless_on_the_move(walk)
        with pytest.raises(ModelViolation, match="A-17"):
            drop_the_complete_one(walk)
        walk = DirectedWalk(two, "A-17 ReassignmentKeepsData")
        leaderless_on_the_move(walk)
        drop_the_complete_one(walk)
        assert walk.has_lost()


def test_a_copy_of_a_refused_proposal_comes_too_late() -> None:
    """R44, R45: the leader has gone on without the replica that the copy asks for."""

    def refused_once(walk: DirectedWalk) -> None:
        walk.fence(2)
        walk.learn()
        walk.unfence(2)
        walk.replicate(2)
        walk.propose()
        proposals.resend_proposal(walk.world, 0)
        first = walk.world.messages.pop(0)
        walk.fence(2)
        walk.deliver()
        walk.unfence(2)
        walk.world.messages.append(first)
        walk.deliver()

    walk = DirectedWalk(THREE)
    refused_once(walk)
    assert walk.sets() == ([0, 1], [], [])
    with MUTANTS["grants-late-copies"].applied(), pytest.raises(ModelViolation, match="I-7"):
        refused_once(DirectedWalk(THREE))


def test_a_later_epoch_outside_last_known_elr_proves_nothing() -> None:
    """A record of epoch 0 is committed in epoch 2, which writes nothing; a log that ends in epoch 1 lacks it.
    No replica loses a byte (G-2): the best (epoch, end) of all replicas is not the best of last known ELR."""

    def recover_after_three_leaders(walk: DirectedWalk) -> None:
        walk.write_unacknowledged()
        walk.replicate(2, rounds=1)
        walk.kill(0)
        walk.fence(0)
        walk.learn()
        assert walk.part.leader == 1
        walk.write_unacknowledged()
        walk.kill(1)
        walk.fence(1)
        walk.learn()
        assert walk.part.leader == 2
        walk.start(0)
        walk.replicate(0)
        walk.expand()
        walk.replicate(0)
        assert walk.sets() == ([0, 2], [], [])
        assert len(walk.part.committed) == 1
        walk.kill(0)
        walk.kill(2)
        walk.fence(0, 2)
        for broker in (0, 1, 2):
            walk.start(broker, unfence=False)
        assert walk.sets() == ([], [], [0, 2])
        for broker in (0, 1, 2):
            walk.unfence(broker)
        walk.recover()

    walk = DirectedWalk(replace(THREE, budget_excess=None))
    recover_after_three_leaders(walk)
    assert walk.part.leader in (0, 2)
    for left_out, broken in (("", "A-14"), ("A-14 BalancedRecovery", "I-9")):
        wrong = DirectedWalk(replace(THREE, budget_excess=None), left_out)
        with MUTANTS["recovers-from-outsiders"].applied(), pytest.raises(ModelViolation, match=broken):
            recover_after_three_leaders(wrong)
