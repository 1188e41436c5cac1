"""What must be true of the history of a run once the cluster has been healed (rules 1 to 22).

Owns the rules on what clients were told and what the replicas hold, over the same rows that every ledger has.
Reads bytes of logs as the brokers serve them; never asks the cluster anything.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from holdfast.client.core.errors import ProduceFailed
from holdfast.client.core.history import parse_row, parse_value
from holdfast.client.delivery import Delivery
from holdfast.protocol.record_batch import decode_records, iter_batches
from holdfast.sim.load.clients import DELIVERY_TIMEOUT_MS, LEDGER_FOLDER, Polled, ledger_path, place_of
from holdfast.sim.load.seeking_reader import ReadSpan
from holdfast.sim.machine.runtime import Machine

_SHOWN = 5
#: timers are not late by more
_TOLD_NS = (DELIVERY_TIMEOUT_MS + 500) * 1_000_000


#: nor early; clocks of clients run true
_PATIENT_NS = DELIVERY_TIMEOUT_MS * 990_000
#: what another attempt, elsewhere or later, may get through
_WORTH_A_RETRY = (
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "REQUEST_LIMIT_REACHED",
    "REQUEST_TIMED_OUT",
    "OFFSET_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
)
#: what is said of a batch that is none; the network turns no bits
_OF_BROKEN_BATCHES = ("CORRUPT_MESSAGE", "INVALID_RECORD")


class Stored(NamedTuple):
    """A record of a log."""

    offset: int
    leader_epoch: int
    value: bytes


@dataclass(slots=True)
class SentRecord:
    """A record that a producer sent, and what it was told."""

    producer: str
    pseq: int
    partition: int
    acks: int
    outcome: str | None = None
    offset: int = -1
    #: ns; sent, and answered
    t0: int = 0
    t1: int = 0
    #: why there was no acknowledgement, by name
    error: str | None = None


@dataclass(slots=True)
class History:
    """Everything that the rules look at."""

    sends: dict[tuple[str, int], SentRecord]
    #: by partition, from the log start on, below the high watermark
    log: dict[int, list[Stored]]
    polls: list[list[Polled]]
    final_polls: list[Polled]
    #: producers whose retries write once
    idempotent: frozenset[str]
    #: of readers that seek
    read_spans: list[ReadSpan] = field(default_factory=list)
    #: codes that consumers told their applications, by name
    troubles: list[str] = field(default_factory=list)
    #: of logs that do not begin at 0 any more: what is below was committed, and deleted since
    starts: dict[int, int] = field(default_factory=dict)
    #: where senders were told that their records are; None: not acknowledged
    told: dict[tuple[str, int], int | None] = field(default_factory=dict)
    places: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for partition, records in self.log.items():
            for record in records:
                name = parse_value(record.value)
                if name is not None:
                    places[name.producer, name.pseq].append((partition, record.offset))
        self.places = dict(places)

    def only(self, partitions: Container[int]) -> "History":
        """The part of it about some partitions."""
        return History(
            {key: send for key, send in self.sends.items() if send.partition in partitions},
            {index: records for index, records in self.log.items() if index in partitions},
            [[polled for polled in session if polled.partition in partitions] for session in self.polls],
            [polled for polled in self.final_polls if polled.partition in partitions],
            self.idempotent,
            [span for span in self.read_spans if span.place in partitions],
            self.troubles,
            self.starts,
        )

    def start_of(self, partition: int) -> int:
        """The first offset of its log."""
        return self.starts.get(partition, 0)


def read_ledgers(machines: dict[str, Machine]) -> dict[tuple[str, int], SentRecord]:
    """Every send by (producer, pseq), from the ledgers on the clients' disks."""
    sends: dict[tuple[str, int], SentRecord] = {}
    for machine in machines.values():
        for name in machine.sim_disk.names(LEDGER_FOLDER):
            data = machine.sim_disk.read(ledger_path(name)) or b""
            for line in data.splitlines():
                row: dict[str, Any] = parse_row(line)
                key = row["producer"], row["pseq"]
                if row["kind"] == "invoke":
                    place = place_of(row["topic"], row["partition"])
                    assert place is not None
                    sends[key] = SentRecord(*key, place, row["acks"], t0=row["t0"])
                else:
                    sends[key].outcome = row["outcome"]
                    sends[key].offset = row["offset"]
                    sends[key].t1 = row["t1"]
                    sends[key].error = row["error"]
    return sends


def read_deliveries(deliveries: Mapping[tuple[str, int], Delivery]) -> dict[tuple[str, int], int | None]:
    """Where senders are told that their records are, by (producer, pseq); None: not acknowledged."""
    return {key: _told_by(one) for key, one in deliveries.items() if one.done()}


def _told_by(delivery: Delivery) -> int | None:
    try:
        return delivery.result().offset
    except ProduceFailed:
        return None


def records_of(data: bytes) -> list[Stored]:
    """The records in whole batches."""
    return [
        Stored(record.offset, header.leader_epoch, record.value or b"")
        for header, view in iter_batches(data)
        for record in decode_records(view)
    ]


def end_of(data: bytes) -> int:
    """The offset behind the last of whole batches."""
    return max(header.base_offset + header.last_offset_delta + 1 for header, _ in iter_batches(data))


# --- rules: each gives a line for every row that breaks it ---------------------------------------------


def lost(history: History) -> list[str]:
    """Rules 1 and 2: an acks=all record is where its acknowledgement said, until it is deleted."""
    found = []
    for key, send in history.sends.items():
        is_kept = send.offset >= history.start_of(send.partition)
        if send.outcome == "ok" and send.acks == -1 and is_kept:
            places = history.places.get(key, [])
            if (send.partition, send.offset) not in places:
                found.append(f"{key} acknowledged at {send.partition}@{send.offset}, is at {places}")
    return found


def doubled(history: History) -> list[str]:
    """Rule 5: an idempotent producer's record is there once."""
    return [
        f"{key} is at {places}"
        for key, places in history.places.items()
        if len(places) > 1 and key[0] in history.idempotent
    ]


def unexpected(history: History) -> list[str]:
    """Rules 3, 4 and 21: never sent, refused before the append, or in another partition."""
    found = []
    for key, places in history.places.items():
        send = history.sends.get(key)
        if send is None:
            found.append(f"{key} at {places} was never sent")
        elif send.outcome == "fail":
            found.append(f"{key} at {places} was refused")
        elif any(partition != send.partition for partition, _ in places):
            found.append(f"{key} at {places} was sent to {send.partition}")
    total = sum(len(places) for places in history.places.values())
    if total != sum(map(len, history.log.values())):
        found.append("some records are no values of a ledger")
    return found


def reordered(history: History) -> list[str]:
    """Rule 7: of an idempotent producer's acknowledged sends to a partition a later one has a higher offset.
    The retry of another producer may come behind what it sent meanwhile."""
    found = []
    highest: dict[tuple[str, int], int] = {}
    for key in sorted(history.sends):
        send = history.sends[key]
        if send.outcome == "ok" and send.acks == -1 and send.producer in history.idempotent:
            place = send.producer, send.partition
            if send.offset <= highest.get(place, -1):
                found.append(f"{key} at {send.partition}@{send.offset}, an earlier one at {highest[place]}")
            highest[place] = max(highest.get(place, -1), send.offset)
    return found


def overtaken(history: History) -> list[str]:
    """Rule 8: what is sent after the acknowledgement of another record comes behind it."""
    found = []
    events: dict[int, list[tuple[int, int, int, tuple[str, int]]]] = defaultdict(list)
    for key, send in history.sends.items():
        if send.outcome == "ok" and send.acks == -1:
            # At one moment the invocation comes first: only what was surely before counts.
            events[send.partition] += [(send.t1, 1, send.offset, key), (send.t0, 0, send.offset, key)]
    for partition, rows in events.items():
        highest = -1
        for _, is_answer, offset, key in sorted(rows):
            if is_answer:
                highest = max(highest, offset)
            elif offset <= highest:
                found.append(f"{key} at {partition}@{offset} was sent after {highest} was acknowledged")
    return found


def consumed_and_gone(history: History) -> list[str]:
    """Rules 6 and 11: what a consumer got is in the log, unchanged, at its offset."""
    found = []
    polls = [*history.polls, *(span.polled for span in history.read_spans), history.final_polls]
    for polled in chain.from_iterable(polls):
        records = history.log.get(polled.partition, [])
        at = polled.offset - history.start_of(polled.partition)
        if at < 0:
            continue
        stored = records[at] if at < len(records) else None
        if stored is None or stored.value != polled.value:
            found.append(f"{polled.partition}@{polled.offset} of epoch {polled.leader_epoch} was consumed")
    return found


def skipped(history: History) -> list[str]:
    """Rules 9 and 10: within a session a consumer gets every offset in order. It goes on at the log start
    when what it wanted was deleted; that never falls."""
    found = []
    for session in [*history.polls, history.final_polls]:
        expected: dict[int, int] = {}
        for polled in session:
            wanted = expected.get(polled.partition, 0)
            if polled.offset != wanted and not wanted < polled.offset <= history.start_of(polled.partition):
                found.append(f"{polled.partition}@{polled.offset}, expected {wanted}")
            expected[polled.partition] = polled.offset + 1
    return found


def astray(history: History) -> list[str]:
    """Rules 9 and 10 of a reader that seeks: it goes on where it asked to, then gets every offset in order.
    Who asks for the end is not led back behind what the same consumer has read."""
    found = []
    for span in history.read_spans:
        wanted, start = span.sought, history.start_of(span.place)
        for polled in span.polled:
            if wanted is None:
                is_right = polled.offset >= span.lowest
            else:
                was_deleted = wanted < start and (span.goes_to_end or polled.offset <= start)
                is_right = polled.offset == wanted or (was_deleted and polled.offset > wanted)
            if not is_right:
                told = f"at least {span.lowest}" if wanted is None else f"{wanted}"
                found.append(f"{span.place}@{polled.offset}, expected {told}")
            wanted = polled.offset + 1
    return found


def mended(history: History) -> list[str]:
    """R81, R88: a consumer that reads on behind a record that is gone is told so, also where it may be gone:
    a log in which what came next is, and not what was read before it, was never read like that."""
    found = []
    for session in [*history.polls, history.final_polls]:
        former: dict[int, Polled] = {}
        for polled in session:
            last = former.get(polled.partition)
            former[polled.partition] = polled
            is_next = last is not None and last.offset + 1 == polled.offset
            if last is None or not is_next or not _is_stored(history, polled) or _is_stored(history, last):
                continue
            if last.offset >= history.start_of(last.partition):
                found.append(
                    f"{polled.partition}@{polled.offset} was read behind {last.offset}, which is gone"
                )
    return found


def _is_stored(history: History, polled: Polled) -> bool:
    """It is in the log as it was read."""
    at = polled.offset - history.start_of(polled.partition)
    records = history.log.get(polled.partition, [])
    return 0 <= at < len(records) and (records[at].leader_epoch, records[at].value) == (
        polled.leader_epoch,
        polled.value,
    )


def unseen(history: History) -> list[str]:
    """Rule 22: the last reader sees every record below the high watermark."""
    polls = history.final_polls
    seen = Counter(p.partition for p in polls if p.offset >= history.start_of(p.partition))
    return [
        f"partition {partition}: {seen[partition]} of {len(records)} records"
        for partition, records in sorted(history.log.items())
        if seen[partition] < len(records)
    ]


def late(history: History) -> list[str]:
    """L-5: a producer hears what became of each record before its delivery.timeout.ms is over."""
    return [
        f"{key} of {send.partition} was told {send.outcome!r} after {(send.t1 - send.t0) / 1e9:.1f} s"
        for key, send in history.sends.items()
        if send.outcome is not None and send.t1 - send.t0 > _TOLD_NS
    ]


def impatient(history: History) -> list[str]:
    """L-5: a producer gives nothing up before its delivery.timeout.ms is over that may still be taken. Rows
    of one batch are as old as the first of them."""
    ages: dict[tuple[str, int, int], int] = {}
    for send in history.sends.values():
        batch = send.producer, send.partition, send.t1
        ages[batch] = max(ages.get(batch, 0), send.t1 - send.t0)
    return [
        f"{key} of {send.partition} was given up for {send.error} after {(send.t1 - send.t0) / 1e9:.1f} s"
        for key, send in history.sends.items()
        if send.outcome == "fail"
        and send.error in _WORTH_A_RETRY
        and ages[send.producer, send.partition, send.t1] < _PATIENT_NS
    ]


def misjudged(history: History) -> list[str]:
    """D12, R93: no producer is told that its batch is broken, with any sequence that it was given last."""
    return [
        f"{key} of {send.partition} was refused for {send.error}"
        for key, send in history.sends.items()
        if send.error in _OF_BROKEN_BATCHES
    ]


def misled(history: History) -> list[str]:
    """Rule 2, F5: who waits for a record is told of the offset that the ledger has, each of its own."""
    found = []
    for key, offset in history.told.items():
        send = history.sends.get(key)
        known = send.offset if send is not None and send.outcome in ("ok", "ok1") else None
        if offset != known:
            found.append(f"the sender of {key} was told {offset}, in the ledger is {known}")
    return found


def troubled(history: History) -> list[str]:
    """R55, D9: a consumer tells its application nothing that it can mend by asking again."""
    return [f"a consumer has told {name}" for name in history.troubles if name in _WORTH_A_RETRY]


RULES = {
    "lost": lost,
    "doubled": doubled,
    "unexpected": unexpected,
    "reordered": reordered,
    "overtaken": overtaken,
    "consumed_and_gone": consumed_and_gone,
    "skipped": skipped,
    "astray": astray,
    "unseen": unseen,
    "late": late,
    "impatient": impatient,
    "misjudged": misjudged,
    "misled": misled,
    "troubled": troubled,
    "mended": mended,
}


#: Rules that a loss of committed records breaks.
LOSS_RULES = ("lost", "reordered", "overtaken", "consumed_and_gone", "skipped", "astray")


def losses(history: History, partition: int) -> dict[str, int]:
    """How many rows of the partition break each rule about loss; those that none breaks are left out."""
    rows = {name: len(RULES[name](history.only((partition,)))) for name in LOSS_RULES}
    return {name: count for name, count in rows.items() if count}


def broken_rules(history: History, lossy: Collection[int] = ()) -> list[str]:
    """A line for each rule that is broken, with some of its rows. Partitions that may have lost something
    are judged by the other rules only."""
    whole = history.only([index for index in history.log if index not in lossy]) if lossy else history
    found = []
    for name, rule in RULES.items():
        rows = rule(whole if name in LOSS_RULES else history)
        if rows:
            found.append(f"{name}: {len(rows)} rows, e.g. {'; '.join(rows[:_SHOWN])}")
    return found


def diverged(logs: dict[str, bytes]) -> str | None:
    """Rule 16: what replicas hold of a partition, by broker, is byte for byte the same."""
    first = next(iter(logs.values()))
    for name, data in logs.items():
        if data != first:
            limit = min(len(data), len(first))
            at = next((i for i in range(limit) if data[i] != first[i]), limit)
            return f"{name} differs from {next(iter(logs))} at byte {at} of {len(data)} and {len(first)}"
    return None
