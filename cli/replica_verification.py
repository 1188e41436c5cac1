"""`holdfast replica-verification`: compare the replicas of partitions with each other, through the brokers.

As Kafka's kafka-replica-verification, but once, from the first offset to the high watermark, and it ends.
"""

from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask, described
from holdfast.cli.options import INT32_MAX, CommandAnswer, bootstrap, output
from holdfast.cli.tables import table_lines
from holdfast.client.admin_configs import Resource
from holdfast.client.core.errors import ClientError
from holdfast.client.core.key_comparison import KeyComparison
from holdfast.client.core.replica_comparison import FindingKind, ReplicaComparison
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic
from holdfast.protocol.record_batch import iter_batches

Comparison = ReplicaComparison | KeyComparison

#: Pause before a replica that had nothing new is asked again.
_PAUSE_MS = 100
#: Time between two lines about the progress.
_PROGRESS_MS = 2_000
_CODES = {
    FindingKind.DIFFERS: "REPLICA_DIFFERS",
    FindingKind.BEHIND: "REPLICA_BEHIND",
    FindingKind.UNREADABLE: "REPLICA_UNREADABLE",
}
_STORAGE_ERROR = "its log is damaged or its log dir has failed; the broker's log says which"
_NO_LOG = "it has no log there now: its log dir failed, or the replica is being made"


@click.command()
@bootstrap
@click.option("--topic", "topics", multiple=True, help="Topic, again for more; without it all topics.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0, INT32_MAX),
    help="Partition of the one topic, again for more; without it all of them.",
)
@click.option(
    "--fetch-size",
    type=click.IntRange(1, INT32_MAX),
    default=1 << 20,
    show_default=True,
    help="Bytes read of a replica at a time.",
)
@output
def command(topics: tuple[str, ...], partitions: tuple[int, ...], fetch_size: int, **given: Any) -> None:
    """Read all replicas up to the high watermark and compare offsets, epochs and checksums of every batch; of
    a compacted topic the last record of each key.

    Exit code 0: all replicas of all partitions are the same; 1: some replica differs, is behind after
    --timeout-ms, or cannot be read.
    """
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition needs exactly one --topic")
    answer = CommandAnswer("replica-verification", [])

    async def act(session: AdminSession) -> None:
        verification = _Verification(session, fetch_size)
        await verification.look_up_brokers()
        chosen = await described(session, list(topics) or None)
        await verification.look_up_policies(chosen)
        for topic in chosen:
            for partition in _chosen(answer, topic, partitions):
                await verification.verify(topic, partition)

    ask(given, answer, act)
    answer.finish(given["output"], _text(answer))


def _chosen(
    answer: CommandAnswer, topic: DescribedTopic, wanted: tuple[int, ...]
) -> list[DescribedPartition]:
    there = {partition.partition_index: partition for partition in topic.partitions}
    for index in wanted:
        if index not in there:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
            message = f"the topic has partitions 0 to {len(there) - 1}"
            answer.errors.append({"code": code, "topic": topic.name, "partition": index, "message": message})
    return [partition for index, partition in sorted(there.items()) if not wanted or index in wanted]


class _Verification:
    """What one run of the command has found."""

    def __init__(self, session: AdminSession, fetch_size: int) -> None:
        self._session = session
        self._fetch_size = fetch_size
        self._addresses: dict[int, tuple[str, int]] = {}
        #: names of topics whose replicas are compacted, each by itself
        self._compacted: frozenset[str] = frozenset()
        self._read_bytes = 0
        self._progress_ms = session.clock.now_ms()

    async def look_up_brokers(self) -> None:
        cluster = await self._session.admin.describe_cluster(timeout_ms=self._session.timeout_ms)
        self._addresses = {row.broker_id: (row.host, row.port) for row in cluster.brokers}

    async def look_up_policies(self, topics: list[DescribedTopic]) -> None:
        """Which of these topics are compacted."""
        resources = [Resource.topic(topic.name) for topic in topics]
        found = await self._session.admin.describe_configs(
            resources, ["cleanup.policy"], timeout_ms=self._session.timeout_ms
        )
        self._compacted = frozenset(
            resource.name
            for resource, rows in found.items()
            if isinstance(rows, list) and any("compact" in (row.value or "") for row in rows)
        )

    async def verify(self, topic: DescribedTopic, partition: DescribedPartition) -> None:
        """Compare the replicas of one partition, and take down what was found."""
        clock = self._session.clock
        kind = KeyComparison if topic.name in self._compacted else ReplicaComparison
        comparison: Comparison = kind(partition.replicas, partition.leader_id)
        heard_ms = clock.now_ms()
        while wanted := comparison.wanted():
            for broker_id, offset in wanted.items():
                if await self._read(comparison, topic.topic_id, partition.partition_index, broker_id, offset):
                    heard_ms = clock.now_ms()
            self._show_progress(f"{topic.name}-{partition.partition_index}", comparison)
            if comparison.wanted() != wanted:
                continue
            if clock.now_ms() - heard_ms < self._session.timeout_ms:
                await clock.sleep(_PAUSE_MS)
                continue
            for broker_id in wanted:
                reason = "it has no more, and other replicas know that more is committed"
                comparison.give_up(broker_id, FindingKind.BEHIND, reason)
        self._take_down(topic.name, partition, comparison)

    async def _read(
        self, comparison: Comparison, topic_id: bytes, index: int, broker_id: int, offset: int
    ) -> bool:
        """Read on in one replica; False when there was nothing new."""
        session, address = self._session, self._addresses.get(broker_id)
        if address is None:
            comparison.give_up(broker_id, FindingKind.UNREADABLE, "the broker is not registered")
            return True
        try:
            row = await session.admin.fetch_from_replica(
                broker_id, address, topic_id, index, offset, self._fetch_size, timeout_ms=session.timeout_ms
            )
        except ClientError as error:
            comparison.give_up(broker_id, FindingKind.UNREADABLE, str(error))
            return True
        code = ErrorCode(row.error_code)
        if code is ErrorCode.NONE:
            self._read_bytes += len(row.records)
            batches = iter_batches(row.records)
            if isinstance(comparison, KeyComparison):
                return comparison.took(broker_id, row.high_watermark, batches)
            return comparison.took(broker_id, row.high_watermark, (header for header, _ in batches))
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            comparison.begins_at(row.log_start_offset)
            return row.log_start_offset > offset
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # its log was cut while it read
            return False
        reasons = {
            ErrorCode.KAFKA_STORAGE_ERROR: _STORAGE_ERROR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _NO_LOG,
        }
        comparison.give_up(broker_id, FindingKind.UNREADABLE, f"{code.name}: {reasons.get(code, 'refused')}")
        return True

    def _show_progress(self, name: str, comparison: Comparison) -> None:
        now_ms = self._session.clock.now_ms()
        if now_ms - self._progress_ms >= _PROGRESS_MS:
            self._progress_ms = now_ms
            done = len(self._session.answer.data)
            text = f"{done} partitions done, {name} up to offset {comparison.compared_offset}"
            click.echo(f"{text}, {self._read_bytes / (1 << 20):.0f} MiB read", err=True)

    def _take_down(self, topic: str, partition: DescribedPartition, comparison: Comparison) -> None:
        index = partition.partition_index
        for finding in comparison.findings:
            self._session.answer.errors.append(
                {
                    "code": _CODES[finding.kind],
                    "topic": topic,
                    "partition": index,
                    "broker": finding.broker_id,
                    "offset": finding.offset,
                    "message": f"broker {finding.broker_id} at offset {finding.offset}: {finding.reason}",
                }
            )
        self._session.answer.data.append(
            {
                "topic": topic,
                "partition": index,
                "replicas": list(partition.replicas),
                "leader": partition.leader_id,
                "start_offset": comparison.start_offset,
                "end_offset": comparison.compared_offset,
                "same": not comparison.findings,
                "odd_replicas": [finding.broker_id for finding in comparison.findings],
            }
        )


def _text(answer: CommandAnswer) -> str:
    rows = [
        (
            f"{row['topic']}-{row['partition']}",
            ",".join(map(str, row["replicas"])),
            f"{row['start_offset']} to {row['end_offset']}",
            "yes" if row["same"] else f"no, look at broker {','.join(map(str, row['odd_replicas']))}",
        )
        for row in answer.data
    ]
    return "\n".join(table_lines(("PARTITION", "REPLICAS", "OFFSETS", "SAME"), rows))
