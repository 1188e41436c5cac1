"""What is left behind where ELR is off, or was: reassignments, unregistered brokers, failed dirs (F7, D8)."""

import pytest

from holdfast.controller.core.events import LogInfoArrived
from holdfast.controller.core.operators.operations import (
    ElectionType,
    ElectLeader,
    UnregisterBroker,
    UpdateFeature,
)
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.broker_registration import OfflineTopic
from holdfast.scenario.grammar import Command
from tests.unit.controller.harness import Quorum, Scenario, make_config
from tests.unit.controller.test_topics import create


def play(text: str) -> Scenario:
    scenario = Scenario()
    for line in text.strip().splitlines():
        scenario.execute(Command(line.strip(), "review"))
    return scenario


#: 2 leads by an unclean election, which makes the reassignment complete; "ends with the next change".
COMPLETE_BUT_NOT_ENDED = """
    cluster elr=off
    broker 1 2 3
    partition t-0 replicas=(1,2,3) min_isr=1 isr=(1)
    reassign t-0 replicas=(2)
    fence 1
    elect unclean t-0
    fence 2
"""


def test_comparison_of_logs_where_a_reassignment_is_complete_does_not_end_the_controller() -> None:
    scenario = play(COMPLETE_BUT_NOT_ENDED + "feature elr=1\nelect longest_log_aggressive t-0")
    scenario.execute(Command("log_info 3 t-0 last_epoch=0 end_offset=5", "review"))
    assert scenario.quorum.partition("t").leader == 3


def test_the_next_controllers_end_as_well_when_the_strategy_is_aggressive() -> None:
    scenario = play(
        COMPLETE_BUT_NOT_ENDED + "feature elr=1\nconfig topic t unclean.recovery.strategy=Aggressive"
    )
    ends = 0
    for _ in range(3):
        try:
            scenario.execute(Command("log_info 3 t-0 last_epoch=0 end_offset=5", "review"))
        except AssertionError:
            ends += 1
            scenario.quorum.fail_over()
    assert ends == 0


@pytest.mark.parametrize("kind", [ElectionType.DESIGNATED, ElectionType.UNCLEAN])
def test_election_on_request_that_elects_no_leader_is_no_success(kind: ElectionType) -> None:
    quorum = play(COMPLETE_BUT_NOT_ENDED).quorum
    answer = quorum.request(ElectLeader(kind, "t", 0, 3 if kind is ElectionType.DESIGNATED else None))
    after = quorum.partition("t")
    assert after.leader == 3 or answer.error_code != ErrorCode.NONE, (answer, after.replicas)
    assert 3 in after.replicas


def test_preferred_election_of_a_replica_in_a_failed_dir_is_refused() -> None:
    quorum = Quorum(make_config(min_insync_replicas="1", eligible_leader_replicas_enabled="false"))
    quorum.start_brokers(1)
    assert create(quorum, "t", 1, 1).error_code == ErrorCode.NONE
    quorum.heartbeat(1, offline=(OfflineTopic(quorum.topic("t").topic_id, (0,)),))
    assert (quorum.partition("t").leader, quorum.partition("t").isr) == (None, (1,))
    answer = quorum.request(ElectLeader(ElectionType.PREFERRED, "t", 0))
    assert quorum.partition("t").leader is None
    assert answer.error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_unregistered_last_member_kept_without_elr_does_not_hold_up_recovery_with_elr() -> None:
    quorum = Quorum(make_config(min_insync_replicas="1", eligible_leader_replicas_enabled="false"))
    quorum.start_brokers(1, 2)
    assert create(quorum, "t", 1, 2).error_code == ErrorCode.NONE
    leader = quorum.partition("t").leader
    assert leader is not None
    other = 3 - leader
    quorum.alter("t", (leader,))
    quorum.vanish(leader)
    assert quorum.request(UnregisterBroker(leader)).error_code == ErrorCode.NONE
    assert quorum.request(UpdateFeature(ELR_FEATURE, 1)).error_code == ErrorCode.NONE
    quorum.heartbeat(other)
    key = (quorum.topic("t").topic_id, 0)
    for _ in range(4):  # the comparison of logs, and the time-out of those who will never answer
        after = quorum.partition("t")
        broker_epoch = quorum.image.brokers[other].broker_epoch
        quorum.handle(LogInfoArrived(other, broker_epoch, *key, after.leader_epoch, 0, 5, ErrorCode.NONE))
        quorum.heartbeat(other)
        if other in quorum.unfenced():
            quorum.fire_timer(quorum.now_ms + 300_000)
        quorum.heartbeat(other)
    assert quorum.partition("t").leader == other
