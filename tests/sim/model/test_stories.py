"""Stories that the sources tell, step by step in the model."""

from dataclasses import replace

import pytest

from holdfast.sim.model import lifecycle, proposals
from holdfast.sim.model.properties import ModelViolation
from holdfast.sim.model.state import NONE, STOPPING, Setup
from holdfast.sim.model.wrong_brokers import GateByMaximalIsr, NoGate
from holdfast.sim.model.wrong_controllers import (
    GrantsLateCopies,
    RecoversFromOutsiders,
    RedirectsDropLastKnown,
)
from tests.sim.model.story import Story

#: three brokers, three replicas, min ISR 2
THREE = Setup(partitions=1)


def test_eligible_replica_leads_after_the_only_isr_member_died() -> None:
    """Replication text, example 5.2.2: [0,1,2] shrinks to its leader, which loses its tail."""
    story = Story(THREE)
    story.produce(3)
    story.replicate()
    story.shrink(1)
    assert story.sets() == ([0, 2], [], [])
    story.shrink(2)
    assert story.sets() == ([0], [2], [])
    story.cut_power(0)
    story.fence(0)
    story.learn()
    assert story.part.leader == 2
    story.start(0)
    story.replicate()
    story.expand()
    assert story.sets() == ([0, 1, 2], [], [])
    assert not story.has_lost()


def test_after_a_power_outage_the_complete_member_of_last_known_elr_leads() -> None:
    """Example 5.3.3: everybody registers unclean, replica 1 alone has kept all."""
    story = Story(replace(THREE, budget_excess=3))
    story.produce(5)
    story.replicate()
    assert len(story.part.acked) == 5
    story.cut_power(0, keep=0)
    story.cut_power(2, keep=2)
    story.kill(1)
    story.fence(0, 1, 2)
    assert story.sets() == ([], [1, 2], [])
    story.start(0)
    assert story.sets() == ([], [1, 2], [])
    story.start(2)
    assert story.sets() == ([], [1], [2])
    story.start(1, unfence=False)
    assert story.sets() == ([], [], [1, 2])
    story.recover()
    assert story.part.leader == -1, "member 1 of last known ELR is still fenced"
    story.unfence(1)
    story.recover()
    assert story.part.leader == 1
    assert story.part.may_have_lost == 1, "every unclean recovery is reported (R68)"
    assert not story.has_lost()


def test_kip_table_t0_to_t7() -> None:
    """KIP-966, four brokers, min ISR 3; the KIP's b1 to b4 are 0 to 3 here."""
    four = replace(THREE, brokers=4, replication_factor=4, min_isr=3, strategy=NONE)
    story = Story(four)
    leader = story.world.brokers[0].replicas[0]
    story.produce(1)
    story.replicate()
    story.shrink(2, 3)
    assert story.sets() == ([0, 1], [2, 3], [])  # T1
    assert leader.high_watermark == 1
    story.replicate(2)
    story.fence(3)  # of the two that lag it is b3 that catches up
    story.learn()
    story.expand()
    assert story.sets() == ([0, 1, 2], [], [])  # T2
    story.fence(1, 2)
    assert story.sets() == ([0], [1, 2], [])  # T3
    story.learn()
    story.unfence(3)
    story.replicate(3)
    story.expand()
    assert story.sets() == ([0, 3], [1, 2], [])  # T4
    for broker in (0, 2, 3):
        story.kill(broker)
    story.fence(0, 3)
    story.start(2, unfence=False)
    assert story.sets() == ([], [0, 1, 3], [2])  # T5
    story.start(0, unfence=False)
    assert story.sets() == ([], [1, 3], [0, 2])
    story.unfence(1)  # it was only cut off from the controller
    assert story.part.leader == 1
    assert story.sets()[0] == [1]  # T6
    story.unfence(0)
    story.unfence(2)
    story.replicate(0, 2)
    story.expand()
    assert story.sets() == ([0, 1, 2], [], [])  # T7
    assert not story.has_lost()


def test_maximal_isr_does_not_open_the_gate() -> None:
    """KIP-966: ISR=[0], ELR=[1], 2 is joining; the high watermark waits for the controller's word."""

    def wait_for_the_controller(story: Story) -> None:
        story.produce(1)
        story.replicate()
        story.kill(2)
        story.fence(2)
        story.learn()
        story.fence(1)
        story.learn()
        assert story.sets() == ([0], [1], [])
        story.write_unacknowledged(2)
        story.start(2)
        story.replicate(2)
        leader = story.world.brokers[0].replicas[0]
        before = leader.high_watermark
        story.propose()
        assert leader.maximal_isr == 0b101
        story.write_unacknowledged(1)
        story.replicate(2)
        assert leader.high_watermark == before
        story.deliver()
        story.learn()
        story.replicate(2)
        assert leader.high_watermark == story.end(0)

    wait_for_the_controller(Story(THREE))
    with pytest.raises(ModelViolation, match=r"A-2"):
        wait_for_the_controller(Story(THREE, GateByMaximalIsr()))
    with pytest.raises(ModelViolation, match=r"A-2"):
        wait_for_the_controller(Story(THREE, NoGate()))


def last_replica_standing(elr: bool) -> Story:
    """acks=all to [0,1,2], flushed on 0 and 1; cut 0, then 1, power loss on 2, and everybody comes back."""
    story = Story(replace(THREE, elr=elr))
    story.produce(4)
    story.replicate()
    assert len(story.part.acked) == 4
    story.flush(0, 1)
    story.kill(0)
    story.fence(0)
    story.learn()
    story.kill(1)
    story.fence(1)
    story.learn()
    story.cut_power(2)
    story.fence(2)
    return story


def test_last_replica_standing_loses_what_was_acknowledged_without_elr() -> None:
    story = last_replica_standing(elr=False)
    assert story.sets() == ([2], [], []), "the last member stays in the ISR (F7)"
    with pytest.raises(ModelViolation, match=r"I-8|I-9"):
        story.start(2)
    assert len(story.part.acked) == 4
    assert story.end(2) == 0


def test_last_replica_standing_loses_nothing_with_elr() -> None:
    story = last_replica_standing(elr=True)
    assert story.sets() == ([], [1, 2], [])
    story.start(2)
    assert story.sets() == ([], [1], [2])
    story.start(1, unfence=False)
    assert story.sets() == ([], [], [1, 2])
    story.unfence(1)
    story.recover()
    assert story.part.leader == 1
    assert not story.has_lost()


def test_last_known_leader_of_a_power_outage_loses_what_another_has() -> None:
    """Rules B1: with the manager off the last known leader leads, though its tail is gone; it is reported."""
    story = Story(replace(THREE, manager=False, budget_excess=0))
    story.produce(4)
    story.replicate()
    story.kill(0)
    story.kill(1)
    story.cut_power(2)
    story.fence(0, 1, 2)
    assert story.sets() == ([], [1, 2], [])
    story.start(0)
    story.start(1)
    assert story.sets() == ([], [2], [1])
    story.start(2)
    assert story.part.leader == 2
    assert story.has_lost()
    assert story.part.may_have_lost == 1


def test_a_clean_stop_keeps_eligibility() -> None:
    story = Story(THREE)
    story.produce(2)
    story.replicate()
    for broker in (0, 1, 2):
        story.stop(broker)
        story.fence(broker)
        story.learn()
    assert story.sets() == ([], [1, 2], [])
    story.start(1)
    assert story.part.leader == 1
    assert story.part.may_have_lost == 0
    assert not story.has_lost()


def test_a_broker_that_stops_before_it_had_an_epoch_is_unclean() -> None:
    """R36: its marker says -1."""
    story = Story(THREE)
    w = story.world
    story.stop(1)
    story.fence(1)
    lifecycle.start(w, story.at(1))
    lifecycle.stop(w, 1)
    while w.brokers[1].state == STOPPING:
        lifecycle.finish_stop(w, 1)
    assert w.brokers[1].clean_file == -1
    story.start(1, unfence=False)
    assert w.marks["unclean registration"] == 1


def test_a_redirected_move_keeps_every_member_of_last_known_elr() -> None:
    """One of them alone may be complete: without it "all have answered" proves nothing (R103, A-17)."""

    def leaderless_on_the_move(story: Story) -> None:
        story.move(2, 3)
        story.learn()
        story.produce(3)
        story.replicate()
        story.kill(3)
        story.fence(3)
        story.learn()
        story.expand()
        story.fence(1)
        story.learn()
        story.replicate(2)
        assert story.sets() == ([0, 2], [], [])
        assert len(story.part.acked) == 3
        story.cut_power(0)
        story.kill(2)
        story.fence(0, 2)
        story.start(0, unfence=False)
        story.start(2, unfence=False)
        assert story.sets() == ([], [], [0, 2])

    def drop_the_complete_one(story: Story) -> None:
        story.move(0, 3)
        story.unfence(0)
        story.recover()

    two = replace(THREE, brokers=4, replication_factor=2)
    story = Story(two)
    leaderless_on_the_move(story)
    assert not story.move(0, 3)
    story.unfence(0)
    story.unfence(2)
    story.recover()
    assert story.part.leader == 2
    assert not story.has_lost()
    for left_out, broken in (("", "A-17"), ("A-17 ReassignmentKeepsData", "I-9 LeaderCompleteness")):
        story = Story(two, RedirectsDropLastKnown(), left_out)
        leaderless_on_the_move(story)
        with pytest.raises(ModelViolation, match=broken):
            drop_the_complete_one(story)


def test_a_copy_of_a_refused_proposal_comes_too_late() -> None:
    """R44, R45: the leader has gone on without the replica that the copy asks for."""

    def refused_once(story: Story) -> None:
        story.fence(2)
        story.learn()
        story.unfence(2)
        story.replicate(2)
        story.propose()
        proposals.resend_proposal(story.world, 0)
        first = story.world.messages.pop(0)
        story.fence(2)
        story.deliver()
        story.unfence(2)
        story.world.messages.append(first)
        story.deliver()

    story = Story(THREE)
    refused_once(story)
    assert story.sets() == ([0, 1], [], [])
    with pytest.raises(ModelViolation, match="I-7"):
        refused_once(Story(THREE, GrantsLateCopies()))


def test_a_later_epoch_outside_last_known_elr_proves_nothing() -> None:
    """A record of epoch 0 is committed in epoch 2, which writes nothing; a log that ends in epoch 1 lacks it.
    Nobody loses a byte (B-2): the best (epoch, end) of all replicas is not the best of last known ELR."""

    def recover_after_three_leaders(story: Story) -> None:
        story.write_unacknowledged()
        story.replicate(2, rounds=1)
        story.kill(0)
        story.fence(0)
        story.learn()
        assert story.part.leader == 1
        story.write_unacknowledged()
        story.kill(1)
        story.fence(1)
        story.learn()
        assert story.part.leader == 2
        story.start(0)
        story.replicate(0)
        story.expand()
        story.replicate(0)
        assert story.sets() == ([0, 2], [], [])
        assert len(story.part.committed) == 1
        story.kill(0)
        story.kill(2)
        story.fence(0, 2)
        for broker in (0, 1, 2):
            story.start(broker, unfence=False)
        assert story.sets() == ([], [], [0, 2])
        for broker in (0, 1, 2):
            story.unfence(broker)
        story.recover()

    story = Story(replace(THREE, budget_excess=None))
    recover_after_three_leaders(story)
    assert story.part.leader in (0, 2)
    for left_out, broken in (("", "A-14"), ("A-14 BalancedRecovery", "I-9")):
        wrong = Story(replace(THREE, budget_excess=None), RecoversFromOutsiders(), left_out)
        with pytest.raises(ModelViolation, match=broken):
            recover_after_three_leaders(wrong)
