"""The beginning that several drills share: a recovery that cannot be decided yet."""

from holdfast.drills.cases.power_outage import lights_out
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.stage import STRATEGY, Stage


def two_are_asked(stage: Stage) -> None:
    """After the outage 1, 2 and 3 are back, 3 is silent, and the recovery has just begun."""
    lights_out(stage)
    # no broker is asked before everything is in place
    stage.configure(STRATEGY, "None")
    stage.start(1, 2, 3)
    stage.wait(leader=NO_LEADER, isr=(), elr=(), known=(2, 3))
    stage.wait_unfenced(1, 2, 3)
    stage.pause(3)
    stage.say(f"{STRATEGY}={stage.settings.strategy}: the recovery begins")
    stage.configure(STRATEGY, stage.settings.strategy)


def two_have_answered(stage: Stage) -> None:
    """As above, and 1 and 2 have answered about their logs."""
    before = {broker_id: stage.view.replies(broker_id) for broker_id in (1, 2)}
    two_are_asked(stage)
    stage.wait_until(
        lambda: all(stage.view.replies(broker_id) > before[broker_id] for broker_id in before),
        "brokers 1 and 2 do not answer",
    )
    stage.say(f"  brokers 1 and 2 have answered; {stage.view.sets()}")
