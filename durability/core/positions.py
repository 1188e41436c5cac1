"""Where a stream stands: the offsets in Spark's checkpoint, and what became of the log behind them.

Besides offsets there are topic ids and leader epochs, which say that a topic was made again and that the
same offset holds another record. Pure: `durability.stream_source` asks the cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from holdfast.client.core.errors import ClientError
from holdfast.durability.core.epochs import Epochs, epoch_at
from holdfast.durability.read_options import BadOption, OffsetRange

#: Leader epochs of a partition that a checkpoint keeps.
EPOCHS_KEPT = 16

Place: TypeAlias = tuple[str, int]


class DataLost(ClientError):
    """Records that were asked for are not there, or are others than those that were read."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream stands in one partition."""

    #: next one to read
    offset: int
    #: of what was read before it, the newest ones
    epochs: Epochs = ()
    #: offsets that were lost, since the stream began (failOnDataLoss=false)
    lost: int = 0
    #: where the micro-batch that ends here begins, when that is not where the one before it ended
    begins: int | None = None

    @property
    def epoch(self) -> int:
        """Leader epoch of the record before it, -1 when it is not known."""
        return self.epochs[-1][0] if self.epochs else -1


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """An offset of Spark's: topic ids, and a position for each partition."""

    topic_ids: dict[str, str] = field(default_factory=dict)
    positions: dict[Place, Position] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values, the same ones for the same offsets."""
        made: dict[str, Any] = {}
        for (topic, partition), position in sorted(self.positions.items()):
            entry = made.setdefault(topic, {"id": self.topic_ids[topic], "partitions": {}})
            row: dict[str, Any] = {"offset": position.offset}
            if position.epochs:
                row["epochs"] = {str(epoch): first for epoch, first in position.epochs}
            if position.lost:
                row["lost"] = position.lost
            if position.begins is not None:
                row["begins"] = position.begins
            entry["partitions"][str(partition)] = row
        return made

    @staticmethod
    def parse(found: Mapping[str, Any]) -> "StreamOffsets":
        """The same again, out of a checkpoint. Raises: BadOption for offsets of another source."""
        try:
            return StreamOffsets._parsed(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadOption(
                f"option checkpointLocation: its offsets are of another source: {found!r:.200}"
            ) from error

    @staticmethod
    def _parsed(found: Mapping[str, Any]) -> "StreamOffsets":
        offsets = StreamOffsets()
        for topic, entry in found.items():
            offsets.topic_ids[topic] = entry["id"]
            for partition, row in entry["partitions"].items():
                epochs = sorted((int(epoch), first) for epoch, first in row.get("epochs", {}).items())
                offsets.positions[topic, int(partition)] = Position(
                    row["offset"], tuple(epochs), row.get("lost", 0), row.get("begins")
                )
        return offsets


# --- what became of the log ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """What the cluster says of one partition."""

    topic_id: str
    #: first offset that is kept
    start: int
    #: end of the committed part, exclusive
    end: int
    #: of the leader that named the end, or a later one: no record below the end is of a younger one
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that a stream has not got, or has got and that are gone."""

    place: Place
    #: for people
    sentence: str
    #: how many offsets at least
    count: int
    #: where the stream can go on
    resumes: int
    #: leader epochs that hold before that
    epochs: Epochs = ()


def loss_of(
    place: Place,
    topic_id: str,
    position: Position,
    log: PartitionLog,
    agreed: int,
    log_epochs: Epochs = (),
) -> Loss | None:
    """What was lost at this position, None for nothing.

    `agreed`: what was read before it is in the log (core.epochs). `log_epochs`: those of the log from there
    on, empty when it ends there.
    """
    name = f"{place[0]}-{place[1]}"
    if topic_id != log.topic_id:
        return Loss(
            place,
            f"{name}: the topic was deleted and made again (topic id {topic_id}, now {log.topic_id}); "
            f"the stream stood at offset {position.offset} of the old one",
            0,
            log.start,
        )
    if log.start > position.offset:
        return Loss(
            place,
            f"{name}: offsets {position.offset} to {log.start - 1} were deleted before they were read; "
            f"the log begins at {log.start}",
            log.start - position.offset,
            log.start,
        )
    if agreed < position.offset:
        sentence = _truncated(name, position, agreed, log_epochs)
        epochs = tuple((epoch, first) for epoch, first in position.epochs if first < agreed)
        return Loss(place, sentence, position.offset - agreed, agreed, epochs)
    return None


def _truncated(name: str, position: Position, agreed: int, log_epochs: Epochs) -> str:
    read_epoch = epoch_at(position.epochs, agreed)
    there = (
        f"the log holds another record there, of leader epoch {log_epochs[0][0]}"
        if log_epochs
        else "the log ends there"
    )
    return (
        f"{name}: the log was truncated: offset {agreed} was read in leader epoch {read_epoch}, and {there}; "
        f"the stream stood at offset {position.offset}"
    )


def resumed(position: Position, loss: Loss | None) -> Position:
    """Where the next micro-batch begins."""
    if loss is None:
        return replace(position, begins=None)
    return Position(loss.resumes, loss.epochs, position.lost + loss.count, begins=loss.resumes)


# --- how far to go -------------------------------------------------------------------------------------


def limited(begins: Mapping[Place, int], ends: Mapping[Place, int], most: int) -> dict[Place, int]:
    """Ends that are at most `most` offsets away from the beginnings, in proportion to what is there; each
    partition gets one at least as long as that is possible, the fullest ones first."""
    sizes = {place: end - begins[place] for place, end in ends.items() if end > begins[place]}
    total = sum(sizes.values())
    if total <= most:
        return dict(ends)
    by_size = sorted(sizes, key=lambda place: (-sizes[place], place))
    given = dict.fromkeys(by_size[:most], 1)
    left, spread = most - len(given), total - len(given)
    for place in given:
        given[place] += (sizes[place] - 1) * left // spread
    rest = most - sum(given.values())
    for place in given:
        more = min(rest, sizes[place] - given[place])
        given[place] += more
        rest -= more
    return {place: begins[place] + given.get(place, 0) for place in ends}


def advanced(begin: Position, end: int, log_epochs: Sequence[tuple[int, int]]) -> Position:
    """The position behind [begin, end), whose leader epochs are `log_epochs`."""
    epochs = dict(begin.epochs)
    for epoch, first in log_epochs:
        if first < end:
            epochs.setdefault(epoch, first)
    return replace(begin, offset=end, epochs=tuple(sorted(epochs.items())[-EPOCHS_KEPT:]))


def without_beginning(start: StreamOffsets, end: StreamOffsets) -> list[Place]:
    """Partitions that were planned into a micro-batch whose start does not know them: what is subscribed to,
    or what the cluster has, is less than when the stream's first micro-batch was planned."""
    return sorted(
        place
        for place, position in end.positions.items()
        if position.begins is None and place not in start.positions
    )


def ranges_between(start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
    """What a micro-batch reads, by topic and partition; empty ranges are left out, and what has no
    beginning."""
    left_out = set(without_beginning(start, end))
    found = []
    for (topic, partition), position in sorted(end.positions.items()):
        if (topic, partition) in left_out:
            continue
        begin = position.begins
        if begin is None:
            begin = start.positions[topic, partition].offset
        if begin < position.offset:
            topic_id = end.topic_ids[topic]
            found.append(OffsetRange(topic, partition, begin, position.offset, position.epochs, topic_id))
    return found
