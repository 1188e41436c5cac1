"""Configuration of a member of the quorum."""

from collections.abc import Mapping
from dataclasses import dataclass

#: Most bytes of records in one batch of the metadata log; one answer to a fetch carries at least one batch.
BATCH_MAX_BYTES = 8 << 20
#: One step of the ranked delays is this fraction of `election_backoff_max_ms`: longer than an election takes.
_STEPS_IN_BACKOFF = 20


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Defaults are those of K7, times in ms. `voters` is `{voter_id: (host, port)}`: the voters while the log
    names none, and then where a node begins to look for them (K30)."""

    node_id: int
    cluster_id: str
    voters: Mapping[int, tuple[str, int]]
    #: folder of `quorum-state` and of the metadata log
    folder: str
    #: True for controllers; False for brokers: observers, whose ids must differ from those of the voters
    is_voter: bool
    #: a voter without a leader waits this long, drawn from [1x, 2x]
    election_timeout_ms: int = 1000
    #: a follower without an answer for so long asks for pre-votes; a leader resigns after 1.5 times this
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    #: longest time that a fetch without news stays parked at the leader (K10)
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = BATCH_MAX_BYTES
    #: a snapshot is made after so many bytes of committed log, or so long when there are any; None: never
    snapshot_bytes: int | None = None
    snapshot_interval_ms: int | None = None
    #: a controller that `voters` need not contain: it reads the log until it is made a voter (K30)
    joins: bool = False
    #: host:port under which this controller makes itself a voter; None: it waits for an operator (K30)
    joins_as: str | None = None

    def validate(self) -> None:
        """Raises: ValueError, with a text that says what to change."""
        if not self.voters:
            raise ValueError("controller.quorum.voters is empty: name 1, 3 or 5 voters as id@host:port")
        if self.is_voter and self.node_id not in self.voters and not self.joins:
            raise ValueError(
                f"node.id {self.node_id} is not in controller.quorum.voters {sorted(self.voters)}: "
                "add it there or correct the id"
            )
        if not self.is_voter and self.node_id in self.voters:
            raise ValueError(
                f"node.id {self.node_id} belongs to a voter: give this broker another id, "
                "or the leader would count its fetches as that voter's"
            )
        if self.retry_backoff_ms < 1:
            raise ValueError(
                f"controller.quorum.retry.backoff.ms is {self.retry_backoff_ms}: set it to 1 or more, or "
                "this node asks a dead voter again and again without a pause"
            )
        if not 0 < self.fetch_max_wait_ms < self.fetch_timeout_ms:
            raise ValueError(
                f"controller.quorum.fetch.timeout.ms is {self.fetch_timeout_ms}: raise it above the long "
                f"poll of {self.fetch_max_wait_ms} ms, or followers of a healthy leader start elections"
            )

    @property
    def other_voters(self) -> tuple[int, ...]:
        """Ascending, without this node."""
        return tuple(sorted(voter_id for voter_id in self.voters if voter_id != self.node_id))

    @property
    def backoff_step_ms(self) -> int:
        """Distance between two voters that start an election on the same evidence (D9)."""
        return max(1, self.election_backoff_max_ms // _STEPS_IN_BACKOFF)

    @property
    def check_quorum_timeout_ms(self) -> int:
        """Time without fetches of a majority after which a leader resigns (K7)."""
        return self.fetch_timeout_ms * 3 // 2
