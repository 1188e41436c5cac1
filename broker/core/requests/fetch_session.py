"""The leader's record of a follower's fetch: the rows it waits for, so that a request lists only changes.

One session per follower. A row keeps the position listed last and is open until an answer carries records, a
diverging epoch or an error; then the follower acts and lists it again (N-4). A new high watermark alone
leaves the row open: it goes out with the next answer, or after `HIGH_WATERMARK_LINGER_MS`. Never touches a
partition: its owner reports what changed, and it says which rows are due.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from holdfast.broker.core.replicas.divergence import Refusal

#: Sessions that a follower may have counted since the last one that came here. A number further away is no
#: honest follower's: taken, it would void all that the follower counts from then on.
SESSION_JUMP_MAX = 1 << 40
#: Longest time in ms that a parked fetch delays a higher high watermark.
HIGH_WATERMARK_LINGER_MS = 50

T = TypeVar("T", bound=Hashable)


class SessionRow(Generic[T]):
    """One partition of a session."""

    __slots__ = (
        "fetch_offset",
        "is_omitted",
        "is_open",
        "key",
        "leader_epoch",
        "max_bytes",
        "refusal",
        "sent_high_watermark",
        "session",
        "verify",
    )

    def __init__(self, session: "FollowerSession[T]", key: T) -> None:
        self.session = session
        self.key = key
        self.fetch_offset = -1
        #: leader epoch that the follower fetches in
        self.leader_epoch = -1
        self.max_bytes = 0
        #: why the row as listed gets no records, None when it may get some
        self.refusal: Refusal | None = None
        #: high watermark of the last answer for this row; -1 before the first, or when the follower may have
        #: ignored it
        self.sent_high_watermark = -1
        #: the follower waits for an answer about this row
        self.is_open = False
        #: the last answer had no room for it
        self.is_omitted = False
        #: the follower refused what it was sent from this position
        self.verify = False


class FollowerSession(Generic[T]):
    """What one follower fetches on one connection."""

    __slots__ = (
        "broker_epoch",
        "due_ms",
        "due_rows",
        "held_rows",
        "max_bytes",
        "next_epoch",
        "parked",
        "quiet_since_ms",
        "replica_id",
        "rows",
        "session_id",
        "watermark_rows",
    )

    def __init__(self, replica_id: int, broker_epoch: int, session_id: int, now_ms: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.session_id = session_id
        #: `session_epoch` that the next request must carry
        self.next_epoch = 1
        self.rows: dict[T, SessionRow[T]] = {}
        #: open rows with records, a diverging epoch or an error to send
        self.due_rows: dict[T, SessionRow[T]] = {}
        #: open rows with records to send that wait for their turn in the leader's throttle, in order
        self.held_rows: dict[T, SessionRow[T]] = {}
        #: open rows with a new high watermark to send
        self.watermark_rows: dict[T, SessionRow[T]] = {}
        #: `reply_to` of the unanswered request, None when there is none
        self.parked: object | None = None
        #: when the last request was answered
        self.quiet_since_ms = now_ms
        self.max_bytes = 0
        #: when the parked request is answered at the latest
        self.due_ms = 0

    @property
    def identity(self) -> tuple[int, int]:
        """(broker epoch, session id): rises with every session of a broker, across its incarnations."""
        return self.broker_epoch, self.session_id


class FollowerSessions(Generic[T]):
    """Sessions of all followers, and which rows wait for which partition."""

    __slots__ = ("_by_key", "_sessions", "woken")

    def __init__(self) -> None:
        self._sessions: dict[int, FollowerSession[T]] = {}
        self._by_key: dict[T, dict[int, SessionRow[T]]] = {}
        #: sessions with a parked request and something due, in order; the caller answers them and clears this
        self.woken: dict[FollowerSession[T], None] = {}

    def get(self, replica_id: int) -> FollowerSession[T] | None:
        """The follower's session, None when it has none."""
        return self._sessions.get(replica_id)

    def may_open(self, replica_id: int, broker_epoch: int, session_id: int) -> bool:
        """Whether a session with this identity comes behind the follower's present one. If not, a newer
        connection has overtaken it: what it proves may be lost by now (A-5, N-4)."""
        return (
            broker_epoch >= self._last_epoch(replica_id)
            and 0 < session_id - self.last_session_id(replica_id, broker_epoch) <= SESSION_JUMP_MAX
        )

    def _last_epoch(self, replica_id: int) -> int:
        session = self._sessions.get(replica_id)
        return -1 if session is None else session.broker_epoch

    def last_session_id(self, replica_id: int, broker_epoch: int) -> int:
        """Of the follower's present session in this registration; 0 when it has none."""
        session = self._sessions.get(replica_id)
        return session.session_id if session is not None and session.broker_epoch == broker_epoch else 0

    def open(self, replica_id: int, broker_epoch: int, session_id: int, now_ms: int) -> FollowerSession[T]:
        """Start a session in place of the follower's earlier one."""
        former = self._sessions.get(replica_id)
        if former is not None:
            for key in list(former.rows):
                self.forget(former, key)
            self.woken.pop(former, None)
        session: FollowerSession[T] = FollowerSession(replica_id, broker_epoch, session_id, now_ms)
        self._sessions[replica_id] = session
        return session

    def list_row(
        self, session: FollowerSession[T], key: T, fetch_offset: int, leader_epoch: int, max_bytes: int
    ) -> SessionRow[T]:
        """The follower lists this row: it waits for an answer from here on."""
        row = session.rows.get(key)
        if row is None:
            row = session.rows[key] = SessionRow(session, key)
            self._by_key.setdefault(key, {})[session.replica_id] = row
        if row.is_open or row.fetch_offset == fetch_offset:
            # It listed an open row again, or went no further: it has ignored what was sent meanwhile.
            row.sent_high_watermark = -1
        row.fetch_offset = fetch_offset
        row.leader_epoch = leader_epoch
        row.max_bytes = max_bytes
        row.is_open = True
        return row

    def forget(self, session: FollowerSession[T], key: T) -> None:
        """The follower no longer fetches this partition here."""
        if session.rows.pop(key, None) is None:
            return
        session.due_rows.pop(key, None)
        session.held_rows.pop(key, None)
        session.watermark_rows.pop(key, None)
        rows = self._by_key[key]
        del rows[session.replica_id]
        if not rows:
            del self._by_key[key]

    def rows_of(self, key: T) -> tuple[SessionRow[T], ...]:
        """Rows of all followers of a partition."""
        rows = self._by_key.get(key)
        return tuple(rows.values()) if rows else ()

    def close_row(self, row: SessionRow[T]) -> None:
        """The row was answered, and the follower has to act upon the answer."""
        row.is_open = row.is_omitted = False
        self.nothing_due(row)
        row.session.watermark_rows.pop(row.key, None)

    def nothing_due(self, row: SessionRow[T]) -> None:
        """The row has nothing to be sent now."""
        row.session.due_rows.pop(row.key, None)
        row.session.held_rows.pop(row.key, None)

    def log_grew(self, key: T, log_end_offset: int) -> None:
        """Make the open rows of this partition due that stand below the log end."""
        rows = self._by_key.get(key)
        if rows:
            for row in rows.values():
                if row.is_open and row.fetch_offset < log_end_offset and key not in row.session.held_rows:
                    self.due(row)

    def role_changed(self, key: T) -> None:
        """Make every open row of this partition due: it gets an error or a new leader epoch."""
        for row in self.rows_of(key):
            if row.is_open:
                self.due(row)

    def due(self, row: SessionRow[T]) -> None:
        """Answer this row as soon as the session has a request."""
        session = row.session
        if session.held_rows:
            session.held_rows.pop(row.key, None)
        session.due_rows[row.key] = row
        if session.parked is not None:
            self.woken[session] = None

    def hold(self, row: SessionRow[T]) -> None:
        """Answer this row when it has its turn in the throttle, or after `release`."""
        session = row.session
        session.due_rows.pop(row.key, None)
        session.held_rows[row.key] = row

    def release(self, key: T | None = None) -> None:
        """Make the held rows due, of one partition or of all."""
        for session in self._sessions.values():
            row = None if key is None else session.held_rows.get(key)
            if row is not None:
                self.due(row)
            elif key is None and session.held_rows:
                session.due_rows = session.held_rows | session.due_rows
                session.held_rows = {}
                if session.parked is not None:
                    self.woken[session] = None

    def wake_held(self) -> None:
        """The throttle allows more: the sessions with held rows are to be answered."""
        for session in self._sessions.values():
            if session.held_rows and session.parked is not None:
                self.woken[session] = None

    @property
    def holds_rows(self) -> bool:
        """Some request waits for the throttle."""
        return any(session.held_rows and session.parked is not None for session in self._sessions.values())

    def rows_omitted(self, session: FollowerSession[T], keys: Iterable[T]) -> None:
        """The answer had no room for these: they come first in the next one, so that each has its turn."""
        if self._sessions.get(session.replica_id) is not session:
            return
        rows = [row for row in map(session.rows.get, keys) if row is not None and not row.is_open]
        for row in rows:
            row.is_open = row.is_omitted = True
            row.sent_high_watermark = -1
        session.due_rows = {row.key: row for row in rows} | session.due_rows
        if rows and session.parked is not None:
            self.woken[session] = None

    def high_watermark_moved(self, key: T, high_watermark: int, now_ms: int) -> None:
        """Send it to the followers with their next answer."""
        rows = self._by_key.get(key)
        if not rows:
            return
        for row in rows.values():
            if row.sent_high_watermark == high_watermark or not row.is_open:
                continue
            session = row.session
            session.watermark_rows[key] = row
            session.due_ms = min(session.due_ms, now_ms + HIGH_WATERMARK_LINGER_MS)

    def log_start_moved(self, key: T) -> None:
        """Tell the followers that have nothing else to wait for, at once."""
        for row in self.rows_of(key):
            if row.is_open:
                row.session.watermark_rows[key] = row
                if row.session.parked is not None:
                    self.woken[row.session] = None

    def expire(self, now_ms: int) -> None:
        """Wake the sessions whose parked request has waited long enough."""
        for session in self._sessions.values():
            if session.parked is not None and session.due_ms <= now_ms:
                self.woken[session] = None

    def quiet_since_ms(self) -> dict[int, int | None]:
        """{follower: when it got its last answer; None while its request waits here}."""
        return {
            replica_id: session.quiet_since_ms if session.parked is None else None
            for replica_id, session in self._sessions.items()
        }

    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next."""
        due_ms: int | None = None
        for session in self._sessions.values():
            if session.parked is not None and (due_ms is None or session.due_ms < due_ms):
                due_ms = session.due_ms
        return due_ms
