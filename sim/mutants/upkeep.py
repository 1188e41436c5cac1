"""Mutants of upkeep: open proposals of leaders, what is remembered, producer ids, fetch sessions, what
controllers do from time to time.

Owns wrong functions only; each docstring says which rule is gone.
"""

from dataclasses import replace
from typing import Any

from holdfast.broker.core.registration.controller_link import ControllerLink
from holdfast.broker.core.replicas.alter_partition import AlterPartitionQueue
from holdfast.broker.core.replicas.partition import Partition
from holdfast.broker.core.replicas.replica_progress import ReplicaProgress
from holdfast.broker.core.requests import producer_ids as broker_ids
from holdfast.broker.core.requests.fetch_path import FetchPath
from holdfast.broker.core.requests.fetch_session import FollowerSessions
from holdfast.broker.core.requests.produce_path import ProducePath
from holdfast.broker.core.requests.producer_ids import ProducerIds
from holdfast.broker.log_manager import LogManager
from holdfast.controller.core import producer_ids
from holdfast.sim.mutants.mutant import Changes, Setting, mutant, replacing
from holdfast.sim.mutants.replication import CUT_OFF_FOLLOWERS
from holdfast.sim.mutants.shutdown import STOPPED
from holdfast.sim.mutants.source_patch import begin, patch
from holdfast.sim.mutants.storage import RETRIES
from holdfast.storage.log_dir import LogDir

#: proposals are answered late, twice, and by the next controller
ASKED_AGAIN = Setting(
    faults={"kill_active": 4, "clog": 3, "late_metadata": 3, "pause_broker": 3, "kill_broker": 2, "stall": 2},
    gap_ms=500,
)
#: the next proposal is made while the call with the last one is lost with its controller
FLAPPING = Setting(
    faults={"flap_isr": 4, "kill_active": 5, "stall": 3, "isolate_leader": 3, "late_metadata": 2},
    gap_ms=500,
)
#: leaders come and go, and come again; those that stay have a new epoch when a replica leaves
MOVING_LEADERS = Setting(
    faults={
        "isolate_leader": 4,
        "pause_leader": 3,
        "kill_leader": 3,
        "move_partition": 4,
        "kill_busy_leader": 2,
    },
    gap_ms=500,
)
#: leaders work that can neither replicate nor ask for a smaller ISR
CUT_OFF = Setting(
    faults={"isolate_leader": 5, "isolate_broker": 3, "cut_controllers": 4, "cut_followers": 3}, seconds=20
)
#: brokers get logs that they did not have
NEW_TOPICS = Setting(
    faults={"move_partition": 6, "add_partition": 3, "power_broker": 3},
    shape={"every_write": True, "brokers": 4},
    gap_ms=400,
)
#: some connections are overtaken by the next ones between the same two
STALLED = Setting(faults={"stall": 6, "isolate_broker": 3, "pause_broker": 3, "late_session": 4}, gap_ms=500)
#: followers fetch all the time, and never have all
LATE_FOLLOWERS = Setting(faults={"late_fetches": 6, "kill_leader": 1}, gap_ms=3_000, seconds=25)
#: and fall behind further and further
TRICKLING_FOLLOWERS = replace(LATE_FOLLOWERS, shape={"small_fetches": True})


@mutant(breaks="R44, F3", by="R44", setting=ASKED_AGAIN, killed_by="R44@9")
def drops_proposals_of_old_versions() -> Changes:
    """INVALID_UPDATE_VERSION closes a proposal, though an earlier copy of it may have been granted."""
    return patch(
        Partition,
        "alter_answered",
        "(ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)",
        "(\n"
        "            ErrorCode.INELIGIBLE_REPLICA,\n"
        "            ErrorCode.OPERATION_NOT_ATTEMPTED,\n"
        "            ErrorCode.INVALID_UPDATE_VERSION,\n"
        "        )",
    )


@mutant(breaks="R44", by="R44", setting=ASKED_AGAIN, killed_by="R44@9")
def closes_on_any_error() -> Changes:
    """Every error closes a proposal."""
    return patch(
        Partition,
        "alter_answered",
        "code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)",
        "code",
    )


@mutant(breaks="R45", by="R45", killed_by="R45@2")
def forgets_proposals_that_failed() -> Changes:
    """Proposals of a request that failed are not sent again, and stay open."""
    return patch(AlterPartitionQueue, "failed", "self._waiting.setdefault(key, proposal)", "pass")


@mutant(breaks="R45", by="R45", setting=FLAPPING, killed_by="R45@35")
def older_proposals_replace_newer() -> Changes:
    """A proposal that is to be sent again takes the place of the newer one that waits."""
    return patch(
        AlterPartitionQueue,
        "retry",
        "self._waiting.setdefault(key, proposal)",
        "self._waiting[key] = proposal",
    )


@mutant(breaks="R45, K27", by="R45", setting=ASKED_AGAIN, killed_by="R45@1")
def proposals_die_with_their_controller() -> Changes:
    """What the former controller was asked the next one is not asked."""
    return patch(
        ControllerLink,
        "changed",
        "self.alter.retry(self.alter.take_in_flight().items(), now_ms)",
        "self.alter.take_in_flight()",
    )


# --- what is remembered ------------------------------------------------------------------------------------


@mutant(breaks="R54, A-5", by="R54", setting=MOVING_LEADERS, killed_by="R54@1")
def leaders_keep_positions() -> Changes:
    """Who is elected again goes on with the positions that its followers had in the last epoch."""
    return patch(
        Partition,
        "_take_role",
        "self.leadership = Leadership(",
        "former = {} if self.leadership is None else self.leadership.progress\n"
        "        progress |= {one: former[one] for one in progress if one in former}\n"
        "        self.leadership = Leadership(",
    )


@mutant(breaks="R54, R68", by="R54", setting=MOVING_LEADERS, killed_by="R54@1")
def followers_keep_what_was_held_back() -> Changes:
    """What a former leader has told, and the ceiling has held back, counts in the next epoch."""
    return patch(Partition, "_take_role", "self._leader_end = self._held_back = -1", "pass")


@mutant(breaks="A-18", by="A-18", setting=CUT_OFF, killed_by="A-18@5")
def writes_wait_for_ever() -> Changes:
    """A write that waits is not answered when its time is over."""
    return begin(ProducePath, "expire", "return []")


@mutant(breaks="F6", by="F6", setting=STOPPED, killed_by="F6@1")
def high_watermarks_not_stored() -> Changes:
    """High watermarks are not stored, at the stop neither."""
    return begin(LogManager, "checkpoint_high_watermarks", "return")


@mutant(breaks="A-21, D4", by="A-21", setting=NEW_TOPICS, killed_by="A-21@1")
def new_folders_not_durable() -> Changes:
    """The name of a new log's folder is not synced."""
    return begin(LogDir, "sync_names", "return")


# --- producer ids ------------------------------------------------------------------------------------------


@mutant(breaks="D12", by="D12", killed_by="D12@1")
def producer_blocks_given_twice() -> Changes:
    """Each block of producer ids is the first one."""
    return patch(producer_ids, "allocate", "None, start, BLOCK_LENGTH", "None, 0, BLOCK_LENGTH")


@mutant(breaks="D12", by="D12", killed_by="D12@1")
def producer_ids_given_twice() -> Changes:
    """A broker gives the first id of its block to all producers."""
    return begin(ProducerIds, "_take", "return self._next")


@mutant(breaks="D12, R93", by="D12", setting=RETRIES, killed_by="D12@2")
def producer_epochs_not_bumped() -> Changes:
    """Who asks for the next epoch of its producer id is given the one that it has."""
    return begin(broker_ids, "_granted", "producer_epoch = max(0, producer_epoch - 1)")


# --- fetch sessions ----------------------------------------------------------------------------------------


@mutant(breaks="N-4", by="N-4", killed_by="N-4@1")
def sessions_leave_rows_behind() -> Changes:
    """Followers that wait for a partition are looked for among the rows of former sessions too."""
    return patch(FollowerSessions, "open", "self.forget(former, key)", "pass")


@mutant(
    breaks="R52",
    by="N-4",
    gap="the flush policy changes right while a high watermark is on its way to a follower that waits",
)
def rows_listed_again_know_the_high_watermark() -> Changes:
    """A row that is listed again while it is open counts as told, and its follower has passed over that."""
    return patch(FollowerSessions, "list_row", "row.sent_high_watermark = -1", "pass")


@replacing(
    FetchPath,
    "follower_request",
    breaks="A-15",
    by="A-15",
    setting=STALLED,
    killed_by="A-15@1",
)
def opens_overtaken_sessions(original: Any, self: Any, reply_to: Any, request: Any, now_ms: Any) -> Any:
    """A session is opened though a later one of that follower was opened before."""
    session = self._sessions.get(request.replica_id)
    if request.session_epoch == 0 and session is not None:
        if (request.broker_epoch, request.session_id) < session.identity:
            session.broker_epoch, session.session_id = -1, -1
    return original(self, reply_to, request, now_ms)


@mutant(
    breaks="R80",
    by="A-15 N-4",
    masked="the requests of a session come over one connection, in order, and a new session has a new one "
    "(N-4): no other number than the next can come",
)
def session_numbers_not_compared() -> Changes:
    """A request of a session counts with any number."""
    return (
        patch(FetchPath, "follower_request", "session.next_epoch != request.session_epoch", "False"),
        patch(
            FetchPath,
            "follower_request",
            "session.next_epoch += 1",
            "session.next_epoch = request.session_epoch + 1",
        ),
    )


@mutant(breaks="D12", by="L-5", killed_by="L-5@1")
def gives_no_producer_ids() -> Changes:
    """No block of producer ids is ever taken in: idempotent producers wait for ever."""
    return begin(ControllerLink, "producer_ids_answered", 'return self._refuse_producers("no", now_ms)')


@mutant(breaks="R51", by="R51", setting=CUT_OFF_FOLLOWERS, killed_by="R51@1")
def drops_who_is_behind_for_a_moment() -> Changes:
    """A follower that has not all that the leader has leaves the ISR, at once."""
    return begin(ReplicaProgress, "may_stay", "return self.position >= leader_position")


@mutant(breaks="R51", by="R51", setting=CUT_OFF_FOLLOWERS, killed_by="R51@1")
def gives_no_time_at_the_beginning() -> Changes:
    """A member of the ISR that has not fetched in a new leader epoch yet has no time to."""
    return begin(ReplicaProgress, "may_stay", "return self.is_caught_up(leader_position, now_ms, lag_ms_max)")


@mutant(breaks="R51", by="R51", setting=TRICKLING_FOLLOWERS, killed_by="R51@1")
def whoever_fetches_is_caught_up() -> Changes:
    """A follower counts as caught up with each fetch, however little it has."""
    return patch(ReplicaProgress, "fetched", "position >= leader_position", "True")


@mutant(breaks="R51", by="R51", setting=LATE_FOLLOWERS, killed_by="R51@1")
def who_never_has_all_lags() -> Changes:
    """A follower that has what there was at its last fetch, and never all, counts as one that lags."""
    return begin(ReplicaProgress, "fetched", "self._leader_position_at_fetch = -1")
