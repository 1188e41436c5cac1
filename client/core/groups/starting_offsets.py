"""How far a group has come with the partitions that a member is given, asked for until it is known."""

from collections.abc import Mapping, Sequence

from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.groups.effects import Effect, Position
from holdfast.client.core.groups.offset_requests import OffsetRequests
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.topic_names import TopicPartition

#: They are asked for until they come.
_FOR_EVER_MS = 1 << 62


class StartingOffsets:
    """The offsets of one assignment; `asks` are the member's."""

    def __init__(self, asks: OffsetRequests, cache: MetadataCache) -> None:
        self._asks = asks
        self._cache = cache
        #: of the question about them
        self.token = object()
        #: {partition: where the group goes on, None when it has committed nothing}
        self._found: dict[TopicPartition, Position | None] = {}
        #: a topic that brokers still deny then is gone
        self.gone_ms = 0

    def begin(self, gone_ms: int) -> None:
        """A new assignment has come."""
        self.gone_ms = gone_ms

    def forget(self) -> None:
        """The assignment does not count any more."""
        self._found = {}
        self._asks.forget(self.token)

    def of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Position | None] | None:
        """Of all these partitions; None as long as one is not known."""
        if any(one not in self._found for one in partitions):
            return None
        return {one: self._found[one] for one in partitions}

    def found(self, offsets: Mapping[TopicPartition, Position | None]) -> None:
        """The coordinator has answered."""
        self._found.update(offsets)

    def look_up(self, partitions: Sequence[TopicPartition], now_ms: int, effects: list[Effect]) -> None:
        """Ask for what is missing, once the metadata have it: else it would not be known to be late. A broker
        that lags behind denies topics that are there."""
        missing = [one for one in partitions if one not in self._found]
        if not missing or any(ask.token is self.token for ask in self._asks.all):
            return
        for one in missing:
            view = self._cache.topic(one.topic)
            is_denied = view is None and self._cache.topic_error(one.topic) is not None
            if is_denied and now_ms >= self.gone_ms:
                self._found[one] = None
            elif view is None or one.partition >= len(view.leaders):
                effects.append(RefreshMetadata())
                return
        known = [one for one in missing if one not in self._found]
        if known:
            self._asks.fetch(self.token, known, self._cache, _FOR_EVER_MS)
