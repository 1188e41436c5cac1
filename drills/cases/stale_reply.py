"""The power outage of chapter 5.3.3, in which the broker with the best log reboots after it has answered.

"Replica's broker epoch. This can avoid electing a broker that has rebooted after it made the response": and
the other answers must not be enough, because 3 has lost its tail.
"""

from holdfast.drills.cases.recovery import two_have_answered
from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    two_have_answered(stage)
    # "If the replica fails after it responds to the GetReplicaLogInfo request"
    stage.kill(2)
    stage.wait_fenced(2)
    stage.resume(3)
    # now 3 may answer at any time, and until 2 is back no leader may be elected
    stage.wait_unfenced(1, 3)
    stage.say(f"  {stage.view.sets()}")
    stage.start(2)
    stage.wait(leader=2, never=lambda seen: seen.leader not in (NO_LEADER, 2))
    stage.end()


DRILL = Drill(
    name="stale-reply",
    title="the broker with the best log reboots after it answered: its answer no longer counts",
    source="KIP-966, Unclean recovery, broker failover",
    play=_play,
    flushing=(2,),
    # a broker that is silent for a moment stays unfenced: it is asked and says nothing
    properties={"broker.session.timeout.ms": "9000"},
    expectations=(
        Expectation(
            ExpectedLoss.NONE,
            "R62, R63, N-3: answers count for the incarnation that is registered at the decision",
            manager=True,
            elr=True,
            strategies=("Balanced",),
        ),
    ),
)
