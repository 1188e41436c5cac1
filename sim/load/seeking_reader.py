"""A reader that goes wherever it likes: back to what it has read, to either end, with fetches of all sizes.

Owns what it got, by stretch: a stretch is what comes of a partition between two such moves. Judges nothing:
the rule is `checks.astray`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from holdfast.client.consumer import Consumer
from holdfast.client.core.errors import ClientError
from holdfast.runtime.api import Clock, Runtime
from holdfast.sim.load.clients import Load, Polled, partition_at, polled_of
from holdfast.sim.machine.choices import Stream, between, evenly, one_in

_POLLS_MAX = 40
#: bytes that an answer waits for, and ms that it waits at most; bytes of one partition
_SIZES = ((1, 500, 2 << 20), (1, 500, 2 << 20), (600, 100, 2 << 20), (3_000, 300, 400), (1, 50, 100))
_RESETS: tuple[Literal["earliest"], Literal["latest"]] = ("earliest", "latest")


@dataclass(slots=True)
class ReadSpan:
    """What a reader got of a partition since it went somewhere."""

    place: int
    #: where it asked to go on; None: at the end
    sought: int | None
    #: a consumer that has read so far, and asks for the end, is not led back
    lowest: int
    #: where it goes on when what it wants was deleted: at the end; else at the beginning
    goes_to_end: bool
    polled: list[Polled] = field(default_factory=list)


def seeking_reader(load: Load, read_spans: list[ReadSpan], work: Stream) -> Callable[[Runtime], object]:
    """Reads until all readers have; starts anew as another consumer now and then, and after each error."""

    async def run(runtime: Runtime) -> None:
        while not load.is_read:
            min_bytes, max_wait_ms, partition_bytes = _SIZES[work.draw(len(_SIZES))]
            reset: Literal["earliest", "latest"] = _RESETS[work.draw(2)]
            consumer = Consumer(
                load.bootstrap,
                auto_offset_reset=reset,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                partition_bytes_max=partition_bytes,
                runtime=runtime,
            )
            try:
                goes_to_end = reset == "latest"
                await _Walk(load, read_spans, work, runtime.clock, consumer, goes_to_end=goes_to_end).go()
            except ClientError as error:
                load.troubles.append("" if error.code is None else error.code.name)
                await runtime.clock.sleep(100)
            await consumer.close()

    return run


class _Walk:
    """One consumer's way."""

    def __init__(
        self,
        load: Load,
        read_spans: list[ReadSpan],
        work: Stream,
        clock: Clock,
        consumer: Consumer,
        *,
        goes_to_end: bool,
    ) -> None:
        self._load = load
        self._clock = clock
        self._stretches = read_spans
        self._work = work
        self._consumer = consumer
        self._goes_to_end = goes_to_end
        self._now: dict[int, ReadSpan] = {}
        #: {place: behind the last record that it got}
        self._read: dict[int, int] = {}

    def _begin(self, place: int, sought: int | None) -> None:
        span = ReadSpan(place, sought, self._read.get(place, 0), self._goes_to_end)
        self._now[place] = span
        self._stretches.append(span)

    async def go(self) -> None:
        """Raises: ClientError."""
        load, work, consumer = self._load, self._work, self._consumer
        places = [place for place in load.places if one_in(work, 2)] or load.places[:1]
        consumer.assign(partition_at(place) for place in places)
        for place in places:
            self._begin(place, None if self._goes_to_end else 0)
        for _ in range(evenly(work, 5, _POLLS_MAX)):
            if load.is_read:
                return
            if one_in(work, 4):
                self._move(places[work.draw(len(places))])
            if one_in(work, 30):  # what it has fetched ahead may be deleted meanwhile
                await self._clock.sleep(between(work, 300, 4_000))
            for record in await consumer.poll(max_records=evenly(work, 1, 50), timeout_ms=300):
                polled = polled_of(record)
                self._now[polled.partition].polled.append(polled)
                self._read[polled.partition] = max(self._read.get(polled.partition, 0), polled.offset + 1)
                load.fresh.append(polled)

    def _move(self, place: int) -> None:
        partition, kind = partition_at(place), self._work.draw(4)
        if kind == 0:
            self._consumer.seek_to_beginning(partition)
            self._begin(place, 0)
        elif kind == 1:
            self._consumer.seek_to_end(partition)
            self._begin(place, None)
        else:
            offset = self._work.draw(self._read.get(place, 0) + 1)
            self._consumer.seek(partition, offset)
            self._begin(place, offset)
