"""The topics that ledgers name while they are followed: which are read, and which are not judged any more.

A topic may be created after its first send was written down, be compacted, or be deleted and created again.
Asks the cluster and keeps what it learns in `topics.json` of the state folder, for a later run.
"""

import json
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from holdfast.client.core.errors import ClientError
from holdfast.durability.cluster_look import log_starts, look_now, why_compacted
from holdfast.durability.ledger_files import why_made_again
from holdfast.protocol.errors import ErrorCode

_FILE = "topics.json"


class FollowedTopics:
    """Asked by the loop that follows and by each micro-batch, which is another thread."""

    def __init__(self, folder: Path, bootstrap_servers: str, timeout_ms: int) -> None:
        self._path = folder / _FILE
        self._bootstrap_servers = bootstrap_servers
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        #: topic -> topic ids that acknowledged, as producers wrote them down
        self._ids: dict[str, set[str]] = {}
        #: those of the ledgers that there are, sorted
        self.there: tuple[str, ...] = ()
        #: what the stream reads now
        self.subscribed: tuple[str, ...] = ()
        #: topic -> why nothing more is said of it
        self.withdrawn: dict[str, str] = {}
        if self._path.is_file():
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            self._ids = {topic: set(ids) for topic, ids in kept["topic_ids"].items()}
            self.withdrawn = dict(kept["withdrawn"])

    @property
    def named(self) -> tuple[str, ...]:
        """All that the ledgers have named, sorted."""
        return tuple(sorted(self._ids))

    @property
    def read(self) -> tuple[str, ...]:
        """Those that there are and that are judged, sorted."""
        return tuple(topic for topic in self.there if topic not in self.withdrawn)

    @property
    def are_awaited(self) -> bool:
        """The ledgers name a topic that there was not when the cluster was asked last."""
        return not self._ids.keys() <= {*self.there, *self.withdrawn}

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is not judged, as a verdict says it."""
        missing = sorted(self._ids.keys() - {*self.there, *self.withdrawn})
        return (
            *(reason for _, reason in sorted(self.withdrawn.items())),
            *(f"topic {topic}: there is none of that name, nothing of it was judged" for topic in missing),
        )

    def heard(self, topic_ids: Mapping[str, Collection[str]]) -> None:
        """Lines name these topics, and those ids acknowledged."""
        with self._lock:
            before = {topic: set(ids) for topic, ids in self._ids.items()}
            for topic, ids in topic_ids.items():
                self._ids.setdefault(topic, set()).update(ids)
            if self._ids != before:
                self._keep()

    def look(self, timeout_ms: int | None = None) -> None:
        """Ask which topics there are, and which cannot be judged from now on. Raises: ClientError."""
        timeout_ms = self._timeout_ms if timeout_ms is None else min(timeout_ms, self._timeout_ms)
        found = look_now(self._bootstrap_servers, self.named, timeout_ms)
        with self._lock:
            self.there = tuple(sorted(found))
            before = dict(self.withdrawn)
            for topic, now in found.items():
                others = sorted(self._ids[topic] - {now.topic_id})
                if others:
                    self.withdrawn.setdefault(topic, why_made_again(topic, others, now.topic_id))
                elif now.is_compacted:
                    self.withdrawn.setdefault(topic, why_compacted([topic]))
            if self.withdrawn != before:
                self._keep()

    def look_at(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Before something is said of these: what `look` does, and where those logs that are judged begin.
        Raises: ClientError, also for a topic that is subscribed to and not there."""
        self.look()
        topics = {topic for topic, _ in places}
        for topic in sorted(topics.intersection(self.subscribed).difference(self.there)):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise ClientError(f"topic {topic}: {code.name}", code)
        judged = [place for place in places if place[0] in self.read]
        return log_starts(self._bootstrap_servers, judged, self._timeout_ms) if judged else {}

    def _keep(self) -> None:
        kept = {
            "topic_ids": {topic: sorted(ids) for topic, ids in self._ids.items()},
            "withdrawn": self.withdrawn,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".tmp")
        beside.write_text(json.dumps(kept), encoding="utf-8")
        beside.replace(self._path)
