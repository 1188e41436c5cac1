"""More lossy brokers at once than min ISR - 1: records are lost, and the recovery reports it.

"The controller must report all unclean recoveries as potential data loss events": the recovery also reports
how many records may be lost at most, and no more are.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    brokers = [1, 2, 3]
    stage.chance.shuffle(brokers)
    match stage.chance.choice(("all at once", "two in turn", "two, without the third")):
        case "all at once":
            stage.cut_power(*brokers)
        case "two in turn":
            for broker_id in brokers[:2]:
                stage.cut_power(broker_id)
                stage.wait_fenced(broker_id)
            stage.kill(brokers[2])
        case _:
            # a replica that left a full ISR is not in the ELR: the recovery does not wait for its better log
            stage.kill(brokers[2])
            stage.wait_fenced(brokers[2])
            stage.cut_power(*brokers[:2])
            stage.start(*brokers[:2])
            stage.wait_led()
    stage.start_all()
    stage.end()


DRILL = Drill(
    name="over-budget",
    title="two or three lossy brokers at once: no more is lost than was reported",
    source="replication text, chapter 5.3.2",
    play=_play,
    expectations=(
        Expectation(
            ExpectedLoss.POSSIBLE,
            "G-4, R68: beyond min ISR - 1 lossy brokers, but never without a report",
            manager=True,
            elr=True,
            strategies=("Balanced",),
            is_told=True,
        ),
    ),
)
