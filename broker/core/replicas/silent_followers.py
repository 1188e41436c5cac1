"""Which followers have asked for nothing for too long, while other followers ask (R115).

A paused process or a lost host keeps its session for seconds, and as a member of the ISR it holds back the
high watermark of each partition that it follows. Its leaders notice earlier: it owes them a fetch. Owns the
silence and how much of it is tolerated; `broker.core.replicas.partition` decides who is proposed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

#: A follower that was dropped, came back and falls silent again within so long gets twice the time.
FORGIVEN_AFTER_MS = 600_000
#: Looks at the followers within one tolerated silence.
_LOOKS = 6


@dataclass(frozen=True, slots=True)
class Silence:
    """What a look at the followers has found."""

    #: ids that have been silent for as long as they may be
    silent: frozenset[int]
    #: ids that have asked a moment ago, or whose request is with the leader
    heard: frozenset[int]
    #: who has not fetched in a leader epoch yet owes a fetch when that epoch began before this, in ms
    since_ms: int = 1 << 62


@dataclass(slots=True)
class _Drops:
    count: int = 0
    last_ms: int = 0
    #: the silence that led to the last drop, by when it began
    quiet_since_ms: int = -1


class SilentFollowers:
    """Counts the silence of followers in the time that this broker itself was awake."""

    def __init__(self, silent_ms: int, lag_ms_max: int, now_ms: int) -> None:
        """`silent_ms`: tolerated silence, 0 for any; `lag_ms_max`: where the lag time decides anyway."""
        self._silent_ms = silent_ms
        self._lag_ms_max = lag_ms_max
        self._interval_ms = max(1, silent_ms // _LOOKS)
        self._looked_ms = now_ms
        #: silence before this is not counted: this broker has slept itself
        self._counted_from_ms = now_ms
        self._drops: dict[int, _Drops] = {}

    def next_deadline_ms(self) -> int | None:
        """When to look next; None for never."""
        return self._looked_ms + self._interval_ms if self._silent_ms else None

    def look(self, quiet_since_ms: Mapping[int, int | None], now_ms: int) -> Silence | None:
        """Who is silent; None when it is not time yet or no follower is. `quiet_since_ms`: {follower: when it
        got its last answer, None while its request waits here}."""
        if not self._silent_ms or now_ms < self._looked_ms + self._interval_ms:
            return None
        if now_ms - self._looked_ms > 2 * self._interval_ms:
            # This process got no time: requests may lie unread, and all followers look silent.
            self._counted_from_ms = now_ms
        self._looked_ms = now_ms
        silent: set[int] = set()
        heard: set[int] = set()
        for replica_id, since_ms in quiet_since_ms.items():
            quiet_ms = 0 if since_ms is None else now_ms - max(since_ms, self._counted_from_ms)
            if since_ms is not None and quiet_ms >= self._tolerated_ms(replica_id, since_ms, now_ms):
                silent.add(replica_id)
            elif quiet_ms <= self._interval_ms:
                heard.add(replica_id)
        return Silence(frozenset(silent), frozenset(heard), now_ms - self._silent_ms) if silent else None

    def _tolerated_ms(self, replica_id: int, since_ms: int, now_ms: int) -> int:
        drops = self._drops.get(replica_id)
        if drops is None or now_ms - drops.last_ms > FORGIVEN_AFTER_MS:
            return self._silent_ms
        # Further partitions of the same silence do not wait once more.
        count = drops.count - 1 if drops.quiet_since_ms == since_ms else drops.count
        return min(self._silent_ms << min(count, 16), self._lag_ms_max)

    def dropped(self, replica_id: int, since_ms: int | None, now_ms: int) -> None:
        """A proposal leaves it out for its silence since then."""
        drops = self._drops.setdefault(replica_id, _Drops())
        if since_ms is None or drops.quiet_since_ms == since_ms:
            return
        if now_ms - drops.last_ms > FORGIVEN_AFTER_MS:
            drops.count = 0
        drops.count += 1
        drops.last_ms = now_ms
        drops.quiet_since_ms = since_ms
