"""The fetching side of a member: when it may fetch, and how it acts upon the answers (K11, K14).

Owns nothing; works on the member and its fetcher.
"""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchPartitionResponse, FetchResponse
from holdfast.protocol.messages.quorum import FetchSnapshotResponse
from holdfast.raft.core import answers
from holdfast.raft.core.effects import (
    AppendFetched,
    Flush,
    PieceSaved,
    SavePiece,
    SnapshotRefused,
    Truncate,
)
from holdfast.raft.core.fetcher import Batches, Diverged, SnapshotFirst, Unbelievable, judge
from holdfast.raft.core.member import Download, Member
from holdfast.raft.core.roles import Follower, Unattached
from holdfast.rpc.core.failures import CallFailure


def may_fetch(member: Member) -> bool:
    """True when a fetch may be sent. One at a time (N-4), and for a voter only when its log is flushed: the
    fetch offset acknowledges the records below (K11). An observer's offset acknowledges nothing."""
    shape = member.shape
    return (
        isinstance(member.role, (Unattached, Follower))
        and member.fetcher.request_id is None
        and not member.is_log_changing
        and (member.download is None or not member.download.is_saving)
        and (shape.flushed_offset == shape.log_end_offset or not member.config.is_voter)
    )


def send_fetch(member: Member) -> None:
    """Fetch from the leader, or from a voter that may know it, unless a fetch must wait."""
    fetcher, config, role = member.fetcher, member.config, member.role
    if not may_fetch(member) or member.now_ms < fetcher.ready_at_ms:
        return
    target_id = fetcher.choose(role.leader_id if isinstance(role, Follower) else None, member.voters.is_voter)
    if target_id is None:
        return
    if member.download is not None and isinstance(role, Follower) and target_id == role.leader_id:
        download = member.download
        piece = answers.fetch_snapshot_request(config, member.state, download.id, download.position)
        fetcher.sent(member.send(target_id, piece, config.fetch_timeout_ms), target_id)
        return
    # After a failure the answer that was lost may have had a new high watermark: then do not wait for more.
    may_wait = isinstance(role, Follower) and role.has_fetched and not fetcher.is_retry
    request = answers.fetch_request(config, member.state, member.shape, may_wait, member.voters.are_named)
    fetcher.sent(member.send(target_id, request, config.fetch_timeout_ms), target_id)


def fetch_failed(member: Member, failure: CallFailure) -> None:
    """The fetch under way got no answer."""
    role, target_id = member.role, member.fetcher.target_id
    member.fetcher.failed(member.now_ms)
    if isinstance(role, Follower) and target_id == role.leader_id and failure is CallFailure.REFUSED:
        # The connection is closed and the port refuses new ones: the leader's process is gone (D9).
        member.leader_gone(member.elections.delay_after_ms(role.leader_id))


def fetch_answered(member: Member, response: FetchResponse) -> None:
    """The fetch under way was answered, by the leader or by another voter."""
    answered_by, asked_epoch = member.fetcher.target_id, member.state.raft_epoch
    row = response.partitions[0] if response.partitions else None
    if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        if member.fetcher.displaced(member.now_ms):
            member.note(f"voter {answered_by} ended a fetch of this node: {response.error_message}")
        return
    if response.error_code == ErrorCode.INVALID_VOTER_KEY:
        member.note(f"voter {answered_by}: {response.error_message}")
        member.fetcher.refused(member.now_ms)
        return
    if response.error_code != ErrorCode.NONE or row is None:
        member.note(f"voter {answered_by} refused a fetch of this node: {response.error_message}")
        member.fetcher.failed(member.now_ms)
        return
    member.voters.addresses.told_of(row.leader_id, response.leader_endpoint)
    is_own = row.error_code == ErrorCode.NONE and row.leader_id == answered_by
    if (
        member.learn(row.leader_epoch, row.leader_id, is_leaders_own=is_own)
        and row.error_code != ErrorCode.NONE
    ):
        return  # the answer named the leader: fetch there
    role = member.role
    is_from_leader = isinstance(role, Follower) and role.leader_id == answered_by
    if row.error_code != ErrorCode.NONE:
        member.fetcher.failed(member.now_ms)
        if is_from_leader and row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            # The leader itself answers that it no longer leads; it never will again in this epoch (K3).
            member.leader_gone(member.elections.delay_after_ms(answered_by))
        return
    if not is_from_leader or row.leader_epoch != asked_epoch:
        member.note(
            f"voter {answered_by} answered a fetch of epoch {asked_epoch} in epoch {row.leader_epoch}"
        )
        member.fetcher.failed(member.now_ms)
        return
    _take(member, row)


def _take(member: Member, row: FetchPartitionResponse) -> None:
    judgement = judge(row, member.shape, member.state.raft_epoch)
    if isinstance(judgement, Diverged) and judgement.truncate_to < member.high_watermark:
        # No leader can take back committed records (K14).
        end_offset, committed = judgement.truncate_to, member.high_watermark
        judgement = Unbelievable(f"a cut to {end_offset}, below the high watermark {committed}")
    if isinstance(judgement, SnapshotFirst) and judgement.id.offset < member.high_watermark:
        # It would take back committed records just so (K14).
        judgement = Unbelievable(f"{judgement.id}, below the high watermark {member.high_watermark}")
    if isinstance(judgement, Unbelievable):
        member.note(f"leader {row.leader_id} sent records that cannot be appended: {judgement.why}")
        member.fetcher.failed(member.now_ms)
        return
    member.heard_leader()
    if isinstance(judgement, SnapshotFirst):
        end_offset, id = member.shape.log_end_offset, judgement.id
        member.note(f"a log that ends at {end_offset} needs the leader's snapshot at {id.offset} first")
        member.download = Download(id)
        return
    if isinstance(judgement, Diverged):
        _truncate(member, judgement.truncate_to)  # before anything about the high watermark (R82)
        return
    _append_fetched(member, judgement, row.records)
    # 0 comes from a leader that does not know yet what is committed (K12)
    if 0 < row.high_watermark <= member.shape.log_end_offset:
        member.has_caught_up = True
    member.raise_high_watermark(min(row.high_watermark, member.shape.log_end_offset))


def _truncate(member: Member, end_offset: int) -> None:
    shape = member.shape
    assert shape.flushed_offset == shape.log_end_offset or not member.config.is_voter, (
        "a flush under way would count for records appended after the truncation"
    )
    member.note(f"cutting the log from {shape.log_end_offset} to {end_offset}: the leader's differs there")
    shape.truncate_to(end_offset)
    member.voters.truncate_to(end_offset)
    member.see_voters()
    member.is_truncating = True
    member.out.append(Truncate(end_offset))


def _append_fetched(member: Member, judgement: Batches, records: memoryview) -> None:
    if not judgement.batches:
        return
    base_offset = member.shape.log_end_offset
    for epoch, batch_base_offset, batch_end_offset in judgement.batches:
        member.shape.append(epoch, batch_base_offset, batch_end_offset)
    for offset, news in judgement.news:
        member.hear(offset, news)
    member.out.append(AppendFetched(base_offset, member.shape.log_end_offset, records))
    if member.config.is_voter:
        member.out.append(Flush())


# --- snapshots of the leader (K14) ---------------------------------------------------------------------


def piece_answered(member: Member, response: FetchSnapshotResponse) -> None:
    """The leader answered the fetch of a piece. When it refuses, a fetch finds out what to do instead."""
    answered_by, role, download = member.fetcher.target_id, member.role, member.download
    if member.learn(response.leader_epoch, response.leader_id):
        return
    is_from_leader = isinstance(role, Follower) and role.leader_id == answered_by
    if response.error_code != ErrorCode.NONE or not is_from_leader or download is None:
        if response.error_message:
            member.note(f"voter {answered_by} sent no piece of its snapshot: {response.error_message}")
        member.download = None
        member.fetcher.failed(member.now_ms)
        if is_from_leader and response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            member.leader_gone(member.elections.delay_after_ms(answered_by))
        return
    end = download.position + len(response.data)
    if response.position != download.position or not download.position < end <= response.size:
        member.note(
            f"leader {answered_by} sent {len(response.data)} bytes at {response.position} of {response.size} "
            f"of its snapshot, expected some at {download.position}"
        )
        member.download = None
        member.fetcher.failed(member.now_ms)
        return
    member.heard_leader()
    is_last = end == response.size
    download.is_saving, download.saving_to, member.is_installing = True, end, is_last
    member.out.append(SavePiece(download.id, download.position, response.data, is_last))


def piece_saved(member: Member, event: PieceSaved | SnapshotRefused) -> None:
    """A piece is on disk; or the whole of them is no snapshot, and a fetch begins anew."""
    download = member.download
    if isinstance(event, SnapshotRefused):
        assert member.is_installing, "only a snapshot that was fetched to its end is judged"
        member.is_installing, member.download = False, None
        member.note(f"the leader's snapshot at {event.id.offset} cannot be used: {event.why}")
        # Each piece of it was a success, and the next one is likely to be as bad: no back-off would end that.
        member.fetcher.refused(member.now_ms)
        if isinstance(member.role, Follower):
            member.role.deadline_ms = member.fetch_deadline_ms()
    elif download is not None and download.id == event.id and download.is_saving:
        if event.end_position == download.saving_to:  # else it is of a download that was given up
            download.position, download.is_saving = event.end_position, False
