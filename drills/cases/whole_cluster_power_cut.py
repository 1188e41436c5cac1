"""The power of the whole cluster goes at one moment, controllers included, and nobody had flushed.

Nothing can bring back what was on no disk. What can be asked for: the best log leads, and the loss is told.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    stage.rest()
    stage.cut_power_of(stage.cluster.nodes)
    for broker_id in (1, 2, 3):
        stage.tell_log_end(broker_id)
    stage.start_all()
    stage.end()


DRILL = Drill(
    name="whole-cluster-power-cut",
    title="everything loses its power at once, nothing was flushed: the best log leads, the loss is told",
    source="KIP-966, Unclean recovery",
    play=_play,
    # what is known of a loss that nobody's log tells of; its fsyncs may save what else is on the disk
    properties={"replica.high.watermark.checkpoint.interval.ms": "250"},
    controllers=3,
    compares=Axis.MANAGER,
    expectations=(
        Expectation(
            ExpectedLoss.POSSIBLE, "F7: without ELR the last ISR member leads, and tells nothing", elr=False
        ),
        Expectation(
            ExpectedLoss.POSSIBLE, "R12: the last known leader leads, and tells nothing", manager=False
        ),
        Expectation(
            ExpectedLoss.POSSIBLE,
            "G-4, R68: beyond min ISR - 1 lossy brokers, but never in silence",
            strategies=("Balanced", "Aggressive"),
            is_told=True,
        ),
    ),
)
