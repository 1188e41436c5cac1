"""A metadata log under years of flapping: what a node keeps of it on disk, and how fast it starts again.

One voter on real files takes batches of changes of ISRs, as an active controller writes them, and makes
snapshots on the way. Back of an envelope: a change is 60 bytes and 30 us of replay and history; 10 M of them
are 600 MB of log, of which two snapshots and three times the threshold remain. A start reads 60 MB: seconds.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from holdfast.bench.figures import table
from holdfast.bench.machine import describe
from holdfast.bench.report import finish, note
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    StoredDecision,
    TopicRecord,
    decode_record,
    encode_record,
)
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, snapshot_values
from holdfast.raft.committed import CommittedEntry
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.driver import RaftDriver
from holdfast.raft.metadata_log import open_voters_log
from holdfast.raft.snapshot_files import SnapshotSource
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from holdfast.storage.log import Log

_TOPIC = b"t" * 16
_VOTER = 1
_BATCH = 250
_PAUSE_S = 0.002


@click.command()
@click.option("--changes", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--snapshot-bytes", type=click.IntRange(1), default=20 << 20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of tables.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Where the log lives; the system's temporary folder by default.",
)
def main(changes: int, partitions: int, snapshot_bytes: int, as_json: bool, folder: Path | None) -> None:
    """Write changes of ISRs into the log of one voter; then start it again."""
    rows: dict[str, Any] = {}

    async def work(runtime: Runtime) -> int:
        with TemporaryDirectory(dir=folder) as place:
            node = _Node(runtime, Path(place), snapshot_bytes)
            await node.start()
            rows.update(await _flap(node, changes, partitions))
            image = node.image
            await node.stop()
            rows["disk_after_mb"] = node.disk_bytes() / 1e6
            again = _Node(runtime, Path(place), snapshot_bytes)
            started, used = time.monotonic(), time.process_time()
            await again.start()
            rows["restart_s"] = time.monotonic() - started
            rows["restart_cpu_s"] = time.process_time() - used
            # its own new LeaderChange record is behind all that was there
            assert again.image.topics == image.topics
            assert again.history.changes_of(PartitionId(_TOPIC, 0)), "the last changes are known"
            rows["loaded_offset"] = again.loaded_offset
            await again.stop()
        return 0

    if (code := run(work)) != 0:
        raise SystemExit(code)
    data = {"machine": describe(), "changes": changes, "partitions": partitions, "figures": rows}
    text = table(("figure", "value"), [(name, f"{value:,.2f}") for name, value in rows.items()])
    finish("bench-metadata-log", data, text, as_json=as_json)


class _Node:
    """One voter with the state that a controller would have."""

    def __init__(self, runtime: Runtime, place: Path, snapshot_bytes: int) -> None:
        self.image = MetadataImage()
        self.history = MetadataHistory()
        self.loaded_offset = 0
        self._runtime = runtime
        self._folder = place / "log"
        self._config = RaftConfig(
            _VOTER, "bench", {_VOTER: ("127.0.0.1", 1)}, str(place), True, snapshot_bytes=snapshot_bytes
        )
        self._log: Log
        self.driver: RaftDriver
        self._changed = asyncio.Event()
        self.start_offset: int | None = None

    async def start(self) -> None:
        """Until all that is in the log is applied."""
        self._log = await open_voters_log(self._runtime, str(self._folder))
        self.driver = RaftDriver(self._runtime, self._config, self._log, self)
        await self.driver.start()
        while self.start_offset is None or self.image.offset <= self.start_offset:
            await self._wait()

    async def stop(self) -> None:
        """In order."""
        await self.driver.stop()
        await self._log.close(flush=True)

    async def write(self, records: Sequence[MetadataRecord]) -> None:
        """Append one batch, and wait until it is committed and applied."""
        base_offset = self.driver.append(list(map(encode_record, records)), self.driver.raft_epoch)
        while self.image.offset < base_offset + len(records):
            await self._wait()

    def disk_bytes(self) -> int:
        """Of all files of the log."""
        return sum(path.stat().st_size for path in self._folder.iterdir())

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- as the owner of the metadata ------------------------------------------------------------------

    def on_committed(self, entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        """Replay, as a standby controller does."""
        delta = MetadataDelta(self.image)
        records = [CommittedRecord(one.offset, one.timestamp_ms, decode_record(one.value)) for one in entries]
        for one, committed in zip(entries, records, strict=True):
            delta.replay(committed.record, one.offset, one.raft_epoch)
        self.history.note(self.image, records)
        self.image = delta.apply(committed_offset)
        self._changed.set()

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        """The only voter leads."""
        self.start_offset = epoch_start_offset

    def on_voters_wanted(self, raft_epoch: int) -> None:
        """The directory of the voter has its place at once."""
        self.driver.append_voters(raft_epoch)

    def snapshot_source(self) -> SnapshotSource | None:
        """The state as it is now."""
        values = snapshot_values(MetadataState(self.image, self.history))
        return SnapshotSource(self.image.offset, values)

    def snapshot_sink(self) -> SnapshotReader:
        """Reads a snapshot."""
        return SnapshotReader()

    def on_snapshot(self, state: MetadataState, offset: int) -> None:
        """Begin with it."""
        self.image, self.history, self.loaded_offset = state.image, state.history, offset
        self._changed.set()

    def on_later_snapshot(self, reason: str) -> None:
        """This build has made it."""
        raise AssertionError(reason)


def _change(index: int, isr: tuple[int, ...]) -> PartitionChangeRecord:
    """As the leader asks for it, with the reason."""
    return PartitionChangeRecord(
        topic_id=_TOPIC,
        partition_index=index,
        isr=isr,
        leader=None,
        replicas=None,
        removing_replicas=None,
        adding_replicas=None,
        original_replicas=None,
        elr=None,
        last_known_elr=None,
        last_known_leader=None,
        leader_recovery_state=None,
        min_isr=None,
        decision=StoredDecision(10, 1, 0, 0, (), ()),
    )


async def _flap(node: _Node, changes: int, partitions: int) -> dict[str, float]:
    """Replicas leave the ISR and come back, one partition after the other."""
    await node.write([TopicRecord("t", _TOPIC)])
    full = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 0, 0, 2)
    indexes = range(partitions)
    for start in range(0, partitions, _BATCH):
        await node.write([full.to_record(_TOPIC, index) for index in indexes[start : start + _BATCH]])
    longest_s, is_over = 0.0, False

    async def look_at_turns() -> None:
        nonlocal longest_s
        while not is_over:
            before = time.monotonic()
            await asyncio.sleep(_PAUSE_S)
            longest_s = max(longest_s, time.monotonic() - before - _PAUSE_S)

    looking = asyncio.ensure_future(look_at_turns())
    began, used, disk_max, written = time.monotonic(), time.process_time(), 0, 0
    while written < changes:
        isr = (1, 2) if written // partitions % 2 == 0 else (1, 2, 3)
        count = min(_BATCH, changes - written)
        batch = [_change((written + number) % partitions, isr) for number in range(count)]
        await node.write(batch)
        written += len(batch)
        if written % (100 * _BATCH) == 0:
            disk_max = max(disk_max, node.disk_bytes())
            note(f"{written:,} changes, {node.disk_bytes() / 1e6:,.1f} MB on disk")
    took_s, is_over = time.monotonic() - began, True
    cpu_us = (time.process_time() - used) * 1e6
    await looking
    return {
        "changes_per_s": changes / took_s,
        "cpu_us_per_change": cpu_us / changes,
        "disk_max_mb": disk_max / 1e6,
        "longest_turn_ms": longest_s * 1e3,
    }


if __name__ == "__main__":
    main()
