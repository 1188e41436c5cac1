"""What the listeners of one node share: memory for requests and answers, time, and places for connections.

Owns the accounts of all connections, carries out what `rpc.core.memory` decides and lets connections start
their requests in turn (`rpc.core.fair_queue`). A server of any protocol takes part: it is given the node's
`NodeShares`, calls `join` for each connection and `leave` at its end, and between them what `Peer` and
`MemoryBudget` say.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from holdfast.rpc.core.fair_queue import FairQueue
from holdfast.rpc.core.memory import Account, Charge, CutOff, CutReason, Effect, MemoryBudget, Pool
from holdfast.rpc.core.question_share import QuestionShare
from holdfast.runtime.api import Clock, Timer
from holdfast.runtime.stats import Histogram, MetricFamily, MetricKind, Sample

_log = logging.getLogger("holdfast.rpc")

#: Without a limit.
UNLIMITED_BYTES = 1 << 62
#: How often slow peers are looked for while there is too little room.
CHECK_MS = 250
#: Time that one connection may start requests for before another has its turn, ...
QUANTUM_NS = 1_000_000
#: ... and all of them before the event loop reads from connections again.
TURN_NS = 3_000_000
#: Time after which it is noted in the next turn of the event loop that this one is over.
RESET_NS = TURN_NS // 4

#: Turns that are noted before they are counted.
TURNS_NOTED_MAX = 1024

_TURN_BOUNDS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)

_TEXTS = {
    CutReason.SLOW_SENDER: "others wait for the room that its unfinished request takes",
    CutReason.SLOW_READER: "others wait for the room that its unread answers take",
    CutReason.NO_MEMORY: "there is no room left (queued.max.request.bytes), and it takes the most",
}


class Peer(Protocol):
    """A connection as it is seen from here. All calls are on the event loop."""

    @property
    def account(self) -> Account: ...

    @property
    def is_asking(self) -> bool:
        """What it sent last was a question, and so may be what comes next."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that are queued in the connection now."""

    def start_waiting(self, until_ns: int) -> bool:
        """Start requests that wait, none after `until_ns`; True when more of them could be started."""

    def go_on_soon(self) -> None:
        """Look again in the next turn of the event loop whether there is room, and go on."""

    def cut_off(self, reason: str) -> None:
        """End the connection now."""


class NodeShares:
    """One for each process."""

    def __init__(
        self,
        clock: Clock,
        memory_bytes: int | None = None,
        connection_max: int | None = None,
        connection_max_per_ip: int | None = None,
    ) -> None:
        """Limits hold for all listeners together; None: any number."""
        self.memory = MemoryBudget(UNLIMITED_BYTES if memory_bytes is None else memory_bytes)
        self._clock = clock
        self.connection_max = connection_max
        self._connection_max_per_ip = connection_max_per_ip
        self._peers: dict[int, Peer] = {}
        self._count_by_ip: Counter[str] = Counter()
        #: {reason: connections that were cut off for it}
        self.cut_count: Counter[CutReason] = Counter()
        self.refused_count = 0
        self._check_timer: Timer | None = None
        self._effects: list[Effect] = []
        self._is_carrying_out = False
        self._queue: FairQueue[Peer] = FairQueue()
        self._questions = QuestionShare()
        #: those that wait for the next span of time for questions
        self._parked: list[Peer] = []
        #: ids of the accounts in the queue and of those that are parked
        self._queued: set[int] = set()
        #: {account id: time that it has had, ns}, as the queue counts
        self._had_ns: dict[int, int] = {}
        self._spent_ns = 0
        self._is_turn_due = False
        self._looked_ms = -1
        self._turn_seconds = Histogram(_TURN_BOUNDS_SECONDS)
        #: seconds of turns that are not counted yet
        self._turns: list[float] = []

    # --- connections ------------------------------------------------------------------------------------

    def refusal(self, host: str) -> str | None:
        """Why a connection from this host cannot be taken in, None when it can."""
        text = None
        if self.connection_max is not None and len(self._peers) >= self.connection_max:
            text = f"{self.connection_max} connections are open (max.connections)"
        elif (
            self._connection_max_per_ip is not None and self._count_by_ip[host] >= self._connection_max_per_ip
        ):
            text = f"{self._connection_max_per_ip} are open from {host} (max.connections.per.ip)"
        if text is not None:
            self.refused_count += 1
        return text

    def join(self, peer: Peer, host: str) -> None:
        """The connection is taken in."""
        self._peers[peer.account.account_id] = peer
        self._count_by_ip[host] += 1

    def leave(self, peer: Peer, host: str) -> None:
        """The connection has ended."""
        account_id = peer.account.account_id
        if self._peers.pop(account_id, None) is not None:
            self._had_ns.pop(account_id, None)
            self._count_by_ip[host] -= 1
            if not self._count_by_ip[host]:
                del self._count_by_ip[host]
        self._carry_out(self.memory.close(peer.account))

    # --- memory -----------------------------------------------------------------------------------------

    def admit(self, account: Account, cost_bytes: int) -> Charge | None:
        """See `MemoryBudget.admit`."""
        charge = self.memory.admit(account, cost_bytes, self._clock.now_ms())
        if charge is None:
            self._check_later()
        return charge

    def release(self, account: Account, charge: Charge) -> None:
        """See `MemoryBudget.release`."""
        effects = self.memory.release(account, charge)
        if effects:
            self._carry_out(effects)

    def note_backlog(self, account: Account, backlog_bytes: int) -> None:
        """See `MemoryBudget.note_backlog`."""
        self._carry_out(self.memory.note_backlog(account, backlog_bytes))

    def note_unread(self, account: Account, unread_bytes: int) -> None:
        """See `MemoryBudget.note_unread`."""
        if unread_bytes or account.unread_bytes:
            self._carry_out(self.memory.note_unread(account, unread_bytes, self._clock.now_ms()))
            if self.memory.is_contended:
                self._check_later()

    def room_for_answer(self, account: Account) -> int:
        """See `MemoryBudget.room_for_answer`."""
        self._look_again()
        return self.memory.room_for_answer(account)

    def may_be_answered(self, account: Account) -> bool:
        """See `MemoryBudget.may_be_answered`."""
        self._look_again()
        may = self.memory.may_be_answered(account, self._clock.now_ms())
        if not may:
            self._check_later()
        return may

    def _check_later(self) -> None:
        if self._check_timer is None:
            self._check_timer = self._clock.call_later(CHECK_MS, self._check)

    def _check(self) -> None:
        self._check_timer = None
        self._look_again()
        self._carry_out(self.memory.check(self._clock.now_ms()))
        if self.memory.is_contended and self._peers:
            self._check_later()

    def _look_again(self) -> None:
        """What peers took since answers were queued is not heard of. Once a millisecond is enough."""
        now_ms = self._clock.now_ms()
        if now_ms == self._looked_ms or not self.memory.has_many_unread:
            return
        self._looked_ms = now_ms
        for account_id in self.memory.unread_accounts():
            peer = self._peers.get(account_id)
            if peer is not None:
                self._carry_out(self.memory.note_unread(peer.account, peer.unsent_bytes, now_ms))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Cutting one off gives room, which has effects of its own: they come behind these."""
        self._effects += effects
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        while self._effects:
            effect = self._effects.pop(0)
            peer = self._peers.get(effect.account_id)
            if peer is None:
                continue
            if isinstance(effect, CutOff):
                self.cut_count[effect.reason] += 1
                self._effects += self.memory.close(peer.account)
                peer.cut_off(_TEXTS[effect.reason])
            else:
                peer.go_on_soon()
        self._is_carrying_out = False

    # --- time -------------------------------------------------------------------------------------------

    def want_turn(self, peer: Peer) -> bool:
        """The connection has requests to start: now, when none waits for its turn, else in turn. True when it
        has had its turn."""
        if not len(self._queue) and self._spent_ns < TURN_NS and peer.account.account_id not in self._queued:
            if self._is_parked(peer):
                return False
            self._serve(peer)
            # Most turns of the event loop spend little: then one reset does for several of them.
            if len(self._queue) or self._spent_ns >= RESET_NS:
                self._turn_soon()
            return True
        if peer.account.account_id not in self._queued:
            self._enqueue(peer)
            self._turn_soon()
        return False

    def _enqueue(self, peer: Peer) -> None:
        account_id = peer.account.account_id
        self._queued.add(account_id)
        self._queue.add(peer, self._had_ns.get(account_id, 0))

    def _is_parked(self, peer: Peer) -> bool:
        """Whether it has to wait because it asks and records flow: then it is in the queue again later."""
        wait_ns = self._questions.wait_ns(self._clock.now_ns()) if peer.is_asking else 0
        if not wait_ns:
            return False
        self._queued.add(peer.account.account_id)
        if not self._parked:
            self._clock.call_later(wait_ns / 1e6, self._unpark)
        self._parked.append(peer)
        return True

    def _unpark(self) -> None:
        parked, self._parked = self._parked, []
        for peer in parked:
            self._enqueue(peer)
        self._turn_soon()

    def _serve(self, peer: Peer) -> None:
        account_id = peer.account.account_id
        now_ns = self._clock.now_ns
        begun_ns = now_ns()
        has_more = peer.start_waiting(begun_ns + QUANTUM_NS)
        ended_ns = now_ns()
        spent_ns = ended_ns - begun_ns
        self._questions.spent(spent_ns, ended_ns, is_question=peer.is_asking)
        self._spent_ns += spent_ns
        self._turns.append(spent_ns / 1e9)
        if len(self._turns) >= TURNS_NOTED_MAX:
            self._count_turns()
        if account_id in self._peers:
            self._had_ns[account_id] = self._queue.charge(self._had_ns.get(account_id, 0), spent_ns)
        if has_more:
            self._enqueue(peer)

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        self._spent_ns = 0
        # Each once at most: who has more comes again in the next turn, behind what is read before it.
        for _ in range(len(self._queue)):
            peer = self._queue.take()
            self._queued.discard(peer.account.account_id)
            if self._is_parked(peer):
                continue
            self._serve(peer)
            if self._spent_ns >= TURN_NS:
                break
        if len(self._queue):
            self._turn_soon()

    # --- figures ----------------------------------------------------------------------------------------

    def _count_turns(self) -> None:
        turns, self._turns = self._turns, []
        self._turn_seconds.observe_all(turns)

    def stats(self) -> list[MetricFamily]:
        """Of all listeners together."""
        self._count_turns()
        memory = self.memory
        strangers, members = memory.unread_bytes
        used = [(pool.name.lower(), memory.used_bytes[pool]) for pool in Pool]
        used += [("answers", strangers), ("answers_of_members", members), ("backlog", memory.backlog_bytes)]
        return [
            MetricFamily(
                "kafka_server_memory_pool_used_bytes",
                MetricKind.GAUGE,
                "Bytes of requests and answers, by share.",
                [Sample(value, (("share", name),)) for name, value in used],
            ),
            MetricFamily(
                "kafka_server_memory_pool_max_bytes",
                MetricKind.GAUGE,
                "Limit of all shares together, -1 for none.",
                [Sample(-1 if memory.limit_bytes == UNLIMITED_BYTES else memory.limit_bytes)],
            ),
            MetricFamily(
                "kafka_server_connections_waiting",
                MetricKind.GAUGE,
                "Connections that are not read from because there is no room.",
                [Sample(memory.waiting_count)],
            ),
            MetricFamily(
                "kafka_server_connections_cut_total",
                MetricKind.COUNTER,
                "Connections that were cut off to make room.",
                [Sample(self.cut_count[reason], (("reason", reason.value),)) for reason in CutReason],
            ),
            MetricFamily(
                "kafka_server_turn_seconds",
                MetricKind.HISTOGRAM,
                "How long requests of one connection kept the event loop at a time.",
                [Sample(self._turn_seconds.value())],
            ),
            MetricFamily(
                "kafka_server_connections_refused_total",
                MetricKind.COUNTER,
                "Connections that were refused at a limit.",
                [Sample(self.refused_count)],
            ),
        ]
