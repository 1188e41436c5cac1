"""More lossy brokers at once than min ISR - 1: what is gone is gone, and the recovery says so.

"The controller must report all unclean recoveries as potential data loss events": with at least as many
records predicted as are gone.
"""

from drills.drill import Drill
from drills.settings import Expectation, Loss
from drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    stage.rest()
    victims = [1, 2, 3]
    stage.chance.shuffle(victims)
    lossy = victims[: stage.chance.choice((2, 3))]
    killed = [broker_id for broker_id in victims if broker_id not in lossy]
    if stage.chance.random() < 0.5:
        stage.cut_power(*lossy)
        if killed:
            stage.kill(*killed)
    else:
        for broker_id in lossy:
            stage.cut_power(broker_id)
            stage.wait_fenced(broker_id)
        if killed:
            stage.kill(*killed)
    stage.start_all()
    stage.end()


DRILL = Drill(
    name="over-budget",
    title="two or three lossy brokers at once: what is gone is predicted",
    source="replication text, chapter 5.3.2",
    play=_play,
    expectations=(
        Expectation(
            Loss.POSSIBLE,
            "B-4, R68: beyond min ISR - 1 lossy brokers, but never in silence",
            manager=True,
            elr=True,
            strategies=("Balanced",),
            is_told=True,
        ),
    ),
)
