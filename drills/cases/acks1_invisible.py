"""Records of acks=1 producers while the ISR is below min ISR: acknowledged, but invisible to consumers.

"High Watermark can only advance if the ISR size is larger or equal to min.insync.replicas": so the leader's
power cut may lose them, but no consumer has read what is lost.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    stage.pause(2)
    stage.wait(leader=1, isr=(1, 3))
    stage.pause(3)
    stage.wait(leader=1, isr=(1,), elr=(3,))
    before = stage.view.high_watermark()
    weak = stage.other_load("one", acks=1)
    weak.wait_acked(200)
    weak.stop()
    visible = stage.view.high_watermark()
    stage.say(
        f"acks=1 records are acknowledged below {weak.acked_end}, consumers see what is below {visible}"
    )
    if stage.settings.elr and (visible > before or weak.acked_end <= visible):
        stage.complaints.append(f"F4: the high watermark went from {before} to {visible} below min ISR")
    stage.cut_power(1)
    stage.need_gone(1)
    stage.resume(2, 3)
    if stage.settings.elr:
        stage.wait(leader=3)
        now = stage.view.high_watermark()
        if now < before:
            stage.complaints.append(f"A-6: the high watermark moved back from {before} to {now}")
    else:
        stage.wait(leader=NO_LEADER, isr=(1,))
    stage.start(1)
    stage.end()


DRILL = Drill(
    name="acks1-invisible",
    title="acks=1 records below min ISR are lost with their leader, and no consumer had seen them",
    source="KIP-966, Additional High Watermark advancement requirement",
    play=_play,
    compares=Axis.ELR,
    shows=("lost_weakly_acked",),
    expectations=(
        Expectation(ExpectedLoss.NONE, "F1, F4: acks=1 records stay invisible below min ISR", elr=True),
        Expectation(ExpectedLoss.CERTAIN, "F7: without ELR the last ISR member is elected again", elr=False),
    ),
)
