"""A follower's progress as its leader knows it: position, incarnation, and since when it lags.

`broker.core.replicas.partition` owns the rules of the ISR. Starts empty in every leader epoch (R54): only
fetches of this epoch prove what a follower holds (A-5). `position` is what counts for the high watermark: the
follower's log end, or its flushed offset where every write is flushed.
"""


class ReplicaProgress:
    """Progress of one follower in the current leader epoch."""

    __slots__ = (
        "_grace_from_ms",
        "_leader_position_at_fetch",
        "last_fetch_ms",
        "broker_epoch",
        "is_silent",
        "last_caught_up_ms",
        "log_start_offset",
        "position",
        "replica_id",
    )

    def __init__(self, replica_id: int, grace_from_ms: int | None) -> None:
        #: broker id of the follower
        self.replica_id = replica_id
        #: end (exclusive) of what it holds, as counted for the high watermark; -1 before its first fetch in
        #: this epoch
        self.position = -1
        #: where its log begins, durably; -1 while unknown
        self.log_start_offset = -1
        #: broker epoch of its last fetch, -1 while unknown
        self.broker_epoch = -1
        #: when it last held all that the leader held; None for never in this epoch
        self.last_caught_up_ms: int | None = None
        #: proposed out of the ISR for its silence (R115), and not heard since
        self.is_silent = False
        #: start of the grace period: an ISR member has the lag time from there to catch up
        self._grace_from_ms = grace_from_ms
        self._leader_position_at_fetch = -1
        self.last_fetch_ms = 0

    def fetched(self, position: int, broker_epoch: int, leader_position: int, now_ms: int) -> None:
        """Record a fetch that matched the leader's log. The follower is caught up now if it has everything,
        and was at its previous fetch if it has what the leader had then. What an earlier incarnation held
        proves nothing: a restart may have cost the tail."""
        if broker_epoch != self.broker_epoch and self.broker_epoch >= 0:
            self.last_caught_up_ms = None
            self._leader_position_at_fetch = -1
        if position >= leader_position:
            self.last_caught_up_ms = now_ms
        elif position >= self._leader_position_at_fetch >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self.last_fetch_ms)
        self.position = position
        self.is_silent = False
        self.broker_epoch = broker_epoch
        self._leader_position_at_fetch = leader_position
        self.last_fetch_ms = now_ms

    def leader_moved(self, previous_leader_position: int, now_ms: int) -> None:
        """The leader's position has grown: a follower that had everything was caught up until now."""
        if self.position >= previous_leader_position:
            self.last_caught_up_ms = now_ms

    def is_caught_up(self, leader_position: int, now_ms: int, lag_ms_max: int) -> bool:
        """True when it has everything, or had within the last `lag_ms_max`."""
        if self.position >= leader_position:
            return True
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_ms_max

    def has_owed_since(self, since_ms: int) -> bool:
        """It has fetched in this epoch, or could have since then at the latest."""
        return self.position >= 0 or self._grace_from_ms is None or self._grace_from_ms <= since_ms

    def may_stay(self, leader_position: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether an ISR member keeps up well enough to stay (R51)."""
        if self._grace_from_ms is not None and now_ms - self._grace_from_ms <= lag_ms_max:
            return True
        return self.is_caught_up(leader_position, now_ms, lag_ms_max)
