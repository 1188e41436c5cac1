"""What the Spark source asks a cluster for: partitions, offsets, leader epochs. Blocks; driver and executors
call it from plain functions.

Owns an event loop that runs while a question is out, and one connection to each broker.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError
from holdfast.client.list_offsets import FoundOffset
from holdfast.durability.core.positions import PartitionLog, Place
from holdfast.durability.read_options import (
    EARLIEST,
    LATEST,
    BadOption,
    OffsetSpec,
    ReadOptions,
    Timestamps,
    check_named,
    offset_of,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.real.machine import new_event_loop, real_runtime

T = TypeVar("T")


class OwnLoop:
    """An event loop that runs when it is asked to: Spark's readers are plain generators."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self.runtime = real_runtime()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; tasks that it started wait for the next call."""
        return self._runner.run(work)

    def close(self) -> None:
        """Cancel what is left and end the loop."""
        self._runner.run(self.runtime.tasks.cancel_all())
        self._runner.close()


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition as metadata has it."""

    topic_id: str
    leader_epoch: int


class HasQuestion(Protocol):
    """core.epochs.EpochWalk or DivergenceCheck."""

    question: int | None

    def heard(self, epoch: int, end_offset: int) -> None:
        """The answer to `question`."""


class ClusterOffsets:
    """Questions to the cluster that the options name. All raise ClientError."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._loop = OwnLoop()
        self._timeout_ms = options.poll_timeout_ms
        self._admin = Admin(
            options.bootstrap_servers, client_id=options.client_id, runtime=self._loop.runtime
        )

    def close(self) -> None:
        """End all connections."""
        self._loop.run(self._admin.close())
        self._loop.close()

    def now_ms(self) -> int:
        """Time that only ever grows."""
        return self._loop.runtime.clock.now_ms()

    def partitions(self) -> dict[Place, FoundPartition]:
        """All partitions asked for, sorted; none when a pattern matches no topic."""
        return self._loop.run(self._partitions())

    async def _partitions(self) -> dict[Place, FoundPartition]:
        options = self._options
        if options.assign is not None:
            names = sorted(options.assign)
        elif options.subscribe_pattern is not None:
            pattern = re.compile(options.subscribe_pattern)
            listed = await self._admin.list_topics(timeout_ms=self._timeout_ms)
            names = [name for name in listed if pattern.search(name)]  # as Spark's Kafka source
        else:
            names = sorted(set(options.subscribe or ()))
        found: dict[Place, FoundPartition] = {}
        # of no names all topics would be described
        for topic in await self._admin.describe_topics(names, timeout_ms=self._timeout_ms) if names else ():
            if options.subscribe_pattern is not None and (
                topic.is_internal or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ):
                continue  # no pattern means the cluster's own topics; the other was deleted a moment ago
            if topic.error_code != ErrorCode.NONE:
                code = ErrorCode(topic.error_code)
                raise ClientError(
                    f"topic {topic.name}: {code.name}; `holdfast topics --list` shows them", code
                )
            for row in topic.partitions:
                place = (topic.name, row.partition_index)
                found[place] = FoundPartition(topic.topic_id.hex(), row.leader_epoch)
        return dict(sorted(_assigned(found, options.assign).items()))

    def list_offsets(self, timestamps: Mapping[Place, int]) -> dict[Place, int]:
        """Offsets for ms since 1970, EARLIEST or LATEST; -1 when no record is that young."""
        return {place: row.offset for place, row in self._found_offsets(timestamps).items()}

    def _found_offsets(self, timestamps: Mapping[Place, int]) -> dict[Place, FoundOffset]:
        if not timestamps:
            return {}
        found = self._loop.run(self._admin.list_offsets(timestamps, timeout_ms=self._timeout_ms))
        return {(place.topic, place.partition): row for place, row in found.items()}

    def logs(self, places: Mapping[Place, FoundPartition]) -> dict[Place, PartitionLog]:
        """What is there of each partition."""
        starts = self.list_offsets(dict.fromkeys(places, EARLIEST))
        ends = self._found_offsets(dict.fromkeys(places, LATEST))
        return {
            place: PartitionLog(
                found.topic_id,
                starts[place],
                ends[place].offset,
                # the leader that named the end may be younger than the metadata, and so may records below it
                max(found.leader_epoch, ends[place].leader_epoch),
            )
            for place, found in places.items()
        }

    def answer(self, asking: Mapping[Place, HasQuestion]) -> None:
        """Put all questions for the ends of leader epochs, until there is none left."""
        while True:
            wanted = {place: item.question for place, item in asking.items() if item.question is not None}
            if not wanted:
                return
            found = self._loop.run(self._admin.epoch_ends(wanted, timeout_ms=self._timeout_ms))
            for place in wanted:
                asking[place].heard(*found[TopicPartition(*place)])

    def resolve(
        self, wanted: Iterable[Place], spec: OffsetSpec | Timestamps, option: str
    ) -> dict[Place, int]:
        """The offset of each partition that an option means: EARLIEST and LATEST are looked up, and
        timestamps. Raises: BadOption for a partition that the option does not name, and for one too many."""
        places = list(wanted)
        if isinstance(spec, Timestamps):
            return self._by_time(places, spec)
        check_named(spec, option, places)
        offsets = {place: offset_of(spec, option, *place) for place in places}
        # EARLIEST and LATEST are the very timestamps that ListOffsets knows
        asked = {place: offset for place, offset in offsets.items() if offset < 0}
        return offsets | self.list_offsets(asked)

    def _by_time(self, places: list[Place], spec: Timestamps) -> dict[Place, int]:
        check_named(spec.ms, spec.option, places)
        stamps = {place: offset_of(spec.ms, spec.option, *place) for place in places}
        offsets = self.list_offsets(stamps)
        missing = sorted(place for place, offset in offsets.items() if offset < 0)
        if missing and not spec.or_latest:
            topic, partition = missing[0]
            raise BadOption(
                f"option {spec.option}: {topic}-{partition} has no record of {stamps[missing[0]]} ms or "
                "later; startingOffsetsByTimestampStrategy=latest begins at the end then"
            )
        return offsets | self.list_offsets(dict.fromkeys(missing, LATEST))


def _assigned(
    found: dict[Place, FoundPartition], assign: Mapping[str, tuple[int, ...]] | None
) -> dict[Place, FoundPartition]:
    """Those of `assign`. Raises: ClientError for one that is not there."""
    if assign is None:
        return found
    wanted = {(topic, index) for topic, indexes in assign.items() for index in indexes}
    for topic, partition in sorted(wanted.difference(found)):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise ClientError(f"option assign: there is no partition {topic}-{partition}", code)
    return {place: found[place] for place in wanted}
