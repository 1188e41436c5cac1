"""Whether the disk of a log dir has room for more records.

Owns the limit. A full disk takes its log dir offline (A-20) and with it every replica there, so records are
refused before: those of clients while less than the least free space would be left, copies of what a leader
has taken while less than half of it would. The rest is for what keeps a broker running: checkpoints, indexes,
the metadata log.
"""

#: A dir that was short has room again with so many times the least free space: leaderships that come and go
#: with each deleted segment would cost more than they give.
AMPLE_FACTOR = 2


class FreeSpace:
    """Free bytes of one log dir: as measured last, without what was appended since."""

    __slots__ = ("_has_refused", "free_bytes", "is_short", "min_free_bytes", "total_bytes")

    def __init__(self, min_free_bytes: int = 0) -> None:
        #: 0: nothing is refused
        self.min_free_bytes = min_free_bytes
        #: None until it was measured
        self.free_bytes: int | None = None
        self.total_bytes: int | None = None
        #: records of clients were refused, and there is not ample room again: others should lead
        self.is_short = False
        #: records of clients were refused since the disk was asked last
        self._has_refused = False

    def measured(self, free_bytes: int, total_bytes: int) -> bool:
        """The disk was asked. True when records of clients are refused from now on, or are taken again."""
        was_low = self.is_low
        self.free_bytes, self.total_bytes = free_bytes, total_bytes
        # What is refused is not taken: records of clients alone never bring the disk below the limit.
        was_refusing, self._has_refused = self.is_short or self._has_refused, False
        self.is_short = self.is_low or (
            was_refusing and not self._leaves(0, self.min_free_bytes * AMPLE_FACTOR)
        )
        return self.is_low is not was_low

    def took(self, size_bytes: int) -> None:
        """So many bytes were appended."""
        if self.free_bytes is not None:
            self.free_bytes -= size_bytes

    @property
    def is_low(self) -> bool:
        """Records of clients are refused."""
        return not self._leaves(0, self.min_free_bytes)

    def has_room(self, size_bytes: int) -> bool:
        """True when so many bytes of a client may be appended."""
        has_room = self._leaves(size_bytes, self.min_free_bytes)
        self._has_refused = self._has_refused or not has_room
        return has_room

    def has_room_for_copy(self, size_bytes: int) -> bool:
        """True when so many bytes of a leader may be appended."""
        return self._leaves(size_bytes, self.min_free_bytes // 2)

    def _leaves(self, size_bytes: int, limit: int) -> bool:
        return self.free_bytes is None or not limit or self.free_bytes - size_bytes >= limit

    def why_not(self, path: str) -> str:
        """A sentence for the one who is refused."""
        return (
            f"log dir {path} has {self.free_bytes} bytes left; records are refused below "
            f"holdfast.log.dirs.min.free.bytes ({self.min_free_bytes}); make room, and retry"
        )
