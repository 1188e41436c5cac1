"""A small history that is all right, to plant something in: what was sent, answered, and is in the log.

Each story has a topic and producers of its own, so that many stories are judged in one run of Spark and each
must be found alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.client.core.history import RowWriter, SentFields, make_value, parse_value, value_crc32c
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.protocol.id_text import encode_id
from holdfast.protocol.record_batch import Record, encode_batch
from tests.unit.durability.arrow_files import write_arrow

RUN = "demo"
VALUE_BYTES = 64

LOG_SCHEMA = (
    "topic string, partition int, offset long, state string, producer string, pseq long, value_crc32c long, "
    "timestamp_ms long, key_crc32c long, headers_crc32c long, batch_crc32c long"
)


#: Timestamp of all records in the log; they have no key and no headers.
TIMESTAMP_MS = 1_700_000_000_000
_FIELDS = (TIMESTAMP_MS, None, None)


@dataclass(frozen=True, slots=True)
class Send:
    """One send of the ledger; `outcome` None means that no answer was written down."""

    producer: str
    pseq: int
    partition: int
    outcome: DeliveryOutcome | None = DeliveryOutcome.OK
    offset: int = -1
    acks: int = -1
    leader_epoch: int = 3
    value_crc32c: int | None = None
    t0: int = 1
    t1: int = 2
    fields: SentFields | None = None

    @property
    def value(self) -> bytes:
        return make_value(self.producer, self.pseq, VALUE_BYTES)


@dataclass
class RunHistory:
    """Mutable: tests plant into it, then write the ledger and make the log's rows."""

    topic: str
    run: str = RUN
    sends: list[Send] = field(default_factory=list)
    #: partition -> values by offset
    log: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: []})
    #: partition -> crcs of its batches of ten
    batch_crcs: dict[int, list[int]] = field(default_factory=dict)
    #: partition -> first offset that is served
    begins: dict[int, int] = field(default_factory=dict)

    def send(self, producer: str, pseq: int, partition: int, **fields: Any) -> Send:
        """A send that is acknowledged and in the log."""
        log = self.log[partition]
        made = Send(f"{producer}.{self.topic}", pseq, partition, offset=len(log), **fields)
        self.sends.append(made)
        log.append(made.value)
        return made

    def change(self, index: int, **fields: Any) -> None:
        """Plant in the ledger only."""
        self.sends[index] = replace(self.sends[index], **fields)

    def ledger_lines(self) -> list[str]:
        """Invoke and complete rows as `client.ledger` writes them."""
        lines = []
        for send in self.sends:
            rows = RowWriter(self.run, send.producer)
            crc = value_crc32c(send.value) if send.value_crc32c is None else send.value_crc32c
            lines.append(
                rows.invoke(send.pseq, self.topic, send.partition, crc, send.acks, send.t0, send.fields)
            )
            if send.outcome is not None:
                epoch = send.leader_epoch if send.offset >= 0 else -1
                error = (
                    None if send.outcome in (DeliveryOutcome.OK, DeliveryOutcome.OK1) else "REQUEST_TIMED_OUT"
                )
                place = (self.topic, send.partition, send.outcome, send.offset, epoch, error, send.t1)
                lines.append(rows.complete([send.pseq], *place))
        return lines

    def log_rows(self) -> list[tuple[Any, ...]]:
        """The rows of view `log`, in the columns of LOG_SCHEMA."""
        rows: list[tuple[Any, ...]] = []
        for partition, values in sorted(self.log.items()):
            crcs = self.batch_crcs.get(partition, [])
            for offset, value in enumerate(values):
                if offset < self.begins.get(partition, 0):
                    continue
                place = (self.topic, partition, offset)
                of_batch = (*_FIELDS, crcs[offset // 10] if crcs else None)
                found = parse_value(value)
                if found is None:
                    state = "damaged" if value[8:9] == b":" else "foreign"
                    rows.append((*place, state, None, None, None, *of_batch))
                else:
                    rows.append((*place, "good", found.producer, found.pseq, value_crc32c(value), *of_batch))
        return rows


def clean_history(topic: str, count: int = 40) -> RunHistory:
    """Two producers, two partitions, `count` records, all acknowledged and all there."""
    history = RunHistory(topic)
    for number in range(count):
        history.send(f"p{number % 2}", number // 2, (number // 2) % 2)
    return history


def write_ledger(folder: Path, histories: Iterable[RunHistory], file_format: str = "json") -> Path:
    """One file for each story; in Arrow for each of its producers, sends before answers, in batches of 7;
    "mixed": every second story is in Arrow."""
    folder.mkdir(exist_ok=True)
    for number, history in enumerate(histories):
        lines, name = history.ledger_lines(), f"{history.run}.{history.topic}"
        if file_format == "json" or (file_format == "mixed" and number % 2):
            (folder / f"{name}.0.jsonl").write_text("".join(lines))
            continue
        for producer in sorted({send.producer for send in history.sends}):
            own = [line for line in lines if f'"producer":"{producer}"' in line]
            own.sort(key=lambda line: '"kind":"complete"' in line)
            write_arrow(folder / f"{name}.{producer}.arrows", own, 7)
    return folder


def history_batches(history: RunHistory, size: int = 5) -> dict[tuple[str, int], list[bytes]]:
    """The log as batches of `size` records, ready to serve or to write into segment files."""
    made: dict[tuple[str, int], list[bytes]] = {}
    for partition, values in history.log.items():
        made[history.topic, partition] = [
            encode_batch(
                [Record(offset, 1_700_000_000_000 + offset, None, values[offset]) for offset in offsets],
                base_offset=offsets[0],
                leader_epoch=3,
            )
            for start in range(0, len(values), size)
            if (offsets := range(start, min(start + size, len(values))))
        ]
    return made


def write_log_dir(
    folder: Path, logs: dict[tuple[str, int], list[bytes]], high_watermark: int, *, broker: int = 1
) -> Path:
    """A broker's log dir: one segment for each partition, the id that `planted_log` gives its topic, the
    checkpoint of high watermarks, and whose it is."""
    topics = sorted({topic for topic, _ in logs})
    for (topic, partition), batches in logs.items():
        place = folder / f"{topic}-{partition}"
        place.mkdir(parents=True)
        (place / "00000000000000000000.log").write_bytes(b"".join(batches))
        (place / "00000000000000000000.index").write_bytes(b"")
        topic_id = encode_id((7 + topics.index(topic)).to_bytes(16, "big"))
        (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    (folder / "meta.properties").write_text(f"version=1\ncluster.id=planted\nnode.id={broker}\n")
    lines = [f"{topic} {partition} {high_watermark}" for topic, partition in logs]
    (folder / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return folder


def damaged_value(value: bytes) -> bytes:
    """The value with one byte of its padding changed."""
    return value[:-1] + bytes([value[-1] ^ 1])
