"""What a consumer hands out of what was fetched ahead, as records or whole batches, and how far it has come.

Owns what was decoded and not handed out, and where the application stands with what it was given last. An
error waits until what was read before it has been handed out.
"""

from collections import deque
from collections.abc import Collection

from holdfast.client.core.consumer_records import ConsumerRecord, corrupt, decoded_records
from holdfast.client.core.decoding import is_whole
from holdfast.client.core.fetcher import Fetcher
from holdfast.client.core.fetcher_effects import FetchedBatch
from holdfast.client.core.groups.effects import Position
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.topic_names import TopicPartition


class FetchCollector:
    """Of one consumer."""

    def __init__(
        self, fetcher: Fetcher, cache: MetadataCache, unpacked_bytes_max: int, *, check_crcs: bool
    ) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._unpacked_bytes_max = unpacked_bytes_max
        self._check_crcs = check_crcs
        #: decoded and not handed out, all of one batch
        self.decoded: deque[ConsumerRecord] = deque()
        #: the record that `async for` has handed out last
        self.in_hand: ConsumerRecord | None = None
        #: first offset of what was handed out since the application last asked
        self._unhandled: dict[TopicPartition, int] = {}
        #: taken out of what was fetched ahead
        self.records = self.batches = self.bytes = 0

    # --- handing out ----------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """The application asks for more, so it has done with what it has."""
        self.in_hand = None
        self._unhandled.clear()

    def decode(self, *, may_raise: bool = True) -> bool:
        """Decode the next batch; False when there is none, or with `may_raise` False an error instead of it.

        Raises: CorruptRecords, and what `Fetcher.take` raises.
        """
        batch = self._fetcher.take(may_raise=may_raise)
        if batch is None:
            return False
        try:
            records = decoded_records(batch, self._unpacked_bytes_max, check_crc=self._check_crcs)
        except Exception:  # also unforeseen errors: the position is behind the batch already
            self._fetcher.put_back(batch)
            if may_raise:
                raise
            return False
        self.batches += 1
        self.bytes += len(batch.data)
        self.records += len(records)
        self.decoded.extend(records)
        return True

    def take_records(self, max_records: int) -> list[ConsumerRecord]:
        """At most so many records. Raises: as `decode`."""
        records: list[ConsumerRecord] = []
        decoded = self.decoded
        while len(records) < max_records:
            if not decoded:
                if not self.decode(may_raise=not records):
                    break
                continue
            self._unhandled.setdefault(TopicPartition(*decoded[0][:2]), decoded[0].offset)
            missing = max_records - len(records)
            if len(decoded) <= missing:
                records += decoded
                decoded.clear()
            else:
                records += [decoded.popleft() for _ in range(missing)]
        return records

    def take_batches(self, max_bytes: int) -> list[FetchedBatch]:
        """Batches as they came, until they are as large. Raises: CorruptRecords, and as `Fetcher.take`."""
        batches: list[FetchedBatch] = []
        size = 0
        while size < max_bytes and (batch := self._fetcher.take(may_raise=not batches)) is not None:
            if self._check_crcs and not is_whole(batch.data):
                self._fetcher.put_back(batch)  # never past it: the next poll fetches it again
                if not batches:
                    raise corrupt(batch, "its crc does not match")
                break
            self._unhandled.setdefault(TopicPartition(batch.topic, batch.partition), batch.start_offset)
            batches.append(batch)
            size += len(batch.data)
            self.batches += 1
            self.bytes += len(batch.data)
            span = batch.header.next_offset - batch.start_offset
            self.records += min(span, batch.header.record_count)  # fewer in a compacted topic
        return batches

    # --- what is not to be handed out -----------------------------------------------------------------

    def forget(self, partition: TopicPartition) -> None:
        """Its position moves: what was decoded of it is not handed out."""
        if self.decoded and self.decoded[0][:2] == partition:
            self.decoded.clear()

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Only these are read from now on."""
        if self.decoded and TopicPartition(*self.decoded[0][:2]) not in partitions:
            self.decoded.clear()

    def keep_topics(self, topics: Collection[str]) -> None:
        """Only these are read from now on."""
        if self.decoded and self.decoded[0].topic not in topics:
            self.decoded.clear()

    # --- how far it has come --------------------------------------------------------------------------

    def position(self, partition: TopicPartition) -> int | None:
        """Next offset to hand out; None until it was looked up. Raises: KeyError for one that is not read."""
        if self.decoded and self.decoded[0][:2] == partition:
            return self.decoded[0].offset
        return self._fetcher.parts[partition].position

    def positions(self) -> dict[TopicPartition, Position]:
        """How far each partition was handed out."""
        found: dict[TopicPartition, Position] = {}
        for one, part in self._fetcher.parts.items():
            at, view = self.position(one), self._cache.topic(one.topic)
            # no broker takes a commit of a topic that is gone, nor the others in the same request
            if at is not None and view is not None and part.topic_id in (None, view.topic_id):
                found[one] = Position(at, part.epoch_before(at), part.topic_id)
        return found

    def handled(self) -> dict[TopicPartition, Position]:
        """How far the application has surely come: to what it was given last."""
        found = self.positions()
        again = dict(self._unhandled)
        if self.in_hand is not None:
            again[TopicPartition(*self.in_hand[:2])] = self.in_hand.offset
        for one in (one for one in again if one in found):
            epoch = self._fetcher.parts[one].epoch_before(again[one])
            found[one] = found[one]._replace(offset=again[one], leader_epoch=epoch)
        return found
