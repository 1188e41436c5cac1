"""flush.messages=1: a power cut of everything at once, with a full ISR, loses nothing at any setting.

The price is an fsync before each acknowledgement; then every ISR member has on disk what was acknowledged.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage

_RULE = "G-3, D6: what is acknowledged is durable on the whole ISR, so every leader has it"


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    stage.cut_power_of(stage.cluster.nodes)
    for broker_id in (1, 2, 3):
        stage.need_kept(broker_id)
    stage.start_all()
    stage.end()


DRILL = Drill(
    name="flush-every-write",
    title="every write is flushed: all power goes at once, nothing is lost at any setting",
    source="replication text, chapter 5",
    play=_play,
    controllers=3,
    compares=Axis.MANAGER,
    topic_configs={"flush.messages": "1"},
    expectations=(
        Expectation(ExpectedLoss.NONE, _RULE, elr=False),
        Expectation(ExpectedLoss.NONE, _RULE, manager=False),
        Expectation(ExpectedLoss.NONE, _RULE, strategies=("Balanced", "Aggressive")),
    ),
)
