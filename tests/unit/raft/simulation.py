"""A world of pure raft nodes: one event queue, virtual time, one seed; disks that forget, networks that lie.

Owns what the driver owns in production (order of effects, gates behind Persist) and everything that can go
wrong: delay, loss, duplication, partitions, pauses, crashes that lose unsynced log and vote. After every step
the properties Q-1 to Q-9 and N-1 of the quorum are checked against what the world itself has seen.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush

from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.quorum import AddRaftVoterRequest, VoteRequest, VoteResponse
from holdfast.protocol.record_batch import Record, encode_batch, iter_batches, parse_header
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.control_records import LEADER_CHANGE_KEY, VOTERS_KEY, directories_in, voter_news_in
from holdfast.raft.core.effects import (
    Answered,
    Append,
    AppendFetched,
    Committed,
    Control,
    Effect,
    Event,
    Flush,
    Flushed,
    LeaderChanged,
    Persist,
    Persisted,
    Propose,
    ProposeVoters,
    RaftRequest,
    Read,
    Reply,
    RequestReceived,
    Resign,
    Send,
    SendFailed,
    Start,
    Tick,
    Truncate,
    Truncated,
    VotersWanted,
)
from holdfast.raft.core.log_shape import LogShape
from holdfast.raft.core.node import RaftNode
from holdfast.raft.core.quorum import QuorumState, majority_count
from holdfast.raft.core.voter_directories import VoterDirectories
from holdfast.raft.core.voter_sets import VoterSets
from holdfast.rpc.core.failures import CallFailure
from holdfast.runtime.memory.machine import SeededRandom
from holdfast.runtime.stats import LogLine

CLUSTER_ID = "sim"
#: Ids of observers start here.
OBSERVER_ID = 50
CONTROL_KEYS = {None: None, Control.LEADER_CHANGE: LEADER_CHANGE_KEY, Control.VOTERS: VOTERS_KEY}


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch on a simulated disk."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes


@dataclass(slots=True)
class Disk:
    """What a machine keeps over a crash, and what it only believes to have."""

    batches: list[Batch] = field(default_factory=list)
    #: exclusive; what is below survives
    flushed_offset: int = 0
    state: QuorumState = field(default_factory=QuorumState)
    #: written, not known to be durable
    pending_states: deque[QuorumState] = field(default_factory=deque)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def shape(self) -> LogShape:
        starts: list[tuple[int, int]] = []
        for batch in self.batches:
            if not starts or starts[-1][0] != batch.epoch:
                starts.append((batch.epoch, batch.base_offset))
        return LogShape(starts, self.end_offset)

    def directories(self) -> VoterDirectories:
        found = VoterDirectories()
        for batch in self.batches:
            if parse_header(batch.data).is_control and (named := directories_in(batch.data)):
                found.append(batch.base_offset, named)
        return found

    def sets(self) -> VoterSets:
        found = VoterSets()
        for batch in self.batches:
            if parse_header(batch.data).is_control and (voters := voter_news_in(batch.data).voters):
                found.append(batch.base_offset, voters)
        return found

    def cut(self, end_offset: int) -> None:
        while self.batches and self.batches[-1].end_offset > end_offset:
            self.batches.pop()
        assert self.end_offset == end_offset, "logs part at batch borders"
        self.flushed_offset = min(self.flushed_offset, end_offset)

    def epoch_at(self, offset: int) -> int:
        return next(batch.epoch for batch in self.batches if batch.base_offset <= offset < batch.end_offset)


@dataclass(slots=True)
class Machine:
    """One member: a disk, and a node while it runs."""

    id: int
    config: RaftConfig
    disk: Disk = field(default_factory=Disk)
    node: RaftNode | None = None
    #: counts process lives; what was scheduled for an earlier one is void
    life: int = 0
    paused_until_ms: int = 0
    tick_ms: int | None = None
    is_flushing: bool = False
    is_flush_wanted: bool = False
    #: highest epoch and high watermark of this life (Q-6)
    epoch_seen: int = 0
    high_watermark_seen: int = 0
    #: request ids that this life sent and that have no outcome yet -> (peer, request)
    outstanding: dict[int, int] = field(default_factory=dict)
    #: proposals of this life as leader that wait for commit: (epoch, end offset, offset, value)
    proposals: list[tuple[int, int, int, bytes]] = field(default_factory=list)


class World:
    """A quorum of `voter_count` voters and some observers under one seed."""

    def __init__(self, seed: int, voter_count: int, observer_count: int = 0, *, calm: bool = False) -> None:
        self.random = SeededRandom(seed)
        self.now_ms = 0
        #: no faults: delays only
        self.calm = calm
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self.steps = 0
        voters = {id: ("voter", id) for id in range(1, voter_count + 1)}
        self.machines: dict[int, Machine] = {}
        for id in [*voters, *range(OBSERVER_ID, OBSERVER_ID + observer_count)]:
            self.machines[id] = Machine(id, RaftConfig(id, CLUSTER_ID, voters, "m", id in voters))
        self.voter_ids = tuple(voters)
        for id in self.voter_ids:
            self.machines[id].disk = self._new_disk()
        #: no voter gets a new disk
        self.keeps_disks = False
        #: voters whose disk was replaced, until the others have taken the new one in
        self.wiped: set[int] = set()
        self._cut_links: set[tuple[int, int]] = set()
        self._tokens: dict[tuple[int, int, int], Callable[[object], None]] = {}
        self._tokens_given = 0
        # --- what only the checker knows ---
        #: epoch -> the one leader (Q-1)
        self.leader_of_epoch: dict[int, int] = {}
        self._epochs_checked: set[int] = set()
        #: by offset: (epoch of the record, epoch of the leader that committed it) (Q-2, Q-3)
        self.committed: list[tuple[int, int]] = []
        #: (epoch, base offset) -> bytes, write-once (N-1)
        self.written: dict[tuple[int, int], bytes] = {}
        #: value -> offset of those whose proposer heard of the commit
        self.acked: dict[bytes, int] = {}
        self._values_proposed = 0
        #: last events, for the report of a failure
        self.story: deque[str] = deque(maxlen=60)

    # --- time ------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heappush(self._queue, (self.now_ms + delay_ms, self._scheduled, action))

    def run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heappop(self._queue)
            action()
        self.now_ms = end_ms

    def chance(self, probability: float) -> bool:
        return not self.calm and self.random.random() < probability

    # --- process life ----------------------------------------------------------------------------------

    def boot(self, id: int) -> None:
        machine = self.machines[id]
        if machine.node is not None:
            return
        machine.life += 1
        disk = machine.disk
        machine.node = RaftNode(
            machine.config, self.random, disk.state, disk.shape(), disk.directories(), sets=disk.sets()
        )
        machine.epoch_seen = machine.high_watermark_seen = 0
        machine.tick_ms = None
        machine.is_flushing = machine.is_flush_wanted = False
        self._tell(f"{id} boots with {machine.disk.state}, log ends at {machine.disk.end_offset}")
        self._carry_out(machine, machine.node.handle(Start(), self.now_ms))
        self._after(machine)

    def crash(self, id: int) -> None:
        """Power loss: of unsynced bytes any prefix survives, of unsynced votes perhaps the first."""
        machine = self.machines[id]
        if machine.node is None:
            return
        disk = machine.disk
        machine.node = None
        machine.life += 1
        survivors = [b.end_offset for b in disk.batches if b.end_offset > disk.flushed_offset]
        keep = self.random.randint(0, len(survivors))
        disk.cut(survivors[keep - 1] if keep else disk.flushed_offset)
        disk.flushed_offset = disk.end_offset  # recovery makes durable what it keeps (R86)
        for _ in range(self.random.randint(0, len(disk.pending_states))):
            disk.state = disk.pending_states.popleft()
        disk.pending_states.clear()
        machine.outstanding.clear()
        machine.proposals.clear()
        self._tell(f"{id} crashes, log ends at {disk.end_offset}, {disk.state}")
        # Connections to it break: a node that waits for an answer hears it.
        for other in self.machines.values():
            for request_id, peer_id in list(other.outstanding.items()):
                if peer_id == id:
                    self._outcome(
                        other, other.life, request_id, SendFailed(request_id, CallFailure.DISCONNECTED)
                    )

    def _new_disk(self) -> Disk:
        return Disk(state=QuorumState(directory_id=self.random.uuid(), is_admitted=False))

    def wipe(self, id: int) -> None:
        """A voter that is down gets a new disk, unless so many are new that the rest is no majority."""
        machine = self.machines[id]
        losses_max = len(self.voter_ids) - majority_count(len(self.voter_ids))
        new = {other for other in self.voter_ids if not self.machines[other].disk.state.is_admitted}
        if (
            self.keeps_disks
            or machine.node is not None
            or id not in self.voter_ids
            or len(new | self.wiped | {id}) > losses_max
        ):
            return
        self._tell(f"{id} has a new disk")
        machine.disk = self._new_disk()
        if not self.wiped:
            self.later(500, self._readmit)
        self.wiped.add(id)

    def _readmit(self) -> None:
        """The operator asks who leads to take in the new disks, until all of them are."""
        self.wiped = {id for id in self.wiped if not self.machines[id].disk.state.is_admitted}
        for id in sorted(self.wiped):
            for other in self.voter_ids:
                machine = self.machines[other]
                if machine.node is not None and machine.node.is_leader:
                    self._tokens_given += 1
                    self._tokens[other, machine.life, self._tokens_given] = lambda response: None
                    request = AddRaftVoterRequest(id, None)
                    self.step(machine, machine.life, RequestReceived(self._tokens_given, request))
        if self.wiped:
            self.later(500, self._readmit)

    # --- faults ----------------------------------------------------------------------------------------

    def cut(self, *groups: tuple[int, ...]) -> None:
        """Only members of one group reach each other; no groups: all do."""
        side = {id: number for number, group in enumerate(groups) for id in group}
        ids = sorted(self.machines)
        self._cut_links = {(a, b) for a in ids for b in ids if groups and side.get(a, -1) != side.get(b, -1)}

    def cut_links(self, links: set[tuple[int, int]]) -> None:
        """Only these links (sender, receiver) are cut."""
        self._cut_links = links

    def pause(self, id: int, duration_ms: int) -> None:
        self.machines[id].paused_until_ms = self.now_ms + duration_ms

    def role(self, id: int) -> str | None:
        """The role of a member, None while it is down."""
        node = self.machines[id].node
        return None if node is None else node.snapshot().role

    # --- the door of a node ----------------------------------------------------------------------------

    def step(self, machine: Machine, life: int, event: Event) -> None:
        """Give an event to a node, unless its process has ended; a paused one gets it later."""
        if machine.life != life or machine.node is None:
            return
        if machine.paused_until_ms > self.now_ms:
            self.later(machine.paused_until_ms - self.now_ms, lambda: self.step(machine, life, event))
            return
        self.steps += 1
        self._tell(f"{machine.id} <- {event}")
        self._carry_out(machine, machine.node.handle(event, self.now_ms))
        self._after(machine)

    def _after(self, machine: Machine) -> None:
        assert machine.node is not None
        self._check(machine)
        deadline_ms = machine.node.next_deadline_ms()
        if deadline_ms is not None and (machine.tick_ms is None or deadline_ms < machine.tick_ms):
            machine.tick_ms = deadline_ms
            life = machine.life
            self.later(max(0, deadline_ms - self.now_ms), lambda: self._tick(machine, life, deadline_ms))

    def _tick(self, machine: Machine, life: int, deadline_ms: int) -> None:
        if machine.life == life and machine.tick_ms == deadline_ms:
            machine.tick_ms = None
            self.step(machine, life, Tick())

    def propose(self, id: int) -> bytes | None:
        """One or two values to a node that believes to lead."""
        machine = self.machines[id]
        if machine.node is None or not machine.node.is_leader or machine.paused_until_ms > self.now_ms:
            return None
        self._values_proposed += 1
        value = b"value %d" % self._values_proposed
        values = (value,) if self.random.random() < 0.7 else (value, value + b" and more")
        offset = machine.node.log_end_offset
        machine.proposals.append((machine.node.raft_epoch, offset + len(values), offset, value))
        self.step(machine, machine.life, Propose(values))
        return value

    def propose_everywhere(self) -> None:
        """A value to each node that believes to lead: there may be two."""
        for id in self.voter_ids:
            self.propose(id)

    def resign(self, id: int) -> None:
        machine = self.machines[id]
        self.step(machine, machine.life, Resign("told to"))

    # --- effects ---------------------------------------------------------------------------------------

    def _carry_out(self, machine: Machine, effects: list[Effect]) -> None:
        gate_ms = 0
        for effect in effects:
            self._tell(f"{machine.id} -> {effect}")
            match effect:
                case Append():
                    self._append(machine, self._encode(effect))
                case AppendFetched():
                    for header, view in iter_batches(effect.records):
                        batch = Batch(
                            header.base_offset, header.next_offset, header.leader_epoch, bytes(view)
                        )
                        self._append(machine, batch)
                case Truncate(end_offset):
                    self._truncate(machine, end_offset)
                case Flush():
                    machine.is_flush_wanted = True
                    if not machine.is_flushing:
                        self._start_flush(machine)
                case Persist(state):
                    gate_ms = self._persist(machine, state)
                case Send() | Reply():
                    self._speak_after(machine, effect, gate_ms)
                case Committed(up_to_offset):
                    self._committed(machine, up_to_offset)
                case VotersWanted():
                    append = partial(self._append_voters, machine, machine.life)
                    self.later(self.random.randint(0, 20), append)
                case LeaderChanged() | LogLine():
                    pass

    def _append_voters(self, machine: Machine, life: int) -> None:
        if machine.node is not None and machine.node.is_leader:
            self.step(machine, life, ProposeVoters())

    @staticmethod
    def _encode(effect: Append) -> Batch:
        records = [
            Record(effect.base_offset + index, 0, CONTROL_KEYS.get(effect.control), value)
            for index, value in enumerate(effect.values)
        ]
        data = encode_batch(
            records,
            base_offset=effect.base_offset,
            leader_epoch=effect.raft_epoch,
            is_control=effect.control is not None,
        )
        return Batch(effect.base_offset, effect.base_offset + len(records), effect.raft_epoch, data)

    def _append(self, machine: Machine, batch: Batch) -> None:
        assert batch.base_offset == machine.disk.end_offset, "no gaps"
        first = self.written.setdefault((batch.epoch, batch.base_offset), batch.data)
        assert first == batch.data, f"N-1: two values at epoch {batch.epoch}, offset {batch.base_offset}"
        machine.disk.batches.append(batch)

    def _truncate(self, machine: Machine, end_offset: int) -> None:
        life = machine.life

        def done() -> None:
            if machine.life == life:
                machine.disk.cut(end_offset)
                self.step(machine, life, Truncated(end_offset))

        self.later(self.random.randint(0, 5), done)

    def _start_flush(self, machine: Machine) -> None:
        machine.is_flushing, machine.is_flush_wanted = True, False
        covered, life = machine.disk.end_offset, machine.life

        def done() -> None:
            if machine.life != life:
                return
            machine.disk.flushed_offset = max(machine.disk.flushed_offset, covered)
            machine.is_flushing = False
            self.step(machine, life, Flushed(covered))
            if machine.is_flush_wanted and not machine.is_flushing and machine.life == life:
                self._start_flush(machine)

        self.later(self.random.randint(1, 12), done)

    def _persist(self, machine: Machine, state: QuorumState) -> int:
        """Write behind the states before; returns the delay after which it is durable."""
        pending, life = machine.disk.pending_states, machine.life
        if state == machine.disk.state and not pending:
            return 0
        if not pending or pending[-1] != state:
            pending.append(state)
        delay_ms = 4 * len(pending) + self.random.randint(1, 4)

        def done() -> None:
            if machine.life != life or state not in pending:
                return
            while machine.disk.state != state:
                machine.disk.state = pending.popleft()
            self.step(machine, life, Persisted(state))

        self.later(delay_ms, done)
        return delay_ms

    def _speak_after(self, machine: Machine, effect: Send | Reply, gate_ms: int) -> None:
        life = machine.life

        def speak() -> None:
            if machine.life != life:
                return
            if isinstance(effect, Send):
                self._send(machine, effect)
            else:
                self._reply(machine, effect)

        if gate_ms:
            self.later(gate_ms, speak)
        else:
            speak()

    # --- network ---------------------------------------------------------------------------------------

    def _delay_ms(self) -> int:
        return self.random.randint(20, 400) if self.chance(0.03) else self.random.randint(1, 8)

    def _is_cut(self, sender_id: int, receiver_id: int) -> bool:
        return (sender_id, receiver_id) in self._cut_links

    def _send(self, machine: Machine, send: Send) -> None:
        self._check_said(machine, send.request)
        life, id = machine.life, machine.id
        machine.outstanding[send.request_id] = send.voter_id
        timeout = SendFailed(send.request_id, CallFailure.TIMED_OUT)
        self.later(send.timeout_ms, lambda: self._outcome(machine, life, send.request_id, timeout))

        def answer(response: object) -> None:
            if not self._is_cut(send.voter_id, id) and not self.chance(0.02):
                event = Answered(send.request_id, response)  # type: ignore[arg-type]
                self.later(self._delay_ms(), lambda: self._outcome(machine, life, send.request_id, event))

        def ignore(response: object) -> None:
            """The answer to a copy that came over another connection."""

        if self._is_cut(id, send.voter_id) or self.chance(0.02):
            return
        self.later(self._delay_ms(), lambda: self._arrive(machine, life, send, answer))
        if self.chance(0.03):
            self.later(self.random.randint(1, 600), lambda: self._arrive(machine, life, send, ignore))

    def _arrive(self, sender: Machine, life: int, send: Send, answer: Callable[[object], None]) -> None:
        receiver = self.machines[send.voter_id]
        if receiver.node is None:
            refused = SendFailed(send.request_id, CallFailure.REFUSED)
            self.later(1, lambda: self._outcome(sender, life, send.request_id, refused))
            return
        self._tokens_given += 1
        self._tokens[receiver.id, receiver.life, self._tokens_given] = answer
        self.step(receiver, receiver.life, RequestReceived(self._tokens_given, send.request))

    def _outcome(self, machine: Machine, life: int, request_id: int, event: Event) -> None:
        if machine.life == life and machine.outstanding.pop(request_id, None) is not None:
            self.step(machine, life, event)

    def _reply(self, machine: Machine, reply: Reply) -> None:
        response = reply.response
        if isinstance(response, VoteResponse):
            assert response.raft_epoch <= machine.disk.state.raft_epoch, "Q-9: said before it was durable"
        answer = self._tokens.pop((machine.id, machine.life, reply.token))
        if reply.read is not None:
            assert isinstance(response, FetchResponse)
            assert isinstance(reply.read, Read)
            row = replace(response.partitions[0], records=memoryview(self._read(machine, reply.read)))
            response = replace(response, partitions=(row,))
        answer(response)

    def _read(self, machine: Machine, read: Read) -> bytes:
        batches = [b for b in machine.disk.batches if b.end_offset > read.fetch_offset]
        assert not batches or batches[0].base_offset == read.fetch_offset, "fetches go by whole batches"
        return b"".join(batch.data for batch in batches[: self.random.randint(1, 6)])

    # --- checks ----------------------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        self.story.append(f"{self.now_ms}: {text[:300]}")

    def _check_said(self, machine: Machine, request: RaftRequest) -> None:
        """What leaves a node must be durable there: epochs and votes (Q-9), fetch offsets of voters (K11)."""
        durable = machine.disk.state
        match request:
            case VoteRequest(raft_epoch=epoch, pre_vote=pre_vote):
                assert epoch <= durable.raft_epoch, "Q-9: an epoch was named before it was durable"
                if not pre_vote and epoch == durable.raft_epoch:
                    assert durable.voted_for == machine.id, "Q-9: asked for votes without its own"
            case FetchRequest(partitions=(row,)):
                assert row.current_leader_epoch <= durable.raft_epoch, "Q-9"
                if machine.config.is_voter:
                    assert row.fetch_offset <= machine.disk.flushed_offset, "K11: acked before it was durable"
            case AddRaftVoterRequest(directory_id=directory_id):
                assert directory_id == durable.directory_id, "K30: it asks for its own disk"
            case _:
                assert request.raft_epoch <= durable.raft_epoch, "Q-9"  # type: ignore[union-attr]

    def _check(self, machine: Machine) -> None:
        assert machine.node is not None
        now = machine.node.snapshot()
        assert now.raft_epoch >= machine.epoch_seen, "Q-6: the epoch fell"
        assert now.high_watermark >= machine.high_watermark_seen, "Q-6: the high watermark fell"
        machine.epoch_seen, machine.high_watermark_seen = now.raft_epoch, now.high_watermark
        assert now.flushed_offset <= machine.disk.flushed_offset, "counts what is not durable (A-21)"
        match now.role:
            case "Leader":
                assert now.voted_for == now.leader_id == machine.id, "Q-5"
                if self.leader_of_epoch.setdefault(now.raft_epoch, machine.id) != machine.id:
                    raise AssertionError(f"Q-1: epoch {now.raft_epoch} has two leaders")
                self._check_complete(machine)
            case "Candidate":
                assert (now.voted_for, now.leader_id) == (machine.id, None), "Q-5"
            case "Follower":
                assert now.leader_id != machine.id, "Q-5"
            case _:
                assert now.leader_id is None, "Q-5"
        if not machine.config.is_voter:
            assert now.role in ("Unattached", "Follower"), "Q-5"
            assert now.voted_for is None, "Q-5"

    def _check_complete(self, machine: Machine) -> None:
        """Q-3: a leader's log holds all that was committed in earlier epochs. Looked at once a leadership."""
        assert machine.node is not None
        epoch = machine.node.raft_epoch
        if epoch in self._epochs_checked:
            return
        self._epochs_checked.add(epoch)
        held = {o: b.epoch for b in machine.disk.batches for o in range(b.base_offset, b.end_offset)}
        for offset, (record_epoch, commit_epoch) in enumerate(self.committed):
            if commit_epoch < epoch:
                assert held.get(offset) == record_epoch, f"Q-3: leader {machine.id} lacks offset {offset}"

    def _committed(self, machine: Machine, up_to_offset: int) -> None:
        assert up_to_offset <= machine.disk.end_offset
        assert machine.node is not None
        known, epoch = len(self.committed), machine.node.raft_epoch
        for batch in machine.disk.batches:
            if batch.end_offset <= machine.high_watermark_seen or batch.base_offset >= up_to_offset:
                continue
            assert batch.end_offset <= up_to_offset, "commits end at batch borders"
            if batch.base_offset < known:
                assert self.committed[batch.base_offset][0] == batch.epoch, "Q-2: committed records differ"
            else:
                self._check_majority(batch)
                self.committed += [(batch.epoch, epoch)] * (batch.end_offset - batch.base_offset)
        if machine.node.is_leader:
            for proposal in list(machine.proposals):
                if proposal[0] == epoch and proposal[1] <= up_to_offset:
                    machine.proposals.remove(proposal)
                    self.acked[proposal[3]] = proposal[2]

    def _check_majority(self, batch: Batch) -> None:
        """Q-4, Q-7: what is committed lies durably on a majority of the voters' disks, or lay on one that was
        replaced in the meantime."""
        holders = [
            id
            for id in self.voter_ids
            if id in self.wiped
            or (
                self.machines[id].disk.flushed_offset >= batch.end_offset
                and batch in self.machines[id].disk.batches
            )
        ]
        assert len(holders) >= majority_count(len(self.voter_ids)), (
            f"Q-7: offset {batch.base_offset} committed with {holders}"
        )

    def check_converged(self) -> None:
        """Q-8 and liveness, after faults have stopped: one leader, equal logs, everything acked is there."""
        running = [m for m in self.machines.values() if m.node is not None]
        assert len(running) == len(self.machines)
        leaders = [m for m in running if m.node is not None and m.node.is_leader]
        assert len(leaders) == 1, f"L-8: leaders {[m.id for m in leaders]}"
        log = leaders[0].disk.batches
        for machine in running:
            assert machine.disk.batches == log, f"Q-8: the log of {machine.id} differs"
            assert machine.node is not None
            assert machine.node.high_watermark == leaders[0].disk.end_offset == len(self.committed), (
                f"{machine.id} does not know the commit"
            )
        data = {batch.base_offset: batch.data for batch in log}
        for value, offset in self.acked.items():
            assert value in data[offset], f"Q-3: {value!r} was acked at {offset} and is not there"
