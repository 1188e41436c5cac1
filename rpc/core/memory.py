"""Whose bytes the node holds for its peers, and what happens when there is no room for more.

Owns one budget for all listeners of a process: requests that arrive, wait or have no answer yet, and answers
that peers have not taken. Decides who is let in, who waits, how large an answer may be and who is cut off;
never reads or writes. Pools by size keep the large from the small, and a pool of their own keeps the
cluster's members from all others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, TypeAlias

#: A msgpack body takes about so many times its bytes once it is unpacked; what is smaller is not counted.
BODY_GROWTH = 24
BODY_FREE_BYTES = 16 << 10
#: Largest request, and most that one connection may have, in the pool of the little ones.
LITTLE_BYTES = 16 << 10
LITTLE_HELD_BYTES = 256 << 10
#: Nothing was heard, or taken, for so long: cut off when others wait for the room.
STALLED_MS = 1_000
#: The same for a frame that still comes, or an answer that is still taken, but does not end.
SLOW_MS = 10_000
#: Others wait for so long although none is slow: the connection with the most unanswered bytes is cut off.
STARVED_MS = 5_000
#: Less room than this is none for an answer.
ANSWER_LEAST_BYTES = 64 << 10


class Pool(IntEnum):
    """Shares of the budget for requests. What finds its own pool full goes to the next larger one."""

    LITTLE = 0
    MODEST = 1
    LARGE = 2
    #: connections of the cluster's own nodes
    MEMBERS = 3


class CutReason(Enum):
    """Why a connection is cut off; the values are those of the metric's label."""

    SLOW_SENDER = "slow_sender"
    SLOW_READER = "slow_reader"
    #: it holds the most, and there is no more room at all
    NO_MEMORY = "no_memory"


class Charge(NamedTuple):
    """Room that a request has. Give it back once, with `release`."""

    pool: Pool
    cost_bytes: int


@dataclass(frozen=True, slots=True)
class Retry:
    """There may be room now for what this connection waits for: ask again."""

    account_id: int


@dataclass(frozen=True, slots=True)
class CutOff:
    """End this connection now; `close` it before anything else is decided."""

    account_id: int
    reason: CutReason


Effect: TypeAlias = Retry | CutOff
_NOTHING: tuple[Effect, ...] = ()


class Account:
    """What one connection holds. Fields are read only, except `is_member`."""

    __slots__ = (
        "account_id",
        "arriving",
        "backlog_bytes",
        "begun_ms",
        "heard_ms",
        "held_bytes",
        "is_member",
        "little_bytes",
        "taken_ms",
        "unread_bytes",
        "unread_since_ms",
        "waiting_since_ms",
        "wanted_bytes",
        "wants_answer",
    )

    def __init__(self, account_id: int) -> None:
        self.account_id = account_id
        #: a node of the cluster: it has a pool of its own
        self.is_member = False
        #: room of requests that arrive or have no answer
        self.held_bytes = 0
        #: of these, what is in the pool of the little ones
        self.little_bytes = 0
        #: of the request that is arriving
        self.arriving: Charge | None = None
        self.begun_ms = 0
        self.heard_ms = 0
        #: received, and no room was given for it yet
        self.backlog_bytes = 0
        #: the request that waits for room, 0 for none
        self.wanted_bytes = 0
        #: a request waits for room for its answer
        self.wants_answer = False
        self.waiting_since_ms = 0
        #: answers that the peer has not taken
        self.unread_bytes = 0
        self.unread_since_ms = 0
        #: when it last took some
        self.taken_ms = 0


def cost_of(frame_bytes: int, body_bytes: int) -> int:
    """What a frame takes from its first byte to its answer; `body_bytes` of it are msgpack."""
    if body_bytes <= BODY_FREE_BYTES:
        return frame_bytes
    return frame_bytes + BODY_GROWTH * (body_bytes - BODY_FREE_BYTES)


class MemoryBudget:
    """All accounts of a process.

    A server opens an account for each connection and calls `admit` before it reads on in a request whose
    length it knows (a Charge: go on, and `arriving`; None: stop reading until Retry comes), `arrived` when
    all of it is there, `release` when it is answered; `note_unread` whenever answers were queued or taken,
    `room_for_answer` before it makes a large one; `close` at the end. `check` is for a timer while
    `is_contended`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: {pool: most bytes}; together with `answers_max_bytes` they are the limit
        self.pool_max_bytes = {
            Pool.LARGE: limit_bytes // 2,
            Pool.MODEST: limit_bytes // 8,
            Pool.LITTLE: limit_bytes // 16,
            Pool.MEMBERS: limit_bytes // 16,
        }
        #: answers that strangers have not taken; members may have as much again
        self.answers_max_bytes = limit_bytes // 4
        #: received without room, before connections are cut off for it
        self.backlog_max_bytes = limit_bytes // 8
        self._modest_bytes = max(LITTLE_BYTES, limit_bytes // 32)
        self.used_bytes = dict.fromkeys(Pool, 0)
        #: by `Account.is_member`
        self._unread_bytes = [0, 0]
        self.backlog_bytes = 0
        self._accounts: dict[int, Account] = {}
        #: accounts that wait for room, the first one first; those with unread answers; those with a backlog
        self._waiting: dict[int, Account] = {}
        self._unread: dict[int, Account] = {}
        self._backlog: dict[int, Account] = {}
        self._last_id = 0
        #: when a connection was last cut off because others starved
        self._starved_cut_ms = 0

    # --- accounts ------------------------------------------------------------------------------------------

    def open(self) -> Account:
        """The account of a new connection."""
        self._last_id += 1
        account = self._accounts[self._last_id] = Account(self._last_id)
        return account

    def close(self, account: Account) -> Sequence[Effect]:
        """The connection has ended. Requests without an answer keep their room until they are released."""
        if self._accounts.pop(account.account_id, None) is None:
            return _NOTHING
        self._waiting.pop(account.account_id, None)
        self.note_backlog(account, 0)
        self._set_unread(account, 0)
        charge, account.arriving = account.arriving, None
        if charge is not None:
            return self.release(account, charge)
        return self._retries() if self._waiting else _NOTHING

    def vouch(self, account: Account) -> None:
        """The peer is a node of the cluster."""
        unread = account.unread_bytes
        self._set_unread(account, 0)
        account.is_member = True
        self._set_unread(account, unread)

    # --- requests ------------------------------------------------------------------------------------------

    def admit(self, account: Account, cost_bytes: int, now_ms: int) -> Charge | None:
        """Room for one request; None: there is none, and `Retry` says when to ask again."""
        if cost_bytes > self.pool_max_bytes[Pool.LARGE]:
            cost_bytes = self.pool_max_bytes[Pool.LARGE]
        pool = self._pool_with_room(account, cost_bytes)
        if pool is None:
            account.wanted_bytes = cost_bytes
            self._wait(account, now_ms)
            return None
        if account.wanted_bytes:
            account.wanted_bytes = 0
            self._go_on(account)
        self.used_bytes[pool] += cost_bytes
        account.held_bytes += cost_bytes
        if pool is Pool.LITTLE:
            account.little_bytes += cost_bytes
        return Charge(pool, cost_bytes)

    def arriving(self, account: Account, charge: Charge, now_ms: int) -> None:
        """The request that has this room is still arriving."""
        account.arriving = charge
        account.begun_ms = account.heard_ms = now_ms

    def arrived(self, account: Account) -> Charge | None:
        """All of the request is there; its room, which the caller gives back when it is answered."""
        charge, account.arriving = account.arriving, None
        return charge

    def release(self, account: Account, charge: Charge) -> Sequence[Effect]:
        """The request is answered, or its bytes are not needed any more."""
        pool, cost_bytes = charge
        left_bytes = self.used_bytes[pool] - cost_bytes
        assert left_bytes >= 0, "room is given back once"
        self.used_bytes[pool] = left_bytes
        account.held_bytes -= cost_bytes
        if pool is Pool.LITTLE:
            account.little_bytes -= cost_bytes
        return self._retries() if self._waiting else _NOTHING

    def note_backlog(self, account: Account, backlog_bytes: int) -> Sequence[Effect]:
        """So many bytes of the connection were received and have no room."""
        self.backlog_bytes += backlog_bytes - account.backlog_bytes
        account.backlog_bytes = backlog_bytes
        if backlog_bytes:
            self._backlog[account.account_id] = account
        else:
            self._backlog.pop(account.account_id, None)
        if self.backlog_bytes <= self.backlog_max_bytes:
            return _NOTHING
        return _cut_largest(self._backlog.values(), "backlog_bytes")

    # --- answers -------------------------------------------------------------------------------------------

    def note_unread(self, account: Account, unread_bytes: int, now_ms: int) -> Sequence[Effect]:
        """So many bytes of answers are queued and not taken."""
        if unread_bytes < account.unread_bytes:
            account.taken_ms = now_ms
        elif not account.unread_bytes:
            account.unread_since_ms = account.taken_ms = now_ms
        was_full = self._unread_bytes[account.is_member] > self.answers_max_bytes
        self._set_unread(account, unread_bytes)
        total = self._unread_bytes[account.is_member]
        if total > 2 * self.answers_max_bytes:
            return _cut_largest(self._unread.values(), "unread_bytes", of_members=account.is_member)
        return self._retries() if was_full and self._waiting else _NOTHING

    def room_for_answer(self, account: Account) -> int:
        """Most bytes that an answer to this connection may have now, 0 for none: half of what is left, so
        that there is some for the next one too."""
        left = self.answers_max_bytes - self._unread_bytes[account.is_member]
        return left // 2 if left >= 2 * ANSWER_LEAST_BYTES else 0

    def may_be_answered(self, account: Account, now_ms: int) -> bool:
        """There is room for a large answer; False: the request must wait, `Retry` says until when."""
        account.wants_answer = not self.room_for_answer(account)
        if account.wants_answer:
            self._wait(account, now_ms)
        else:
            self._go_on(account)
        return not account.wants_answer

    def unread_accounts(self) -> Iterable[int]:
        """Ids of the accounts whose answers are not taken as far as known: look at them again."""
        return list(self._unread)

    @property
    def unread_bytes(self) -> tuple[int, int]:
        """Bytes of answers that are not taken, by strangers and by members."""
        return self._unread_bytes[False], self._unread_bytes[True]

    @property
    def has_many_unread(self) -> bool:
        """Answers take so much that it is worth a look whether peers have taken them meanwhile."""
        return any(4 * total > self.answers_max_bytes for total in self._unread_bytes)

    @property
    def waiting_count(self) -> int:
        """Connections that wait for room."""
        return len(self._waiting)

    # --- contention ----------------------------------------------------------------------------------------

    @property
    def is_contended(self) -> bool:
        """Connections wait for room, or answers take most of theirs: `check` has something to do."""
        return bool(self._waiting) or any(2 * total > self.answers_max_bytes for total in self._unread_bytes)

    def check(self, now_ms: int) -> Sequence[Effect]:
        """Who is cut off because others wait for the room that it takes. First update unread bytes."""
        cut: list[Effect] = [
            CutOff(one.account_id, CutReason.SLOW_READER)
            for one in self._unread.values()
            if 2 * self._unread_bytes[one.is_member] > self.answers_max_bytes
            and (now_ms - one.taken_ms >= STALLED_MS or now_ms - one.unread_since_ms >= SLOW_MS)
        ]
        waiting_since = [one.waiting_since_ms for one in self._waiting.values() if one.wanted_bytes]
        if waiting_since:
            cut += self._slow_senders(now_ms)
            # what the last one gives back may come late: its requests are answered first
            since_ms = max(min(waiting_since), self._starved_cut_ms)
            if not cut and now_ms - since_ms >= STARVED_MS:
                cut += _cut_largest(self._accounts.values(), "held_bytes")
                self._starved_cut_ms = now_ms
        return [*cut, *self._retries()]

    def _slow_senders(self, now_ms: int) -> list[Effect]:
        return [
            CutOff(one.account_id, CutReason.SLOW_SENDER)
            for one in self._accounts.values()
            if one.arriving is not None
            and not one.is_member
            and (now_ms - one.heard_ms >= STALLED_MS or now_ms - one.begun_ms >= SLOW_MS)
        ]

    # --- inside --------------------------------------------------------------------------------------------

    def _pool_with_room(self, account: Account, cost_bytes: int) -> Pool | None:
        for pool in self._pools_for(account, cost_bytes):
            if self.used_bytes[pool] + cost_bytes <= self.pool_max_bytes[pool]:
                return pool
        return None

    def _pools_for(self, account: Account, cost_bytes: int) -> tuple[Pool, ...]:
        if account.is_member:
            return _MEMBERS_FIRST
        if cost_bytes <= LITTLE_BYTES and account.little_bytes + cost_bytes <= LITTLE_HELD_BYTES:
            return _LITTLE_FIRST
        if account.held_bytes + cost_bytes <= self._modest_bytes:
            return _MODEST_FIRST
        return _LARGE_ONLY

    def _retries(self) -> list[Effect]:
        return [
            Retry(one.account_id)
            for one in self._waiting.values()
            if (not one.wants_answer or self.room_for_answer(one))
            and (not one.wanted_bytes or self._pool_with_room(one, one.wanted_bytes) is not None)
        ]

    def _wait(self, account: Account, now_ms: int) -> None:
        if account.account_id not in self._waiting:
            account.waiting_since_ms = now_ms
            self._waiting[account.account_id] = account

    def _go_on(self, account: Account) -> None:
        if not account.wanted_bytes and not account.wants_answer:
            self._waiting.pop(account.account_id, None)

    def _set_unread(self, account: Account, unread_bytes: int) -> None:
        self._unread_bytes[account.is_member] += unread_bytes - account.unread_bytes
        account.unread_bytes = unread_bytes
        if unread_bytes:
            self._unread[account.account_id] = account
        else:
            self._unread.pop(account.account_id, None)


def _cut_largest(accounts: Iterable[Account], holding: str, *, of_members: bool = False) -> list[Effect]:
    """Cut off who holds the most of it, strangers or members only."""
    holders = [one for one in accounts if one.is_member == of_members and getattr(one, holding)]
    if not holders:
        return []
    largest = max(holders, key=lambda one: int(getattr(one, holding)))
    return [CutOff(largest.account_id, CutReason.NO_MEMORY)]


_MEMBERS_FIRST = (Pool.MEMBERS, Pool.LITTLE, Pool.MODEST, Pool.LARGE)
_LITTLE_FIRST = (Pool.LITTLE, Pool.MODEST, Pool.LARGE)
_MODEST_FIRST = (Pool.MODEST, Pool.LARGE)
_LARGE_ONLY = (Pool.LARGE,)
