"""Chapter 5.3.3: a power outage takes the whole cluster, and the controller fences the brokers one by one.

Broker 2 flushes every write, 1 and 3 never do: 2 alone has everything afterwards. The cuts come in the order
1, 2, 3, each after the controller has fenced the one before, so that 3 is the last known leader.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Axis, Expectation, ExpectedLoss
from holdfast.drills.stage import Stage


def lights_out(stage: Stage) -> None:
    """Steps 1 to 5: all brokers are off, the remaining logs are checked, and flushing is switched on."""
    # 1. "Leader=1, ISR=[1, 2, 3], ELR=[], LastKnownELR=[]"
    stage.begin(replicas=(1, 2, 3))
    stage.write()
    # 3 may be ahead of 2, which flushes before its next fetch: 3 would truncate, and a truncation is flushed
    stage.hold()
    # 3. "The controller fences broker 1 first and elects replica 2 as leader."
    stage.cut_power(1)
    stage.wait(leader=2, isr=(2, 3), elr=(), known=())
    # 4. "The controller fences broker 2 and elects replica 3 as leader."
    stage.cut_power(2)
    stage.wait(leader=3, isr=(3,), elr=(2,), known=())
    # 5. "The controller fences broker 3 and sets NoLeader."
    stage.cut_power(3)
    if stage.settings.elr:
        stage.wait(leader=NO_LEADER, isr=(), elr=(2, 3), known=())
    else:
        stage.wait(leader=NO_LEADER, isr=(3,))
    stage.need_gone(1, 3)
    stage.need_kept(2)
    # A leader that flushes every write counts what its followers have flushed (D6): those that never flush
    # would never be in sync. It changes nothing about what is left of the logs.
    stage.say("flush.messages=1, for all replicas from now on")
    stage.configure("flush.messages", "1")


def _play(stage: Stage) -> None:
    # 2. "A power outage takes down the cluster (causing an unclean shutdown on all brokers)"
    lights_out(stage)
    # 6. "Broker 1 starts-up with loss of committed data" 7. "Broker 2 starts-up with no loss of committed
    # data" 8. "Broker 3 starts-up with loss of committed data"
    stage.start(1, 2, 3)
    # 10. "it chooses replica 2 (of broker 2) as it had the log with the highest epoch and offset"
    stage.wait_led()
    stage.end()


DRILL = Drill(
    name="power-outage",
    title="all power goes, one replica of three had flushed: is it the one that leads?",
    source="replication text, chapter 5.3.3",
    play=_play,
    compares=Axis.MANAGER,
    flushing=(2,),
    expectations=(
        Expectation(ExpectedLoss.CERTAIN, "F7: without ELR the last ISR member is elected again", elr=False),
        Expectation(
            ExpectedLoss.CERTAIN,
            "R12, B1: the last known leader is elected, even if its log lacks records",
            manager=False,
        ),
        Expectation(
            ExpectedLoss.NONE,
            "R64, R66: the logs of the whole LastKnownELR are compared, the best one leads",
            strategies=("Balanced",),
        ),
        Expectation(
            ExpectedLoss.POSSIBLE,
            "R65: Aggressive takes the best log of the brokers that answer in time",
            strategies=("Aggressive",),
        ),
    ),
)
