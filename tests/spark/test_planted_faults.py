"""The table of planted faults: each alone is found, named rightly, with its exit code, and nothing else.

Written by `plain_writer`, which shares no code with the product; judged as `holdfast validate` does it, with
the served log over the wire and three replicas on disk. Faults of replicas are in `test_planted_replicas`.
"""

import gzip
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.durability.validate import ValidateOptions, validate
from tests.spark.plain_writer import HEADERS, TIMESTAMP_MS, TOPIC, Plain, crc32c, value
from tests.spark.planted_log import PlantedLogs
from tests.unit.durability.arrow_files import arrow_batches

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark session"),
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("little_and_much"),
]


@dataclass
class Fault:
    """What is planted and what must be said of it."""

    plant: Callable[[Plain], object]
    code: int
    #: class -> count
    found: dict[str, int] = field(default_factory=dict)
    #: what a reason, a note or a sample says
    says: str = ""
    is_fast: bool = False
    #: brokers that are in sync no more when files were read
    leaving: tuple[int, ...] = ()


def check(fault: Fault, spark: Any, tmp_path: Path) -> None:
    """It is found in an otherwise sound run, and nothing else is."""
    run = Plain.sound()
    fault.plant(run)
    ledger, dirs = run.write(tmp_path)
    logs = {(TOPIC, index): batches for index, batches in run.batches().items()}
    with PlantedLogs(logs, replicas=(1, 2, 3), leaving=fault.leaving) as node:
        verdict = validate(
            spark,
            ValidateOptions(str(ledger), node.address, log_dirs=dirs, timeout_ms=60_000, one_clock=True),
        )
    said = verdict.as_text()
    assert {name: count for name, count in verdict.counts.items() if count} == fault.found, said
    assert verdict.exit_code == fault.code, said
    assert re.search(fault.says, said), said


# --- ledgers -------------------------------------------------------------------------------------------


def _all_answers(run: Plain, **fields: Any) -> None:
    for line in run.lines:
        if line["kind"] == "complete":
            line.update(fields)


def _drop(name: str, kind: str) -> Callable[[Plain], None]:
    def plant(run: Plain) -> None:
        del run.line(kind, "a", 7)[name]

    return plant


def _set(kind: str, /, **fields: Any) -> Callable[[Plain], None]:
    return lambda run: run.line(kind, "a", 7).update(fields)


def _again(kind: str, /, **fields: Any) -> Callable[[Plain], None]:
    return lambda run: run.lines.append(run.line(kind, "a", 7) | fields)


def _last_is_elsewhere(run: Plain) -> None:
    run.line("complete", "a", 19)["offset"] = 24


def _nowhere_to_be_sent(run: Plain) -> None:
    for kind in ("invoke", "complete"):
        run.line(kind, "a", 7)["partition"] = 9


def _weak(run: Plain) -> None:
    for line in run.lines:
        line |= {"acks": 1} if line["kind"] == "invoke" else {"outcome": "ok1"}


def _file(name: str, change: Callable[[bytes], bytes], *, instead: bool = True) -> Callable[[Plain], None]:
    def plant(run: Plain) -> None:
        run.files[name] = change(run.text())
        if instead and name != "run.jsonl":
            run.files["run.jsonl"] = b""

    return plant


def _same(text: bytes) -> bytes:
    return text


def _arrow(
    plant: Callable[[Plain], object] = lambda run: None,
    change: Callable[[list[bytes]], bytes] = b"".join,
    *,
    sends_first: bool = True,
) -> Callable[[Plain], None]:
    """The ledger of producer a is an Arrow stream of batches of eight, that of b stays JSON lines."""

    def planted(run: Plain) -> None:
        plant(run)
        own = [line for line in run.lines if line["producer"] == "a"]
        if sends_first:
            own.sort(key=lambda line: line["kind"] == "complete")
        others = [json.dumps(line) + "\n" for line in run.lines if line["producer"] != "a"]
        run.files["run.a.arrows"] = change(arrow_batches(map(json.dumps, own), 8))
        run.files["run.jsonl"] = "".join(others).encode()

    return planted


def _rotated(run: Plain) -> None:
    lines = run.text().splitlines(keepends=True)
    run.files["run.jsonl"] = b"".join(line for line in lines if b'"a"' in line)
    run.files["run.jsonl.1"] = b"".join(line for line in lines if b'"a"' not in line)


def _rotated_beside_a_stranger(run: Plain) -> None:
    run.served[1].append(b"hello")
    for partitions in run.replicas.values():
        partitions[1] = run.batches()[1]
    _rotated(run)


LEDGERS = {
    "nothing": Fault(lambda run: None, 0),
    "all outcomes are acked": Fault(
        lambda run: _all_answers(run, outcome="acked"), 6, says=r"40 lines .*line 2: outcome 'acked'"
    ),
    "one outcome is acked": Fault(_set("complete", outcome="acked"), 6, says="line 30: outcome 'acked'"),
    "no outcome": Fault(_drop("outcome", "complete"), 6, says="line 30: outcome None"),
    "no acks": Fault(_drop("acks", "invoke"), 6, says="line 29: acks None"),
    "acks of 7": Fault(_set("invoke", acks=7), 6, says="line 29: acks 7"),
    "acks in words": Fault(_set("invoke", acks="all"), 6, says="line 29: acks is no whole number"),
    "no checksum": Fault(_drop("value_crc32c", "invoke"), 6, says="line 29: value_crc32c None"),
    "no offset": Fault(_drop("offset", "complete"), 6, says="line 30: acknowledged without an offset"),
    "offset below zero": Fault(_set("complete", offset=-9), 6, says="line 30: "),
    "offset of 65 bits": Fault(
        _set("complete", offset=1 << 64), 6, says="line 30: offset is no whole number"
    ),
    "offset as text": Fault(_set("complete", offset="7"), 6, says="line 30: offset is no whole number"),
    "refused and yet with an offset": Fault(
        _set("complete", outcome="fail"), 6, says="line 30: outcome fail"
    ),
    "two answers, two offsets": Fault(_again("complete", offset=17), 6, says="contradict.*line 81 "),
    "acknowledged and refused": Fault(
        _again("complete", outcome="fail", offset=-1), 6, says="contradict.*line 81 "
    ),
    "acknowledged by all, sent to one": Fault(_set("invoke", acks=1), 6, says="contradict.*line 30 "),
    "acknowledged by one, sent to all": Fault(
        _set("complete", outcome="ok1"), 6, says="contradict.*line 30 "
    ),
    "answer of another partition": Fault(_set("complete", partition=1), 6, says="contradict.*line 30 "),
    "a partition that there is not": Fault(
        _nowhere_to_be_sent, 6, says="t-9, which has 2 partitions: .*line 30 "
    ),
    "sent twice": Fault(_again("invoke"), 6, says="written down more than once.*line 81 "),
    "answer without a send": Fault(lambda run: run.lines.pop(0), 6, says="never written down.*line 1 "),
    "a line of another run": Fault(_set("complete", run="other"), 6, says="line 30: is of run other"),
    "another topic": Fault(
        lambda run: [line.update(topic="u") for line in run.lines], 6, says="UNKNOWN_TOPIC_OR_PARTITION"
    ),
    "another topic id": Fault(
        _set("complete", topic_id="AAAAAAAAAAAAAAAAAAAABg"),
        6,
        says="deleted and created again: .*AAAAAAAAAAAAAAAAAAAABg, the cluster's is AAAAAAAAAAAAAAAAAAAABw",
        is_fast=True,
    ),
    "the topic id": Fault(_set("complete", topic_id="AAAAAAAAAAAAAAAAAAAABw"), 0),
    "an unknown kind": Fault(_set("complete", kind="note"), 6, says="line 30: kind 'note'"),
    "a broken line in the middle": Fault(
        _file("run.jsonl", lambda text: text.replace(b"\n", b"\nrubbish\n", 1)), 6, says="line 2: no JSON"
    ),
    "a cut last line": Fault(
        _file("run.jsonl", lambda text: text[:-9]), 0, {"recovered": 1}, says="end in a cut line"
    ),
    "a cut line in the middle": Fault(
        _file("run.jsonl", lambda text: text[:-9] + b"\n" + text.splitlines()[0]), 6, says="line 80: no JSON"
    ),
    "a packed ledger": Fault(_file("run.jsonl.gz", gzip.compress), 0),
    "a cut packed ledger": Fault(
        _file("run.jsonl.gz", lambda text: gzip.compress(text)[:-40]), 6, says="cannot be unpacked"
    ),
    "a file that is no ledger": Fault(
        _file("run.jsonl.bak", _same, instead=False), 6, says="passed over: .*run.jsonl.bak"
    ),
    "a part of the ledger has another name": Fault(
        _rotated, 6, says="20 records of the log are not of what was read", is_fast=True
    ),
    "a part of the ledger has another name, and a stranger's bytes are there": Fault(
        _rotated_beside_a_stranger,
        5,
        {"unexpected": 1},
        says=r"not the value of a ledger(.|\n)*20 records of the log are not of what was read",
    ),
    "a list instead of lines": Fault(
        _file("run.jsonl", lambda text: b"[" + b",".join(text.splitlines()) + b"]"),
        6,
        says="line 1: no JSON obj",
    ),
    "nothing acknowledged by all": Fault(_weak, 6, says="no acknowledged send"),
    "an Arrow ledger beside lines": Fault(_arrow(), 0),
    "a cut last batch": Fault(
        _arrow(change=lambda parts: b"".join(parts)[:-9]),
        0,
        {"recovered": 8},
        says="1 ledger files end in a cut line or batch",
        is_fast=True,
    ),
    "a cut last batch, and sends that only it has": Fault(
        _arrow(change=lambda parts: b"".join(parts)[:-9], sends_first=False), 5, {"unexpected": 4}
    ),
    "other bytes behind batches": Fault(
        _arrow(change=lambda parts: b"".join([*parts, b"rubbish"])),
        6,
        says=r"run\.a\.arrows, batch at byte \d+: ",
        is_fast=True,
    ),
    "a torn batch in the middle": Fault(
        _arrow(change=lambda parts: b"".join([*parts[:2], parts[2][:-100], *parts[3:]])),
        6,
        says=r"run\.a\.arrows, batch at byte \d+: ",
    ),
    "an unknown outcome in a batch": Fault(
        _arrow(_set("complete", outcome="acked")),
        6,
        says=r"run\.a\.arrows, row 4 of the batch at byte \d+: outcome None",
    ),
    "no acks in a batch": Fault(
        _arrow(_drop("acks", "invoke")), 6, says=r"row 8 of the batch at byte \d+: acks None"
    ),
    "two answers, two offsets in batches": Fault(
        _arrow(_again("complete", offset=17)),
        6,
        says=r"contradict.*arrows, row 1 of the batch at byte \d+ ",
    ),
    "a partition that there is not, in a batch": Fault(
        _arrow(_nowhere_to_be_sent), 6, says=r"t-9, which has 2 partitions: .*arrows, row 4 of the batch at "
    ),
    "another topic id in a batch": Fault(
        _arrow(_set("complete", topic_id="AAAAAAAAAAAAAAAAAAAABg")), 6, says="deleted and created again"
    ),
    "a loss that an Arrow ledger tells of": Fault(
        _arrow(lambda run: _everywhere(lambda log: log[0].__delitem__(slice(17, None)))(run)), 4, {"lost": 3}
    ),
}


# --- logs ----------------------------------------------------------------------------------------------


def _everywhere(change: Callable[[dict[int, list[bytes]]], object]) -> Callable[[Plain], None]:
    """A change of what is served that the replicas have, too."""

    def plant(run: Plain) -> None:
        change(run.served)
        run.replicas = {broker: run.batches() for broker in run.replicas}

    return plant


def _cut(log: dict[int, list[bytes]]) -> None:
    del log[0][-3:]


def _turned(log: dict[int, list[bytes]]) -> None:
    log[0][6] = log[0][6][:-1] + b"!"


def _refused(run: Plain) -> None:
    run.line("complete", "a", 7).update(outcome="fail", offset=-1)


def _swapped(run: Plain) -> None:
    first, second = run.line("complete", "a", 7), run.line("complete", "a", 8)
    first["offset"], second["offset"] = second["offset"], first["offset"]
    _everywhere(lambda log: log[0].insert(7, log[0].pop(8)))(run)


def _without_times(run: Plain) -> None:
    del run.line("complete", "a", 7)["t1"]


def _overtaken_and_late(run: Plain) -> None:
    run.line("invoke", "a", 0)["t0"] = 10**6
    run.line("complete", "a", 0)["t1"] = 10**6 + 5


def _batch_with(**fields: Any) -> Callable[[Plain], None]:
    """Of t-0 the second batch, in all replicas."""

    def plant(run: Plain) -> None:
        run.unusual[0, 1] = fields
        _everywhere(lambda log: None)(run)

    return plant


def _drop_fields(run: Plain, pseq: int = 7) -> None:
    for name in ("timestamp_ms", "key_crc32c", "headers_crc32c"):
        del run.line("invoke", "a", pseq)[name]


def _older(run: Plain) -> None:
    _batch_with(key=b"other")(run)
    for line in run.lines:
        for name in ("timestamp_ms", "key_crc32c", "headers_crc32c"):
            line.pop(name, None)


LOGS = {
    "the end is gone": Fault(
        _everywhere(_cut), 4, {"lost": 3}, says="no record of its partition", is_fast=True
    ),
    "a record is another's": Fault(
        _everywhere(lambda log: log[0].__setitem__(6, value("stranger", 1))), 4, {"lost": 1, "unexpected": 1}
    ),
    "acknowledged at another offset": Fault(_last_is_elsewhere, 5, {"moved": 1}, says="found at offset 19"),
    "a record is there twice": Fault(
        _everywhere(lambda log: log[0].append(log[0][7])), 5, {"duplicated": 1}, says="also at offset 7"
    ),
    "a record that was never sent": Fault(
        _everywhere(lambda log: log[1].append(value("a", 500))), 5, {"unexpected": 1}, says="never sent"
    ),
    "bytes of a stranger": Fault(
        _everywhere(lambda log: log[1].append(b"hello")),
        5,
        {"unexpected": 1},
        says="not the value of a ledger",
    ),
    "refused, and there": Fault(_refused, 5, {"unexpected": 1}, says="refused before the append"),
    "in the other partition, too": Fault(
        _everywhere(lambda log: log[1].append(log[0][7])), 5, {"misplaced": 1}, says="was sent to t-0"
    ),
    "a byte of a value": Fault(_everywhere(_turned), 5, {"corrupt": 1}, says="checksum does not hold"),
    "another checksum": Fault(
        _set("invoke", value_crc32c=crc32c(b"another")), 5, {"corrupt": 1}, says="not the ledger's"
    ),
    "two sends changed places": Fault(
        _swapped, 5, {"reordered": 1, "overtaken": 1}, says="an earlier send got offset 8"
    ),
    "sent after an acknowledgement, below it": Fault(_overtaken_and_late, 5, {"overtaken": 19}),
    "an acknowledgement without a time": Fault(
        _without_times, 6, says="1 acknowledged sends tell no times, or an answer before the send"
    ),
    "an answer before its send": Fault(
        _set("invoke", t0=10**6), 6, says="1 acknowledged sends tell no times"
    ),
    "another key, in a whole batch": Fault(
        _batch_with(key=b"other"), 5, {"key_changed": 5}, says="checksum of its key is not the ledger's"
    ),
    "keys are gone": Fault(_batch_with(key=None), 5, {"key_changed": 5}, says="its key is gone"),
    "a key that was not sent": Fault(
        _drop("key_crc32c", "invoke"), 5, {"key_changed": 1}, says="was sent without a key"
    ),
    "headers in another order": Fault(
        _batch_with(headers=HEADERS[::-1]), 5, {"headers_changed": 5}, says="checksum of its headers"
    ),
    "an empty header that was null": Fault(
        _batch_with(headers=(HEADERS[0], (b"empty", b""))), 5, {"headers_changed": 5}
    ),
    "headers are gone": Fault(
        _batch_with(headers=()), 5, {"headers_changed": 5}, says="its headers are gone", is_fast=True
    ),
    "another timestamp": Fault(
        _batch_with(times=(0, 0, 1, 0, 0)),
        5,
        {"timestamp_changed": 1},
        says=f"sent with timestamp {TIMESTAMP_MS}, has {TIMESTAMP_MS + 1}",
    ),
    "timestamps that the broker has set": Fault(
        _batch_with(times=(0, 0, 1, 0, 0), is_append_time=True), 0, says="rules: 23 of 29"
    ),
    "a batch of which nothing but the values is right": Fault(
        _batch_with(key=None, headers=(), times=(0, 0, 1, 0, 0)),
        5,
        {"key_changed": 5, "headers_changed": 5, "timestamp_changed": 1},
    ),
    "an older ledger, and another key": Fault(
        _older, 0, says="not run: key_changed, headers_changed, timestamp_changed"
    ),
    "one line of an older ledger": Fault(
        _drop_fields, 0, says="1 sends of an older ledger tell no key, headers and timestamp"
    ),
    "a key without a timestamp": Fault(
        _drop("timestamp_ms", "invoke"), 6, says="line 29: key_crc32c without timestamp_ms"
    ),
    "a checksum of headers that cannot be": Fault(
        _set("invoke", headers_crc32c=1 << 32), 6, says="line 29: headers_crc32c 4294967296 cannot be"
    ),
}


FAULTS = {**LEDGERS, **LOGS}


#: Rows that count as much data in each run of the tests; the others do in the long one.
AS_MUCH = ("the end is gone", "a cut last batch")


def rows(names: Iterable[str], fast: Collection[str]) -> pytest.MarkDecorator:
    """Each row as little data and as much."""
    made = [
        pytest.param(
            *(name, scale),
            marks=() if name in fast and (scale == "little" or name in AS_MUCH) else pytest.mark.long,
        )
        for name in names
        for scale in ("little", "much")
    ]
    return pytest.mark.parametrize(("name", "little_and_much"), made, indirect=["little_and_much"])


@rows(FAULTS, [name for name, fault in FAULTS.items() if fault.is_fast])
def test_a_fault_is_found_alone(spark: Any, tmp_path: Path, name: str) -> None:
    check(FAULTS[name], spark, tmp_path)


FOREIGN = {
    "nothing": Fault(lambda run: None, 0),
    "the end is gone": FAULTS["the end is gone"],
    "acknowledged at another offset": Fault(_last_is_elsewhere, 5, {"moved": 1}),
    "a record that was never sent": Fault(
        _everywhere(lambda log: log[1].append(b"hello")), 5, {"unexpected": 1}, says="never sent"
    ),
    "in the other partition, too": FAULTS["in the other partition, too"],
    "a byte of a value": Fault(_everywhere(_turned), 4, {"lost": 1, "unexpected": 1}),
    "an unknown outcome": Fault(_set("complete", outcome="acked"), 6, says="line 30: outcome 'acked'"),
    "sent twice": Fault(
        _again("invoke"),
        6,
        says=r"no two records .* equal values: .*line 81 \(value_sha256 [0-9a-f]{15}\.\.\.\)",
    ),
    "two answers, two offsets": Fault(_again("complete", offset=17), 6, says="contradict.*line 81 "),
    "answer without a send": Fault(lambda run: run.lines.pop(0), 6, says="never written down.*line 1 "),
    "a partition that there is not": Fault(
        _nowhere_to_be_sent, 6, says="t-9, which has 2 partitions: .*line 30 "
    ),
}


@rows(FOREIGN, ["the end is gone"])
def test_a_fault_in_the_run_of_another_client_is_found(spark: Any, tmp_path: Path, name: str) -> None:
    fault = FOREIGN[name]
    run = Plain.sound()
    fault.plant(run)
    ledger = tmp_path / "sends.jsonl"
    ledger.write_bytes(run.foreign_text())
    logs = {(TOPIC, index): batches for index, batches in run.batches().items()}
    with PlantedLogs(logs) as node:
        verdict = validate(
            spark, ValidateOptions(str(ledger), node.address, is_foreign=True, timeout_ms=60_000)
        )
    said = verdict.as_text()
    assert {name: count for name, count in verdict.counts.items() if count} == fault.found, said
    assert verdict.exit_code == fault.code, said
    assert re.search(fault.says, said), said
