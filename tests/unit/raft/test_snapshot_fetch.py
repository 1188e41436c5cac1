"""Who needs a snapshot, how it is fetched, and what is never believed (K14): the node alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from holdfast.raft.core.effects import (
    Answered,
    Committed,
    Flushed,
    LeaderChanged,
    PieceSaved,
    Reply,
    RequestReceived,
    SavePiece,
    Send,
    SendFailed,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotsKept,
    Start,
    Tick,
)
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import LogPosition, QuorumState
from holdfast.raft.core.snapshot_format import SnapshotId
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.stats import LogLine
from holdfast.scenario.raft import (
    CLUSTER_ID,
    LowRandom,
    batches,
    fetch_request,
    fetch_response,
    make_config,
    shape_of,
)

ID = SnapshotId(90, 4)


def follower(log: str = "3:2,4:1", *, is_voter: bool = True) -> tuple[RaftNode, Send]:
    """Node 2 (or 101), which follows leader 1 in epoch 5, and its first fetch."""
    config = make_config(2 if is_voter else 101, (1, 2, 3), is_voter=is_voter)
    node = RaftNode(config, LowRandom(), QuorumState(5, None, 1), shape_of(log))
    (fetch,) = sends(node.handle(Start(), 0))
    return node, fetch


def sends(effects: Sequence[object]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def notes(effects: Sequence[object]) -> str:
    return " ".join(effect.text for effect in effects if isinstance(effect, LogLine))


def snapshot_first(id: SnapshotId, leader_id: int = 1, epoch: int = 5) -> FetchResponse:
    response = fetch_response(leader_id, epoch, high_watermark=-1)
    row = replace(response.partitions[0], snapshot_id=EpochEndOffset(id.epoch, id.offset))
    return replace(response, partitions=(row,))


def piece(data: bytes, position: int, size: int, *, epoch: int = 5) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(ErrorCode.NONE, None, 1, epoch, size, position, memoryview(data))


def refusal(code: ErrorCode, leader_id: int = 1, epoch: int = 5) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(code, "no", leader_id, epoch, -1, -1, memoryview(b""))


def told_of_a_snapshot(node: RaftNode, fetch: Send) -> Send:
    """The leader names it; the fetch of its first piece."""
    (asked,) = sends(node.handle(Answered(fetch.request_id, snapshot_first(ID)), 1))
    return asked


# --- the follower --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_voter", [True, False], ids=["voter", "observer"])
def test_a_snapshot_is_fetched_piece_by_piece_and_takes_the_place_of_the_log(is_voter: bool) -> None:
    node, fetch = follower(is_voter=is_voter)
    asked = told_of_a_snapshot(node, fetch)
    assert isinstance(asked.request, FetchSnapshotRequest)
    assert (asked.request.snapshot_end_offset, asked.request.snapshot_epoch, asked.request.position) == (
        90,
        4,
        0,
    )
    effects = node.handle(Answered(asked.request_id, piece(b"abc", 0, 5)), 2)
    assert [e for e in effects if isinstance(e, SavePiece)] == [SavePiece(ID, 0, memoryview(b"abc"), False)]
    assert not sends(effects), "the next piece waits until this one is saved"
    (asked,) = sends(node.handle(PieceSaved(ID, 3), 3))
    assert isinstance(asked.request, FetchSnapshotRequest)
    assert asked.request.position == 3
    effects = node.handle(Answered(asked.request_id, piece(b"de", 3, 5)), 4)
    assert [e.is_last for e in effects if isinstance(e, SavePiece)] == [True]
    assert node.handle(Tick(), 60_000) == [], "no election and no fetch while the log is replaced"
    effects = node.handle(SnapshotInstalled(ID, {1: b"d" * 16}), 60_001)
    assert [e for e in effects if isinstance(e, Committed)] == [Committed(90)]
    (fetch,) = sends(effects)
    assert isinstance(fetch.request, FetchRequest)
    row = fetch.request.partitions[0]
    assert (row.fetch_offset, row.last_fetched_epoch) == (90, 4)
    assert (node.log_end_offset, node.high_watermark, node.log_start_offset) == (90, 90, 90)
    assert node.directories_below(90) == {1: b"d" * 16}
    answer = fetch_response(1, 5, records=batches(90, "4:1,5:1"), high_watermark=92)
    node.handle(Answered(fetch.request_id, answer), 60_002)
    assert (node.log_end_offset, node.high_watermark) == (92, 92)


@pytest.mark.parametrize(
    "id",
    [SnapshotId(3, 4), SnapshotId(2, 4), SnapshotId(0, 4), SnapshotId(90, 6), SnapshotId(90, -1)],
    ids=["no longer", "shorter", "empty", "of a later epoch", "of no epoch"],
)
def test_a_snapshot_that_leads_no_further_is_not_believed(id: SnapshotId) -> None:
    node, fetch = follower()
    effects = node.handle(Answered(fetch.request_id, snapshot_first(id)), 1)
    assert "cannot be appended" in notes(effects)
    assert all(isinstance(send.request, FetchRequest) for send in sends(effects))


def test_a_snapshot_below_the_high_watermark_is_refused() -> None:
    """K14: it would take back committed records."""
    node, fetch = follower("3:95")
    (fetch,) = sends(node.handle(Answered(fetch.request_id, fetch_response(1, 5, high_watermark=95)), 1))
    effects = node.handle(Answered(fetch.request_id, snapshot_first(ID)), 2)
    assert "below the high watermark 95" in notes(effects)


def test_records_of_an_older_epoch_behind_the_snapshot_were_never_committed() -> None:
    """The follower's log is longer, and parts from the leader's before the snapshot."""
    node, fetch = follower("3:200")
    assert isinstance(told_of_a_snapshot(node, fetch).request, FetchSnapshotRequest)


@pytest.mark.parametrize("code", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_a_snapshot_that_is_gone_is_asked_for_anew_by_a_fetch(code: ErrorCode) -> None:
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    effects = node.handle(Answered(asked.request_id, refusal(code)), 2)
    (fetch,) = sends(effects)
    assert isinstance(fetch.request, FetchRequest)


@pytest.mark.parametrize(
    "answer",
    [piece(b"", 0, 5), piece(b"abc", 1, 5), piece(b"abcdef", 0, 5)],
    ids=["none", "other", "too many"],
)
def test_bytes_that_do_not_fit_are_not_saved(answer: FetchSnapshotResponse) -> None:
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    effects = node.handle(Answered(asked.request_id, answer), 2)
    assert not [e for e in effects if isinstance(e, SavePiece)]
    assert "expected some at 0" in notes(effects)


def test_a_snapshot_that_turns_out_to_be_none_is_fetched_anew_after_a_pause() -> None:
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    node.handle(Answered(asked.request_id, piece(b"abc", 0, 3)), 2)
    effects = node.handle(SnapshotRefused(ID, "its crc is wrong"), 3)
    assert "its crc is wrong" in notes(effects)
    assert not sends(effects), "the next one is likely to be as bad"
    assert not node.handle(Tick(), 1_002)
    (fetch,) = sends(node.handle(Tick(), 1_003))
    assert isinstance(fetch.request, FetchRequest)


def test_a_voter_that_refuses_a_snapshot_after_a_long_look_still_has_its_leader() -> None:
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    node.handle(Answered(asked.request_id, piece(b"abc", 0, 3)), 2)
    node.handle(SnapshotRefused(ID, "its crc is wrong"), 60_000)
    (fetch,) = sends(node.handle(Tick(), 61_000))
    assert isinstance(fetch.request, FetchRequest)


def test_a_new_leader_ends_the_download_and_not_the_installation() -> None:
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    node.handle(Answered(asked.request_id, piece(b"abc", 0, 5)), 2)
    effects = node.handle(RequestReceived(1, fetch_request(3, 6, 0, -1)), 3)
    assert [e for e in effects if isinstance(e, LeaderChanged)]
    effects = node.handle(PieceSaved(ID, 3), 4)
    assert not [s for s in sends(effects) if isinstance(s.request, FetchSnapshotRequest)]

    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    node.handle(Answered(asked.request_id, piece(b"abc", 0, 3)), 2)
    node.handle(RequestReceived(1, fetch_request(3, 6, 0, -1)), 3)
    node.handle(SnapshotInstalled(ID, {}), 4)
    assert node.log_end_offset == 90


def test_a_piece_of_a_download_before_is_no_piece_of_this_one() -> None:
    """The same snapshot, begun again: the disk still owes its first piece."""
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    node.handle(Answered(asked.request_id, piece(b"abc", 0, 9)), 2)
    node.handle(RequestReceived(1, fetch_request(3, 6, 0, -1)), 3)
    effects = node.handle(RequestReceived(2, BeginQuorumEpochRequest(CLUSTER_ID, 1, 6, 2)), 4)
    (fetch,) = sends(effects)
    (asked,) = sends(node.handle(Answered(fetch.request_id, snapshot_first(ID, epoch=6)), 5))
    assert not sends(node.handle(PieceSaved(ID, 3), 6))
    effects = node.handle(Answered(asked.request_id, piece(b"ab", 0, 9, epoch=6)), 7)
    assert [e.position for e in effects if isinstance(e, SavePiece)] == [0]
    assert not sends(node.handle(PieceSaved(ID, 3), 8)), "the disk owes the piece that ends at 2"
    (asked,) = sends(node.handle(PieceSaved(ID, 2), 9))
    assert isinstance(asked.request, FetchSnapshotRequest)
    assert asked.request.position == 2


def test_a_piece_without_an_answer_is_asked_for_again() -> None:
    node, fetch = follower()
    asked = told_of_a_snapshot(node, fetch)
    (again,) = sends(node.handle(SendFailed(asked.request_id, CallFailure.TIMED_OUT), 2))
    assert again.request == asked.request


# --- the leader ----------------------------------------------------------------------------------------

OLD, NEW = SnapshotId(20, 2), SnapshotId(40, 3)


def leader() -> RaftNode:
    """Node 1, the only voter: log 2:30,3:20 and its LeaderChange at 50; it begins at the snapshot at 20."""
    shape = LogShape([(2, 0), (3, 30)], 50, OLD.position)
    node = RaftNode(
        make_config(1, (1,)), LowRandom(), QuorumState(3, None, None), shape, snapshots=(OLD, NEW)
    )
    node.handle(Start(), 0)
    node.handle(Tick(), 5_000)
    assert node.is_leader
    return node


def answer_of(node: RaftNode, request: FetchRequest | FetchSnapshotRequest) -> object:
    effects = node.handle(RequestReceived(1, request), 5_001)
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    return reply.read or reply.response


@pytest.mark.parametrize(
    ("offset", "epoch", "is_needed"),
    [
        (0, -1, True),
        (10, 2, True),
        (20, 2, False),
        (20, 1, True),
        (45, 1, True),
        (30, 2, False),
        (45, 3, False),
    ],
)
def test_who_ends_below_the_log_is_referred_to_the_newest_snapshot(
    offset: int, epoch: int, is_needed: bool
) -> None:
    node = leader()
    effects = node.handle(RequestReceived(1, fetch_request(101, node.raft_epoch, offset, epoch, 0)), 5_001)
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    assert isinstance(reply.response, FetchResponse)
    found = reply.response.partitions[0].snapshot_id
    assert found == (EpochEndOffset(NEW.epoch, NEW.offset) if is_needed else None)
    assert reply.response.partitions[0].log_start_offset == 20


def test_a_tool_reads_a_whole_log_from_its_beginning_though_there_are_snapshots() -> None:
    shape = shape_of("2:30,3:20")
    node = RaftNode(make_config(1, (1,)), LowRandom(), QuorumState(3, None, None), shape, snapshots=(NEW,))
    node.handle(Start(), 0)
    node.handle(Tick(), 5_000)
    answer = answer_of(node, fetch_request(-1, node.raft_epoch, 0, -1, 0))
    assert not isinstance(answer, FetchResponse), "it reads records"
    effects = node.handle(RequestReceived(1, fetch_request(101, node.raft_epoch, 0, -1, 0)), 5_002)
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    assert isinstance(reply.response, FetchResponse)
    assert reply.response.partitions[0].snapshot_id is not None


def test_the_log_begins_at_the_older_snapshot_once_a_newer_one_is_made() -> None:
    node = leader()
    newest = SnapshotId(48, 3)
    node.handle(SnapshotsKept((NEW, newest), NEW), 5_001)
    assert node.log_start_offset == 40
    assert node.snapshot_at(48) == newest
    effects = node.handle(RequestReceived(1, fetch_request(101, node.raft_epoch, 30, 2, 0)), 5_002)
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    assert isinstance(reply.response, FetchResponse)
    assert reply.response.partitions[0].snapshot_id == EpochEndOffset(3, 48)


@pytest.mark.parametrize("was_follower", [False, True], ids=["just started", "followed before"])
def test_a_leader_that_has_committed_nothing_in_its_epoch_tells_no_high_watermark(was_follower: bool) -> None:
    """K12: more may be committed than its snapshot or a leader before told it, and who follows it would count
    as caught up and answer from an old image (R113)."""
    shape = LogShape([(2, 0), (3, 30)], 50, OLD.position)
    state = QuorumState(3, None, 2 if was_follower else None)
    node = RaftNode(make_config(1, (1, 2, 3)), LowRandom(), state, shape, snapshots=(OLD, NEW))
    effects = node.handle(Start(), 0)
    if was_follower:
        (fetch,) = sends(effects)
        node.handle(Answered(fetch.request_id, fetch_response(2, 3, high_watermark=45)), 0)
        assert node.has_caught_up
    win_an_election(node)
    assert told_high_watermark(node, 2, 50, 3) == 0
    assert node.high_watermark == (45 if was_follower else 40)
    told = told_high_watermark(node, 2, node.log_end_offset, node.raft_epoch)
    assert told == node.high_watermark == node.log_end_offset


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(10, 2), (45, 2), (50, 3)],
    ids=["its log ends below the leader's", "its log diverges", "it has all"],
)
def test_a_voter_tells_its_build_with_each_fetch(offset: int, epoch: int) -> None:
    """Also where the fetch tells no progress: a voter that is sent a snapshot may lead next (K31)."""
    shape = LogShape([(2, 0), (3, 30)], 50, OLD.position)
    node = RaftNode(
        make_config(1, (1, 2, 3)), LowRandom(), QuorumState(3, None, None), shape, snapshots=(OLD, NEW)
    )
    node.handle(Start(), 0)
    win_an_election(node)
    fetch = replace(fetch_request(2, node.raft_epoch, offset, epoch, 0), kraft_version=1)
    assert list(node.earlier_voters) == [2, 3]
    node.handle(RequestReceived(1, fetch), 5_001)
    assert list(node.earlier_voters) == [3]
    node.handle(RequestReceived(2, replace(fetch, kraft_version=-1)), 5_002)
    assert list(node.earlier_voters) == [2, 3]


def win_an_election(node: RaftNode) -> None:
    """Voter 2 grants all that is asked."""
    effects = node.handle(Tick(), 5_000)
    while not node.is_leader:
        asked = next(send for send in sends(effects) if send.voter_id == 2)
        assert isinstance(asked.request, VoteRequest)
        granted = VoteResponse(ErrorCode.NONE, None, node.raft_epoch, -1, True)
        effects = node.handle(Answered(asked.request_id, granted), 5_000)
    node.handle(Flushed(node.log_end_offset), 5_000)


def told_high_watermark(node: RaftNode, replica_id: int, offset: int, last_epoch: int) -> int:
    """What the leader's next answer says to a fetch."""
    request = fetch_request(replica_id, node.raft_epoch, offset, last_epoch)
    effects = node.handle(RequestReceived(1, request), 5_001)
    (response,) = [effect.response for effect in effects if isinstance(effect, Reply)]
    assert isinstance(response, FetchResponse)
    return response.partitions[0].high_watermark


def test_strangers_get_no_piece() -> None:
    node = leader()
    request = FetchSnapshotRequest("other", 101, node.raft_epoch, 3, 40, 0, 100, None)
    answer = answer_of(node, request)
    assert isinstance(answer, FetchSnapshotResponse)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    stale = answer_of(node, replace(request, cluster_id=CLUSTER_ID, current_leader_epoch=1))
    assert isinstance(stale, FetchSnapshotResponse)
    assert stale.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_shape_without_a_beginning_compares_as_before() -> None:
    whole, trimmed = shape_of("2:30,3:20"), LogShape([(2, 0), (3, 30)], 50, LogPosition(2, 20))
    for epoch in range(2, 5):
        assert trimmed.end_offset_for_epoch(epoch) == whole.end_offset_for_epoch(epoch)
    assert trimmed.end_offset_for_epoch(1) == (-1, 0)
    at_the_end = LogShape([(2, 0), (3, 30)], 50, LogPosition(3, 50))
    assert at_the_end.position == whole.position
    assert at_the_end.end_offset_for_epoch(7) == (3, 50)
    at_the_end.append(3, 50, 51)
    at_the_end.append(5, 51, 52)
    assert [at_the_end.epoch_below(offset) for offset in (50, 51, 52)] == [3, 3, 5]
    assert at_the_end.end_offset_for_epoch(4) == (3, 51)
    between = LogShape([(2, 0), (3, 30)], 50, LogPosition(2, 30))
    assert between.end_offset_for_epoch(2) == (2, 30)
    assert between.diverging_point(2, 30) is None


def test_a_snapshot_names_the_directories_that_are_named_below_it() -> None:
    """K8: what is not committed may be cut again."""
    one, other = {1: b"a" * 16}, {1: b"b" * 16}
    directories = VoterDirectories([(3, one), (7, other)])
    assert [directories.below(offset) for offset in (3, 4, 7, 8)] == [{}, one, one, other]
