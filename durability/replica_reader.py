"""Reads one offset range from a replica of the user's choice, leader or not (`readFrom=replica:<id>`).

The broker serves what its own log has below the high watermark that it knows; it need not be in sync. Only
the batch source reads like this: a stream's checkpoint speaks of the leader's log.
"""

import logging
from collections.abc import Iterator

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.durability.cluster_offsets import OwnLoop
from holdfast.durability.core.positions import DataLost
from holdfast.durability.read_options import OffsetRange, ReadOptions
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.fetch import FetchPartitionResponse
from holdfast.protocol.record_batch import iter_batches

_log = logging.getLogger("holdfast.spark")

#: Pause before a replica that had nothing new is asked again.
_PAUSE_MS = 100
#: Answers that another moment may change: the replica was cut, or moves between log dirs.
_PASSING = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)


def replica_batches(
    options: ReadOptions, wanted: OffsetRange, max_bytes: int
) -> Iterator[list[FetchedBatch]]:
    """The batches of a range as that replica has them.

    Raises: ClientError for a broker that is not there or has no such replica, TimedOut when the replica has
    no more for so long, DataLost when its log begins later than the range (failOnDataLoss).
    """
    assert options.replica_id is not None, "a replica is named"
    loop = OwnLoop()
    reader = _Reader(loop, options, wanted, max_bytes)
    try:
        if is_another_topic(wanted, reader.open(), options.fail_on_data_loss):
            return
        while batches := reader.more():
            yield batches
    finally:
        reader.close()
        loop.close()


def is_another_topic(wanted: OffsetRange, topic_id: str, fails: bool) -> bool:
    """True when the topic is no longer the planned one: its offsets mean other records. Raises: DataLost if
    it `fails` then."""
    if wanted.topic_id in ("", topic_id):
        return False
    sentence = (
        f"{wanted.topic}-{wanted.partition}: the topic was deleted and made again (topic id "
        f"{wanted.topic_id}, now {topic_id}) before offsets {wanted.start} to {wanted.end - 1} were read"
    )
    if fails:
        raise DataLost(sentence)
    _log.warning("%s", sentence)
    return True


class _Reader:
    def __init__(self, loop: OwnLoop, options: ReadOptions, wanted: OffsetRange, max_bytes: int) -> None:
        self._loop = loop
        self._options = options
        self._wanted = wanted
        self._max_bytes = max_bytes
        self._offset = wanted.start
        self._name = f"{wanted.topic}-{wanted.partition} on broker {options.replica_id}"
        self._admin = Admin(options.bootstrap_servers, client_id=options.client_id, runtime=loop.runtime)
        self._address = ("", 0)
        self._topic_id = b""

    def open(self) -> str:
        """Look up broker and topic, whose id it gives, in hex. Raises: ClientError."""
        timeout_ms = self._options.poll_timeout_ms
        cluster = self._loop.run(self._admin.describe_cluster(timeout_ms=timeout_ms))
        known = {row.broker_id: (row.host, row.port) for row in cluster.brokers}
        if self._options.replica_id not in known:
            there = ", ".join(map(str, sorted(known)))
            raise ClientError(
                f"option readFrom: broker {self._options.replica_id} is not registered; there are {there}"
            )
        self._address = known[self._options.replica_id]
        (topic,) = self._loop.run(self._admin.describe_topics([self._wanted.topic], timeout_ms=timeout_ms))
        self._topic_id = topic.topic_id
        return self._topic_id.hex()

    def close(self) -> None:
        self._loop.run(self._admin.close())

    def more(self) -> list[FetchedBatch]:
        """The next batches of the range; none at its end. Raises: ClientError."""
        clock = self._loop.runtime.clock
        deadline_ms = clock.now_ms() + self._options.poll_timeout_ms
        while self._offset < self._wanted.end:
            row = self._fetched()
            batches = self._taken(row)
            if batches:
                return batches
            if clock.now_ms() >= deadline_ms:
                raise TimedOut(
                    f"{self._name}: nothing came from offset {self._offset} on within "
                    f"{self._options.poll_timeout_ms} ms, up to {self._wanted.end} was expected; it knows "
                    f"of high watermark {row.high_watermark}"
                )
            self._loop.run(clock.sleep(_PAUSE_MS))
        return []

    def _fetched(self) -> FetchPartitionResponse:
        assert self._options.replica_id is not None
        return self._loop.run(
            self._admin.fetch_from_replica(
                self._options.replica_id,
                self._address,
                self._topic_id,
                self._wanted.partition,
                self._offset,
                self._max_bytes,
                timeout_ms=self._options.poll_timeout_ms,
            )
        )

    def _taken(self, row: FetchPartitionResponse) -> list[FetchedBatch]:
        code = ErrorCode(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and row.log_start_offset > self._offset:
            if self._options.fail_on_data_loss:
                raise DataLost(
                    f"{self._name}: its log begins at {row.log_start_offset}, offset {self._offset} is "
                    "not in it"
                )
            self._offset = row.log_start_offset
            return []
        if code in _PASSING or code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return []
        if code is not ErrorCode.NONE:
            raise ClientError(f"{self._name}: {code.name}", code)
        batches = [
            FetchedBatch(
                self._wanted.topic, self._wanted.partition, self._offset, header, view, row.high_watermark
            )
            for header, view in iter_batches(row.records)
        ]
        if batches:
            self._offset = batches[-1].header.next_offset
        return batches
