"""What the leader of a generation shares among its members: the partitions of the topics they subscribe to.

Owns who the members are until each has its share, and how many partitions were shared: when there are others
the group has to rebalance.
"""

from collections.abc import Mapping, Sequence

from holdfast.client.core.groups.assignors import ASSIGNORS, JoinedMember
from holdfast.client.core.groups.consumer_protocol import Subscription, decode_subscription, encode_assignment
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.messages.groups import JoinGroupMember, SyncGroupAssignment

#: So long a leader waits for the metadata of topics that it shares, and a member for those that it is given.
SHARE_PATIENCE_MS = 3_000


class Sharing:
    """Of one member, for the generations that it leads."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._members: list[JoinedMember] = []
        #: {topic: partitions} that were shared
        self._shared: Mapping[str, int] = {}
        #: the shares of an earlier generation are kept
        self._skips_assignment = False
        #: what has no metadata by then is shared as if it had no partitions
        self.until_ms = 0

    def begin(self, members: Sequence[JoinGroupMember], now_ms: int, *, skips_assignment: bool) -> None:
        """This member leads a generation of these."""
        self._members = [
            JoinedMember(
                one.member_id,
                one.group_instance_id,
                decode_subscription(one.metadata) or Subscription(()),
            )
            for one in members
        ]
        self._skips_assignment = skips_assignment
        self.until_ms = now_ms + SHARE_PATIENCE_MS

    def forget(self) -> None:
        """Another generation has begun, or this member has left."""
        self._shared = {}

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are to be shared."""
        return tuple(sorted({topic for one in self._members for topic in one.subscription.topics}))

    @property
    def shared_topics(self) -> tuple[str, ...]:
        """Topics that were shared in this generation."""
        return tuple(self._shared)

    def share(self, assignor: str, now_ms: int) -> tuple[SyncGroupAssignment, ...] | None:
        """Each member's share; None while metadata is waited for."""
        topics = self.topics
        unheard = [
            topic
            for topic in topics
            if self._cache.topic(topic) is None and self._cache.topic_error(topic) is None
        ]
        if unheard and now_ms < self.until_ms:
            return None
        self._shared = {topic: self._count(topic) for topic in topics}
        members, self._members = self._members, []
        if self._skips_assignment:
            return ()
        shares = ASSIGNORS[assignor](members, self._shared)
        return tuple(
            SyncGroupAssignment(member_id, encode_assignment(share))
            for member_id, share in sorted(shares.items())
        )

    @property
    def is_outdated(self) -> bool:
        """What was shared is not there any more, or not all that is there."""
        return any(self._count(topic) != count for topic, count in self._shared.items())

    def _count(self, topic: str) -> int:
        view = self._cache.topic(topic)
        return 0 if view is None else len(view.leaders)
