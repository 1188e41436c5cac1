"""Chapter 5.2.2: the ISR shrinks to the leader, which then suffers a lossy unclean shutdown.

A degraded network makes followers lag; their sessions survive, so that the eligible one leads at once.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    # 1. "Initial state: Leader=1, ISR=[1,2,3], ELR=[]"
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    # 2. "First replica 2 is removed from the ISR. The ISR is still large enough for the HWM to advance"
    stage.pause(2)
    stage.wait(leader=1, isr=(1, 3), elr=())
    stage.write()
    # "Then replica 3 is removed from the ISR. The ISR is now smaller than the MinISR and so replica 3 is
    # added to the ELR."
    stage.pause(3)
    stage.wait(leader=1, isr=(1,), elr=(3,))
    # 3. "Replica 1, the leader and sole member of the ISR experiences an unclean shutdown. The controller
    # fences replica 1 and elects replica 3 as the new leader."
    stage.cut_power(1)
    stage.need_gone(1)
    if stage.settings.elr:
        stage.wait(leader=3, isr=(3,))
    else:
        stage.wait(leader=NO_LEADER, isr=(1,))
    stage.resume(2, 3)
    # 4. "Replica 1 reregisters, catches up to the leader and gets readded to the ISR."
    stage.start(1)
    stage.end()


DRILL = Drill(
    name="clean-elr-recovery",
    title="the ISR shrinks to the leader, which loses its tail: the eligible replica leads",
    source="replication text, chapter 5.2.2",
    play=_play,
    compares=Axis.ELR,
    properties={"broker.session.timeout.ms": "9000", "replica.lag.time.max.ms": "1000"},
    expectations=(
        Expectation(
            ExpectedLoss.NONE, "R5, R11: below min ISR nothing is committed, so 3 is complete", elr=True
        ),
        Expectation(ExpectedLoss.CERTAIN, "F7: without ELR the last ISR member is elected again", elr=False),
    ),
)
