"""The KIP's picture, T0 to T7: four brokers, min ISR 3. The unclean shutdowns in it are power cuts here."""

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def _play(stage: Stage) -> None:
    # "T0. Everyone is online."
    stage.begin(replicas=(1, 2, 3, 4))
    stage.write()
    # "T1. b3, b4 are lagging. b1 proposes ISR{b1, b2}." In one proposal, or in two as here may be.
    stage.pause(3, 4)
    stage.wait(leader=1, isr=(1, 2))
    # "T2. b3 catches up. b1 proposes ISR{b1, b2, b3}. ELR is cleaned."
    stage.resume(3)
    stage.wait(leader=1, isr=(1, 2, 3), elr=())
    stage.write()
    # "T3. b2, b3 are offline. The controller removes b2, b3 from ISR and adds them to ELR."
    stage.pause(2)
    stage.wait(leader=1, isr=(1, 3), elr=(2,))
    stage.cut_power(3)
    stage.wait(leader=1, isr=(1,), elr=(2, 3))
    # "T4. b4 catches up. b1 proposes ISR{b1, b4}."
    stage.resume(4)
    stage.wait(leader=1, isr=(1, 4), elr=(2, 3))
    # "T5. b1, b4 are offline. The controller removes b1, b4 from ISR and adds them to ELR."
    stage.cut_power(1)
    stage.wait(leader=4, isr=(4,), elr=(1, 2, 3))
    stage.kill(4)
    stage.wait(leader=NO_LEADER, isr=(), elr=(1, 2, 3, 4))
    # "b3 comes back with an unclean shutdown. The controller remove b3 from ELR."
    stage.start(3)
    stage.wait(leader=NO_LEADER, isr=(), elr=(1, 2, 4), known=(3,))
    # "T6. b1, comes back with unclean shutdown. The controller remove b1 from ELR."
    stage.start(1)
    stage.wait(leader=NO_LEADER, isr=(), elr=(2, 4), known=(1, 3))
    # "b2 comes back after partitioning. The controller elects b2 as leader and remove it from ELR"
    stage.resume(2)
    # "T7. b1 b3 catch up on replication. b2 proposes ISR{b2, b1, b3}. ELR is cleaned."
    stage.wait(
        leader=2, isr=(1, 2, 3), elr=(), known=(), never=lambda seen: seen.leader not in (NO_LEADER, 2)
    )
    stage.end()


DRILL = Drill(
    name="kip-timeline",
    title="four brokers, min ISR 3: lagging, offline, two power cuts, and the sets of the picture",
    source="KIP-966, the example T0 to T7",
    play=_play,
    brokers=4,
    min_isr=3,
    properties={"broker.session.timeout.ms": "6000", "replica.lag.time.max.ms": "1000"},
    expectations=(
        Expectation(
            ExpectedLoss.NONE, "R5, R6, R13: two lossy brokers are min ISR - 1, b2 is complete", elr=True
        ),
    ),
)
