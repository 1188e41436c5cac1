"""What this client knows of the cluster: brokers, leaders, and when and whom to ask again.

Owns the rules of staleness: a leader is replaced only by one of a later leader epoch, since answers come from
nodes whose images lag differently. Refreshes start at once and back off only while they bring no news (D9).
Never sends anything; `client.cluster_client` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.errors import code_of
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import MetadataResponse, MetadataTopic
from holdfast.protocol.topic_names import TopicPartition


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class LeaderAndEpoch(NamedTuple):
    """A leader decision; `broker_id` is -1 while there is none."""

    broker_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic as last heard of."""

    name: str
    topic_id: bytes
    #: position of the image that told us
    metadata_offset: int
    #: by partition index
    leaders: tuple[LeaderAndEpoch, ...]


NO_LEADER = LeaderAndEpoch(-1, -1)


def parse_addresses(bootstrap_servers: str | Sequence[str]) -> tuple[Address, ...]:
    """`host:port,host:port` or a sequence of `host:port`. Raises: ValueError naming the entry.

    An empty entry (a trailing comma) is passed over, and `PLAINTEXT://host:port` is `host:port`.
    """
    entries = bootstrap_servers.split(",") if isinstance(bootstrap_servers, str) else list(bootstrap_servers)
    found: list[Address] = []
    for entry in entries:
        if not entry.strip():
            continue
        protocol, separator, address = entry.strip().rpartition("://")
        if separator and protocol.upper() != "PLAINTEXT":
            raise ValueError(f"bootstrap server {entry.strip()!r}: expected host:port; there is no TLS")
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"bootstrap server {entry.strip()!r}: expected host:port")
        try:
            host.encode("idna")
        except UnicodeError as error:
            raise ValueError(f"bootstrap server {entry.strip()!r}: expected host:port: {error}") from error
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise ValueError("bootstrap servers: at least one host:port is needed")
    return tuple(found)


class MetadataCache:
    """Brokers and topics. Feed it answers and hints; ask it for leaders."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        #: position of the newest image heard of
        self.metadata_offset = -1
        #: unfenced brokers of the newest image; addresses of the others are kept, they may come back
        self._addresses: dict[int, Address] = {}
        self._topics: dict[str, TopicView] = {}
        #: why a topic that was asked for is not there
        self._errors: dict[str, ErrorCode] = {}

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """Every broker heard of, ascending."""
        return tuple(sorted(self._addresses))

    def address(self, broker_id: int) -> Address | None:
        """Where that broker was last said to listen."""
        return self._addresses.get(broker_id)

    def addresses(self) -> tuple[Address, ...]:
        """All brokers' addresses in order of their ids."""
        return tuple(self._addresses[broker_id] for broker_id in sorted(self._addresses))

    def topic(self, name: str) -> TopicView | None:
        """The topic, None when it was not heard of."""
        return self._topics.get(name)

    def topic_error(self, name: str) -> ErrorCode | None:
        """What the newest answer said instead of describing the topic."""
        return self._errors.get(name)

    def leader(self, topic: str, partition: int) -> LeaderAndEpoch:
        """The leader as last heard of, NO_LEADER when the partition is unknown."""
        view = self._topics.get(topic)
        if view is None or not 0 <= partition < len(view.leaders):
            return NO_LEADER
        return view.leaders[partition]

    def update(self, response: MetadataResponse) -> list[TopicPartition]:
        """Merge an answer; the partitions whose leader changed or that are new, in order."""
        if response.cluster_id and self.cluster_id and response.cluster_id != self.cluster_id:
            self._forget_cluster()
        if response.metadata_offset >= self.metadata_offset or not self._addresses:
            self.controller_id = response.controller_id
            self.metadata_offset = max(self.metadata_offset, response.metadata_offset)
            for broker in response.brokers:
                self._addresses[broker.broker_id] = Address(broker.host, broker.port)
        else:
            for broker in response.brokers:
                self._addresses.setdefault(broker.broker_id, Address(broker.host, broker.port))
        self.cluster_id = response.cluster_id or self.cluster_id
        changed: list[TopicPartition] = []
        for topic in response.topics:
            changed += self._update_topic(topic, response.metadata_offset)
        return changed

    def update_all(self, response: MetadataResponse) -> list[TopicPartition]:
        """As `update`, with an answer that names every topic there is: others are gone."""
        changed = self.update(response)
        named = {topic.name for topic in response.topics}
        for name, view in list(self._topics.items()):
            if name not in named and view.metadata_offset < response.metadata_offset:
                del self._topics[name]
                self._errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return changed

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Topics that are known, ascending."""
        return tuple(sorted(self._topics))

    def forget(self, topic: str) -> None:
        """It is not asked for any more, so what is known of it grows old."""
        self._topics.pop(topic, None)
        self._errors.pop(topic, None)

    def _forget_cluster(self) -> None:
        # Made anew at the same addresses: its offsets and epochs begin again, so those of the old one would
        # make everything that it says look stale.
        self.metadata_offset = -1
        self._addresses.clear()
        self._topics.clear()
        self._errors.clear()

    def _update_topic(self, topic: MetadataTopic, metadata_offset: int) -> list[TopicPartition]:
        known = self._topics.get(topic.name)
        code = code_of(topic.error_code)
        if code is not ErrorCode.NONE:
            if known is None:
                self._errors[topic.name] = code
            elif metadata_offset > known.metadata_offset:
                # Deleted, or the answering broker is far behind; the offset tells which.
                del self._topics[topic.name]
                self._errors[topic.name] = code
            return []
        if known is not None and known.topic_id != topic.topic_id:
            if metadata_offset <= known.metadata_offset:
                return []
            known = None  # deleted and made again: epochs of the old one mean nothing
        if any(p.partition_index != index for index, p in enumerate(topic.partitions)):
            # Brokers send them by index, without gaps. Keep what is known of the topic; ask another broker.
            if known is None:
                self._errors[topic.name] = ErrorCode.UNKNOWN_SERVER_ERROR
            return []
        heard = tuple(LeaderAndEpoch(p.leader_id, p.leader_epoch) for p in topic.partitions)
        leaders = heard if known is None else _newer(known.leaders, heard)
        offset = metadata_offset if known is None else max(metadata_offset, known.metadata_offset)
        self._topics[topic.name] = TopicView(topic.name, topic.topic_id, offset, leaders)
        self._errors.pop(topic.name, None)
        before = () if known is None else known.leaders
        return [
            TopicPartition(topic.name, index)
            for index, leader in enumerate(leaders)
            if index >= len(before) or before[index] != leader
        ]

    def note_leader(
        self, topic: str, topic_id: bytes, partition: int, broker_id: int, leader_epoch: int
    ) -> bool:
        """Take over a leader that an error answer named. True when it is news and its address is known."""
        view = self._topics.get(topic)
        if view is None or view.topic_id != topic_id or not 0 <= partition < len(view.leaders):
            return False
        if leader_epoch <= view.leaders[partition].leader_epoch or broker_id not in self._addresses:
            return False
        leaders = list(view.leaders)
        leaders[partition] = LeaderAndEpoch(broker_id, leader_epoch)
        self._topics[topic] = TopicView(view.name, view.topic_id, view.metadata_offset, tuple(leaders))
        return True


def _newer(
    known: tuple[LeaderAndEpoch, ...], heard: tuple[LeaderAndEpoch, ...]
) -> tuple[LeaderAndEpoch, ...]:
    """By partition the decision of the later leader epoch; what was heard wins a tie."""
    merged = [
        old if old.leader_epoch > new.leader_epoch else new for old, new in zip(known, heard, strict=False)
    ]
    longer = known if len(known) > len(heard) else heard
    return (*merged, *longer[len(merged) :])


class RefreshSchedule:
    """When to ask for metadata: at once when it is wanted, with growing pauses while nothing is new."""

    def __init__(self, backoff: Backoff, max_age_ms: int) -> None:
        assert max_age_ms > 0
        self._backoff = backoff
        self._max_age_ms = max_age_ms
        #: refreshes in a row that brought no news although a call waits for some
        self._repetitions = 0
        self._finished_ms: int | None = None
        self._in_flight = False
        #: wanted since the request in flight was sent, which may have missed the news
        self._wanted_again = False
        self._due_ms: int | None = None

    def want(self, now_ms: int) -> None:
        """A request met a stale leader or an unknown topic."""
        if self._in_flight:
            self._wanted_again = True
            return
        due_ms = now_ms
        if self._finished_ms is not None:
            due_ms = max(now_ms, self._finished_ms + self._backoff.pause_ms(self._repetitions))
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms

    def due_ms(self) -> int | None:
        """When the next request should go out; None while one is in flight or none was ever wanted."""
        return None if self._in_flight else self._due_ms

    def started(self) -> None:
        """A request went out."""
        assert not self._in_flight, "one metadata request at a time"
        self._in_flight = True
        self._wanted_again = False
        self._due_ms = None

    def finished(self, now_ms: int, *, news: bool) -> None:
        """The request was answered or failed."""
        assert self._in_flight
        self._in_flight = False
        quiet = self._finished_ms is None or now_ms - self._finished_ms > 10 * self._backoff.max_ms
        self._repetitions = 0 if news or quiet else self._repetitions + 1
        self._finished_ms = now_ms
        self._due_ms = now_ms + self._max_age_ms
        if self._wanted_again:
            self.want(now_ms)


class NodeChooser:
    """Which node to ask things that any node can answer: the one that answered last, until it fails."""

    def __init__(self, bootstrap: Sequence[Address], suspicion_ms: int) -> None:
        assert bootstrap
        self._bootstrap = tuple(bootstrap)
        self._suspicion_ms = suspicion_ms
        #: address -> until when it is avoided
        self._suspects: dict[Address, int] = {}
        self._preferred: Address | None = None

    def choose(self, known: Sequence[Address], now_ms: int) -> Address:
        """A node without recent failure, else the one whose failure is the oldest."""
        candidates = list(dict.fromkeys((*known, *self._bootstrap)))
        if self._preferred in candidates:
            start = candidates.index(self._preferred)
            candidates = candidates[start:] + candidates[:start]
        for address in candidates:
            if self._suspects.get(address, -1) <= now_ms:
                return address
        return min(candidates, key=lambda address: self._suspects[address])

    def failed(self, address: Address, now_ms: int) -> None:
        """A connection to it failed or broke, or it did not answer."""
        self._suspects[address] = now_ms + self._suspicion_ms
        if self._preferred == address:
            self._preferred = None

    def succeeded(self, address: Address) -> None:
        """It answered."""
        self._suspects.pop(address, None)
        self._preferred = address
