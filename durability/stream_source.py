"""`readStream.format("holdfast")`: topics as a stream whose checkpoint notices truncation (docs/spark.md).

Owns the questions for a micro-batch; what follows from the answers is decided in `durability.core`. Runs in a
Python process of its own beside the driver, which keeps one connection to each broker.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from holdfast.client.core.errors import ClientError
from holdfast.durability.arrow import Columns
from holdfast.durability.cluster_offsets import ClusterOffsets, FoundPartition
from holdfast.durability.core.epochs import DivergenceCheck, Epochs, EpochWalk
from holdfast.durability.core.positions import (
    DataLost,
    Loss,
    PartitionLog,
    Place,
    Position,
    StreamOffsets,
    advanced,
    limited,
    loss_of,
    ranges_between,
    resumed,
    without_beginning,
)
from holdfast.durability.range_reader import RangePartition, read_partition, spark_partitions
from holdfast.durability.read_options import OffsetRange, ReadOptions
from holdfast.protocol.errors import ErrorCode

_log = logging.getLogger("holdfast.spark")


class HoldfastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, reads them on the executors."""

    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._cluster: ClusterOffsets | None = None
        #: ends of Trigger.AvailableNow
        self._target: dict[Place, int] | None = None
        #: what this process has planned itself, and so seen in the log
        self._planned: dict[str, Any] | None = None
        self._latest: dict[str, Any] | None = None
        self._triggered_ms: int | None = None
        #: warnings, each of which is given once
        self._said: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        # executors need what `read` needs
        return {"_options": self._options, "_columns": self._columns}

    # --- Spark's calls --------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        cluster = self._asked()
        places = cluster.partitions()
        begins = cluster.resolve(places, self._options.starting, "startingOffsets")
        logs = cluster.logs(places)
        positions: dict[Place, Position] = {}
        losses = []
        for place, log in logs.items():
            inside = min(max(begins[place], log.start), log.end)
            if inside != begins[place]:
                losses.append(_outside(place, begins[place], log, inside))
            positions[place] = Position(inside)
        self._lose(losses)
        # the record before a position says which log that is
        walks = {
            place: EpochWalk(position.offset - 1, logs[place].leader_epoch)
            for place, position in positions.items()
            if position.offset > logs[place].start
        }
        cluster.answer(walks)
        for place, walk in walks.items():
            positions[place] = replace(positions[place], epochs=walk.epochs[:1])
        return StreamOffsets(_topic_ids(places), positions).as_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        cluster = self._asked()
        before = StreamOffsets.parse(start)
        logs = cluster.logs(self._places(before))
        begins = self._begins(before, logs)
        ends = {place: max(log.end, begins[place].offset) for place, log in logs.items()}
        self._latest = StreamOffsets(
            {place[0]: log.topic_id for place, log in logs.items()},
            {place: Position(end) for place, end in ends.items()},
        ).as_json()
        if self._target is not None:
            ends = {
                place: min(end, max(self._target.get(place, 0), begins[place].offset))
                for place, end in ends.items()
            }
        available = sum(end - begins[place].offset for place, end in ends.items())
        has_loss = any(
            position.begins is not None for place, position in begins.items() if place in before.positions
        )
        if not has_loss and (available == 0 or self._waits_for_more(available, limit)):
            return start
        if isinstance(limit, ReadMaxRows):
            offsets = {place: position.offset for place, position in begins.items()}
            ends = limited(offsets, ends, limit.max_rows)
        self._triggered_ms = cluster.now_ms()
        self._planned = self._advance(before, logs, begins, ends).as_json()
        return self._planned

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        cluster = self._asked()
        self._target = {place: log.end for place, log in cluster.logs(cluster.partitions()).items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        if start == end:
            return []
        before, after = StreamOffsets.parse(start), StreamOffsets.parse(end)
        if unknown := without_beginning(before, after):
            self._pass_over(unknown, self._asked().partitions(), after)
        ranges = ranges_between(before, after)
        if end != self._planned and ranges:
            # an earlier process planned it: the log may be another one by now
            ranges = self._still_there(after, ranges)
        return spark_partitions(self._options, ranges)

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._columns)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    # --- the plan -------------------------------------------------------------------------------------

    def _asked(self) -> ClusterOffsets:
        if self._cluster is None:
            self._cluster = ClusterOffsets(self._options)
        return self._cluster

    def _places(self, before: StreamOffsets) -> dict[Place, FoundPartition]:
        """The partitions there are, those among them that went with their topic. Raises: DataLost."""
        places = self._asked().partitions()
        gone = sorted(set(before.positions).difference(places))
        if lost := [place for place in gone if not self._is_unknown_yet(place, places, before)]:
            self._lose_sentence(_no_longer_there(lost))
        return places

    def _is_unknown_yet(
        self, place: Place, places: Mapping[Place, FoundPartition], offsets: StreamOffsets
    ) -> bool:
        """True for a partition without which its topic is described: no topic gets fewer, so a broker has
        answered that does not know all of them yet."""
        return (
            self._options.assign is None and _topic_ids(places).get(place[0]) == offsets.topic_ids[place[0]]
        )

    def _pass_over(
        self, gone: list[Place], places: Mapping[Place, FoundPartition], planned: StreamOffsets
    ) -> None:
        """Read nothing of these, although a micro-batch was planned with them. Raises: DataLost; ClientError
        for one that is only unknown yet: what is passed over is never read."""
        if any(self._is_unknown_yet(place, places, planned) for place in gone):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ClientError(f"{_names(gone)}: {code.name}, though the stream reads them", code)
        self._lose_sentence(_no_longer_there(gone))

    def _begins(self, before: StreamOffsets, logs: dict[Place, PartitionLog]) -> dict[Place, Position]:
        """Where the micro-batch begins in each partition; new partitions begin at the start of their log.
        Raises: DataLost."""
        known = {place: before.positions[place] for place in logs if place in before.positions}
        losses = self._losses(before, known, logs)
        self._lose(list(losses.values()))
        begins = {place: resumed(position, losses.get(place)) for place, position in known.items()}
        for place in logs.keys() - known.keys():
            begins[place] = Position(logs[place].start, begins=logs[place].start)
        return dict(sorted(begins.items()))

    def _losses(
        self, offsets: StreamOffsets, positions: dict[Place, Position], logs: dict[Place, PartitionLog]
    ) -> dict[Place, Loss]:
        """What the logs no longer have of what was read before these positions."""
        checks = {
            place: DivergenceCheck(position.epochs, position.offset)
            for place, position in positions.items()
            if offsets.topic_ids[place[0]] == logs[place].topic_id and logs[place].start < position.offset
        }
        self._asked().answer(checks)
        parted = {
            place: check.agreed for place, check in checks.items() if check.agreed < positions[place].offset
        }
        others = self._epochs_from(parted, logs)
        found = {}
        for place, position in positions.items():
            agreed = parted.get(place, position.offset)
            topic_id = offsets.topic_ids[place[0]]
            loss = loss_of(place, topic_id, position, logs[place], agreed, others.get(place, ()))
            if loss is not None:
                found[place] = loss
        return found

    def _epochs_from(self, begins: dict[Place, int], logs: dict[Place, PartitionLog]) -> dict[Place, Epochs]:
        walks = {place: EpochWalk(begin, logs[place].leader_epoch) for place, begin in begins.items()}
        self._asked().answer(walks)
        return {place: walk.epochs for place, walk in walks.items()}

    def _waits_for_more(self, available: int, limit: ReadLimit) -> bool:
        """minOffsetsPerTrigger, as long as maxTriggerDelay allows."""
        options = self._options
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        if available >= options.min_offsets_per_trigger or self._triggered_ms is None:
            return False
        return self._asked().now_ms() - self._triggered_ms < options.max_trigger_delay_ms

    def _advance(
        self,
        before: StreamOffsets,
        logs: dict[Place, PartitionLog],
        begins: dict[Place, Position],
        ends: dict[Place, int],
    ) -> StreamOffsets:
        moving = {place: begins[place].offset for place, end in ends.items() if end > begins[place].offset}
        # a leader that led already when the position was taken has only added to its epoch
        to_ask = {
            place: at for place, at in moving.items() if begins[place].epoch != logs[place].leader_epoch
        }
        epochs = self._epochs_from(to_ask, logs)
        ids_now = before.topic_ids | {place[0]: log.topic_id for place, log in logs.items()}
        stood = {
            place: replace(position, begins=None)
            for place, position in before.positions.items()
            # a topic that was made again has no more of the partitions that only the old one had
            if place in logs or ids_now[place[0]] == before.topic_ids[place[0]]
        }
        after = StreamOffsets(dict(before.topic_ids), stood)
        for place, begin in begins.items():
            if place not in moving and place not in before.positions:
                continue  # nothing of it is read: it is as new the next time
            after.topic_ids[place[0]] = logs[place].topic_id
            after.positions[place] = advanced(begin, ends[place], epochs.get(place, ()))
        return after

    def _still_there(self, after: StreamOffsets, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """The ranges of a micro-batch that was planned earlier, without what is gone since. Raises:
        DataLost, ClientError."""
        places = self._asked().partitions()
        if gone := sorted(set(after.positions).difference(places)):
            self._pass_over(gone, places, after)
        logs = self._asked().logs(places)
        known = {place: after.positions[place] for place in after.positions if place in logs}
        losses = self._losses(after, known, logs)
        self._lose(list(losses.values()))
        kept = []
        for item in ranges:
            place = (item.topic, item.partition)
            if place not in logs or after.topic_ids[item.topic] != logs[place].topic_id:
                continue
            end = losses[place].resumes if place in losses else item.end
            start = max(item.start, logs[place].start)
            if start < min(item.end, end):
                kept.append(replace(item, start=start, end=min(item.end, end)))
        return kept

    # --- losses ---------------------------------------------------------------------------------------

    def _lose(self, losses: list[Loss]) -> None:
        if losses:
            self._lose_sentence("; ".join(loss.sentence for loss in losses))

    def _lose_sentence(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{sentence} (failOnDataLoss=false counts it and goes on)")
        if sentence not in self._said:
            self._said.add(sentence)
            _log.warning("%s", sentence)


def _topic_ids(places: Mapping[Place, FoundPartition]) -> dict[str, str]:
    return {place[0]: found.topic_id for place, found in places.items()}


def _names(places: Iterable[Place]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in places)


def _no_longer_there(places: Iterable[Place]) -> str:
    return f"{_names(places)}: no longer there, though the stream reads them"


def _outside(place: Place, offset: int, log: PartitionLog, inside: int) -> Loss:
    sentence = (
        f"option startingOffsets: {place[0]}-{place[1]} has no offset {offset}: its log begins at "
        f"{log.start} and ends at {log.end}"
    )
    return Loss(place, sentence, abs(offset - inside), inside)
