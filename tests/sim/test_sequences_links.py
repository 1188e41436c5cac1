"""Links on which only some connections are late: each choreography reaches the state that it is aimed at."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.controller.core.partitions.proposal_order import ProposalOrder
from holdfast.controller.core.partitions.unclean_recovery import AnswerValidity, UncleanRecovery
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.roles import Follower
from holdfast.sim.campaign.run import run
from holdfast.sim.cluster.world import ClusterSpec
from holdfast.sim.faults.table import Plan
from holdfast.sim.machine.choices import Choices

pytestmark = pytest.mark.slow

SHAPE = replace(ClusterSpec(), partitions=2, producers=2, recovery_manager=True)


def play(fault: str, met: list[object], shape: ClusterSpec = SHAPE) -> None:
    """Until the state is met; no promise is broken on the way there."""
    for seed in map(str, range(1, 33)):
        result = run(Choices(seed), shape, 12, plan=Plan(gap_ms=4_000, only=(fault,)))
        assert result.violation is None, result.as_text()
        if met:
            return
    raise AssertionError("never met")


def test_what_was_granted_is_known_before_metadata_tells_of_what_came_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[object] = []
    original = Partition.apply_registration

    def apply(self: Partition, registration: Any, now_ms: int) -> Any:
        known = self.registration
        if known is not None and registration.partition_epoch < known.partition_epoch:
            met.append(registration)
        return original(self, registration, now_ms)

    monkeypatch.setattr(Partition, "apply_registration", apply)
    play("late_metadata", met)


def test_a_proposal_arrives_after_its_copy_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[object] = []
    original = ProposalOrder.refusal

    def refusal(self: ProposalOrder, request: Any, registered_epoch: Any) -> Any:
        answer = original(self, request, registered_epoch)
        if answer is not None:
            met.append(answer)
        return answer

    monkeypatch.setattr(ProposalOrder, "refusal", refusal)
    play("late_copy", met)


def test_a_broker_answers_for_its_log_while_it_follows_a_former_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[object] = []
    original = UncleanRecovery.take_log_info

    def take(self: UncleanRecovery, image: Any, event: Any) -> AnswerValidity:
        verdict = original(self, image, event)
        if verdict is AnswerValidity.STALE_LEADER_EPOCH:
            met.append(event)
        return verdict

    monkeypatch.setattr(UncleanRecovery, "take_log_info", take)
    play("stale_answer", met, replace(SHAPE, over_budget=True))


def test_a_session_is_asked_for_by_a_request_that_the_next_one_has_overtaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[object] = []
    original = FetchPath.follower_request

    def follower_request(self: FetchPath, reply_to: object, request: Any, now_ms: int) -> Any:
        session = self._sessions.get(request.replica_id)
        if request.session_epoch == 0 and session is not None:
            if (request.broker_epoch, request.session_id) < session.identity:
                met.append(request)
        return original(self, reply_to, request, now_ms)

    monkeypatch.setattr(FetchPath, "follower_request", follower_request)
    play("late_session", met)


def test_a_follower_that_fetches_all_the_time_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch each time, and late: the leader proposes an ISR without it (R51)."""
    met: list[object] = []
    original = Partition.maybe_shrink

    def shrink(self: Partition, now_ms: int) -> Any:
        proposal = original(self, now_ms)
        if proposal is not None and self.leadership is not None and self.registration is not None:
            dropped = {*self.registration.isr} - {*proposal.isr}
            met.extend(d for d in dropped if now_ms - self.leadership.progress[d].last_fetch_ms < 1_000)
        return proposal

    monkeypatch.setattr(Partition, "maybe_shrink", shrink)
    play("late_fetches", met, replace(SHAPE, producers=4, small_fetches=True))


def test_time_for_answers_about_logs_is_over_while_some_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[object] = []
    original = UncleanRecovery._elect

    def elect(self: UncleanRecovery, look: Any, topic: Any, index: int, partition: Any, *more: Any) -> Any:
        silent = [
            replica
            for replica in partition.replicas
            if look.image.is_active_replica(replica, (topic.topic_id, index))
            and replica not in {log.replica for log in more[0].logs}
        ]
        met.extend(silent)
        return original(self, look, topic, index, partition, *more)

    monkeypatch.setattr(UncleanRecovery, "_elect", elect)
    play("late_logs", met, replace(SHAPE, short_intervals=True))


def test_a_stale_answer_is_not_played_where_nothing_may_be_lost() -> None:
    result = run(Choices("1"), SHAPE, 4, plan=Plan(gap_ms=1_000, only=("stale_answer",)))
    assert result.violation is None
    assert not result.faults


def test_a_voter_hears_what_a_former_leader_told_it_when_it_follows_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[object] = []
    original = RaftNode._answered

    def answered(self: RaftNode, request_id: int, response: Any) -> None:
        member = self._member
        if isinstance(response, FetchResponse) and isinstance(member.role, Follower):
            epoch = member.state.raft_epoch
            met.extend(row for row in response.partitions if row.diverging_epoch and row.leader_epoch < epoch)
        original(self, request_id, response)

    monkeypatch.setattr(RaftNode, "_answered", answered)
    play("late_voters", met)
