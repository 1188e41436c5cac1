"""What the leader knows of one follower: how far it has come, in which incarnation, and since when it lags.

Owns no rule about the ISR (`broker.core.replicas.partition` does). Starts empty in every leader epoch (R54):
what a follower holds is proven by its own fetches in this epoch only (A-5). `position` is what counts for the
high watermark: the follower's log end, or its flushed end where every write is flushed (D6).
"""


class ReplicaProgress:
    """Progress of one follower in the present leader epoch."""

    __slots__ = (
        "_grace_from_ms",
        "_leader_position_at_fetch",
        "_last_fetch_ms",
        "broker_epoch",
        "last_caught_up_ms",
        "position",
        "replica_id",
    )

    def __init__(self, replica_id: int, grace_from_ms: int | None) -> None:
        #: broker id of the follower
        self.replica_id = replica_id
        #: end (exclusive) of what it has, as counted for the high watermark; -1 until it has fetched in
        #: this epoch
        self.position = -1
        #: broker epoch of its last fetch, -1 while unknown
        self.broker_epoch = -1
        #: when it last had all that the leader had; None for never in this epoch
        self.last_caught_up_ms: int | None = None
        #: a member of the ISR at the beginning of the epoch has the whole lag time from there to catch up
        self._grace_from_ms = grace_from_ms
        self._leader_position_at_fetch = -1
        self._last_fetch_ms = 0

    def fetched(self, position: int, broker_epoch: int, leader_position: int, now_ms: int) -> None:
        """Take note of a fetch that matched the leader's log. It counts as caught up now when it has all,
        and as of its previous fetch when it has what the leader had then. What another incarnation had says
        nothing: a restart may have cost the tail."""
        if broker_epoch != self.broker_epoch and self.broker_epoch >= 0:
            self.last_caught_up_ms = None
            self._leader_position_at_fetch = -1
        if position >= leader_position:
            self.last_caught_up_ms = now_ms
        elif position >= self._leader_position_at_fetch >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms or 0, self._last_fetch_ms)
        self.position = position
        self.broker_epoch = broker_epoch
        self._leader_position_at_fetch = leader_position
        self._last_fetch_ms = now_ms

    def leader_moved(self, previous_leader_position: int, now_ms: int) -> None:
        """The leader's end has grown: a follower that had all until now was caught up until now."""
        if self.position >= previous_leader_position:
            self.last_caught_up_ms = now_ms

    def is_caught_up(self, leader_position: int, now_ms: int, lag_ms_max: int) -> bool:
        """True when it has all, or had all within the last `lag_ms_max`."""
        if self.position >= leader_position:
            return True
        return self.last_caught_up_ms is not None and now_ms - self.last_caught_up_ms <= lag_ms_max

    def may_stay(self, leader_position: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether a member of the ISR keeps up well enough to remain one (R51)."""
        if self._grace_from_ms is not None and now_ms - self._grace_from_ms <= lag_ms_max:
            return True
        return self.is_caught_up(leader_position, now_ms, lag_ms_max)
