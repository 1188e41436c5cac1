"""What reaches the controller's core and what it asks its shell to do.

Plain values. The shell hands events in one at a time and carries the effects out in order; the result of an
effect comes back as an event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class Entry(Protocol):
    """One record of the metadata log, as raft delivers it."""

    @property
    def offset(self) -> int: ...

    @property
    def raft_epoch(self) -> int: ...

    @property
    def value(self) -> bytes: ...


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A request of a peer. `request_id` is the shell's and comes back in Respond."""

    request_id: int
    connection_id: int
    listener_name: str
    message: Any


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """The operator takes a broker out for good (R28)."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class EntriesCommitted:
    """Further entries of the log are committed, in offset order, each delivered once."""

    entries: Sequence[Entry]
    #: end of the committed part, exclusive; control batches count but are no entries
    committed_offset: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The quorum has another leader or epoch; `leader_id` is None while nobody is known to lead."""

    leader_id: int | None
    raft_epoch: int
    #: own log end at this moment; a new leader claims once everything below it is committed and applied (K22)
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection to this node is gone."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Probed:
    """Result of a Probe. Only a refusal is evidence, whatever else happened is not (D9)."""

    broker_id: int
    broker_epoch: int
    attempt: int
    is_refused: bool


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The moment of `next_deadline_ms` has come, or has passed."""


Event = (
    RequestArrived
    | UnregisterBroker
    | EntriesCommitted
    | LeaderChanged
    | ConnectionClosed
    | Probed
    | TimerFired
)


# --- effects ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append the values as one atomic batch; the first one must get `base_offset`."""

    values: tuple[bytes, ...]
    raft_epoch: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer the request."""

    request_id: int
    message: Any


@dataclass(frozen=True, slots=True)
class Probe:
    """After `delay_ms` try to connect, close at once if somebody answers, and report as Probed."""

    broker_id: int
    broker_epoch: int
    attempt: int
    delay_ms: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give the leadership of the quorum up."""

    reason: str


class Severity(Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Note:
    """One line for people about one transition."""

    severity: Severity
    text: str


Effect = AppendRecords | Respond | Probe | Resign | Note
