"""The topics that ledgers name while they are followed: which are read, and which are not judged any more.

A topic may be created after its first send was written down, be compacted, or be deleted and created again.
Asks the cluster and keeps what it learns in `topics.json` of the state folder, for a later run.
"""

import json
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from holdfast.client.core.errors import ClientError
from holdfast.durability.cluster_look import TopicNow, log_starts, look_now, why_compacted
from holdfast.durability.ledger_files import why_made_again
from holdfast.durability.state_files import read_json, write_whole
from holdfast.protocol.errors import ErrorCode

_FILE = "topics.json"


class FollowedTopics:
    """Asked by the loop that follows and by each micro-batch, which is another thread."""

    def __init__(self, folder: Path, bootstrap_servers: str, timeout_ms: int) -> None:
        """Raises: UnreadableState."""
        self._path = folder / _FILE
        self._bootstrap_servers = bootstrap_servers
        self._timeout_ms = timeout_ms
        self._lock = threading.Lock()
        #: topic -> topic ids that acknowledged, as producers wrote them down
        self._ids: dict[str, set[str]] = {}
        #: those that a stream has begun to read: one of them that is not there now is no topic to come
        self._begun: frozenset[str] = frozenset()
        #: those of which a micro-batch has judged what there was, or found nothing new
        self._judged: frozenset[str] = frozenset()
        #: those of the ledgers that there were when the cluster was asked last
        self._there: frozenset[str] = frozenset()
        #: how many partitions these have
        self._partitions: dict[str, int] = {}
        #: topic -> why nothing more is said of it
        self._withdrawn: dict[str, str] = {}
        if self._path.exists():
            read_json(self._path, self._recall)

    @property
    def named(self) -> tuple[str, ...]:
        """All that the ledgers have named, sorted."""
        return tuple(sorted(self._ids))

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """Those of which nothing more is said, sorted."""
        return tuple(sorted(self._withdrawn))

    @property
    def read(self) -> tuple[str, ...]:
        """Those to read, sorted. One that was begun is among them until it is withdrawn, also while a broker
        does not know it: a stream that went on without it would pass over its records."""
        return tuple(sorted((self._there | self._begun) - self._withdrawn.keys()))

    @property
    def are_awaited(self) -> bool:
        """The ledgers name a topic that there was not when the cluster was asked last."""
        return bool(self._missing())

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is not judged, as a verdict says it."""
        with self._lock:
            return (
                *(reason for _, reason in sorted(self._withdrawn.items())),
                *(
                    _why_gone(topic)
                    if topic in self._begun
                    else f"topic {topic}: there is none of that name, nothing of it was judged"
                    for topic in self._missing()
                ),
                *(
                    f"topic {topic}: nothing of it was judged yet"
                    for topic in sorted(self._there - self._judged - self._withdrawn.keys())
                ),
            )

    def partitions_of(self, topic: str) -> int | None:
        """How many it had when the cluster was asked last; None when it is not known."""
        return self._partitions.get(topic)

    def heard(self, topic_ids: Mapping[str, Collection[str]]) -> None:
        """Lines name these topics, and those ids acknowledged. Raises: OSError."""
        with self._lock:
            ids = {topic: set(known) for topic, known in self._ids.items()}
            for topic, more in topic_ids.items():
                ids.setdefault(topic, set()).update(more)
            self._keep(ids, self._begun, self._judged, self._withdrawn)

    def begin(self) -> tuple[str, ...]:
        """What a stream is to read from now on: `read`. Raises: OSError."""
        with self._lock:
            read = self.read
            self._keep(self._ids, self._begun.union(read), self._judged, self._withdrawn)
            return read

    def were_judged(self, read: Collection[str]) -> None:
        """A micro-batch over these is complete, or there is nothing new in them. Raises: OSError."""
        with self._lock:
            self._keep(self._ids, self._begun, self._judged.union(read), self._withdrawn)

    def look(self, timeout_ms: int | None = None) -> None:
        """Ask which topics there are, and which cannot be judged from now on.

        Raises: ClientError, OSError.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else min(timeout_ms, self._timeout_ms)
        found = look_now(self._bootstrap_servers, self.named, timeout_ms)
        with self._lock:
            self._take(found)

    def look_at(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Before something is said of these: what `look` does, and where those logs that are judged begin.

        Raises: ClientError, also for a topic that is judged and not there; OSError.
        """
        found = look_now(self._bootstrap_servers, self.named, self._timeout_ms)
        with self._lock:
            self._take(found)
            # by this answer, and no other that comes meanwhile
            judged = [place for place in places if place[0] not in self._withdrawn]
        for topic, _ in sorted(judged):
            if topic not in found:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise ClientError(f"topic {topic}: {code.name}", code)
        return log_starts(self._bootstrap_servers, judged, self._timeout_ms) if judged else {}

    def withdraw_missing(self) -> bool:
        """Say nothing more of the topics that were begun and are not there: brokers had the time to hear of
        them. False when there is none, or when the cluster does not say so now. Raises: OSError."""
        try:
            self.look()
        except ClientError:
            return False
        with self._lock:
            gone = self._begun.intersection(self._missing())
            self._withdraw({topic: _why_gone(topic) for topic in gone})
            return bool(gone)

    def _missing(self) -> list[str]:
        return sorted(self._ids.keys() - self._there - self._withdrawn.keys())

    def _take(self, found: Mapping[str, TopicNow]) -> None:
        self._there = frozenset(found)
        self._partitions = {topic: now.partitions for topic, now in found.items()}
        reasons = {}
        for topic, now in found.items():
            others = sorted(self._ids[topic] - {now.topic_id})
            if others:
                reasons[topic] = why_made_again(topic, others, now.topic_id)
            elif now.is_compacted:
                reasons[topic] = why_compacted([topic])
        self._withdraw(reasons)

    def _withdraw(self, reasons: Mapping[str, str]) -> None:
        self._keep(self._ids, self._begun, self._judged, {**reasons, **self._withdrawn})

    def _recall(self, kept: Any) -> None:
        self._ids = {topic: set(ids) for topic, ids in kept["topic_ids"].items()}
        # earlier builds did not write these two down
        self._begun = frozenset(kept.get("begun", ()))
        self._judged = frozenset(kept.get("read", ()))
        self._withdrawn = dict(kept["withdrawn"])

    def _keep(
        self,
        ids: dict[str, set[str]],
        begun: frozenset[str],
        judged: frozenset[str],
        withdrawn: dict[str, str],
    ) -> None:
        """On disk first: what is not there would be forgotten by the next run."""
        if (ids, begun, judged, withdrawn) == (self._ids, self._begun, self._judged, self._withdrawn):
            return
        kept = {
            "topic_ids": {topic: sorted(known) for topic, known in ids.items()},
            "begun": sorted(begun),
            "read": sorted(judged),
            "withdrawn": withdrawn,
        }
        write_whole(self._path, json.dumps(kept))
        self._ids, self._begun, self._judged, self._withdrawn = ids, begun, judged, withdrawn


def _why_gone(topic: str) -> str:
    return f"topic {topic}: it was read, and there is none of that name now; nothing more of it was judged"
