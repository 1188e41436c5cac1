"""What the leader knows of one replica, and the fetch that it has parked for it.

A fetch proves what the replica holds durably (K11), so progress changes on requests only.
"""

from dataclasses import dataclass

UNKNOWN_OFFSET = -1
#: in place of a time: not yet
NEVER_MS = -1


@dataclass(frozen=True, slots=True)
class ParkedFetch:
    """A fetch without news, answered at its deadline at the latest (K10)."""

    token: int
    fetch_offset: int
    max_bytes: int
    deadline_ms: int


@dataclass(slots=True)
class Progress:
    """Progress of one voter or observer in this leader's epoch."""

    #: the replica's log end as of its last fetch, UNKNOWN_OFFSET before the first
    end_offset: int = UNKNOWN_OFFSET
    #: NEVER_MS before the first fetch
    last_fetch_ms: int = NEVER_MS
    #: the same, or its last fetch of a snapshot, which tells no progress and shows that it is alive (K7)
    heard_ms: int = NEVER_MS
    last_caught_up_ms: int = NEVER_MS
    #: the leader's log end when the last fetch came
    _end_at_last_fetch: int = UNKNOWN_OFFSET
    #: the high watermark in the last answer; a higher one is news
    told_high_watermark: int = UNKNOWN_OFFSET
    parked: ParkedFetch | None = None
    #: False for a voter whose directory is not admitted yet: it makes no majority (K8)
    counts: bool = True
    #: the directory of a voter's last fetch that was refused because the log names another (K8)
    refused_directory: bytes | None = None
    #: the directory of its last fetch, None for a broker
    directory_id: bytes | None = None
    #: since when: what the replica had before, another directory had
    directory_since_ms: int = NEVER_MS
    #: when a broker, which has none, last fetched with this id
    last_broker_ms: int = NEVER_MS
    #: 1: its last fetch said that it has noted that the log may name the voters (K30); -1: an earlier build
    kraft_version: int = -1

    def has_caught_up_since(self, time_ms: int) -> bool:
        """Its present directory had all at that time or later."""
        return self.last_caught_up_ms >= max(time_ms, self.directory_since_ms)

    def fetches_from(self, directory_id: bytes | None, kraft_version: int, now_ms: int) -> None:
        """The replica fetches from this directory."""
        if directory_id != self.directory_id:
            self.directory_since_ms = now_ms
        if directory_id is None:
            self.last_broker_ms = now_ms
        self.directory_id, self.kraft_version = directory_id, kraft_version

    def on_fetch(self, fetch_offset: int, log_end_offset: int, now_ms: int) -> None:
        """The replica fetches from `fetch_offset`, up to which its log equals the leader's.

        It is caught up if it has what the leader had at this fetch, or at the previous one (then as of that).
        """
        if fetch_offset >= log_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms != NEVER_MS and fetch_offset >= self._end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        # A lower offset counts too: a disk may have been replaced, and counting less is always safe.
        self.end_offset = fetch_offset
        self.last_fetch_ms = self.heard_ms = now_ms
        self._end_at_last_fetch = log_end_offset
