"""Writes what a consumer was given to a file of its own; the format is `client.core.poll_rows`'.

A line is in the page cache before the next poll, and so before the group hears that its records were read.
"""

import posixpath
from collections.abc import Iterable
from itertools import groupby

from holdfast.client.consumer import Consumer
from holdfast.client.core.consumer_records import ConsumerRecord, decoded_records
from holdfast.client.core.errors import CorruptRecords
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.poll_rows import SUFFIX, Polled, PollRows
from holdfast.client.own_runtime import ClientRuntime
from holdfast.runtime.api import File, Runtime


def polled_of(
    consumer: Consumer, batches: Iterable[FetchedBatch]
) -> tuple[list[Polled], list[CorruptRecords]]:
    """(what came of one partition in answers with one high watermark, decoded; why some partitions have no
    more of it): nothing of a partition is taken from a batch on that cannot be decoded."""
    most = consumer.config.unpacked_bytes_max
    found: list[Polled] = []
    problems: dict[tuple[str, int], CorruptRecords] = {}

    def place(batch: FetchedBatch) -> tuple[str, int, int]:
        return batch.topic, batch.partition, batch.high_watermark

    for (topic, partition, high_watermark), group in groupby(batches, place):
        records: list[ConsumerRecord] = []
        for batch in group:
            if (topic, partition) in problems:
                break
            try:
                records += decoded_records(batch, most, check_crc=False)
            except CorruptRecords as error:
                problems[topic, partition] = error
        if records:
            topic_id = consumer.topic_id((topic, partition))
            found.append(Polled(topic, partition, high_watermark, topic_id, records))
    return found, list(problems.values())


class PollLedger:
    """One file `<run>.<consumer>.<random>.polls.jsonl` in `folder`. Not shared between consumers."""

    def __init__(self, folder: str, run: str, consumer: str, *, runtime: Runtime | None = None) -> None:
        """Nothing is opened yet.

        folder: made when it is missing.
        run, consumer: names of 1 to 64 of A-Z a-z 0-9 . _ -.
        runtime: what is used of the world; None: this machine.

        Raises: ValueError for a name that cannot be.
        """
        self._owner = ClientRuntime(runtime)
        token = self._owner.runtime.random.uuid().hex()[:12]
        self._path = posixpath.join(folder, f"{run}.{consumer}.{token}{SUFFIX}")
        self._rows = PollRows(run, consumer, token)
        self._file: File | None = None

    async def open(self) -> None:
        """Make the file and its folder. Raises: DiskError."""
        disk = self._owner.runtime.disk
        await disk.make_folder(posixpath.dirname(self._path))
        self._file = await disk.open(self._path, create=True)

    @property
    def path(self) -> str:
        """Where it is written."""
        return self._path

    def begin_session(self) -> None:
        """The consumer was assigned, sought or reset: what comes next need not follow what came before."""
        self._rows.begin_session()

    def write(self, polled: Iterable[Polled]) -> None:
        """What the poll gave that was just answered. Raises: DiskError."""
        assert self._file is not None, "open first"
        text = self._rows.poll(polled, self._owner.runtime.clock.now_ns())
        if text:
            self._file.append([text.encode()])

    async def close(self) -> None:
        """Close the file. Raises: DiskError."""
        await self._owner.end()
        if self._file is not None:
            await self._file.close()
