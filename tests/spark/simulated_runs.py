"""Runs of the simulator as tables of the judge: ledgers, served logs, replicas' files and checkpoints."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.core.history import headers_crc32c, key_crc32c, parse_value, value_crc32c
from holdfast.durability.segments import SegmentBatch, read_segment
from holdfast.protocol.record_batch import decode_records, iter_batches
from holdfast.sim.campaign import run as campaign
from holdfast.sim.campaign.recording import play
from holdfast.sim.campaign.run_spec import BANDS, RunSpec
from holdfast.sim.checks import liveness
from holdfast.sim.checks.history_rules import end_of
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.cluster.world import ClusterSpec, World
from holdfast.sim.faults.table import Plan
from holdfast.sim.load.clients import LEDGER_FOLDER, ledger_path, partition_at
from tests.spark.plain_rules import Copy, Send, Served, Tables, take_line

_PARTITIONS = 2


@dataclass
class SimulatedRun:
    """What the judge is given of one run; its topics have the run's number in their names."""

    number: int
    #: lines of the ledgers
    lines: list[dict[str, Any]] = field(default_factory=list)
    tables: Tables = field(default_factory=Tables)
    #: (broker, topic, partition) of all replicas that there should be
    members: list[tuple[int, str, int]] = field(default_factory=list)


def play_run(number: int, band: str, monkeypatch: pytest.MonkeyPatch) -> SimulatedRun:
    """The run of seed `number` in a band, taken when the cluster is at rest and before it is judged."""
    shape = replace(ClusterSpec(partitions=_PARTITIONS, producers=3, send_gap_ms=60), **BANDS[band])
    spec = RunSpec(f"judge {number}", shape, 4.0, Plan(gap_ms=300), band, "tuned")
    taken: list[SimulatedRun] = []

    def judge(observer: Observer, history: object) -> None:
        taken.append(_taken(number, observer.world))

    with monkeypatch.context() as patch:
        patch.setattr(campaign, "_judge", judge)
        result = play(spec)
    assert taken, result.as_text()
    return taken[0]


def write_ledger(folder: Path, runs: Iterable[SimulatedRun]) -> Path:
    """One file for each producer of each run."""
    for run in runs:
        for producer in sorted({line["producer"] for line in run.lines}):
            lines = [json.dumps(line) + "\n" for line in run.lines if line["producer"] == producer]
            (folder / f"{run.number}.{producer}.jsonl").write_text("".join(lines))
    return folder


def _taken(number: int, world: World) -> SimulatedRun:
    run = SimulatedRun(number)
    sends: dict[tuple[str, str, int], Send] = {}
    for machine in world.producer_machines.values():
        for name in machine.sim_disk.names(LEDGER_FOLDER):
            for text in (machine.sim_disk.read(ledger_path(name)) or b"").splitlines():
                row = json.loads(text)
                row.pop("topic_id", None)
                row |= {"run": f"run{number}", "topic": f"{row['topic']}{number}"}
                run.lines.append(row)
                take_line(sends, row)
    run.tables.sends = list(sends.values())
    for place, registration in world.partitions():
        at = partition_at(place)
        topic = f"{at.topic}{number}"
        run.members += [(broker, topic, at.partition) for broker in registration.replicas]
        run.tables.in_sync |= {(broker, topic, at.partition) for broker in registration.isr}
        replicas = liveness.replicas_of(world, place)
        for broker, replica in replicas:
            assert broker.node is not None
            key = (broker.node_id, topic, at.partition)
            run.tables.marks[key] = replica.high_watermark
            log = broker.node.log_manager.logs[replica.key]
            entries = [(entry.epoch, entry.start_offset) for entry in log.leader_epoch_cache.entries]
            run.tables.epochs[key] = (entries, log.flushed_offset)
            run.tables.copies += _copies(broker.machine.sim_disk, key, f"{at.topic}-{at.partition}")
        leader = next(replica for broker, replica in replicas if broker.node_id == registration.leader)
        owner = next(broker for broker, _ in replicas if broker.node_id == registration.leader)
        assert owner.node is not None
        log = owner.node.log_manager.logs[leader.key]
        data, offset = bytearray(), log.log_start_offset
        while offset < leader.high_watermark:  # a read ends with its segment
            piece = log.read(offset, 1 << 30, leader.high_watermark)
            data += piece
            offset = end_of(piece)
        run.tables.log += _served(bytes(data), topic, at.partition)
        run.tables.ends[topic, at.partition] = leader.high_watermark
    return run


def _copies(disk: Any, key: tuple[int, str, int], folder: str) -> Iterable[Copy]:
    for name in disk.names(f"/data/{folder}"):
        if not name.endswith(".log"):
            continue
        data = disk.read(f"/data/{folder}/{name}") or b""
        for found in read_segment(data, int(name.removesuffix(".log"))):
            assert isinstance(found, SegmentBatch), "a cluster at rest has no torn batches"
            records = _records(data[found.position : found.position + found.size_bytes])
            yield Copy(
                *key, found.base_offset, found.last_offset, found.leader_epoch, found.crc, found.crc_ok,
                False, name, found.position, records,
            )  # fmt: skip


def _records(data: bytes) -> tuple[tuple[int, str, int, int, int | None], ...]:
    """Of the first batch, those with a ledger's value."""
    _, view = next(iter_batches(data))
    return tuple(
        (record.offset, *named, value_crc32c(record.value or b""), key_crc32c(record.key))
        for record in decode_records(view)
        if (named := parse_value(record.value or b"")) is not None
    )


def _served(data: bytes, topic: str, partition: int) -> Iterable[Served]:
    for header, view in iter_batches(data):
        for record in decode_records(view):
            value = record.value or b""
            parsed = parse_value(value)
            fields = (record.timestamp_ms, key_crc32c(record.key), headers_crc32c(record.headers))
            state = "foreign" if parsed is None else "good"
            producer, pseq = (None, None) if parsed is None else (parsed.producer, parsed.pseq)
            crc = value_crc32c(value)
            place = (topic, partition, record.offset)
            yield Served(*place, state, producer, pseq, crc, fields, header.crc, header.leader_epoch)
