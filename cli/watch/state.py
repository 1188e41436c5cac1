"""What `/v1/events` has said so far, and the sentence about it: the same as the live page's.

Owns the rows of partitions and brokers as the node sends them. Decides nothing about the cluster.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Mood: TypeAlias = Literal["good", "warn", "bad"]


class ServerSentEvent(NamedTuple):
    """One event of the stream."""

    kind: str
    data: str
    #: with which a client resumes
    id: str | None


def events_of(lines: Iterable[str]) -> Iterator[ServerSentEvent]:
    """The events in the lines of a stream, each as soon as its empty line has come; comments are none."""
    kind, event_id, data = "message", None, []
    for line in lines:
        field, _, value = line.rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            event_id = value
        elif not line.strip() and data:
            yield ServerSentEvent(kind, "\n".join(data), event_id)
            kind, event_id, data = "message", None, []


class BoardState:
    """The cluster as one node shows it."""

    def __init__(self) -> None:
        #: None before the first event
        self.cluster: Row | None = None
        self.partitions: dict[str, Row] = {}
        #: newest first; only the active controller knows them
        self.decisions: list[Row] = []
        #: all of a state has come, not only its beginning
        self.is_whole = False

    def take(self, kind: str, body: Row) -> None:
        """One event; those of kinds that are not known say nothing here."""
        if kind == "cluster":
            if body["is_whole"]:
                self.partitions.clear()
                self.is_whole = False
            self.cluster = body
        elif kind == "partitions":
            for row in body["rows"]:
                self.partitions[name_of(row)] = row
        elif kind == "deleted":
            for name in body["partitions"]:
                self.partitions.pop(name, None)
        elif kind == "offset":
            self.is_whole = True

    @property
    def is_from_the_active_controller(self) -> bool:
        """The node that answers knows why things changed."""
        if self.cluster is None:
            return False
        node = self.cluster["node"]
        return bool(node["role"] == "controller" and self.cluster["quorum"]["leader_id"] == node["id"])

    def worst_first(self) -> list[Row]:
        """All partitions."""
        return sorted(
            self.partitions.values(), key=lambda row: (-_badness(row), row["topic"], row["partition"])
        )

    def leaderships(self) -> Counter[int | None]:
        """By broker; None counts partitions without a leader."""
        return Counter(row["leader"] for row in self.partitions.values())

    def replicas(self) -> Counter[int]:
        """By broker."""
        return Counter(replica for row in self.partitions.values() for replica in row["replicas"])

    def sentence(self) -> tuple[Mood, str]:
        """The worst that is true of the cluster."""
        if self.cluster is None:
            return "warn", "Nothing is known yet"
        brokers = len(self.cluster["brokers"])
        if not brokers:
            return "warn", "No broker has registered yet"
        rows = self.worst_first()
        if not rows:
            return "good", f"{_count(brokers, 'broker', 'brokers')}, no topics yet"
        leaderless = [row for row in rows if row["leader"] is None]
        if leaderless:
            return "bad", _of_leaderless(leaderless)
        refused = sum(row["headroom"]["writes"] < 0 for row in rows)
        if refused:
            below = _count(refused, "partition is", "partitions are")
            return "bad", f"{below} below min ISR: writes with acks=all wait"
        return _of_losses(rows)


class Groups:
    """Consumer groups, as the brokers that coordinate them show them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        #: of all, also those that a broker does not show
        self.count = 0

    def take(self, body: Row) -> None:
        """What a node answers; most lag comes first then. `worst` becomes pairs: name, lag.

        Raises: KeyError, TypeError for what is no such answer; nothing is taken then.
        """
        rows: list[Row] = [
            {
                **{key: row[key] for key in ("group", "state", "members", "partitions", "lag", "unknown")},
                "worst": [(name_of(one), one["lag"]) for one in row["worst"]],
            }
            for row in body["groups"]
        ]
        rows = sorted([*self.rows, *rows], key=lambda row: (-row["lag"], str(row["group"])))
        self.count += body["count"]
        self.rows = rows


def _of_leaderless(rows: list[Row]) -> str:
    row = rows[0]
    complete = row["isr"] or row["elr"]
    waits = (
        f"it waits for broker {' or '.join(map(str, complete))}"
        if complete
        else "no replica may lead without loss"
    )
    more = f"; {len(rows) - 1} more have none" if len(rows) > 1 else ""
    return f"{name_of(row)} has no leader: {waits}{more}"


def _of_losses(rows: list[Row]) -> tuple[Mood, str]:
    least = min(row["headroom"]["lossy"] for row in rows)
    weak = [row for row in rows if row["headroom"]["lossy"] == least]
    if least <= 0:
        more = f" and {len(weak) - 1} more" if len(weak) > 1 else ""
        return "warn", f"{name_of(weak[0])}{more}: one more power loss may take acknowledged records"
    frozen = sum(row["headroom"]["writes"] == 0 for row in rows)
    all_ = f"{name_of(rows[0])} survives" if len(rows) == 1 else f"All {len(rows)} partitions survive"
    text = f"{all_} {_count(least, 'more power loss', 'more power losses')}"
    if not frozen:
        return "good", text
    return "warn", f"{text}; {_count(frozen, 'takes', 'take')} no writes after the next stop"


def name_of(row: Row) -> str:
    """`topic-0`."""
    return f"{row['topic']}-{row['partition']}"


def set_of(row: Row, broker: int) -> str:
    """The letter of the set that the broker's replica is in; empty without a replica."""
    if row["leader"] == broker:
        return "L"
    if broker in row["isr"]:
        return "I"
    if broker in row["elr"]:
        return "E"
    if broker in row["last_known_elr"]:
        return "?"
    return "o" if broker in row["replicas"] else ""


def _badness(row: Row) -> int:
    return int(
        (1000 if row["leader"] is None else 0)
        + (500 if "needs_recovery" in row["states"] else 0)
        + (100 if row["headroom"]["writes"] < 0 else 0)
        + (50 if row["headroom"]["lossy"] <= 0 else 0)
        + 5 * len(row["states"])
        - row["headroom"]["writes"]
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
