"""Lines of ledger files as Arrow rows, and every line that is not one, with its file and number.

Parses with Arrow's JSON reader and looks at each column once; only a block in which something is wrong is
looked at line by line, as `durability.ledger_files` says. Knows nothing of Spark and nothing of what a send's
lines say together.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from holdfast.durability.arrow_ledger import (
    ROW_SCHEMA,
    Batch,
    CutTail,
    DamagedBatch,
    as_rows,
    place_in,
    read_batches,
)
from holdfast.durability.even_lines import EvenLines, read_even_lines
from holdfast.durability.foreign_lines import PRODUCER, RUN, ForeignRow, foreign_row
from holdfast.durability.ledger_files import (
    CRC_MAX,
    FIELDS,
    OPTIONAL_CRCS,
    OUTCOMES,
    is_arrow,
    is_cut,
    is_packed,
    opened,
    problem_of,
    problem_of_row,
)

#: What a row is: an `invoke` line, a `complete` line, or such a pair of one send. Rows of the last three
#: kinds say something of the file, in column `run`.
INVOKE, COMPLETE, PAIR, TORN, PROBLEM, TOPIC_ID, ORDER = 1, 2, 3, 4, 5, 6, 7
#: What a row holds of `outcome`: its place in OUTCOMES, counted from 1.
OK, OK1, INFO, FAIL = 1, 2, 3, 4

ROWS = pa.schema(
    [
        ("kind", pa.int32()),
        ("run", pa.string()),
        ("producer", pa.string()),
        ("pseq", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("value_crc32c", pa.int64()),
        ("acks", pa.int32()),
        ("outcome", pa.int32()),
        ("offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("t0", pa.int64()),
        ("t1", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key_crc32c", pa.int64()),
        ("headers_crc32c", pa.int64()),
    ]
)
_PARSE = pyarrow.json.ParseOptions(explicit_schema=ROW_SCHEMA, unexpected_field_behavior="ignore")
_KINDS = pa.array(["invoke", "complete"])
_WORDS = pa.array(OUTCOMES)
#: columns that an `invoke` line has; the others are a `complete` line's
_OF_A_SEND = frozenset(
    (
        *("run", "producer", "pseq", "topic", "partition", "value_crc32c", "acks", "t0"),
        *("timestamp_ms", "key_crc32c", "headers_crc32c"),
    )
)
_SHOWN_CHARS = 120
#: Rows of Arrow batches that are looked at together.
_ROWS_AT_A_TIME = 1 << 17
#: Bytes that are parsed at a time.
BLOCK_BYTES = 8 << 20
#: Files up to this are parsed together: a block costs as much as some thousand lines.
_FEW_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """Lines that begin in bytes [start, end) of a file; of a packed file always all of them."""

    path: str
    start: int
    end: int
    #: lines with another run belong to another ledger; None: the file has no first line yet
    run: str | None = None
    #: lines of another client (durability.foreign_lines)
    is_foreign: bool = False


class SendOrder(NamedTuple):
    """The answered sends of one producer to one partition in one block, or some that follow each other."""

    producer: str
    topic: str
    partition: int
    first_pseq: int
    last_pseq: int
    lowest_offset: int
    highest_offset: int
    #: each has a higher offset than those before it
    rises: bool


def surely_in_order(texts: Iterable[str]) -> bool:
    """True when rows of kind ORDER say that later sends have higher offsets, in each block and from block to
    block. False says nothing: blocks may lie over each other."""
    found: dict[tuple[str, str, int], list[SendOrder]] = {}
    for text in texts:
        for order in (SendOrder(*row) for row in json.loads(text)):
            found.setdefault(order[:3], []).append(order)
    return all(
        all(order.rises for order in orders)
        and all(
            before.last_pseq < after.first_pseq and before.highest_offset < after.lowest_offset
            for before, after in pairwise(sorted(orders, key=lambda order: order.first_pseq))
        )
        for orders in found.values()
    )


@dataclass(slots=True)
class _Seen:
    """How a range is read, and what is said of it when its rows have been."""

    #: lines of one send become one row where that is easy to see
    pairs: bool = True
    #: (topic, topic id)
    topic_ids: set[tuple[str, str]] = field(default_factory=set)
    #: {producer, topic and partition: blocks of them, of which none begins where the one before it ends}
    orders: dict[tuple[str, str, int], list[SendOrder]] = field(default_factory=dict)

    def take_orders(self, orders: Iterable[SendOrder]) -> None:
        """Those of a further block."""
        for order in orders:
            found = self.orders.setdefault(order[:3], [order])
            before = found[-1]
            if before is order:
                continue
            follows = before.last_pseq < order.first_pseq and before.highest_offset < order.lowest_offset
            if before.rises and order.rises and follows:
                found[-1] = before._replace(last_pseq=order.last_pseq, highest_offset=order.highest_offset)
            else:
                found.append(order)


def read_rows(ranges: Iterable[LedgerRange]) -> Iterator[pa.RecordBatch]:
    """The rows of these ranges in the columns of ROWS. Raises: OSError."""
    seen = _Seen()
    few, others = _few_and_others(ranges)
    yield from _rows_of_few(few, seen)
    for wanted in others:
        if is_arrow(wanted.path):
            yield from _arrow_rows(wanted, seen)
            continue
        for block in _blocks(wanted):
            if isinstance(block, str):
                yield _said(PROBLEM, [block])
            elif wanted.is_foreign:
                yield from _foreign_rows(wanted, block, seen)
            else:
                yield from _rows_of(wanted, block, seen)
    yield from _remarks(seen)


def read_lines(ranges: Iterable[LedgerRange]) -> Iterator[EvenLines | pa.RecordBatch]:
    """The same, with blocks of undisturbed lines as they are. Raises: OSError."""
    seen = _Seen(pairs=False)
    few, others = _few_and_others(ranges)
    yield from _rows_of_few(few, seen)
    for wanted in others:
        if is_arrow(wanted.path):
            yield from _arrow_rows(wanted, seen)
            continue
        for block in _blocks(wanted):
            lines = None if isinstance(block, str) else read_even_lines(block.data)
            if isinstance(block, str):
                yield _said(PROBLEM, [block])
            elif lines is None or lines.run != wanted.run:
                yield from _rows_of(wanted, block, seen)
            else:
                seen.topic_ids |= {(lines.topic, topic_id) for topic_id in lines.topic_ids}
                count = len(lines.answers["pseq"]) if lines.answers else 0
                names = {"producer": pa.repeat(lines.producer, count), "topic": pa.repeat(lines.topic, count)}
                seen.take_orders(_orders(pa.table(names | lines.answers)) if count else [])
                yield lines
    yield from _remarks(seen)


def _remarks(seen: "_Seen") -> Iterator[pa.RecordBatch]:
    if seen.orders:
        yield _said(ORDER, [json.dumps([order for found in seen.orders.values() for order in found])])
    if seen.topic_ids:
        ids = sorted(seen.topic_ids)
        yield _said(TOPIC_ID, [topic_id for _, topic_id in ids], [topic for topic, _ in ids])


# --- bytes -> blocks of whole lines --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    data: bytes
    #: where it begins in the unpacked file
    start: int
    #: the file ends behind it, and not with a line end
    is_cut: bool


def _blocks(wanted: LedgerRange) -> Iterator[_Block | str]:
    """Blocks of whole lines; a sentence where packed bytes cannot be read on."""
    end = None if is_packed(wanted.path) else wanted.end
    with opened(wanted.path) as file:
        position = wanted.start
        if position > 0:  # the line that is under way here belongs to the range before
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while end is None or position < end:
            try:
                data = file.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - position))
                rest = b"" if data.endswith(b"\n") else file.readline()
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                yield f"{wanted.path}: cannot be unpacked from byte {position} of its text on: {error}"
                return
            data += rest
            if not data:
                return
            yield _Block(data, position, is_cut=not data.endswith(b"\n"))
            position += len(data)


# --- small files together ------------------------------------------------------------------------------


def _few_and_others(ranges: Iterable[LedgerRange]) -> tuple[list[LedgerRange], list[LedgerRange]]:
    """(whole files of few lines, the rest)."""
    few: list[LedgerRange] = []
    others: list[LedgerRange] = []
    for wanted in ranges:
        is_few = wanted.run is not None and wanted.start == 0 and wanted.end <= _FEW_BYTES
        is_plain = not (wanted.is_foreign or is_arrow(wanted.path) or is_packed(wanted.path))
        (few if is_few and is_plain else others).append(wanted)
    return few, others


def _rows_of_few(files: Iterable[LedgerRange], seen: _Seen) -> Iterator[pa.RecordBatch]:
    """Blocks of files of one run that follow each other, as far as they are sound."""
    waiting: list[tuple[LedgerRange, _Block]] = []
    held = 0
    for wanted in files:
        if waiting and (waiting[0][0].run != wanted.run or held >= BLOCK_BYTES):
            yield from _rows_together(waiting, seen)
            waiting, held = [], 0
        for block in _blocks(wanted):
            assert not isinstance(block, str), "only packed files cannot be unpacked"
            if block.is_cut:
                yield from _rows_of(wanted, block, seen)
                continue
            waiting.append((wanted, block))
            held += len(block.data)
    if waiting:
        yield from _rows_together(waiting, seen)


def _rows_together(few: list[tuple[LedgerRange, _Block]], seen: _Seen) -> Iterator[pa.RecordBatch]:
    """The rows of blocks of one run; where something is wrong, of one after another."""
    lines = _sound_lines(b"".join(block.data for _, block in few), few[0][0].run)
    if lines is not None:
        yield from _converted(lines, seen)
        return
    for wanted, block in few:
        yield from _rows_of(wanted, block, seen)


# --- blocks -> rows ------------------------------------------------------------------------------------


def _rows_of(wanted: LedgerRange, block: _Block, seen: _Seen) -> Iterator[pa.RecordBatch]:
    lines = _sound_lines(block.data, wanted.run)
    if lines is None:
        yield from _rows_one_by_one(wanted, block, seen)
    else:
        yield from _converted(lines, seen)


def _sound_lines(data: bytes, run: str | None) -> pa.Table | None:
    """The lines, when nothing is wrong with any of them."""
    try:
        data.decode()  # Arrow's reader takes any bytes for text
        lines = _parsed(data)
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return None
    return lines if lines.num_rows == 0 or _is_sound(lines, run) else None


def _parsed(data: bytes) -> pa.Table:
    if not data.strip():
        return ROW_SCHEMA.empty_table()
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    return pyarrow.json.read_json(io.BytesIO(data), read_options=options, parse_options=_PARSE)


def _is_sound(lines: pa.Table, run: str | None) -> bool:
    """True when each line alone says something that can be so."""
    for name in ("run", "producer", "pseq", "topic", "partition"):
        if lines[name].null_count or (FIELDS[name] == 0 and _any(pc.equal(lines[name], ""))):
            return False
    if _any(pc.less(lines["pseq"], 0)) or _any(pc.less(lines["partition"], 0)):
        return False
    if run is not None and _any(pc.not_equal(lines["run"], run)):
        return False
    kinds = pc.index_in(lines["kind"], value_set=_KINDS)
    if kinds.null_count:
        return False
    is_invoke = pc.equal(kinds, INVOKE - 1)
    return _are_sends(lines, is_invoke) and _are_answers(lines, pc.invert(is_invoke))


def _are_sends(lines: pa.Table, mask: Any) -> bool:
    """True of the lines of `mask`: acks and checksum are there and can be so."""
    acks, crcs = lines["acks"], lines["value_crc32c"]
    is_known = pc.fill_null(pc.and_(pc.greater_equal(acks, -1), pc.less_equal(acks, 1)), False)
    is_crc = pc.fill_null(pc.and_(pc.greater_equal(crcs, 0), pc.less_equal(crcs, CRC_MAX)), False)
    if _any(pc.and_not(mask, pc.and_(is_known, is_crc))):
        return False
    has_fields = pc.is_valid(lines["timestamp_ms"])
    for name in OPTIONAL_CRCS:
        column = lines[name]
        if column.null_count == len(column):
            continue
        is_sound = pc.and_(pc.and_(pc.greater_equal(column, 0), pc.less_equal(column, CRC_MAX)), has_fields)
        if _any(pc.and_not(pc.is_valid(column), pc.fill_null(is_sound, False))):
            return False
    return True


def _are_answers(lines: pa.Table, mask: Any) -> bool:
    """True of the lines of `mask`: the outcome is a known one and has an offset if and only if it should."""
    words = pc.index_in(lines["outcome"], value_set=_WORDS)
    offsets = lines["offset"]
    has_offset = pc.fill_null(pc.greater_equal(offsets, 0), False)
    is_ok = pc.fill_null(pc.equal(words, OK - 1), False)
    is_refusal = pc.fill_null(pc.greater(words, OK1 - 1), False)
    for wrong in (
        pc.is_null(words),
        pc.and_not(is_ok, has_offset),
        pc.and_(is_refusal, has_offset),
        pc.fill_null(pc.less(offsets, -1), False),
        pc.fill_null(pc.less(lines["leader_epoch"], -1), False),
    ):
        if _any(pc.and_(mask, wrong)):
            return False
    return True


def _any(mask: Any) -> bool:
    return bool(pc.any(mask).as_py())


def _converted(lines: pa.Table, seen: _Seen) -> Iterator[pa.RecordBatch]:
    if lines.num_rows == 0:
        return
    ids = lines["topic_id"]
    if ids.null_count < len(ids):
        named = lines.select(["topic", "topic_id"]).filter(pc.is_valid(ids)).group_by(["topic", "topic_id"])
        seen.topic_ids |= {(row["topic"], row["topic_id"]) for row in named.aggregate([]).to_pylist()}
    columns = []
    for name in ROWS.names:
        column = lines[name]
        if name in ("kind", "outcome"):
            words = _KINDS if name == "kind" else _WORDS
            column = pc.add(pc.index_in(column, value_set=words), pa.scalar(1, pa.int32()))
        columns.append(column)
    rows = pa.table(columns, schema=ROWS).combine_chunks()
    seen.take_orders(_orders(rows))
    yield from (_paired(rows) if seen.pairs else rows).to_batches()


def _orders(rows: pa.Table) -> list[SendOrder]:
    """The answered sends of a block by producer and partition, which spares a sort of all sends later."""
    answers = rows.filter(pc.fill_null(pc.greater_equal(rows["offset"], 0), False))
    if not len(answers):
        return []
    producers, topics = (pc.unique(answers[name]) for name in ("producer", "topic"))
    of_producer = pc.index_in(answers["producer"], value_set=producers).to_numpy()
    writers = of_producer * len(topics) + pc.index_in(answers["topic"], value_set=topics).to_numpy()
    pseqs, partitions, offsets = (answers[name].to_numpy() for name in ("pseq", "partition", "offset"))
    by_place = np.lexsort((pseqs, partitions, writers))
    writers, pseqs, partitions, offsets = (
        column[by_place] for column in (writers, pseqs, partitions, offsets)
    )
    cuts: Any = np.flatnonzero((np.diff(writers) != 0) | (np.diff(partitions) != 0)) + 1
    starts = np.concatenate(([0], cuts))
    ends = np.concatenate((cuts, [len(pseqs)]))
    # steps from one answer to the next that do not rise, but for those from one partition to another
    falls: Any = np.concatenate(([False], (np.diff(offsets) <= 0) | (np.diff(pseqs) <= 0)))
    falls[starts] = False
    producer_of, topic_of = producers.to_pylist(), topics.to_pylist()
    columns = (
        writers[starts], partitions[starts], pseqs[starts], pseqs[ends - 1],
        np.minimum.reduceat(offsets, starts), np.maximum.reduceat(offsets, starts),
        ~np.logical_or.reduceat(falls, starts),
    )  # fmt: skip
    return [
        SendOrder(producer_of[writer // len(topic_of)], topic_of[writer % len(topic_of)], *rest)
        for writer, *rest in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _paired(rows: pa.Table) -> pa.Table:
    """The rows with each `invoke` and `complete` of one send as one row, where that is safe: both are in this
    block and agree on the partition, and the block is of one producer and topic and repeats nothing."""
    if any(len(pc.unique(rows[name])) != 1 for name in ("run", "producer", "topic")):
        return rows
    kinds, pseqs, partitions = (rows[name].to_numpy() for name in ("kind", "pseq", "partition"))
    sends, answers = np.flatnonzero(kinds == INVOKE), np.flatnonzero(kinds == COMPLETE)
    sends = sends[np.argsort(pseqs[sends], kind="stable")]
    answers = answers[np.argsort(pseqs[answers], kind="stable")]
    if not len(sends) or not len(answers):
        return rows
    sent, answered = pseqs[sends], pseqs[answers]
    if (np.diff(sent) == 0).any() or (np.diff(answered) == 0).any():
        return rows
    at = np.minimum(np.searchsorted(sent, answered), len(sent) - 1)
    fits = (sent[at] == answered) & (partitions[sends[at]] == partitions[answers])
    at, with_send = at[fits], answers[fits]
    is_single: Any = np.ones(len(kinds), dtype=bool)
    is_single[sends[at]] = False
    is_single[with_send] = False
    first, second = rows.take(sends[at]), rows.take(with_send)
    columns = [first[field.name] if field.name in _OF_A_SEND else second[field.name] for field in ROWS]
    columns[0] = pa.array(np.full(len(at), PAIR, dtype=np.int32))
    return pa.concat_tables([pa.table(columns, schema=ROWS), rows.filter(pa.array(is_single))])


def _said(kind: int, texts: list[str], topics: list[str] | None = None) -> pa.RecordBatch:
    """Rows about a file: the text in column `run`, in `t0` their order."""
    count = len(texts)
    given = {
        "kind": [kind] * count,
        "run": texts,
        "producer": [""] * count,
        "pseq": [-kind] * count,
        "topic": topics or [""] * count,
        "t0": list(range(count)),
    }
    arrays = [pa.array(given.get(field.name, [None] * count), field.type) for field in ROWS]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)


def _foreign_rows(wanted: LedgerRange, block: _Block, seen: _Seen) -> Iterator[pa.RecordBatch]:
    first: int | None = None
    lines = block.data.split(b"\n")
    rows: list[ForeignRow] = []
    problems: list[str] = []
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        found = foreign_row(line)
        if isinstance(found, ForeignRow):
            rows.append(found)
            continue
        first = _line_number(wanted.path, block.start) if first is None else first
        place = f"{wanted.path}, line {first + index}"
        if block.is_cut and index == len(lines) - 1 and is_cut(line):
            yield _said(TORN, [place])
        else:
            problems.append(f"{place}: {found}: {line[:_SHOWN_CHARS].decode(errors='replace')}")
    if problems:
        yield _said(PROBLEM, problems)
    if rows:
        seen.topic_ids |= {(row.topic, row.topic_id) for row in rows if row.topic_id is not None}
        kinds, topics, numbers, checksums, acks, outcomes, partitions, offsets, _ = zip(*rows, strict=True)
        nothing = [None] * len(rows)
        columns = [
            kinds, [RUN] * len(rows), [PRODUCER] * len(rows), numbers, topics, partitions, checksums, acks,
            outcomes, offsets, nothing, nothing, nothing, nothing, nothing, nothing,
        ]  # fmt: skip
        arrays = [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=ROWS)


# --- Arrow batches -------------------------------------------------------------------------------------


def _arrow_rows(wanted: LedgerRange, seen: _Seen) -> Iterator[pa.RecordBatch]:
    if wanted.is_foreign:
        yield _said(PROBLEM, [f"{wanted.path}: an Arrow stream, which is no ledger of another client"])
        return
    waiting: list[Batch] = []
    count = 0
    try:
        for batch in read_batches(wanted.path, wanted.start, wanted.end):
            waiting.append(batch)
            count += batch.rows.num_rows
            if count >= _ROWS_AT_A_TIME:
                yield from _of_batches(wanted, waiting, seen)
                waiting, count = [], 0
    except CutTail as error:
        yield _said(TORN, [str(error)])
    except DamagedBatch as error:
        yield _said(PROBLEM, [str(error)])
    yield from _of_batches(wanted, waiting, seen)


def _of_batches(wanted: LedgerRange, batches: list[Batch], seen: _Seen) -> Iterator[pa.RecordBatch]:
    """The sound rows, all at once where all are sound, and a row for each of the others."""
    if not batches:
        return
    together = as_rows(batches)
    if together.num_rows == 0:
        return
    if _is_sound(together, wanted.run):
        yield from _converted(together, seen)
        return
    is_sound: list[bool] = []
    problems = []
    rows = iter(together.to_pylist())
    for position, batch in batches:
        for number in range(1, batch.num_rows + 1):
            problem = problem_of_row(next(rows), wanted.run)
            is_sound.append(problem is None)
            if problem is not None:
                problems.append(f"{place_in(wanted.path, number, position)}: {problem}")
    if any(is_sound):
        yield from _converted(together.filter(pa.array(is_sound)), seen)
    yield _said(PROBLEM, problems)


# --- a block in which something is wrong ---------------------------------------------------------------


def _rows_one_by_one(wanted: LedgerRange, block: _Block, seen: _Seen) -> Iterator[pa.RecordBatch]:
    """The sound lines of a block, and a row for each of the others."""
    first = _line_number(wanted.path, block.start)
    lines = block.data.split(b"\n")
    sound: list[bytes] = []
    problems: list[str] = []
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        problem = problem_of(line, wanted.run)
        if problem is None:
            sound.append(line)
        elif block.is_cut and index == len(lines) - 1 and is_cut(line):
            yield _said(TORN, [f"{wanted.path}, line {first + index}"])
        else:
            shown = line[:_SHOWN_CHARS].decode(errors="replace")
            problems.append(f"{wanted.path}, line {first + index}: {problem}: {shown}")
    if sound:
        try:
            yield from _converted(_parsed(b"\n".join(sound)), seen)
        except pa.ArrowInvalid as error:
            last = first + len(lines) - 1
            problems.append(f"{wanted.path}, a line of {first} to {last}: {error}")
    if problems:
        yield _said(PROBLEM, problems)


def _line_number(path: str, position: int) -> int:
    """Of the line that begins at this byte of the unpacked file, counted from 1."""
    count, left = 1, position
    with opened(path) as file:
        while left > 0 and (data := file.read(min(left, BLOCK_BYTES))):
            count += data.count(b"\n")
            left -= len(data)
    return count
