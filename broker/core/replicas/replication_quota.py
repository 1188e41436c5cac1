"""How fast throttled replicas are copied: Kafka's `leader.` and `follower.replication.throttled.rate`.

Owns which replicas of this broker are throttled and the rate of their bytes, those of replicas in sync among
them. Only replicas that are not in sync wait for the rate; the sides of leader and follower know which are.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.broker.core.byte_rate import ByteRate, RateWindows
from holdfast.metadata.config_keys import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
    LONG_MAX,
)
from holdfast.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, ConfigResource, MetadataImage


class ReplicationQuota:
    """One of the two, of one broker."""

    def __init__(self, broker_id: int, windows: RateWindows) -> None:
        self._broker_id = broker_id
        self._windows = windows
        #: bytes a second, None for any
        self._limit: int | None = None
        #: {topic: the partitions whose replica here is throttled, None for all}
        self._throttled: dict[str, frozenset[int] | None] = {}
        self._rate = ByteRate()
        #: until then, replicas that are not in sync wait
        self.resume_ms = 0
        #: bytes of throttled replicas
        self.bytes_counted = 0
        #: how often a replica had to wait
        self.wait_count = 0

    def set_rate(self, limit: int, now_ms: int) -> None:
        """Bytes a second from now on, LONG_MAX for any. What was counted in the last windows stays."""
        wanted = None if limit == LONG_MAX else limit
        if wanted == self._limit:
            return
        self._limit = wanted
        self.resume_ms = now_ms
        if wanted is not None:
            self.resume_ms += self._rate.count(0, wanted, self._windows, now_ms)

    def set_replicas(self, topic_name: str, replicas: tuple[str, ...]) -> None:
        """A topic's throttled replicas: `*` alone, or `PARTITION:BROKER` each."""
        if replicas == ("*",):
            self._throttled[topic_name] = None
            return
        pairs = [tuple(map(int, one.split(":"))) for one in replicas]
        here = frozenset(index for index, broker_id in pairs if broker_id == self._broker_id)
        self._throttled.pop(topic_name, None)
        if here:
            self._throttled[topic_name] = here

    @property
    def is_on(self) -> bool:
        """Some replica is throttled: nothing is to be counted while none is."""
        return self._limit is not None and bool(self._throttled)

    def is_throttled(self, topic_name: str, partition_index: int) -> bool:
        """Whether bytes of this broker's replica are to be counted."""
        if self._limit is None:
            return False
        indexes = self._throttled.get(topic_name, _NONE)
        return indexes is None or partition_index in indexes

    @property
    def request_bytes_max(self) -> int:
        """Most bytes to ask for, or to send, at once, beside one whole batch: what one window allows."""
        return LONG_MAX if self._limit is None else max(1, self._limit * self._windows.size_ms // 1000)

    def count(self, size_bytes: int, now_ms: int) -> None:
        """Bytes of throttled replicas were sent or fetched.

        Differs from Kafka: a large batch at a small rate makes a wait longer than all windows, so that the
        rate is kept.
        """
        self.bytes_counted += size_bytes
        if self._limit is not None:
            wait_ms = self._rate.count(size_bytes, self._limit, self._windows, now_ms)
            self.resume_ms = max(self.resume_ms, now_ms + wait_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Replicas that are not in sync wait until `resume_ms`."""
        return self.resume_ms > now_ms and self.is_on


class ReplicationQuotas:
    """Both of one broker."""

    def __init__(self, broker_id: int, static: Mapping[str, Any]) -> None:
        windows = RateWindows.of(static, "replication.quota")
        self._broker_id = broker_id
        #: what is sent from here
        self.leader = ReplicationQuota(broker_id, windows)
        #: what is fetched to here
        self.follower = ReplicationQuota(broker_id, windows)

    def configure(self, image: MetadataImage, changed: tuple[ConfigResource, ...], now_ms: int) -> None:
        """Take the rates and the replicas that are throttled now, of the resources that have changed."""
        for quota, rate, replicas in (
            (self.leader, LEADER_THROTTLED_RATE, LEADER_THROTTLED_REPLICAS),
            (self.follower, FOLLOWER_THROTTLED_RATE, FOLLOWER_THROTTLED_REPLICAS),
        ):
            for resource_type, name in changed:
                if resource_type == RESOURCE_TOPIC:
                    quota.set_replicas(name, image.topic_config(name, replicas))
                elif resource_type == RESOURCE_BROKER:
                    quota.set_rate(image.broker_config(self._broker_id, rate), now_ms)


_NONE: frozenset[int] = frozenset()
