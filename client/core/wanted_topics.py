"""Which topics a client asks for: those that are in use, or were not long ago (KAFKA-8904).

Owns when each was last used, and how many names one request carries. Without an end to it a client that meets
ever new topics would ask for all of them for ever, in the end for more than a request has room for.
"""

from collections.abc import Container

from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import topic_name_problem

#: A topic that was not used for so long is not asked for any more (metadata.max.idle.ms of Kafka's producer).
METADATA_MAX_IDLE_MS = 300_000
#: Names in one request: of the longest ones 250 kB, an eighth of what nodes read at a time.
NAMES_A_REQUEST = 1_000
#: A topic that nodes say they do not know may have been created a moment ago.
UNKNOWN_TOPIC_GRACE_MS = 3_000


class WantedTopics:
    """Names and when each was last used."""

    def __init__(self, max_idle_ms: int = METADATA_MAX_IDLE_MS) -> None:
        assert max_idle_ms > 0
        #: ask for every topic there is
        self.all_topics = False
        self._max_idle_ms = max_idle_ms
        #: name -> when it was last used, in the order in which they were first wanted
        self._used_ms: dict[str, int] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._used_ms

    def use(self, topic: str, now_ms: int) -> bool:
        """Ask for `topic` from now on. True when it was not asked for until now.

        Raises: ClientError when no topic can be called so.
        """
        is_new = topic not in self._used_ms
        if is_new:
            # One name that no request can carry would spoil every later request, for the good topics too.
            problem = topic_name_problem(topic)
            if problem is not None:
                raise ClientError(problem, ErrorCode.INVALID_TOPIC_EXCEPTION)
        self._used_ms[topic] = now_ms
        return is_new

    def forget_idle(self, now_ms: int, in_use: Container[str]) -> list[str]:
        """Ask no more for what was not used for too long; what is `in_use` counts as used now.

        Returns the names that are forgotten.
        """
        idle: list[str] = []
        for topic, used_ms in self._used_ms.items():
            if topic in in_use:
                self._used_ms[topic] = now_ms
            elif now_ms - used_ms >= self._max_idle_ms:
                idle.append(topic)
        for topic in idle:
            del self._used_ms[topic]
        return idle

    def portions(self) -> list[tuple[str, ...] | None]:
        """All names, request by request; one request without any while no topic is wanted, and one with None
        for every topic there is."""
        if self.all_topics:
            return [None]
        return [*portions_of(tuple(self._used_ms))]


def portions_of(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The names of one request after the other; without names, one request without any."""
    starts = range(0, max(1, len(names)), NAMES_A_REQUEST)
    return [names[start : start + NAMES_A_REQUEST] for start in starts]
