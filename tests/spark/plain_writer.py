"""Writes ledgers, served batches and replica folders byte by byte, with no code of the product.

From the formats alone: JSON lines, `crc:producer:pseq:padding` values, Kafka's record batch v2, checkpoint
files. A mistake that reader and writer of the product share would not be seen by a test that uses them.
"""

import gzip
import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOPIC = "t"
#: as `planted_log` has it
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABw"
RUN = "planted"
#: as `planted_log` has it
CLUSTER = "planted"
#: all but the last letter
DIRECTORY_ID = "AAAAAAAAAAAAAAAAAAAAA"
EPOCH = 3
#: records of a batch
BATCH = 5
TIMESTAMP_MS = 1_700_000_000_000
SEGMENT = "00000000000000000000.log"


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def value(producer: str, pseq: int) -> bytes:
    body = f"{producer}:{pseq}:".encode() + b"z" * 20
    return b"%08x:%s" % (crc32c(body), body)


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


#: of every record: a key, and two headers of which one is null
KEY = b"k"
HEADERS: tuple[tuple[bytes, bytes | None], ...] = ((b"trace", b"7"), (b"empty", None))


def headers_crc(headers: tuple[tuple[bytes, bytes | None], ...] = HEADERS) -> int:
    text = b""
    for name, content in headers:
        text += b"%d:%s" % (len(name), name)
        text += b"-1:" if content is None else b"%d:%s" % (len(content), content)
    return crc32c(text)


def _sized(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _record(delta: int, time: int, content: bytes, key: bytes | None, headers: Any) -> bytes:
    fields = b"".join(_sized(name) + _sized(text) for name, text in headers)
    body = b"\0" + _varint(time) + _varint(delta) + _sized(key) + _sized(content)
    body += _varint(len(headers)) + fields
    return _varint(len(body)) + body


def batch(
    base: int,
    values: list[bytes],
    epoch: int = EPOCH,
    *,
    key: bytes | None = KEY,
    headers: Any = HEADERS,
    times: tuple[int, ...] | None = None,
    is_append_time: bool = False,
) -> bytes:
    """Uncompressed, without a producer id; `times`: ms behind TIMESTAMP_MS."""
    times = (0,) * len(values) if times is None else times
    records = b"".join(
        _record(delta, times[delta], content, key, headers) for delta, content in enumerate(values)
    )
    last = len(values) - 1
    covered = (
        struct.pack(
            ">hiqqqhii",
            8 if is_append_time else 0,
            last,
            TIMESTAMP_MS,
            TIMESTAMP_MS + max(times),
            *(-1, -1, -1),
            len(values),
        )
        + records
    )
    body = struct.pack(">ibI", epoch, 2, crc32c(covered)) + covered
    return struct.pack(">qi", base, len(body)) + body


@dataclass
class Plain:
    """One run that is all right, until something is planted in it: 2 partitions of 20 records, 3 replicas."""

    #: lines of the ledger, changed freely
    lines: list[dict[str, Any]] = field(default_factory=list)
    #: partition -> values by offset, as served
    served: dict[int, list[bytes]] = field(default_factory=lambda: {0: [], 1: []})
    #: broker -> partition -> batches in file order
    replicas: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    high_watermark: int = 15
    #: file name -> bytes, beside or in place of the ledger that `lines` are
    files: dict[str, bytes] = field(default_factory=dict)
    #: (partition, number of the batch) -> what differs from the usual, as `batch` takes it
    unusual: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    #: (partition, number of the batch) that is not served
    removed: set[tuple[int, int]] = field(default_factory=set)
    #: rows of all replicas' leader epoch checkpoints; None: no such files
    epochs: list[tuple[int, int]] | None = field(default_factory=lambda: [(EPOCH, 0)])
    #: below it the replicas have been flushed
    flushed: int = 15
    #: brokers without a checkpoint of high watermarks
    without_marks: set[int] = field(default_factory=set)
    #: changes files when all is written, given {broker: log dir}
    tamper: Callable[[dict[int, str]], object] = len

    @classmethod
    def sound(cls) -> "Plain":
        made = cls()
        for number in range(40):
            made.send("ab"[number % 2], number // 2, number % 2)
        batches = made.batches()
        made.replicas = {broker: {index: list(batches[index]) for index in (0, 1)} for broker in (1, 2, 3)}
        return made

    def send(self, producer: str, pseq: int, partition: int) -> None:
        log = self.served[partition]
        sent = value(producer, pseq)
        name = {"run": RUN, "producer": producer, "pseq": pseq, "topic": TOPIC, "partition": partition}
        crc = crc32c(sent)
        at = 10 * len(self.lines)
        more = {
            "timestamp_ms": TIMESTAMP_MS,
            "key_crc32c": crc32c(KEY),
            "headers_crc32c": headers_crc(),
        }
        self.lines.append({"kind": "invoke", **name, "value_crc32c": crc, "acks": -1, "t0": at, **more})
        answer = {"outcome": "ok", "offset": len(log), "leader_epoch": EPOCH, "error": None, "t1": at + 5}
        self.lines.append({"kind": "complete", **name, **answer})
        log.append(sent)

    def batches(self) -> dict[int, list[bytes]]:
        """What is served, as batches by partition."""
        return {
            index: [
                batch(start, log[start : start + BATCH], **self.unusual.get((index, start // BATCH), {}))
                for start in range(0, len(log), BATCH)
                if (index, start // BATCH) not in self.removed
            ]
            for index, log in self.served.items()
        }

    def line(self, kind: str, producer: str, pseq: int) -> dict[str, Any]:
        """One line of the ledger, to be changed."""
        return next(
            row for row in self.lines if (row["kind"], row["producer"], row["pseq"]) == (kind, producer, pseq)
        )

    def text(self) -> bytes:
        return "".join(json.dumps(line) + "\n" for line in self.lines).encode()

    def foreign_text(self) -> bytes:
        """The ledger as another client would have written it."""
        rows = []
        for line in self.lines:
            name = hashlib.sha256(value(line["producer"], line["pseq"])).hexdigest()
            row = {"kind": line["kind"], "topic": line["topic"], "value_sha256": name}
            if line["kind"] == "invoke":
                row |= {"acks": "all"}
            else:
                row |= {field: line[field] for field in ("outcome", "partition", "offset")}
            rows.append(json.dumps(row) + "\n")
        return "".join(rows).encode()

    def write(self, folder: Path) -> tuple[Path, dict[int, str]]:
        """(ledger folder, {broker: log dir})."""
        ledger = folder / "ledger"
        ledger.mkdir(parents=True)
        for name, content in ({"run.jsonl": self.text()} | self.files).items():
            if content:
                (ledger / name).write_bytes(gzip.compress(content) if name.endswith("+.gz") else content)
        dirs = {}
        for broker, partitions in self.replicas.items():
            log_dir = folder / f"broker-{broker}"
            log_dir.mkdir()
            for index, batches in partitions.items():
                place = log_dir / f"{TOPIC}-{index}"
                place.mkdir()
                (place / SEGMENT).write_bytes(b"".join(batches))
                (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
                if self.epochs is not None:
                    rows = [f"{epoch} {start}" for epoch, start in self.epochs]
                    checkpoint(place / "leader-epoch-checkpoint", rows)
            for name, offset in (
                ("replication-offset-checkpoint", self.high_watermark),
                ("recovery-point-offset-checkpoint", self.flushed),
            ):
                if broker not in self.without_marks:
                    checkpoint(log_dir / name, [f"{TOPIC} {index} {offset}" for index in (0, 1)])
            (log_dir / "meta.properties").write_text(
                f"version=1\ncluster.id={CLUSTER}\nnode.id={broker}\ndirectory.id={DIRECTORY_ID}{broker}\n"
            )
            dirs[broker] = str(log_dir)
        self.tamper(dirs)
        return ledger, dirs


def checkpoint(path: Path, rows: list[str]) -> None:
    path.write_text("\n".join(["0", str(len(rows)), *rows, ""]))
