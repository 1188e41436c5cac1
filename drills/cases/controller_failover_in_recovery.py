"""The power outage of chapter 5.3.3, in which the active controller dies during the recovery.

"The controller does not store anything in the metadata log, every controller failover will result in a new
unclean recovery." The seed chooses the moment; the elected leader is the same.
"""

from holdfast.drills.cases.recovery import two_are_asked, two_have_answered
from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    moment = stage.settings.seed % 3
    if moment == 0:
        stage.say("the active controller will die as soon as brokers are asked")
        two_are_asked(stage)
    else:
        stage.say(f"the active controller will die {_MOMENTS[moment]}")
        two_have_answered(stage)
    if moment == 2:
        stage.resume(3)
    active = stage.view.active_controller()
    stage.say(f"kill -9: {active.name}, the active controller")
    stage.cluster.kill([active])
    if moment != 2:
        stage.resume(3)
    stage.wait(leader=2, never=lambda seen: seen.leader not in (NO_LEADER, 2))
    stage.cluster.start(active)
    stage.end()


_MOMENTS = {1: "when two of three have answered", 2: "while the last answer is on its way"}

DRILL = Drill(
    name="controller-failover-in-recovery",
    title="the active controller dies while logs are compared: the next one asks again, the same log wins",
    source="KIP-966, Unclean recovery, controller failover",
    play=_play,
    controllers=3,
    flushing=(2,),
    properties={"broker.session.timeout.ms": "9000"},
    expectations=(
        Expectation(
            ExpectedLoss.NONE,
            "R60: a recovery is soft state, the next controller starts it again",
            manager=True,
            elr=True,
            strategies=("Balanced",),
        ),
    ),
)
