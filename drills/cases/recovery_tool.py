"""The test plan of the recovery tool's proposal (KIP-1275): an operator elects what is left.

Every in-sync replica is killed and stays away; the tool elects a replica that was not in sync. Records that
were acknowledged without it are lost, which the operator accepts.
"""

import subprocess
import sys

from holdfast.drills.drill import Drill
from holdfast.drills.partition_sets import NO_LEADER
from holdfast.drills.settings import Expectation, ExpectedLoss
from holdfast.drills.stage import STRATEGY, Stage
from holdfast.localcluster.nodes import ClusterError

_TIMEOUT_S = 120


def _play(stage: Stage) -> None:
    # "Spins up a test cluster unclean.leader.election=false and create a partition. Produce to it."
    stage.begin(replicas=(1, 2, 3))
    stage.configure(STRATEGY, "None")
    stage.write()
    stage.stop(3)
    stage.wait(leader=1, isr=(1, 2))
    # acknowledged by two of three: this is what the operator gives up
    stage.write()
    # "Terminate all brokers in the ISR with unclean shutdowns (kill -9) and ensure that the entire ISR is
    # offline." "Assert that the test partition is offline." "Record the replica set."
    stage.kill(1, 2)
    in_sync = {1, 2}
    stage.wait(leader=NO_LEADER)
    stage.start(3)
    stage.wait_unfenced(3)
    # "Get kafka-unclean-recovery.sh to perform a designated leadership election using --automated-recovery"
    _run_the_tool(stage)
    # "Assert that the test partition is online and is using a broker from the non-ISR replica set."
    seen = stage.wait_led()
    if seen.leader in in_sync:
        stage.complaints.append(f"KIP-1275: broker {seen.leader} was in the ISR")
    stage.start(1, 2)
    stage.end()


def _run_the_tool(stage: Stage) -> None:
    words = (
        *("unclean-recovery", "--bootstrap-server", stage.cluster.bootstrap_servers),
        *("--all-offline-partitions", "--automated-recovery", "--show-replica-info"),
        *("--recovery-duration-ms", "3000"),
    )
    stage.say(f"holdfast {' '.join(words)}")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *words],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    for line in (done.stdout + done.stderr).splitlines():
        stage.say(f"  | {line}")
    if done.returncode != 0:
        raise ClusterError(f"holdfast unclean-recovery ended with {done.returncode}")


DRILL = Drill(
    name="recovery-tool",
    title="the whole ISR is gone for good: an operator elects the best of the rest with the tool",
    source="KIP-1275, Test Plan",
    play=_play,
    cuts_power=False,
    expectations=(
        Expectation(
            ExpectedLoss.CERTAIN, "R70-R79: the elected replica was not in sync, what it lacks is given up"
        ),
    ),
)
