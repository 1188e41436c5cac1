"""Machine after machine loses power, each with a broker and a controller; the next when the ISR is full.

One lossy broker at a time is within min ISR - 1 at any setting: every ISR member is complete.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    machines = list(zip(stage.cluster.brokers, stage.cluster.controllers, strict=True))
    stage.chance.shuffle(machines)
    for broker, controller in machines:
        stage.write()
        stage.cut_power_of((broker, controller))
        stage.wait(isr=[other.node_id for other, _ in machines if other != broker])
        stage.write(20, 100)
        stage.start_all()
        # readmitted: from here on it has lost nothing
        stage.wait_readmitted()
    stage.end()


DRILL = Drill(
    name="rolling-power-cut",
    title="one machine after the other loses power, the next when the last one is back in the ISR",
    source="KIP-966, Motivation: MinISR-1 lossy shutdowns are survived",
    play=_play,
    controllers=3,
    expectations=(
        Expectation(ExpectedLoss.NONE, "G-1, R32: out of the ISR until it has caught up, never two at once"),
    ),
)
