"""Properties of when a log is flushed: as often as its topic asks for, and not only when it must."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from holdfast.metadata.image import MetadataImage
from holdfast.sim.checks.observe.batches import BatchMark
from holdfast.sim.checks.observe.observer import Observer
from holdfast.sim.checks.observe.views import Before, Property, ReplicaView, configured
from holdfast.sim.cluster.nodes import SimBroker, State
from holdfast.sim.cluster.world import BROKER_PROPERTIES
from holdfast.sim.load.clients import partition_at
from holdfast.storage.log import Log

#: a disk may hang for 4 s, and all that was to be done before the flush with it
_HUNG_NS = 5_000_000_000
#: a broker that was not seen for so long may have been paused
_LOOKED_AWAY_NS = 2_000_000_000

#: {setting of a log: its topic's key, and what is meant where neither topic nor cluster say anything}
_OF_LOGS = {
    "segment_bytes": ("segment.bytes", int(BROKER_PROPERTIES["log.segment.bytes"])),
    "segment_ms": ("segment.ms", 7 * 86_400_000),
    "retention_bytes": ("retention.bytes", -1),
    "retention_ms": ("retention.ms", 7 * 86_400_000),
    "flush_messages": ("flush.messages", -1),
    "flush_ms": ("flush.ms", -1),
}
#: without limit
_NEVER = (-1, (1 << 63) - 1)


@dataclass(slots=True)
class _Unflushed:
    """What of a log waits for a flush that has not begun."""

    flushed_offset: int
    #: flush.ms and flush.messages of its topic
    limits: tuple[int | None, int | None]
    #: virtual ns; it waits at least since, and was looked at last
    since_ns: int
    looked_ns: int
    end_offset: int
    #: when an append was first seen after which it is too much, or a segment behind that which waits
    many_ns: int | None = None


class FlushesComeInTime(Property):
    """D6: what is appended is flushed as often as the topic asks for, after so many records or so long, and
    when its segment is full."""

    name = "D6 FlushesComeInTime"

    def __init__(self) -> None:
        #: {(partition, process): what must be flushed next}
        self._waiting: dict[tuple[int, str], _Unflushed] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        node, log, key = view.broker.node, view.log, (view.index, view.process.name)
        if view.end_offset <= view.flushed_offset:
            self._waiting.pop(key, None)
            return
        is_at_work = view.broker.state is State.RUNNING and log.failure is None and not view.process.is_dead
        is_flushing = log._flusher.is_running or log.guard.changing is not None
        if node is None or not is_at_work or is_flushing:
            self._waiting.pop(key, None)
            return
        image, topic = node.core.image, partition_at(view.index).topic
        limits = image.topic_config(topic, "flush.ms"), image.topic_config(topic, "flush.messages")
        now_ns = seen.world.loop.now_ns
        one = self._waiting.get(key)
        is_same = one is not None and (one.flushed_offset, one.limits) == (view.flushed_offset, limits)
        if one is None or not is_same or now_ns - one.looked_ns > _LOOKED_AWAY_NS:
            self._waiting[key] = _Unflushed(view.flushed_offset, limits, now_ns, now_ns, view.end_offset)
            return
        one.looked_ns = now_ns
        waited_ns = now_ns - one.since_ns - _HUNG_NS
        flush_ms, flush_messages = limits
        is_late = flush_ms is not None and waited_ns > flush_ms * 1_100_000  # by clocks that are slow
        count = view.end_offset - view.flushed_offset
        is_many = flush_messages is not None and count >= flush_messages and view.end_offset > one.end_offset
        is_full = log.segments.active.base_offset > view.flushed_offset
        if (is_many or is_full) and one.many_ns is None:
            one.many_ns = now_ns
        if is_late or (one.many_ns is not None and now_ns - one.many_ns > _HUNG_NS):
            story = f"{view.broker.name} has not flushed {count} records for {now_ns - one.since_ns} ns"
            wanted = f"every {flush_ms} ms, {flush_messages} records or segment"
            seen.broken(self, view.index, f"{story}, asked for is {wanted}")


class SegmentsRoll(Property):
    """D5: a segment that has something takes nothing that makes it larger than its topic asks for."""

    name = "D5 SegmentsRoll"

    def __init__(self) -> None:
        #: {(partition, process): base offset and size of the active segment, as it was looked at last}
        self._active: dict[tuple[int, str], tuple[int, int]] = {}

    def replica_changed(
        self, seen: Observer, view: ReplicaView, before: Before, appended: Sequence[BatchMark]
    ) -> None:
        active, limit = view.log.segments.active, view.log.config.segment_bytes
        key = view.index, view.process.name
        base_offset, size = self._active.get(key, (-1, 0))
        self._active[key] = active.base_offset, active.size
        if base_offset == active.base_offset and 0 < size < active.size and active.size > limit:
            story = f"{view.broker.name} has a segment of {active.size} bytes, it had {size}"
            seen.broken(self, view.index, f"{story}: its topic asks for {limit}")


class TopicsAreHeeded(Property):
    """D5, D6: a replica goes by what is configured of its topic as soon as its broker knows it, also when it
    was changed while the log was there: how segments roll, what is deleted and what is flushed. Where every
    write is flushed only what is durable counts. What other properties say of all this they ask it."""

    name = "D6 TopicsAreHeeded"

    def __init__(self) -> None:
        #: {process: the metadata that it had when it was looked at last}
        self._images: dict[str, MetadataImage] = {}

    def broker_called(self, seen: Observer, broker: SimBroker) -> None:
        assert broker.node is not None
        core = broker.node.core
        image, name = core.image, broker.process.name
        if self._images.get(name) is image:
            return
        self._images[name] = image
        for key, replica in core.partitions.items():
            if key.topic_id not in image.topics:
                continue
            # no file of a broker says how often
            is_every_write = configured(image, replica.topic_name, "flush.messages") == "1"
            if replica.counts_flushed is not is_every_write:
                counted = "flushed" if replica.counts_flushed else "in the log"
                story = f"{broker.name} counts what is {counted} of {replica.topic_name}"
                seen.broken(self, seen.place(*key), story)
            log = cast(Log, replica.log)
            if broker.state is not State.RUNNING or log.failure is not None:
                continue  # a log that is being closed is not told any more
            for attribute, (key_name, otherwise) in _OF_LOGS.items():
                text = configured(image, replica.topic_name, key_name)
                asked = otherwise if text is None else int(text)
                goes_by = getattr(log.config, attribute)
                if goes_by != (None if asked in _NEVER else asked):
                    story = f"{broker.name} goes by {goes_by} for {replica.topic_name}"
                    seen.broken(self, seen.place(*key), f"{story}, {key_name} is {asked}")
