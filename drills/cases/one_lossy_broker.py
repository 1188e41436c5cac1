"""At most min ISR - 1 = 1 lossy broker at any moment, and any number of unclean shutdowns without loss.

A random schedule of power cuts, kills, silent brokers and dead controllers. A broker whose power was cut
counts as lossy until it is back in the ISR; the schedule waits for that before the next cut.
"""

from holdfast.drills.drill import Drill
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import Stage

CUTS = 3


def _play(stage: Stage) -> None:
    stage.begin(replicas=(1, 2, 3))
    for _ in range(CUTS):
        stage.write(50, 250)
        _one_cut(stage)
        stage.start_all()
        stage.resume_all()
        stage.wait_readmitted()
    stage.end()


def _one_cut(stage: Stage) -> None:
    """Cut one broker's power, with something else that goes wrong before it, after it or not at all."""
    victim = stage.chance.choice((1, 2, 3))
    others = [broker_id for broker_id in (1, 2, 3) if broker_id != victim]
    stage.chance.shuffle(others)
    trouble = stage.chance.choice(("none", "kill one", "kill both", "silence", "kill a controller"))
    comes_first = stage.chance.random() < 0.5
    if not comes_first:
        stage.cut_power(victim)
        _maybe_wait(stage, victim)
    match trouble:
        case "kill one":
            stage.kill(others[0])
        case "kill both":
            stage.kill(*others)
        case "silence":
            stage.pause(others[0])
            _maybe_wait(stage, others[0])
        case "kill a controller":
            active = stage.view.active_controller()
            stage.say(f"kill -9: {active.name}, the active controller")
            stage.cluster.kill([active])
    if comes_first:
        _maybe_wait(stage, others[0])
        stage.cut_power(victim)


def _maybe_wait(stage: Stage, gone: int) -> None:
    """Maybe wait until the controller has noticed."""
    if stage.chance.random() < 0.5 and stage.cluster.pid(stage.cluster.broker(gone)) is None:
        stage.wait_fenced(gone)


DRILL = Drill(
    name="one-lossy-broker",
    title="a random schedule with one lossy broker at any moment loses nothing",
    source="KIP-966, Motivation: MinISR-1 lossy shutdowns are survived",
    play=_play,
    controllers=3,
    expectations=(
        Expectation(
            ExpectedLoss.NONE,
            "G-1, G-2: one lossy broker is min ISR - 1, kills without loss do not count",
            manager=True,
            elr=True,
            strategies=("Balanced",),
        ),
        Expectation(
            ExpectedLoss.POSSIBLE,
            "B1, F7: the last known leader, or the last ISR member, may be the lossy one",
        ),
    ),
)
