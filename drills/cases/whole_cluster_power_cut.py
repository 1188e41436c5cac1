"""The whole cluster loses power at one moment, controllers included, and no broker has flushed.

What was on no disk is lost. The best log must lead, and the loss must be reported.
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
    title="everything loses power at once, nothing was flushed: the best log leads, the loss is reported",
    source="KIP-966, Unclean recovery",
    play=_play,
    # bounds a loss that no log shows; its fsyncs may save other bytes on the disk
    properties={"replica.high.watermark.checkpoint.interval.ms": "250"},
    controllers=3,
    compares=Axis.MANAGER,
    expectations=(
        Expectation(
            ExpectedLoss.POSSIBLE,
            "F7: without ELR the last ISR member leads, and nothing is reported",
            elr=False,
        ),
        Expectation(
            ExpectedLoss.POSSIBLE, "R12: the last known leader leads, and nothing is reported", manager=False
        ),
        Expectation(
            ExpectedLoss.POSSIBLE,
            "G-4, R68: beyond min ISR - 1 lossy brokers, but never without a report",
            strategies=("Balanced", "Aggressive"),
            is_told=True,
        ),
    ),
)
