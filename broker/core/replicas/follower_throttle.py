"""The follower's side of the replication throttle: which followed partitions wait for the rate.

Owns the rows that wait, in the order in which they began to. Only a replica that no write waits for may: the
leader's side is in `broker.core.requests.fetch_path`, the rate itself in `replication_quota`.
"""

from holdfast.broker.core.replicas.followed_row import FollowedRow, RowState
from holdfast.broker.core.replicas.replication_quota import ReplicationQuota
from holdfast.metadata.ids import PartitionId


class RequestWindow:
    """Bytes that the throttled rows of one request may still ask for together."""

    __slots__ = ("_left_bytes",)

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @property
    def is_used_up(self) -> bool:
        """No further throttled row belongs in this request."""
        return self._left_bytes <= 0

    def take(self, max_bytes: int) -> int:
        """What a row may ask for that would ask for `max_bytes`."""
        taken = min(max_bytes, self._left_bytes)
        self._left_bytes -= taken
        return taken


class FollowerThrottle:
    """Of one broker, for all that it fetches."""

    def __init__(self, quota: ReplicationQuota) -> None:
        self.quota = quota
        #: rows that wait
        self._held: dict[PartitionId, FollowedRow] = {}

    def may_wait(self, row: FollowedRow) -> bool:
        """The replica is throttled and no write waits for it: it is not in the ISR, and ends below the high
        watermark, so that the leader does not count it for the ISR that it proposes either (R50)."""
        partition = row.partition
        if not row.is_behind or not self._is_throttled(row):
            return False
        registration = partition.registration
        return registration is None or partition.broker_id not in registration.isr

    def _is_throttled(self, row: FollowedRow) -> bool:
        partition = row.partition
        return self.quota.is_throttled(partition.topic_name, partition.key.partition_index)

    def fetched(self, row: FollowedRow, size_bytes: int, now_ms: int) -> None:
        """An answer had so many bytes of this partition."""
        if self._is_throttled(row):
            self.quota.count(size_bytes, now_ms)

    def hold_back(self, ready: dict[PartitionId, FollowedRow], now_ms: int) -> None:
        """While the rate is exceeded, take the rows that may wait from those that are to be listed."""
        if not self.quota.is_exceeded(now_ms):
            return
        for key, row in list(ready.items()):
            if self.may_wait(row):
                del ready[key]
                row.state = RowState.HELD
                self._held[key] = row
                self.quota.wait_count += 1

    def release(self, key: PartitionId) -> FollowedRow | None:
        """The row waits no longer; None when it did not."""
        return self._held.pop(key, None)

    def release_all(self) -> list[FollowedRow]:
        """No row waits any longer; those that did."""
        held, self._held = self._held, {}
        return list(held.values())

    def is_over(self, now_ms: int) -> bool:
        """Rows wait, and the rate is not exceeded any more."""
        return bool(self._held) and not self.quota.is_exceeded(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When the wait ends, None when no row waits."""
        return self.quota.resume_ms if self._held else None

    def window(self) -> RequestWindow | None:
        """For the throttled rows of one request; None while no replica is throttled."""
        return RequestWindow(self.quota.request_bytes_max) if self.quota.is_on else None
