"""The partitions of subscribed topics, while topics grow, are deleted and made again.

Owns which topics those are and what was met of them. A partition that turns up after its topic was met is
read from its first record on under every reset policy: all it holds is younger than the subscription.
Never asks by itself; `client.core.fetcher` does.
"""

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import ClientError
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.client.core.wanted_topics import UNKNOWN_TOPIC_GRACE_MS
from holdfast.protocol.topic_names import TopicPartition


class NewPartition(NamedTuple):
    """A partition to read from now on."""

    topic_partition: TopicPartition
    #: its topic was met before without it
    is_late: bool


class Subscription:
    """Of one consumer."""

    def __init__(self, topics: Iterable[str], retry: Backoff, now_ms: int) -> None:
        self.topics = tuple(dict.fromkeys(topics))
        self._retry = retry
        #: topic -> partitions that were met, indexes from 0 on
        self._counts: dict[str, int] = {}
        #: when the application hears that a topic is not there
        self._patience_ms = now_ms + UNKNOWN_TOPIC_GRACE_MS
        self._next_ask_ms = now_ms
        self._questions = 0

    def news(self, cache: MetadataCache) -> list[NewPartition]:
        """Partitions that were not met before, in order of topics and indexes."""
        found: list[NewPartition] = []
        for topic in self.topics:
            view = cache.topic(topic)
            if view is None:
                if topic in self._counts and cache.topic_error(topic) is not None:
                    self._counts[topic] = 0  # deleted: made again, all of it is young
                continue
            known = self._counts.get(topic)
            found += [
                NewPartition(TopicPartition(topic, index), known is not None)
                for index in range(known or 0, len(view.leaders))
            ]
            # fewer than before: the topic was made again, and may grow again
            self._counts[topic] = len(view.leaders)
        return found

    @property
    def is_complete(self) -> bool:
        """True once every topic was met."""
        return len(self._counts) == len(self.topics)

    def wants_metadata(self, now_ms: int) -> bool:
        """True when it is time to ask for a topic that was never met; counts as asked then."""
        if self.is_complete or now_ms < self._next_ask_ms:
            return False
        self._questions += 1
        self._next_ask_ms = now_ms + self._retry.pause_ms(self._questions)
        return True

    def problem(self, cache: MetadataCache, now_ms: int) -> ClientError | None:
        """Why a topic cannot be read, once nodes have said for long enough that there is none."""
        if self.is_complete or now_ms < self._patience_ms:
            return None
        for topic in self.topics:
            code = cache.topic_error(topic)
            if topic not in self._counts and code is not None:
                self._patience_ms = now_ms + UNKNOWN_TOPIC_GRACE_MS
                return ClientError(f"topic {topic}: {code.name}; create it first", code)
        return None

    def next_deadline_ms(self) -> int | None:
        """When `wants_metadata` or `problem` may change their mind although nothing happened."""
        return None if self.is_complete else self._next_ask_ms
