"""Years of flapping ISRs: what each node keeps of the metadata log on disk, and how fast it starts again.

Three voters and an observer, which is what a broker is to the quorum, live in one process, on real files and
loopback sockets. Batches of changes of ISRs are appended as an active controller appends them; every node
replays them, keeps the history that `explain` tells, and makes snapshots on the way. Then each is stopped and
started, one after the other, and its folder is read as `holdfast explain --metadata-dir` reads it.

Back of an envelope: a change is 60 bytes and 30 us of replay and history on each node; 10 M of them are
600 MB of log, of which two snapshots and three times the threshold remain. A start reads 60 MB: seconds.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from holdfast.bench.cluster import process_usage
from holdfast.bench.figures import table
from holdfast.bench.machine import describe
from holdfast.bench.report import finish, folder_option
from holdfast.cli.inspect.metadata_log import read_folder
from holdfast.cli.inspect.partition_story import story_of
from holdfast.cli.options import output
from holdfast.cli.progress import Progress
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
from holdfast.protocol.api_keys import ApiKey
from holdfast.raft.committed import CommittedEntry
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.driver import RaftDriver
from holdfast.raft.metadata_log import open_voters_log
from holdfast.raft.snapshot_files import SnapshotSource
from holdfast.rpc.server import Exchange, Server
from holdfast.runtime.api import Runtime
from holdfast.runtime.real.machine import run
from holdfast.storage.core.config import LogConfig
from holdfast.storage.log import Log

TOPIC = "t"
_TOPIC_ID = b"t" * 16
_BATCH = 250
#: records that may be under way, as under load: followers and observers fetch several batches at once
_UNDER_WAY_MAX = 2_000
_LOOK_EACH = 25_000
_HOST = "127.0.0.1"
#: what members ask of a voter
_SERVED = (
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
)
#: One node's turn is a pause of all, since they share a process: it shall not look like a dead leader.
_PATIENCE_MS = 60_000


@click.command()
@click.option("--changes", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--voters", type=click.IntRange(1), default=3, show_default=True)
@click.option("--observers", type=click.IntRange(0), default=1, show_default=True, help="What brokers are.")
@click.option("--snapshot-bytes", type=click.IntRange(1), default=20 << 20, show_default=True)
@folder_option("Where the logs live")
@output
def main(
    changes: int,
    partitions: int,
    voters: int,
    observers: int,
    snapshot_bytes: int,
    folder: Path | None,
    output: str,
) -> None:
    """Write changes of ISRs into the metadata log of a quorum; then start each of its nodes again."""
    found: dict[str, Any] = {}

    async def work(runtime: Runtime) -> int:
        with TemporaryDirectory(dir=folder) as place, Progress() as progress:
            quorum = _Quorum(runtime, Path(place), voters, observers, snapshot_bytes)
            await quorum.start()
            found["load"] = await _flap(quorum, changes, partitions, progress)
            progress.phase("Nodes start again", len(quorum.nodes), "nodes")
            found["nodes"] = await _start_again(quorum, partitions, progress)
            await quorum.stop()
        return 0

    if (code := run(work)) != 0:
        raise SystemExit(code)
    data = {
        "machine": describe(),
        "changes": changes,
        "partitions": partitions,
        "snapshot_bytes": snapshot_bytes,
        **found,
    }
    finish("bench-metadata-log", data, _text(data), as_json=output == "json")


def _text(data: Mapping[str, Any]) -> str:
    load = data["load"]
    row = [f"{load[name]:,.0f}" for name in ("seconds", "changes_per_s", "cpu_us_per_change", "rss_mb")]
    first = table(
        (f"{data['changes']:,} CHANGES", "s", "changes/s", "us of CPU a change, all nodes", "RSS MB"),
        [(f"{data['partitions']:,} partitions, {len(data['nodes'])} nodes", *row)],
    )
    rows = [
        (
            name,
            f"{node['disk_max_mb']:.1f}",
            f"{node['disk_mb']:.1f}",
            f"{node['restart_s']:.2f}",
            str(node["explained_changes"]),
        )
        for name, node in data["nodes"].items()
    ]
    return first + "\n" + table(("NODE", "disk MB, most", "at the end", "restart s", "changes told"), rows)


class _Node:
    """One member of the quorum with the state that a controller or a broker would have."""

    def __init__(self, runtime: Runtime, config: RaftConfig, changed: Callable[[], None]) -> None:
        self.config = config
        self.name = f"{'voter' if config.is_voter else 'observer'} {config.node_id}"
        self.log_folder = Path(config.folder) / "log"
        self.disk_max = 0
        self._runtime = runtime
        self._changed = changed
        self._log: Log
        self.driver: RaftDriver
        self.image: MetadataImage
        self.history: MetadataHistory

    async def open(self) -> None:
        """Without a part in the quorum yet: `driver.start` takes it, with what is on the disk."""
        self.image, self.history = MetadataImage(), MetadataHistory()
        if self.config.is_voter:
            self._log = await open_voters_log(self._runtime, str(self.log_folder))
        else:
            kept = LogConfig(segment_ms=None, retention_ms=None)
            self._log = await Log.open(
                self._runtime, str(self.log_folder), kept, clean=False, may_begin_later=True
            )
        self.driver = RaftDriver(self._runtime, self.config, self._log, self)

    async def stop(self) -> None:
        """In order."""
        await self.driver.stop()
        await self._log.close(flush=True)

    def receive(self, exchange: Exchange) -> None:
        """A request of another member."""
        self.driver.handlers()[exchange.api_key](exchange)

    def disk_bytes(self) -> int:
        """Of all files; threads of the node delete some meanwhile."""
        found = 0
        for path in Path(self.config.folder).rglob("*"):
            with suppress(FileNotFoundError):
                found += path.stat().st_size if path.is_file() else 0
        self.disk_max = max(self.disk_max, found)
        return found

    # --- as the owner of the metadata ------------------------------------------------------------------

    def on_committed(self, entries: Sequence[CommittedEntry], committed_offset: int) -> None:
        """Replay, as a standby controller does."""
        delta = MetadataDelta(self.image)
        records = [CommittedRecord(one.offset, one.timestamp_ms, decode_record(one.value)) for one in entries]
        for one, committed in zip(entries, records, strict=True):
            delta.replay(committed.record, one.offset, one.raft_epoch)
        self.history.note(self.image, records)
        self.image = delta.apply(committed_offset)
        self._changed()

    def on_leader_change(
        self, leader_id: int | None, raft_epoch: int, epoch_start_offset: int | None
    ) -> None:
        """Who waits for a leader looks again."""
        self._changed()

    def on_voters_wanted(self, raft_epoch: int) -> None:
        """The directories of the voters have their place at once."""
        self.driver.append_voters(raft_epoch)

    def snapshot_source(self) -> SnapshotSource | None:
        """The state as it is now."""
        values = snapshot_values(MetadataState(self.image, self.history))
        return SnapshotSource(self.image.offset, values) if self.image.offset else None

    def snapshot_sink(self) -> SnapshotReader:
        """Reads a snapshot."""
        return SnapshotReader()

    def on_snapshot(self, state: MetadataState, offset: int) -> None:
        """Begin with it."""
        self.image, self.history = state.image, state.history
        self._changed()

    def on_later_snapshot(self, reason: str) -> None:
        """This build has made it."""
        raise AssertionError(reason)


class _Quorum:
    """Voters and observers in one process, each with files of its own."""

    def __init__(
        self, runtime: Runtime, place: Path, voters: int, observers: int, snapshot_bytes: int
    ) -> None:
        self.nodes: list[_Node] = []
        self._runtime = runtime
        self._addresses: dict[int, tuple[str, int]] = {}
        self._servers: list[Server] = []
        self._changed = asyncio.Event()
        for node_id in range(1, voters + observers + 1):
            config = RaftConfig(
                node_id,
                "bench",
                self._addresses,
                str(place / str(node_id)),
                node_id <= voters,
                fetch_timeout_ms=_PATIENCE_MS,
                snapshot_bytes=snapshot_bytes,
            )
            self.nodes.append(_Node(runtime, config, self._changed.set))

    async def start(self) -> None:
        """Until a voter leads."""
        for node in self.nodes:
            if node.config.is_voter:
                handlers = dict.fromkeys(_SERVED, node.receive)
                server = Server(self._runtime, node.config.node_id, "CONTROLLER", handlers)
                self._addresses[node.config.node_id] = (_HOST, await server.start(_HOST, 0))
                self._servers.append(server)
        for node in self.nodes:
            await node.open()
        for node in self.nodes:
            await node.driver.start()
        await self.leader()

    async def stop(self) -> None:
        """In order."""
        for node in self.nodes:
            await node.stop()
        for server in self._servers:
            await server.close()

    async def leader(self) -> _Node:
        """Who leads now, and has applied all before its epoch."""
        while True:
            for node in self.nodes:
                start = node.driver.epoch_start_offset
                if start is not None and node.image.offset > start:
                    return node
            await self.wait()

    async def applied(self, offset: int, nodes: Sequence[_Node]) -> None:
        """Until these nodes have applied everything below the offset."""
        while any(node.image.offset < offset for node in nodes):
            await self.wait()

    async def wait(self) -> None:
        """Until something has changed in a node."""
        self._changed.clear()
        await self._changed.wait()


async def _flap(quorum: _Quorum, changes: int, partitions: int, progress: Progress) -> dict[str, float]:
    """Replicas leave the ISR and come back, one partition after the other."""
    leader = await quorum.leader()

    async def write(records: Sequence[MetadataRecord]) -> None:
        base_offset = leader.driver.append(list(map(encode_record, records)), leader.driver.raft_epoch)
        await quorum.applied(base_offset + len(records) - _UNDER_WAY_MAX, quorum.nodes)

    await write([TopicRecord(TOPIC, _TOPIC_ID)])
    full = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 0, 0, 2)
    indexes = range(partitions)
    for start in range(0, partitions, _BATCH):
        await write([full.to_record(_TOPIC_ID, index) for index in indexes[start : start + _BATCH]])
    progress.phase("Partitions change", changes, "changes")
    began, used, written = time.monotonic(), time.process_time(), 0
    while written < changes:
        isr = (1, 2) if written // partitions % 2 == 0 else (1, 2, 3)
        count = min(_BATCH, changes - written, partitions - written % partitions)
        await write([_change((written + number) % partitions, isr) for number in range(count)])
        written += count
        if written // _LOOK_EACH > (written - count) // _LOOK_EACH:
            disk_mb = max(node.disk_bytes() for node in quorum.nodes) / 1e6
            progress.at(written, f"Partitions change, {disk_mb:,.0f} MB on the disk of a node")
    await quorum.applied(leader.driver.log_end_offset, quorum.nodes)
    took_s, cpu_s = time.monotonic() - began, time.process_time() - used
    return {
        "seconds": took_s,
        "changes_per_s": changes / took_s,
        "cpu_us_per_change": cpu_s * 1e6 / changes,
        "rss_mb": process_usage(os.getpid()).rss_mb,
    }


async def _start_again(quorum: _Quorum, partitions: int, progress: Progress) -> dict[str, dict[str, float]]:
    """Each node, one after the other; what it has on its disk, and how much `explain` tells."""
    found: dict[str, dict[str, float]] = {}
    for number, node in enumerate(quorum.nodes):
        before = node.image
        disk_bytes = node.disk_bytes()
        await node.stop()
        told = _explained(node, partitions)
        began, used = time.monotonic(), time.process_time()
        await node.open()
        await node.driver.start()
        await quorum.applied(before.offset, [node])
        found[node.name] = {
            "disk_max_mb": node.disk_max / 1e6,
            "disk_mb": disk_bytes / 1e6,
            "restart_s": time.monotonic() - began,
            "restart_cpu_s": time.process_time() - used,
            "explained_changes": told,
        }
        assert node.image.topics == before.topics, f"{node.name} is not what it was"
        await quorum.leader()
        progress.at(number + 1)
    return found


def _explained(node: _Node, partitions: int) -> int:
    """How many changes `explain` tells of a partition, from the folder of a stopped node: the fewest of the
    first and the last partition. The last ones are among them, or this fails."""
    log, _ = read_folder(node.log_folder)
    counts = []
    for index in (0, partitions - 1):
        steps = story_of(log.records, TOPIC, index, log.base).steps
        known = node.history.changes_of(PartitionId(_TOPIC_ID, index))
        told = [step.logged.offset for step in steps[-len(known) :]]
        assert told == [change.offset for change in known], f"{node.name}: {told}, and not {known}"
        counts.append(len(steps))
    return min(counts)


def _change(index: int, isr: tuple[int, ...]) -> PartitionChangeRecord:
    """As the leader asks for it, with the reason."""
    return PartitionChangeRecord(
        topic_id=_TOPIC_ID,
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


if __name__ == "__main__":
    main()
