"""Properties of the metadata quorum: a history that breaks each, and the one beside it that does not."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.protocol.messages.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from holdfast.protocol.messages.quorum import (
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.effects import Answered, Reply, RequestReceived, Send, SendFailed, Tick
from holdfast.raft.core.member import Snapshot
from holdfast.raft.core.quorum import QuorumState
from holdfast.rpc.core.failures import CallFailure
from holdfast.sim.checks.observe.facts import SupportGiven
from holdfast.sim.checks.observe.taps import TapRecord, VoterTap
from holdfast.sim.checks.observe.views import Property, Support
from holdfast.sim.checks.properties import quorum
from holdfast.sim.cluster.nodes import SimController
from holdfast.sim.cluster.world import FIRST_VOTER
from tests.sim.checks.histories import Scene, SceneLog, mark


def is_broken(one: Property, tell: Callable[[Scene], None]) -> bool:
    """Whether the property speaks up, under its own name."""
    scene = Scene(one)
    said = scene.violation(lambda: tell(scene))
    assert said is None or said.startswith(one.name), said
    return said is not None


def node(scene: Scene, voter: int, durable: QuorumState, start_offset: int | None = None) -> SimController:
    """A voter whose process runs: what is on its disk, what it is."""
    found = scene.world.controllers[voter - FIRST_VOTER]
    if not hasattr(found, "process"):
        found.process = scene.world.loop.process(f"{found.name}.1")
    server: Any = SimpleNamespace(
        driver=SimpleNamespace(durable_state=durable, epoch_start_offset=start_offset)
    )
    found.server = server
    return found


def says(voter: int, role: str = "Follower", epoch: int = 5, **given: Any) -> Snapshot:
    """What a voter shows of itself."""
    usual: dict[str, Any] = {
        "voted_for": None,
        "leader_id": voter if role == "Leader" else None,
        "high_watermark": 0,
        "log_end_offset": 10,
        "flushed_offset": 10,
        "last_epoch": epoch,
    }
    return Snapshot(voter, role, epoch, **{**usual, **given})


def hears(scene: Scene, of: SimController, snapshot: Snapshot) -> None:
    scene.property.voter_changed(scene.seen, of, snapshot)


@pytest.mark.parametrize(("second", "expected"), [(6, False), (5, True)])
def test_one_voter_leads_an_epoch_q1(second: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        for voter, epoch in ((101, 5), (102, second)):
            hears(scene, node(scene, voter, QuorumState(epoch)), says(voter, "Leader", epoch))

    assert is_broken(quorum.ElectionSafety(), tell) is expected


@pytest.mark.parametrize(("end", "expected"), [(10, False), (9, True)])
def test_who_leads_has_all_that_is_committed_q3(end: int, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        scene.seen.quorum.batches.append(mark(9, 5))
        leader = node(scene, 101, QuorumState(5))
        leader.log = SceneLog()  # type: ignore[assignment]
        hears(scene, leader, says(101, "Leader", log_end_offset=end))

    assert is_broken(quorum.QuorumLeaderCompleteness(), tell) is expected


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (says(101, "Leader"), False),
        (says(101, "Leader", leader_id=102), True),
        (says(101, "Candidate", voted_for=101), False),
        (says(101, "Candidate", voted_for=102), True),
        (says(101, leader_id=102), False),
        (says(101, leader_id=101), True),
        (says(101, "Prospective", leader_id=102), True),
    ],
    ids=["leader", "of another", "candidate", "for another", "follower", "of itself", "prospective"],
)
def test_a_role_goes_with_leader_and_vote_q5(snapshot: Snapshot, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        hears(scene, node(scene, 101, QuorumState(5)), snapshot)

    assert is_broken(quorum.LegalRoles(), tell) is expected


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (QuorumState(5, 102), QuorumState(6, 103), False),
        (QuorumState(5, 102), QuorumState(5, 102), False),
        (QuorumState(5, 102), QuorumState(4), True),
        (QuorumState(5, 102), QuorumState(5, 103), True),
        (QuorumState(5, 102), QuorumState(5), True),
    ],
    ids=["a new epoch", "the same vote", "an older epoch", "another vote", "no vote any more"],
)
def test_what_was_promised_on_disk_stays_q6_q9(first: QuorumState, then: QuorumState, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        for state in (first, then):
            hears(scene, node(scene, 101, state), says(101, epoch=6))

    assert is_broken(quorum.QuorumEpochs(), tell) is expected


@pytest.mark.parametrize(("epoch", "high_watermark", "expected"), [(6, 8, False), (4, 8, True), (5, 7, True)])
def test_epoch_and_high_watermark_of_a_voter_never_fall_q6(
    epoch: int, high_watermark: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        voter = node(scene, 101, QuorumState(3))
        hears(scene, voter, says(101, epoch=5, high_watermark=8))
        hears(scene, voter, says(101, epoch=epoch, high_watermark=high_watermark))

    assert is_broken(quorum.QuorumEpochs(), tell) is expected


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [((5, 5, 4), False), ((5, 5, 5), False), ((5, 4, 4), True), ((4, 4, 5), True), ((5, 4, None), False)],
    ids=["two of three", "all", "itself alone", "all but itself", "one is not known"],
)
def test_who_leads_was_elected_on_disks_q9(epochs: tuple[int | None, ...], expected: bool) -> None:
    def tell(scene: Scene) -> None:
        for voter, epoch in enumerate(epochs, FIRST_VOTER):
            if epoch is not None:
                node(scene, voter, QuorumState(epoch))
        hears(scene, scene.world.controllers[0], says(101, "Leader"))

    assert is_broken(quorum.VotesAreDurable(), tell) is expected


@pytest.mark.parametrize(
    ("is_first", "high_watermark", "expected"),
    [(True, 11, False), (True, 10, True), (True, 9, True), (False, 9, False)],
    ids=["with a record of its own", "all but that", "less", "known before it led"],
)
def test_a_leader_commits_only_with_a_record_of_its_epoch_k12(
    is_first: bool, high_watermark: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        leader = node(scene, 101, QuorumState(5), start_offset=10)
        if not is_first:
            hears(scene, leader, says(101, high_watermark=high_watermark))
        hears(scene, leader, says(101, "Leader", high_watermark=high_watermark))

    assert is_broken(quorum.CommitsOwnEpoch(), tell) is expected


@pytest.mark.parametrize(
    ("flushed", "expected"), [((100, 100, 0), False), ((100, 99, 0), True), ((100, None, 0), False)]
)
def test_what_is_committed_is_on_a_majority_of_disks_q7(
    flushed: tuple[int | None, ...], expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        for voter, end in zip(scene.world.controllers, flushed, strict=True):
            if end is not None:
                log = SceneLog()
                log.flushed_offset = end
                voter.log = log  # type: ignore[assignment]
        scene.property.metadata_committed(scene.seen)

    assert is_broken(quorum.CommittedByMajority(), tell) is expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, False),
        ({"silent_ms": 2_000}, False),
        ({"silent_ms": 1_999}, True),
        ({"is_leader": True}, True),
        ({"is_log_shorter": True}, True),
        ({"is_pre_vote": False, "silent_ms": 5}, False),
        ({"is_pre_vote": False, "is_leader": True}, False),
        ({"is_pre_vote": False, "is_log_shorter": True}, True),
    ],
    ids=[
        "no leader",
        "long silent",
        "heard before that",
        "it leads",
        "its log is longer",
        "a vote in a later epoch",
        "of one that led until then",
        "a vote for a shorter log",
    ],
)
def test_no_live_leader_is_voted_out_and_no_shorter_log_voted_for_k4_k5(
    given: dict[str, Any], expected: bool
) -> None:
    usual = Support(102, 5, True, False, None, 2_000, False)

    def tell(scene: Scene) -> None:
        voter = node(scene, 101, QuorumState(5))
        scene.property.support_given(scene.seen, voter, usual._replace(**given))

    assert is_broken(quorum.SupportIsEarned(), tell) is expected


@pytest.mark.parametrize(("epoch", "expected"), [(5, True), (6, False), (7, False)])
def test_no_voter_is_asked_for_support_in_an_epoch_that_the_candidate_is_not_in_k4(
    epoch: int, expected: bool
) -> None:
    def tell(scene: Scene) -> None:
        candidate: Any = node(scene, 102, QuorumState(5))
        candidate.server.driver.snapshot = lambda: says(102, "Prospective", epoch)
        support = Support(102, 6, True, False, None, 2_000, False)
        scene.property.support_given(scene.seen, node(scene, 101, QuorumState(5)), support)

    assert is_broken(quorum.SupportIsEarned(), tell) is expected


@pytest.mark.parametrize(("voter", "expected"), [(None, False), (102, False), (-1, True), (104, True)])
def test_votes_and_leaders_are_of_voters_q6(voter: int | None, expected: bool) -> None:
    def tell(scene: Scene) -> None:
        hears(scene, node(scene, 101, QuorumState(5, voted_for=voter)), says(101))

    assert is_broken(quorum.QuorumEpochs(), tell) is expected


FETCH = FetchRequest("c", 101, -1, 500, 1, 100, (FetchPartition(bytes(16), 0, 5, 0, -1, -1, 0),))


class Following:
    """A voter that follows 102 in epoch 5, has asked it in its fetch 8, and grants every pre-vote."""

    raft_epoch, leader_id, is_leader = 5, 102, False
    _config = SimpleNamespace(fetch_timeout_ms=2_000)

    def snapshot(self) -> Snapshot:
        """Its log ends at 10."""
        return says(101, leader_id=102)

    def handle(self, event: Any, now_ms: int) -> list[Any]:
        """Fetches at the first tick."""
        if isinstance(event, RequestReceived) and isinstance(event.request, VoteRequest):
            return [Reply(event.token, VoteResponse(0, None, 5, 102, True))]
        return [Send(8, 102, FETCH, 500)] if isinstance(event, Tick) else []


def answer(leader_id: int = 102, epoch: int = 5, error_code: int = 0) -> FetchResponse:
    """To a fetch."""
    row = FetchPartitionResponse(bytes(16), 0, error_code, 0, 0, 1, None, leader_id, epoch, memoryview(b""))
    return FetchResponse(0, None, (row,))


def support_of(voter: Any, events: Sequence[tuple[int, Any]]) -> Support:
    """What the tap of a voter notes of (time, event): one vote that was granted."""
    heard = TapRecord()
    tap = VoterTap(voter, heard)
    for now_ms, event in events:
        tap.before(event, now_ms)
        tap.after(event, voter.handle(event, now_ms), now_ms)
    ((_, fact, (_, support)),) = heard.facts
    assert fact is SupportGiven
    assert isinstance(support, Support)
    return support


PRE_VOTE = RequestReceived(1, VoteRequest("c", 5, 103, 101, 5, 10, True))
#: of one that has led epoch 5, and leads no more since it was started anew (K3)
PRE_VOTE_OF_A_LATER_EPOCH = RequestReceived(1, VoteRequest("c", 6, 103, 101, 5, 10, True))


@pytest.mark.parametrize(("epoch", "is_leader"), [(5, True), (6, False)])
def test_who_leads_hears_of_a_later_epoch_by_a_request_for_its_support_k3(
    epoch: int, is_leader: bool
) -> None:
    voter: Any = Following()
    voter.is_leader = True
    asked = RequestReceived(1, VoteRequest("c", epoch, 103, 101, 5, 10, True))
    assert support_of(voter, [(12, asked)]).is_leader is is_leader


@pytest.mark.parametrize(
    ("events", "silent_ms"),
    [
        ([(0, Tick()), (5, Answered(8, answer())), (12, PRE_VOTE)], 7),
        ([(0, Tick()), (5, Answered(7, answer())), (12, PRE_VOTE)], None),
        ([(0, Tick()), (5, Answered(8, answer(103))), (12, PRE_VOTE)], None),
        ([(0, Tick()), (5, Answered(8, answer(epoch=4))), (12, PRE_VOTE)], None),
        ([(0, Tick()), (5, Answered(8, answer(error_code=6))), (12, PRE_VOTE)], None),
        ([(0, Tick()), (5, Answered(8, answer())), (12, PRE_VOTE_OF_A_LATER_EPOCH)], None),
        (
            [
                (0, Tick()),
                (5, Answered(8, answer())),
                (6, SendFailed(8, CallFailure.REFUSED)),
                (12, PRE_VOTE),
            ],
            None,
        ),
        (
            [
                (0, Tick()),
                (5, Answered(8, answer())),
                (6, SendFailed(8, CallFailure.DISCONNECTED)),
                (12, PRE_VOTE),
            ],
            7,
        ),
        (
            [
                (0, Tick()),
                (5, Answered(8, answer())),
                (6, RequestReceived(2, EndQuorumEpochRequest("c", 102, 5, ()))),
                (12, PRE_VOTE),
            ],
            None,
        ),
    ],
    ids=[
        "heard",
        "an older fetch",
        "another leader",
        "a former epoch",
        "an error",
        "a later epoch",
        "it is gone",
        "a connection has ended",
        "it resigns",
    ],
)
def test_a_leader_is_heard_when_it_has_answered_the_newest_fetch_k4(
    events: list[tuple[int, Any]], silent_ms: int | None
) -> None:
    voter: Any = Following()
    support = support_of(voter, events)
    assert support.silent_ms == silent_ms
    assert not support.is_log_shorter
