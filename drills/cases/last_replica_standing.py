"""The KIP's motivation: the last replica in the ISR loses its tail, and then all replicas do.

Brokers 1, 2, 3 are the KIP's 0, 1, 2. No broker flushes; network partitioning keeps the page cache, the
unclean shutdown of T2 does not.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    # "At T0, a network partitioning happens and broker 0 gets out of ISR."
    stage.pause(1)
    stage.wait(leader=2, isr=(2, 3))
    # with two of three the min ISR is met: writes continue
    stage.write()
    # "At T1, another network partitioning happens, and broker 1 also leaves. Broker 2 becomes the leader."
    stage.pause(2)
    stage.wait(leader=3, isr=(3,), elr=(2,))
    # "At T2, broker 2 suffers an unclean shutdown which also causes broker 2 to lose some of its logs."
    stage.cut_power(3)
    stage.need_gone(3)
    if stage.settings.elr:
        stage.wait(leader=NO_LEADER, isr=(), elr=(2, 3))
    else:
        # "The current kafka behavior will prevent ISR drops to empty which keeps the last replica broker 2."
        stage.wait(leader=NO_LEADER, isr=(3,))
    # "At T3, the network partitioning is done. Broker 0 and broker 1 come back."
    stage.resume(1, 2)
    if stage.settings.elr:
        stage.wait(leader=2, isr=(1, 2), elr=())
    else:
        stage.wait_until(lambda: stage.view.fenced() == (3,), "brokers 1 and 2 stay fenced")
        # "However, the ISR can't be recovered because these two brokers are not in ISR."
        stage.wait(leader=NO_LEADER, isr=(3,))
    # "At T4, broker 2 restarts" - "and becomes the leader. Then, the replication begins and results in global
    # data loss."
    stage.start(3)
    stage.end()


DRILL = Drill(
    name="last-replica-standing",
    title="the only replica left in the ISR loses its tail: is it elected again?",
    source="KIP-966, Motivation, T0 to T4",
    play=_play,
    compares=Axis.ELR,
    expectations=(
        Expectation(
            ExpectedLoss.NONE,
            "R5, R11: a replica that left the ISR below min ISR stays eligible and leads",
            elr=True,
        ),
        Expectation(ExpectedLoss.CERTAIN, "F7: without ELR the last ISR member is elected again", elr=False),
    ),
)
