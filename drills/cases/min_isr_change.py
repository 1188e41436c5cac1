"""min.insync.replicas is raised from 2 to 3 under load, and from then on two brokers may lose their tails.

What was acknowledged with 3 in sync survives min ISR - 1 = 2 power cuts, because the third replica stays
eligible. When min ISR is lowered again, the ELR is cleared and writes continue.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    stage.say("min.insync.replicas=3")
    stage.configure("min.insync.replicas", "3")
    stage.wait_until(lambda: stage.view.min_isr() == 3, "min ISR is not 3")
    stage.write()
    stage.pause(3)
    stage.wait(leader=1, isr=(1, 2), elr=(3,))
    stage.cut_power(1)
    stage.wait(leader=2, isr=(2,), elr=(1, 3))
    stage.cut_power(2)
    stage.need_gone(1, 2)
    if stage.settings.elr:
        stage.wait(leader=NO_LEADER, isr=(), elr=(1, 2, 3))
        stage.start(1, 2)
        # 1 and 2 lost their tails and leave the ELR, 3 was only silent
        stage.wait(leader=NO_LEADER, isr=(), elr=(3,), known=(1, 2))
        stage.resume(3)
        stage.wait(leader=3)
    else:
        stage.wait(leader=NO_LEADER, isr=(2,))
        stage.resume(3)
        stage.start(1, 2)
    stage.wait_led()
    # "if the new min ISR <= current ISR, the ELR will be removed"
    stage.say("min.insync.replicas=2")
    stage.configure("min.insync.replicas", "2")
    stage.wait(isr=(1, 2, 3), elr=(), known=())
    stage.end()


DRILL = Drill(
    name="min-isr-change",
    title="min ISR is raised to 3 under load, two brokers lose their tails, then it is lowered again",
    source="KIP-966, Other behaviors 2",
    play=_play,
    compares=Axis.ELR,
    expectations=(
        Expectation(
            ExpectedLoss.NONE, "R109, R5: min ISR - 1 = 2 lossy brokers, the third stayed eligible", elr=True
        ),
        Expectation(ExpectedLoss.CERTAIN, "F7: without ELR the last ISR member is elected again", elr=False),
    ),
)
