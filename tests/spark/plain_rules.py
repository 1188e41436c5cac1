"""The rules of the verdict a second time, in plain Python and from docs/validate.md: no SQL, nothing of the
product's rules. What it finds must be what Spark finds, row by row.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(slots=True)
class Send:
    """One send and its answer."""

    topic: str
    producer: str
    pseq: int
    partition: int
    acks: int
    crc: int
    t0: int
    #: timestamp, checksums of key and headers; None: the ledger does not tell
    fields: tuple[int, int | None, int | None] | None = None
    outcome: str | None = None
    offset: int | None = None
    epoch: int | None = None
    t1: int = 0

    @property
    def is_acked(self) -> bool:
        return self.outcome == "ok" and self.acks == -1

    @property
    def is_weakly_acked(self) -> bool:
        return self.outcome == "ok1" and self.acks in (0, 1)

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


class Served(NamedTuple):
    """One record that the cluster serves; without a name when it is damaged or foreign."""

    topic: str
    partition: int
    offset: int
    state: str
    producer: str | None
    pseq: int | None
    crc: int | None
    fields: tuple[int | None, int | None, int | None]
    #: of its batch
    batch_crc: int
    batch_epoch: int


class Copy(NamedTuple):
    """One batch in a replica's file."""

    broker: int
    topic: str
    partition: int
    base: int
    last: int
    epoch: int
    crc: int
    is_readable: bool
    is_damaged: bool
    segment: str
    position: int
    #: (offset, producer, number, checksums of value and key) of its records
    records: tuple[tuple[int, str, int, int, int | None], ...] = ()


class Polled(NamedTuple):
    """One record that a consumer was given; without a name when its value is none of a ledger."""

    session: str
    topic: str
    partition: int
    offset: int
    high_watermark: int
    crc: int
    producer: str | None
    pseq: int | None


#: class, topic, partition, offset, producer, pseq
Row = tuple[str, str, int, int | None, str | None, int | None]


@dataclass
class Tables:
    """Everything that is judged; the logs' ends are those of before and after at once."""

    sends: list[Send] = field(default_factory=list)
    log: list[Served] = field(default_factory=list)
    #: those of a session in their order
    polls: list[Polled] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    #: (broker, topic, partition) -> high watermark
    marks: dict[tuple[int, str, int], int] = field(default_factory=dict)
    #: the same -> (epoch, first offset) rows of its checkpoint, and what is flushed
    epochs: dict[tuple[int, str, int], tuple[list[tuple[int, int]], int]] = field(default_factory=dict)
    #: the same, of those in sync
    in_sync: set[tuple[int, str, int]] = field(default_factory=set)
    #: (topic, partition) -> end
    ends: dict[tuple[str, int], int] = field(default_factory=dict)


def found_in(tables: Tables) -> Counter[Row]:
    """How often each row breaks a rule."""
    return Counter(
        [
            *(*_sends(tables), *_records(tables), *_order(tables), *_overtaken(tables)),
            *(*_replicas(tables), *_in_sessions(tables), *sorted(_polled(tables), key=str)),
        ]
    )


def take_line(sends: dict[tuple[str, str, int], Send], row: dict[str, Any]) -> None:
    """One line of a ledger."""
    name = row["topic"], row["producer"], row["pseq"]
    if row["kind"] == "invoke":
        told = None
        if "timestamp_ms" in row:
            told = (row["timestamp_ms"], row.get("key_crc32c"), row.get("headers_crc32c"))
        sends[name] = Send(*name, row["partition"], row["acks"], row["value_crc32c"], row["t0"], told)
        return
    send = sends[name]
    send.outcome, send.t1 = row["outcome"], row["t1"]
    if row["offset"] >= 0:
        send.offset, send.epoch = row["offset"], row["leader_epoch"]


def _named(tables: Tables) -> dict[tuple[Any, ...], list[Served]]:
    found: dict[tuple[Any, ...], list[Served]] = defaultdict(list)
    for record in tables.log:
        found[record.topic, record.producer, record.pseq].append(record)
    return found


def _row(kind: str, send: Send, offset: int | None = None) -> Row:
    return (
        kind,
        send.topic,
        send.partition,
        send.offset if offset is None else offset,
        send.producer,
        send.pseq,
    )


def _sends(tables: Tables) -> Iterator[Row]:
    """What became of each send."""
    named = _named(tables)
    damaged = {(one.topic, one.partition, one.offset) for one in tables.log if one.state == "damaged"}
    missing: dict[tuple[Any, ...], list[Send]] = defaultdict(list)
    for send in tables.sends:
        here = sorted(
            record.offset
            for record in named[send.topic, send.producer, send.pseq]
            if record.partition == send.partition
        )
        if (send.is_acked or send.is_weakly_acked) and not here:
            missing[send.topic, send.partition, send.offset].append(send)
        if send.is_weakly_acked and not here:
            yield _row("lost_weakly_acked", send)
        if send.is_acked and here and send.offset not in here:
            yield _row("moved", send)
        first = send.offset if send.offset in here else here[0] if here else None
        for offset in here[:]:
            if offset != first:
                yield _row("duplicated", send, offset)
        if here and not (send.is_acked or send.is_weakly_acked or send.outcome == "fail"):
            yield _row("recovered", send, here[0])
    for place, sends in missing.items():
        # a damaged record in the place may be the latest of them
        sends.sort(key=lambda send: (-(send.epoch or -1), -send.pseq, send.producer))
        for send in sends[1:] if place in damaged else sends:
            if send.is_acked:
                yield _row("lost", send)


def _records(tables: Tables) -> Iterator[Row]:
    """What each record in the log is."""
    sends = {(send.topic, send.producer, send.pseq): send for send in tables.sends}
    for record in tables.log:
        send = sends.get((record.topic, record.producer or "", -1 if record.pseq is None else record.pseq))
        row = (record.topic, record.partition, record.offset, record.producer, record.pseq)
        if record.state == "damaged":
            yield "corrupt", *row
        elif send is None:
            # behind the end that the ledger was read after, its line may still be missing
            if record.offset < tables.ends[record.topic, record.partition]:
                yield "unexpected", *row
        else:
            if send.outcome == "fail":
                yield "unexpected", *row
            elif record.partition != send.partition:
                yield "misplaced", *row
            if record.crc != send.crc:
                yield "corrupt", *row
            if send.fields is not None:
                kinds = ("timestamp_changed", "key_changed", "headers_changed")
                for kind, was, now in zip(kinds, send.fields, record.fields, strict=True):
                    if was != now:
                        yield kind, *row


def _order(tables: Tables) -> Iterator[Row]:
    """Each producer's sends to a partition, by the offsets that they got or are seen at."""
    named = _named(tables)
    highest: dict[tuple[Any, ...], int] = {}
    highest_acked: dict[tuple[Any, ...], int] = {}
    for send in sorted(tables.sends, key=lambda send: send.pseq):
        key = (send.producer, *send.place)
        offset = send.offset
        if offset is None and send.outcome != "fail":
            offset = min(
                (
                    record.offset
                    for record in named[send.topic, send.producer, send.pseq]
                    if record.partition == send.partition
                ),
                default=None,
            )
        if offset is None:
            continue
        if send.is_acked and offset <= highest_acked.get(key, -1):
            yield _row("reordered", send)
        elif offset <= highest.get(key, -1):
            yield _row("reordered_unacked", send, offset)
        highest[key] = max(highest.get(key, -1), offset)
        if send.is_acked:
            highest_acked[key] = max(highest_acked.get(key, -1), offset)


def _overtaken(tables: Tables) -> Iterator[Row]:
    """Acknowledged before one below it was sent."""
    by_place: dict[tuple[str, int], dict[int, list[Send]]] = defaultdict(lambda: defaultdict(list))
    for send in tables.sends:
        if send.is_acked and send.offset is not None:
            by_place[send.place][send.offset].append(send)
    for offsets in by_place.values():
        latest = -1
        for _, sends in sorted(offsets.items()):
            for send in sends:
                if send.t1 < latest:
                    yield _row("overtaken", send)
            latest = max(latest, *(send.t0 for send in sends))


# --- polls ---------------------------------------------------------------------------------------------


def _in_sessions(tables: Tables) -> Iterator[Row]:
    """What one session was given of a partition, one after the other."""
    served: dict[tuple[str, int], list[Served]] = defaultdict(list)
    for record in tables.log:
        served[record.topic, record.partition].append(record)
    before: dict[tuple[str, str, int], int] = {}
    highest: dict[tuple[str, str, int], int] = {}
    for poll in tables.polls:
        place = poll.topic, poll.partition
        last = before.get((poll.session, *place))
        before[poll.session, *place] = poll.offset
        told = highest.get((poll.session, *place), -1)
        highest[poll.session, *place] = max(told, poll.high_watermark)
        if 0 <= poll.high_watermark < told:
            yield "watermark_back", *place, poll.offset, poll.producer, poll.pseq
        if poll.offset >= poll.high_watermark >= 0:
            yield "polled_uncommitted", *place, poll.offset, poll.producer, poll.pseq
        if last is not None and poll.offset <= last:
            yield "polled_again", *place, poll.offset, poll.producer, poll.pseq
        for one in served[place] if last is not None and poll.offset > last + 1 else ():
            if last is not None and last < one.offset < poll.offset:
                yield "poll_skipped", *place, one.offset, one.producer, one.pseq


def _polled(tables: Tables) -> set[Row]:
    """What consumers were given, any of them, that was not sent like that or is not served now."""
    sends = {(send.topic, send.producer, send.pseq): send for send in tables.sends}
    served = {(one.topic, one.partition, one.offset): one for one in tables.log}
    found: set[Row] = set()
    for poll in tables.polls:
        place, name = (poll.topic, poll.partition), (poll.producer, poll.pseq)
        one = served.get((*place, poll.offset))
        is_another = one is not None and (one.producer, one.pseq) != name
        if one is not None and poll.producer is None and one.crc not in (None, poll.crc):
            is_another = True
        if one is None or (is_another and one.state != "damaged"):
            found.add(("polled_and_gone", *place, poll.offset, *name))
        if poll.producer is None or poll.pseq is None:
            continue
        send = sends.get((poll.topic, poll.producer, poll.pseq))
        if send is None or send.outcome == "fail" or (send.partition, send.crc) != (poll.partition, poll.crc):
            found.add(("polled_unsent", *place, poll.offset, *name))
    return found


# --- replicas ------------------------------------------------------------------------------------------


def _replicas(tables: Tables) -> Iterator[Row]:
    places = {(copy.topic, copy.partition) for copy in tables.copies} | {
        (topic, partition) for _, topic, partition in tables.in_sync
    }
    for topic, partition in sorted(places):
        copies = [copy for copy in tables.copies if (copy.topic, copy.partition) == (topic, partition)]
        found = [*_between(tables, copies), *_within(tables, copies), *_too_short(tables, topic, partition)]
        found += _against_served(tables, topic, partition, copies)
        yield from _beyond_served(tables, topic, partition, copies)
        for kind, offset in found:
            yield kind, topic, partition, offset, None, None


def _mark(tables: Tables, copy: Copy) -> int | None:
    return tables.marks.get((copy.broker, copy.topic, copy.partition))


def _between(tables: Tables, copies: Iterable[Copy]) -> Iterator[tuple[str, int]]:
    """Replicas with each other."""
    below: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
    of_epoch: dict[tuple[int, int], list[Copy]] = defaultdict(list)
    for copy in copies:
        mark = _mark(tables, copy)
        if copy.is_readable and mark is not None and copy.last < mark:
            below[copy.base].add((copy.epoch, copy.crc, copy.last))
        if copy.is_readable:
            of_epoch[copy.base, copy.epoch].append(copy)
    for base, kinds in below.items():
        if len(kinds) > 1:
            yield "diverged", base
    for (base, _), group in of_epoch.items():
        is_above = any(copy.last >= (_mark(tables, copy) or 0) for copy in group)
        if len({(copy.last, copy.crc) for copy in group}) > 1 and is_above:
            yield "rewritten", base


def _against_served(
    tables: Tables, topic: str, partition: int, copies: Iterable[Copy]
) -> Iterator[tuple[str, int]]:
    """What replicas agree on, with what is served."""
    served = [
        (one.offset, (one.batch_crc, one.batch_epoch))
        for one in tables.log
        if (one.topic, one.partition) == (topic, partition)
    ]
    below: dict[int, set[tuple[int, int, int]]] = defaultdict(set)
    for copy in copies:
        if copy.is_readable and copy.last < (_mark(tables, copy) or 0):
            below[copy.base].add((copy.last, copy.crc, copy.epoch))
    for base, kinds in below.items():
        if len(kinds) == 1:
            ((last, crc, epoch),) = kinds
            for offset, batch in served:
                if offset == last and batch != (crc, epoch):
                    yield "unserved", base


def _beyond_served(tables: Tables, topic: str, partition: int, copies: Iterable[Copy]) -> Iterator[Row]:
    """Whether what replicas hold above their marks, and where nothing is served, was sent like that."""
    crcs: dict[int, set[int]] = defaultdict(set)
    for one in tables.log:
        if (one.topic, one.partition) == (topic, partition):
            crcs[one.offset].add(one.batch_crc)
    sends = {(send.producer, send.pseq): send for send in tables.sends if send.topic == topic}
    found: set[Row] = set()
    for copy in copies:
        is_above = copy.last >= (_mark(tables, copy) or 0)
        if not copy.is_readable or not (copy.last not in crcs or (is_above and crcs[copy.last] - {copy.crc})):
            continue
        for offset, producer, pseq, crc, key_crc in copy.records:
            send = sends.get((producer, pseq))
            is_as_sent = (
                send is not None
                and send.outcome != "fail"
                and (send.partition, send.crc) == (partition, crc)
                and (send.fields is None or send.fields[1] == key_crc)
            )
            if not is_as_sent:
                found.add(("unsent", topic, partition, offset, producer, pseq))
    yield from sorted(found, key=str)


def _within(tables: Tables, copies: Iterable[Copy]) -> Iterator[tuple[str, int]]:
    """Each replica by itself."""
    by_broker: dict[int, list[Copy]] = defaultdict(list)
    for copy in copies:
        by_broker[copy.broker].append(copy)
        mark = _mark(tables, copy)
        if copy.is_damaged and mark is not None and copy.base < mark:
            yield "damaged", copy.base
    for group in by_broker.values():
        end: int | None = None
        epoch = -1
        for copy in sorted(group, key=lambda copy: (copy.base, copy.position)):
            mark = _mark(tables, copy)
            is_committed = mark is not None and copy.base < mark and copy.is_readable
            if end is not None and is_committed and copy.base > end:
                yield "diverged", end
            if mark is not None:
                end = copy.last + 1 if end is None else max(end, copy.last + 1)
            if copy.is_readable:
                if copy.epoch < epoch:
                    yield "epoch_order", copy.base
                epoch = max(epoch, copy.epoch)
        highest = -1
        for copy in sorted(group, key=lambda copy: (copy.segment, copy.position)):
            if copy.is_readable:
                if copy.base <= highest:
                    yield "file_order", copy.base
                highest = max(highest, copy.last)
        yield from _against_checkpoint(tables, group)


def _against_checkpoint(tables: Tables, group: list[Copy]) -> Iterator[tuple[str, int]]:
    first = group[0]
    rows, flushed = tables.epochs.get((first.broker, first.topic, first.partition), ([], 0))
    for copy in group:
        begun = [row for row in rows if row[1] <= copy.base]
        if not begun or not copy.is_readable or copy.last >= flushed:
            continue
        is_cut = any(copy.base < start <= copy.last for _, start in rows)
        if begun[-1][0] != copy.epoch or is_cut:
            yield "epoch_checkpoint", copy.base


def _too_short(tables: Tables, topic: str, partition: int) -> Iterator[tuple[str, int]]:
    acked = [send.offset or 0 for send in tables.sends if send.is_acked and send.place == (topic, partition)]
    if not acked:
        return
    needed = min(max(acked) + 1, tables.ends[topic, partition])
    for broker, _, _ in [key for key in tables.in_sync if key[1:] == (topic, partition)]:
        ends = [
            copy.last + 1
            for copy in tables.copies
            if (copy.broker, copy.topic, copy.partition) == (broker, topic, partition) and copy.is_readable
        ]
        if needed > max(ends, default=0):
            yield "incomplete", max(ends, default=0)
