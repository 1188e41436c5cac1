"""Runs a raft node on a log, a network and a clock, and hands committed records to its owner.

Owns the node, its pump, and the exchanges that wait for an answer; decides nothing. Effects are carried out
in the order in which the node lists them: appends at once, Sends and Replies once the state before them is
durable (Q-9). The listener is called between two events. Any error of the disk and any bug ends this member,
and with it the node (A-20).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias

from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchResponse
from holdfast.raft.committed import CommittedEntry, CommittedReader
from holdfast.raft.committed_mark import CommittedMark
from holdfast.raft.core.config import BATCH_MAX_BYTES, RaftConfig
from holdfast.raft.core.effects import (
    Append,
    AppendFetched,
    CannotLead,
    Committed,
    Effect,
    Event,
    Flush,
    Flushed,
    LeaderChanged,
    Persist,
    Persisted,
    Propose,
    ProposeVoters,
    Read,
    ReadPiece,
    Reply,
    RequestReceived,
    Resign,
    SavePiece,
    Send,
    Start,
    Tick,
    Truncate,
    Truncated,
    VotersWanted,
)
from holdfast.raft.core.log_shape import BEGINNING, LogShape
from holdfast.raft.core.log_throttle import LogThrottle
from holdfast.raft.core.member import Snapshot
from holdfast.raft.core.metrics import RaftMetrics, snapshot_families
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import START_ANEW, BadQuorumState, QuorumState
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.raft.known_voters import check_snapshots_voters, check_voters, load_voters
from holdfast.raft.log_writer import LogWriter
from holdfast.raft.peers import Peers
from holdfast.raft.snapshotter import SnapshotOwner, Snapshotter, directories_of
from holdfast.raft.state_file import StateFile
from holdfast.rpc.server import Exchange
from holdfast.runtime.api import DiskError, OutOfResources, Runtime
from holdfast.runtime.pump import Pump
from holdfast.runtime.stats import LogLine, MetricFamily
from holdfast.runtime.tasks import fail_node
from holdfast.storage.log import Log

#: How long a resigning leader waits for the others to hear of it.
_RESIGN_WAIT_MS = 500
_REPLY_APIS = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.RESIGN_QUORUM_LEADER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPGRADE_QUORUM,
)

_log = logging.getLogger("holdfast.raft")

Handler: TypeAlias = Callable[[Exchange], None]


class NotLeader(Exception):
    """This node does not lead the epoch that the caller believes in. `leader_id` is None when unknown."""

    def __init__(self, leader_id: int | None, raft_epoch: int) -> None:
        super().__init__(f"not the leader: epoch {raft_epoch} is led by {leader_id}")
        self.leader_id = leader_id
        self.raft_epoch = raft_epoch


class RaftListener(SnapshotOwner, Protocol):
    """The owner of the metadata. Called on the event loop; may call `append` from inside."""

    def on_committed(self, entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        """Everything below `committed_offset` (exclusive) has now been handed over, or is in a snapshot. In
        order of offsets, each entry at most once in a process's life; `entries` is empty when only control
        records were committed."""

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        """The leader or the epoch has changed; None: unknown. `epoch_start_offset` is set when this node
        leads: claim once everything below it has been handed over (K22)."""

    def on_voters_wanted(self, raft_epoch: int) -> None:
        """This node leads, and wants to append a control record of its own: the listener calls
        `append_voters` when that fits between its own records. For voters only."""


class RaftDriver:
    """One member of the quorum, running."""

    def __init__(
        self,
        runtime: Runtime,
        config: RaftConfig,
        log: Log,
        listener: RaftListener,
        failed: Callable[[Exception], None] | None = None,
    ) -> None:
        """`log` is open and belongs to the caller, who closes it after `stop`. `failed` is called once with
        the error that has ended this member; without it a task of `runtime` fails. Raises: ValueError."""
        config.validate()
        self._runtime = runtime
        self._clock = runtime.clock
        self._config = config
        self._log = log
        self._listener = listener
        self._failed = failed or partial(fail_node, runtime.tasks, "raft")
        self._node: RaftNode | None = None
        #: runs the node; None before `start`
        self.pump: Pump[Event, Effect] | None = None
        self._state_file = StateFile(
            runtime,
            config.folder,
            config.cluster_id,
            lambda state: self._post(Persisted(state)),
            self._fail,
            has_directory=config.is_voter,
        )
        self._writer = LogWriter(
            runtime,
            log,
            self._appended,
            lambda up_to_offset: self._post(Flushed(up_to_offset)),
            lambda end_offset: self._post(Truncated(end_offset)),
            self._fail,
        )
        #: None for an observer, whose log counts in no election
        self._mark = (
            CommittedMark(
                runtime, log.folder, lambda: min(self.committed_offset, log.flushed_offset), self._fail
            )
            if config.is_voter
            else None
        )
        self._peers = Peers(runtime, config, self._post, self.address_of, self.address_missed)
        self._reader = CommittedReader(log, self._deliver, self._fail, runtime.clock)
        self._snapshots = Snapshotter(runtime, config, log, self._writer, listener, self._post, self._fail)
        self._snapshots.jump_to = self._reader.jump_to
        self._metrics = RaftMetrics()
        #: requests that wait for a Reply, by token
        self._exchanges: dict[int, Exchange] = {}
        self._tokens_given = 0
        #: what the listener is still to be told, in order
        self._notices: deque[Committed | LeaderChanged | VotersWanted] = deque()
        #: an append has brought records that were known to be committed already
        self._is_read_due = False
        self._is_notifying = False
        self._is_stopped = False
        self._failure: Exception | None = None
        #: the listener was once given all that the leader knew to be committed
        self.has_caught_up = False
        #: delivered bytes that the snapshots' policy knows of
        self._counted_bytes = 0
        self._throttle = LogThrottle()

    # --- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the newest snapshot and the vote, take part. Raises: BadQuorumState, DiskError."""
        log = self._log
        log_start = await self._snapshots.load()
        if log_start is None:
            await self._do_without_beginning()
            log_start = BEGINNING
        newest = self._snapshots.newest
        assert log.flushed_offset == log.log_end_offset, "recovery makes durable what it keeps (R86)"
        state = await self._state_file.load()
        starts = [
            entry for entry in log.leader_epoch_cache.entries if entry.start_offset < log.log_end_offset
        ]
        directories, sets = VoterDirectories(), VoterSets()
        if newest is not None:
            self._reader.jump_to(newest.id.offset)
            if named := directories_of(newest.header):
                directories.append(newest.id.offset - 1, named)
            if newest.header.voter_set:
                sets.append(newest.id.offset - 1, newest.header.voter_set)
            elif self._config.is_voter and not state.kraft_version:
                check_snapshots_voters(log.folder, newest.header.voters, self._config)
        if starts:
            await load_voters(log, directories, sets, 0 if newest is None else newest.id.offset)
            if self._config.is_voter and not sets.latest:
                check_voters(log, starts[-1].start_offset, self._config)
        shape = LogShape(starts, log.log_end_offset, log_start)
        snapshots = self._snapshots.ids
        self._node = RaftNode(self._config, self._runtime.random, state, shape, directories, snapshots, sets)
        _log.info("starting with %s, log ends at %d in epoch %d", state, log.log_end_offset, shape.last_epoch)
        self.pump = self._make_pump(self._node)
        self._post(Start())

    def _make_pump(self, node: RaftNode) -> Pump[Event, Effect]:
        pump: Pump[Event, Effect] = Pump(
            self._clock, node.handle, node.next_deadline_ms, self._fail, tick=Tick(), idle=self._notify
        )
        pump.carry_out |= {
            Append: self._writer.append,
            AppendFetched: self._writer.append_fetched,
            Flush: lambda _: self._writer.flush(),
            Truncate: self._writer.truncate,
            Persist: lambda effect: self._state_file.persist(effect.state),
            Send: self._say_when_durable,
            Reply: self._say_when_durable,
            Committed: self._notices.append,
            LeaderChanged: self._notices.append,
            VotersWanted: self._notices.append,
            SavePiece: self._snapshots.save,
            LogLine: self._log_line,
        }
        return pump

    async def _do_without_beginning(self) -> None:
        """The first segment is gone, and no whole snapshot holds what was in it (K15): an observer fetches
        all of it again; a voter's log counts in elections and must not be cut unasked."""
        log = self._log
        lost = f"the metadata log in {log.folder} has lost what lay below offset {log.log_start_offset}"
        if self._config.is_voter:
            raise BadQuorumState(f"{lost}: put the missing files back; or, {START_ANEW}")
        _log.warning("node %d: %s: fetching all of it again", self._config.node_id, lost)
        await log.reset_to(0)

    async def stop(self) -> None:
        """Resign if leading, and take no more part. The log is left to its owner, flushed as far as acked."""
        if self._node is None or self.pump is None or self._is_stopped:
            return
        self.pump.stop_timer()
        if self._node.is_leader:
            self._post(Resign("this node is stopping"))
            await self._peers.quiet(_RESIGN_WAIT_MS)
        self.end()
        await self._state_file.settle()
        await self._snapshots.settle()
        if self._failure is None:
            await self._writer.settle()
        if self._failure is None and self._mark is not None:
            await self._mark.settle()

    def end(self) -> None:
        """Take no more part and send nothing more. Appends and flushes that were ordered go on."""
        self._is_stopped = True
        self._reader.stop()
        self._snapshots.end()
        if self._mark is not None:
            self._mark.end()
        if self.pump is not None:
            self.pump.end()
        self._peers.close()
        self._exchanges.clear()

    # --- what the owner may use ------------------------------------------------------------------------

    @property
    def leader_id(self) -> int | None:
        """The leader that this node knows, None when there is none."""
        return None if self._node is None or self._is_stopped else self._node.leader_id

    @property
    def is_leader(self) -> bool:
        return self._node is not None and not self._is_stopped and self._node.is_leader

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        """(host, port) of a voter or the leader as this node knows it: by its log, by what peers say, by its
        configuration (K30). None when it does not."""
        return self._config.voters.get(node_id) if self._node is None else self._node.address_of(node_id)

    def address_missed(self, node_id: int, address: tuple[str, int]) -> bool:
        """No connection to the node was made there, or another listens. True when another address is known,
        which is tried next (K30)."""
        return self._node is not None and self._node.address_missed(node_id, address)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        """The voters at the log's end, ascending (K30)."""
        return tuple(sorted(self._config.voters)) if self._node is None else self._node.voter_ids

    @property
    def earlier_voters(self) -> tuple[int, ...]:
        """Other voters that are of an earlier build, or may be, as this leader knows them."""
        return () if self._node is None else self._node.earlier_voters

    @property
    def raft_epoch(self) -> int:
        return 0 if self._node is None else self._node.raft_epoch

    @property
    def log_end_offset(self) -> int:
        """The offset that the next `append` returns."""
        return self._log.log_end_offset if self._node is None else self._node.log_end_offset

    @property
    def committed_offset(self) -> int:
        """Exclusive end of what is committed as far as this node knows; the listener may be behind."""
        return 0 if self._node is None else self._node.high_watermark

    @property
    def durable_state(self) -> QuorumState | None:
        """Epoch, vote and leader as they are on disk; None before the start."""
        return None if self._node is None else self._node.durable_state

    @property
    def epoch_start_offset(self) -> int | None:
        """Where its own epoch begins in the log, None when it does not lead."""
        return None if self._node is None else self._node.epoch_start_offset

    @property
    def delivered_offset(self) -> int:
        """Exclusive end of what the listener has been given."""
        return self._reader.delivered_offset

    def append(self, values: Sequence[bytes], raft_epoch: int) -> int:
        """Append `values` as one atomic batch; returns the offset of the first, the others follow it.

        In the page cache on return, committed when `on_committed` hands it back. At most BATCH_MAX_BYTES.
        Raises: NotLeader (nothing was written), DiskError (the node is ending).
        """
        assert values and sum(map(len, values)) <= BATCH_MAX_BYTES, "a batch has a limit: cut it before"
        return self._append(Propose(tuple(values)), len(values), raft_epoch)

    def append_voters(self, raft_epoch: int) -> int:
        """Append the record that `on_voters_wanted` asked for; returns its offset. Raises: NotLeader,
        DiskError."""
        return self._append(ProposeVoters(), 1, raft_epoch)

    def _append(self, event: Propose | ProposeVoters, count: int, raft_epoch: int) -> int:
        node, pump = self._node, self.pump
        if node is None or pump is None or not self.is_leader or node.raft_epoch != raft_epoch:
            raise NotLeader(self.leader_id, self.raft_epoch)
        assert not pump.is_busy, "the listener is called between two events, and appends there"
        base_offset = node.log_end_offset
        self._metrics.appended(count, base_offset + count, self._clock.now_ns())
        pump.post(event)
        if self._failure is not None:
            raise self._failure
        return base_offset

    def resign(self, reason: str) -> None:
        """Lead no more; the others are told who should (K3). Does nothing when not leading."""
        self._post(Resign(reason))

    def cannot_lead(self, reason: str | None) -> None:
        """The listener does nothing while this node leads, None: it can again. Until then the node leads only
        where no other voter does, and for a while (K29)."""
        self._post(CannotLead(reason))

    def handlers(self) -> dict[ApiKey, Handler]:
        """For the rpc server of a voter. FETCH serves the metadata log."""
        return dict.fromkeys(_REPLY_APIS, self._receive)

    def snapshot(self) -> Snapshot | None:
        """State for checkers and people; None before the start."""
        return None if self._node is None else self._node.snapshot()

    def stats(self) -> list[MetricFamily]:
        """Metrics of this member."""
        if self._node is None:
            return []
        found = self._metrics.families(self._node.snapshot(), len(self.voter_ids))
        newest = self._snapshots.newest
        if newest is None:
            return [*found, *snapshot_families(0, 0, 0)]
        age_ms = self._clock.wall_ms() - newest.header.timestamp_ms
        return [*found, *snapshot_families(newest.id.offset, newest.size_bytes, age_ms)]

    # --- events ----------------------------------------------------------------------------------------

    def _receive(self, exchange: Exchange) -> None:
        if self._failure is not None:
            return  # it has failed: no answer at all
        if self._node is None or self._is_stopped:
            exchange.fail(ErrorCode.BROKER_NOT_AVAILABLE, "this voter is starting or stopping: ask another")
            return
        self._tokens_given += 1
        self._exchanges[self._tokens_given] = exchange
        self._post(RequestReceived(self._tokens_given, exchange.message, self._clock.wall_ms()))

    def _post(self, event: Event) -> None:
        if self.pump is not None:
            self.pump.post(event)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self.end()
            self._failed(error)

    # --- effects ---------------------------------------------------------------------------------------

    def _say_when_durable(self, effect: Send | Reply) -> None:
        # The node lists a Persist before what reveals a new state: the last one given is to wait for.
        self._state_file.when_durable(partial(self._send_or_reply, effect))

    def _send_or_reply(self, effect: Send | Reply) -> None:
        if self._is_stopped or self.pump is None:
            return
        self.pump.sending(effect)
        if isinstance(effect, Send):
            self._peers.send(effect)
        elif effect.read is None:
            self._respond(effect)
        elif isinstance(effect.read, ReadPiece):
            self._snapshots.answer(effect, self._respond)
        else:
            # At the end of this turn of the event loop, so that all its appends travel together.
            asyncio.get_running_loop().call_soon(self._respond_with_records, effect)

    def _respond(self, reply: Reply) -> None:
        exchange = self._exchanges.pop(reply.token, None)
        if exchange is not None:
            exchange.respond(reply.response)

    def _respond_with_records(self, reply: Reply) -> None:
        read, response = reply.read, reply.response
        assert isinstance(read, Read) and isinstance(response, FetchResponse)
        if self._is_stopped:
            return
        end_offset = self._log.log_end_offset
        # An append may still wait behind a roll, and the log may have been trimmed; the follower asks again.
        if self._log.log_start_offset <= read.fetch_offset < end_offset:
            try:
                records = memoryview(self._log.read(read.fetch_offset, read.max_bytes, end_offset))
            except OutOfResources:
                self._respond(Reply(reply.token, response))  # without records: the follower asks again
                return
            except DiskError as error:
                self._fail(error)
                return
            row = replace(response.partitions[0], records=records, log_end_offset=end_offset)
            response = replace(response, partitions=(row,))
        self._respond(Reply(reply.token, response))

    def _log_line(self, effect: LogLine) -> None:
        if self._throttle.is_due(effect.text, self._clock.now_ms()):
            _log.warning("node %d: %s", self._config.node_id, effect.text)

    # --- the listener ----------------------------------------------------------------------------------

    def _appended(self) -> None:
        if self._reader.delivered_offset < self.committed_offset:
            self._is_read_due = True
            self._notify()

    def _deliver(self, entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        node = self._node
        if node is not None and node.has_caught_up and committed_offset >= node.high_watermark:
            self.has_caught_up = True
        self._snapshots.delivered(self._reader.delivered_bytes - self._counted_bytes)
        self._counted_bytes = self._reader.delivered_bytes
        self._listener.on_committed(entries, committed_offset)

    def _notify(self) -> None:
        """Call the listener, between two events. It may append from inside: that adds notices, which this
        loop serves too."""
        if self._is_notifying or self.pump is None or self.pump.is_busy:
            return
        self._is_notifying = True
        while (self._notices or self._is_read_due) and not self._is_stopped:
            if self._is_read_due:
                self._is_read_due = False
                self._reader.read_on()
            else:
                self._tell(self._notices.popleft())
        self._is_notifying = False
        if self._node is not None and not self._is_stopped:
            self._look_after_snapshots(self._node)

    def _look_after_snapshots(self, node: RaftNode) -> None:
        if self.has_caught_up:
            self._snapshots.make_if_due(node)
        elif self._snapshots.newest is not None and node.has_caught_up:
            # Nothing may have been committed since the snapshot that was loaded.
            self.has_caught_up = self._reader.delivered_offset >= node.high_watermark

    def _tell(self, notice: Committed | LeaderChanged | VotersWanted) -> None:
        if isinstance(notice, Committed):
            if self._mark is not None:
                self._mark.advanced()
            self._metrics.committed(notice.up_to_offset, self._clock.now_ns())
            self._reader.advance(notice.up_to_offset)
            return
        if isinstance(notice, VotersWanted):
            self._listener.on_voters_wanted(self.raft_epoch)
            return
        self._metrics.leader_changed(notice.leader_id, self._clock.now_ns())
        _log.info("node %d: epoch %d, leader %s", self._config.node_id, notice.raft_epoch, notice.leader_id)
        self._listener.on_leader_change(notice.leader_id, notice.raft_epoch, notice.epoch_start_offset)
