"""Sums over a ledger's lines and over a log's records that are equal when nothing is odd.

Each reader adds up 64-bit hashes of what both sides must agree on, by producer. Where every number of a
producer was sent once, was acknowledged once and is in the log once, and the sums are equal, every record is
in its place and as it was sent; other records would have to hit the sums by a chance of 2^-64. So nothing has
to be looked at one by one. Owns the sums; knows nothing of Spark, and never says what is odd.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.durability.arrow import GOOD
from holdfast.durability.even_lines import EvenLines
from holdfast.durability.ledger_lines import COMPLETE, INVOKE, OK

#: Columns of a log's record batches that are looked at, and those that only newer ledgers tell of.
LOG_COLUMNS = ("topic", "partition", "offset", "state", "producer", "pseq", "value_crc32c")
FIELD_COLUMNS = ("timestampMs", "timestampType", "key_crc32c", "headers_crc32c")
_MASK = (1 << 64) - 1
#: What stands for no key, no headers, or a timestamp that the broker has set.
_NONE = -1
#: Numbers that are hashed at a time.
_STEP = 1 << 18
K = TypeVar("K")


class Sums(NamedTuple):
    """Of the lines, or the records, of one producer. Sums of hashes are modulo 2^64."""

    #: lines that are sends, or records
    sends: int
    #: hashes of their numbers
    numbers: int
    #: of number, partition and value
    values: int
    #: of number, partition and offset; of lines: of the answers
    places: int
    #: of number, timestamp, key and headers, where lines tell of them
    fields: int
    #: the rest is of lines alone: sends with acks=all
    acks_all: int = 0
    #: sends that tell their key, headers and timestamp
    with_fields: int = 0
    answers: int = 0
    #: of these, acknowledgements with acks=all
    acked: int = 0
    #: hashes of the answers' numbers
    answered_numbers: int = 0


class Writer(NamedTuple):
    """A producer in one run and topic."""

    run: str
    topic: str
    producer: str


class Extent(NamedTuple):
    """Which numbers and partitions its lines name."""

    first: int
    last: int
    last_partition: int


@dataclass(slots=True)
class LedgerSums:
    """What lines add up to."""

    sums: dict[Writer, Sums] = field(default_factory=dict)
    extents: dict[Writer, Extent] = field(default_factory=dict)

    def add(self, rows: pa.RecordBatch) -> None:
        """Lines in the columns of `ledger_lines.ROWS`: no rows that say something of a file."""
        kinds = _numbers(rows, "kind")
        is_sent, is_answer = kinds != COMPLETE, kinds != INVOKE
        pseqs, partitions = _numbers(rows, "pseq"), _numbers(rows, "partition")
        has_fields = is_sent & pc.is_valid(rows["timestamp_ms"]).to_numpy(zero_copy_only=False)
        is_acked = is_answer & (_numbers(rows, "outcome") == OK)
        numbers = _hashes(pseqs)
        placed = _hashes(partitions, numbers)
        fields = numbers
        for name in ("timestamp_ms", "key_crc32c", "headers_crc32c"):
            fields = _hashes(_numbers(rows, name), fields)
        groups = _Groups([rows["run"], rows["topic"], rows["producer"]])
        sums = groups.summed(
            (
                is_sent,
                _of(is_sent, numbers),
                _of(is_sent, _hashes(_numbers(rows, "value_crc32c"), placed)),
                _of(is_answer, _hashes(_numbers(rows, "offset"), placed)),
                _of(has_fields, fields),
                is_sent & (_numbers(rows, "acks") == -1),
                has_fields,
                is_answer,
                is_acked,
                _of(is_answer, numbers),
            )
        )
        firsts, lasts = groups.reduced(np.minimum, pseqs), groups.reduced(np.maximum, pseqs)
        last_partitions = groups.reduced(np.maximum, partitions)
        for at, (names, one) in enumerate(sums):
            extent = Extent(int(firsts[at]), int(lasts[at]), int(last_partitions[at]))
            self._take(Writer(*names), one, extent)

    def add_even(self, lines: EvenLines) -> None:
        """Lines that were read all at once."""
        sends, answers = lines.sends, lines.answers
        found = dict.fromkeys(Sums._fields, 0)
        if sends:
            numbers = _hashes(sends["pseq"])
            found["sends"] = found["acks_all"] = len(numbers)
            found["numbers"] = _sum(numbers)
            found["values"] = _sum(_hashes(sends["value_crc32c"], _hashes(sends["partition"], numbers)))
            if "timestamp_ms" in sends:
                found["with_fields"] = len(numbers)
                none = np.full(len(numbers), _NONE)
                fields = _hashes(sends["timestamp_ms"], numbers)
                found["fields"] = _sum(_hashes(none, _hashes(sends.get("key_crc32c", none), fields)))
        if answers:
            numbers = _hashes(answers["pseq"])
            found["answers"] = found["acked"] = len(numbers)
            found["answered_numbers"] = _sum(numbers)
            found["places"] = _sum(_hashes(answers["offset"], _hashes(answers["partition"], numbers)))
        all_pseqs = [part["pseq"] for part in (sends, answers) if part]
        extent = Extent(
            min(int(pseqs.min()) for pseqs in all_pseqs),
            max(int(pseqs.max()) for pseqs in all_pseqs),
            max(int(part["partition"].max()) for part in (sends, answers) if part),
        )
        self._take(Writer(lines.run, lines.topic, lines.producer), Sums(**found), extent)

    def take(self, other: "LedgerSums") -> None:
        """Add those of another reader."""
        for writer, sums in other.sums.items():
            self._take(writer, sums, other.extents[writer])

    def _take(self, writer: Writer, sums: Sums, extent: Extent) -> None:
        _add(self.sums, writer, sums)
        before = self.extents.get(writer, extent)
        self.extents[writer] = Extent(
            min(before.first, extent.first),
            max(before.last, extent.last),
            max(before.last_partition, extent.last_partition),
        )

    @property
    def is_settled(self) -> bool:
        """True when of each producer each number from its first to its last was sent once, with acks=all, and
        acknowledged once, and no two runs share a producer's name in a topic."""
        names = {(writer.topic, writer.producer) for writer in self.sums}
        return len(names) == len(self.sums) and all(
            _is_settled(sums, self.extents[writer]) for writer, sums in self.sums.items()
        )

    def is_as(self, log: "LogSums") -> bool:
        """True of a settled ledger whose sends are in the log, each in its place and as it was sent, with
        nothing else."""
        sent = {(writer.topic, writer.producer): sums for writer, sums in self.sums.items()}
        return (
            not log.nameless
            and sent.keys() == log.sums.keys()
            and all(_is_same(sums, log.sums[name]) for name, sums in sent.items())
        )


def _is_settled(sums: Sums, extent: Extent) -> bool:
    count = extent.last - extent.first + 1
    if {sums.sends, sums.acks_all, sums.answers, sums.acked} != {count} or sums.with_fields not in (0, count):
        return False
    each = 0
    for start in range(extent.first, extent.last + 1, _STEP):
        each += _sum(_hashes(np.arange(start, min(start + _STEP, extent.last + 1))))
    return sums.numbers == sums.answered_numbers == each & _MASK


def _is_same(sent: Sums, there: Sums) -> bool:
    return sent[:4] == there[:4] and (sent.with_fields == 0 or sent.fields == there.fields)


@dataclass(slots=True)
class LogSums:
    """What records add up to."""

    #: by topic and producer
    sums: dict[tuple[str, ...], Sums] = field(default_factory=dict)
    #: records without a name: damaged, or of no ledger
    nameless: int = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Records in LOG_COLUMNS, and FIELD_COLUMNS where the ledger tells of them."""
        named = rows.filter(pc.equal(rows["state"], GOOD))
        self.nameless += rows.num_rows - named.num_rows
        if not named.num_rows:
            return
        numbers = _hashes(_numbers(named, "pseq"))
        placed = _hashes(_numbers(named, "partition"), numbers)
        fields: Any = np.zeros(len(numbers), dtype=np.uint64)
        if "key_crc32c" in named.schema.names:
            is_given = _numbers(named, "timestampType") == 0
            fields = _hashes(np.where(is_given, _numbers(named, "timestampMs"), _NONE), numbers)
            for name in ("key_crc32c", "headers_crc32c"):
                fields = _hashes(_numbers(named, name), fields)
        columns: tuple[Any, ...] = (
            np.ones(len(numbers), dtype=np.uint64),
            numbers,
            _hashes(_numbers(named, "value_crc32c"), placed),
            _hashes(_numbers(named, "offset"), placed),
            fields,
        )
        for names, sums in _Groups([named["topic"], named["producer"]]).summed(columns):
            _add(self.sums, names, sums)

    def take(self, other: "LogSums") -> None:
        """Add those of another reader."""
        self.nameless += other.nameless
        for name, sums in other.sums.items():
            _add(self.sums, name, sums)


def _add(found: dict[K, Sums], name: K, sums: Sums) -> None:
    before = found.get(name)
    found[name] = (
        sums if before is None else Sums(*(one + two & _MASK for one, two in zip(before, sums, strict=True)))
    )


# --- columns of numbers --------------------------------------------------------------------------------


def _numbers(rows: pa.RecordBatch, name: str) -> Any:
    column = rows[name]
    if column.null_count:
        column = pc.fill_null(column, _NONE)
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _of(mask: Any, hashes: Any) -> Any:
    return np.where(mask, hashes, np.uint64(0))


def _sum(hashes: Any) -> int:
    return int(hashes.sum())


def _hashes(values: Any, seeds: Any = None) -> Any:
    """A 64-bit hash of each value and its seed, by the finalizer of splitmix64."""
    found = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    if seeds is not None:
        found += seeds
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


class _Groups:
    """Rows with the same names, to be added up."""

    def __init__(self, columns: Sequence[Any]) -> None:
        self._texts = []
        codes: Any = 0
        for column in columns:
            encoded = column.dictionary_encode()
            texts = encoded.dictionary.to_pylist()
            codes = codes * len(texts) + encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            self._texts.append(texts)
        #: None: all rows are of one group
        self._order = None if max(map(len, self._texts)) == 1 else np.argsort(codes, kind="stable")
        codes = codes if self._order is None else codes[self._order]
        self._starts = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1))
        self._codes = codes[self._starts].tolist()

    def reduced(self, how: Any, values: Any) -> Any:
        """One value a group."""
        return how.reduceat(values if self._order is None else values[self._order], self._starts)

    def summed(self, columns: Iterable[Any]) -> Iterator[tuple[tuple[str, ...], Sums]]:
        """(names, sums) of each group, in the order of `reduced`."""
        made = [self.reduced(np.add, column.astype(np.uint64, copy=False)).tolist() for column in columns]
        for at, code in enumerate(self._codes):
            yield self._names(code), Sums(*(column[at] for column in made))

    def _names(self, code: int) -> tuple[str, ...]:
        found = []
        for texts in reversed(self._texts):
            code, place = divmod(code, len(texts))
            found.append(texts[place])
        return tuple(reversed(found))
