"""Files and folders twice, as the page cache and as the platter has them; and what a power cut leaves.

Owns the *personalities* of file systems: P1 to P5 as seen on real ones, P6 the worst
within the rules; P7 breaks them (a flush that lied) and is over the fault budget. Knows no paths, no times
and no other faults.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from holdfast.sim.machine.choices import Stream

PAGE_BYTES = 4096
_SECTOR_BYTES = 512


class Personality(Enum):
    """What a power cut leaves of what was not flushed."""

    STRICT = "P0"
    #: the size may have grown past the data, with zeros
    EXT4 = "P1"
    #: full length, a gap of zeros in the middle, good pages behind it
    NODELALLOC = "P2"
    #: names are kept though their data is not: an empty file under the final name
    XFS = "P3"
    #: everything is kept
    JOURNALLED = "P4"
    #: names and truncations kept, data lost
    METADATA = "P5"
    #: sectors of the tail in any choice, garbage; names of each folder up to any point
    ADVERSARIAL = "P6"
    #: some flushes have lied
    LYING = "P7"


@dataclass(frozen=True, slots=True, eq=False)
class WriteBack:
    """Bytes on their way to the platter."""

    start: int
    dirty: bytes


class SimInode:
    """One file's bytes, in the page cache and on the platter."""

    __slots__ = ("cached", "clean_size", "durable", "lied_size", "low_size", "_writing")

    def __init__(self) -> None:
        self.cached = bytearray()
        self.durable = bytearray()
        #: cached bytes below this need no write-back
        self.clean_size = 0
        #: how far truncations have cut since the last write-back; None: not at all
        self.low_size: int | None = None
        #: P7: durable bytes from here on were promised and not written; None: no lie
        self.lied_size: int | None = None
        #: write-backs under way, oldest first
        self._writing: list[WriteBack] = []

    def copied(self) -> "SimInode":
        """The same bytes, as processes see them, all durable."""
        made = SimInode()
        made.cached, made.durable = bytearray(self.cached), bytearray(self.cached)
        made.clean_size = len(self.cached)
        return made

    def truncate(self, size: int) -> None:
        del self.cached[size:]
        self.clean_size = min(self.clean_size, size)
        self.low_size = size if self.low_size is None else min(self.low_size, size)

    def start_write_back(self) -> "WriteBack":
        """The dirty bytes and where they belong, as they are now (A-21)."""
        start = self.clean_size
        begun = WriteBack(start, bytes(memoryview(self.cached)[start:]))
        self.clean_size = len(self.cached)
        self.low_size = None
        self._writing.append(begun)
        return begun

    def finish_write_back(self, begun: "WriteBack", *, is_lie: bool) -> None:
        """It is durable, and so is what was under way before it: a flush waits for that."""
        while True:
            earlier = self._writing.pop(0)
            if is_lie and self.lied_size is None and earlier.dirty:
                self.lied_size = earlier.start
            _write_back(self.durable, earlier)
            if earlier is begun:
                return

    def drop_write_back(self, begun: "WriteBack") -> None:
        """It failed: its pages count as clean and were not written."""
        self._writing.remove(begun)

    @property
    def has_dropped_pages(self) -> bool:
        """Bytes count as clean, and are neither on the platter nor on their way there."""
        clean, durable = min(self.clean_size, len(self.cached)), self.durable
        if self._writing:
            durable = bytearray(durable)
            for begun in self._writing:
                _write_back(durable, begun)
        return durable[:clean] != self.cached[:clean]

    def drop_clean(self) -> None:
        """The page cache reads the file anew, once nothing is dirty; holes read as zeros."""
        self.cached = self.durable + bytes(len(self.cached) - len(self.durable))
        self.clean_size = len(self.cached)

    def is_under_way(self, begun: "WriteBack") -> bool:
        """False once a later flush, or a power cut, has ended it."""
        return any(one is begun for one in self._writing)

    def lose_power(self, personality: Personality, stream: Stream) -> None:
        """Keep what a power cut leaves; the page cache starts from that."""
        kept = self._kept(personality, stream)
        self.cached = bytearray(kept)
        self.durable = bytearray(kept)
        self.clean_size = len(kept)
        self.low_size = None
        self.lied_size = None
        self._writing.clear()

    def _kept(self, personality: Personality, stream: Stream) -> bytes | bytearray:
        durable, cached = self.durable, self.cached
        if personality is Personality.JOURNALLED:
            return cached
        if personality is Personality.LYING and self.lied_size is not None:
            return durable[: self.lied_size]
        is_cut = personality in (Personality.EXT4, Personality.XFS, Personality.METADATA) or (
            personality is Personality.ADVERSARIAL and stream.draw(2) == 1
        )
        if self.low_size is not None and is_cut:
            # The truncation was metadata and reached the journal.
            durable = durable[: min(len(durable), self.low_size)]
        tail = cached[len(durable) :] if cached[: len(durable)] == durable else b""
        if not tail:
            return durable
        if personality is Personality.EXT4:
            return durable + bytes(stream.draw(len(tail) + 1))
        if personality is Personality.NODELALLOC:
            return durable + _with_gap(tail, stream)
        if personality is Personality.ADVERSARIAL:
            return durable + _torn(tail, len(durable), stream)
        return durable


def _write_back(durable: bytearray, begun: WriteBack) -> None:
    if len(durable) < begun.start:  # pages that a failed flush has dropped
        durable.extend(bytes(begun.start - len(durable)))
    durable[begun.start :] = begun.dirty


def _with_gap(tail: bytes | bytearray, stream: Stream) -> bytearray:
    """All of it, but for some pages of zeros."""
    kept = bytearray(tail)
    pages = (len(tail) + PAGE_BYTES - 1) // PAGE_BYTES
    first = stream.draw(pages + 1)
    count = stream.draw(pages + 1 - first) + 1
    start, end = first * PAGE_BYTES, min(len(kept), (first + count) * PAGE_BYTES)
    if start < end:
        kept[start:end] = bytes(end - start)
    return kept


def _torn(tail: bytes | bytearray, position: int, stream: Stream) -> bytearray:
    """Up to any length, each sector of it good, zero or garbage."""
    kept = bytearray(tail[: stream.draw(len(tail) + 1)])
    start = 0
    while start < len(kept):
        end = min(len(kept), start + _SECTOR_BYTES - (position + start) % _SECTOR_BYTES)
        fate = stream.draw(8)
        if fate == 6:
            kept[start:end] = bytes(end - start)
        elif fate == 7:
            kept[start:end] = bytes((byte * 31 + 7) & 255 for byte in kept[start:end])
        start = end
    return kept


class SimFolder:
    """Names as processes see them, as they would be found, and the changes between, in order."""

    __slots__ = ("cached", "durable", "pending")

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[str, Node | None]] = []

    def set(self, name: str, node: "Node | None") -> None:
        """Give the name to a node, or to none."""
        if node is None:
            self.cached.pop(name, None)
        else:
            self.cached[name] = node
        self.pending.append((name, node))

    def copied(self) -> "SimFolder":
        """The same names and bytes, as processes see them, all durable."""
        made = SimFolder()
        for name, node in self.cached.items():
            made.cached[name] = node.copied()
        made.sync()
        return made

    def sync(self) -> None:
        self.durable = dict(self.cached)
        self.pending.clear()

    def lose_power(self, personality: Personality, stream: Stream) -> None:
        kept = dict(self.durable)
        for name, node in self.pending[: self._kept_changes(personality, stream)]:
            if node is None:
                kept.pop(name, None)
            else:
                kept[name] = node
        self.cached, self.durable = kept, dict(kept)
        self.pending.clear()
        for node in kept.values():
            node.lose_power(personality, stream)

    def _kept_changes(self, personality: Personality, stream: Stream) -> int:
        if personality in (Personality.XFS, Personality.JOURNALLED, Personality.METADATA):
            return len(self.pending)
        if personality in (Personality.ADVERSARIAL, Personality.EXT4):
            return stream.draw(len(self.pending) + 1)
        return 0


Node: TypeAlias = SimInode | SimFolder
