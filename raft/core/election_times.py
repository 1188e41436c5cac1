"""When a member runs for election, and when its owner's trouble makes it leave the others to lead (K2, K29).

Owns what these times depend on: how often it has lost, and whether its owner can lead. `raft.core.election`
draws the delays.
"""

from collections.abc import Sequence

from holdfast.raft.core import election
from holdfast.raft.core.config import RaftConfig
from holdfast.raft.core.leadership import Leader
from holdfast.raft.core.voters import Voters
from holdfast.runtime.api import Random


class ElectionTimes:
    """Of one member."""

    def __init__(self, config: RaftConfig, random: Random, voters: Voters) -> None:
        self._config = config
        self._random = random
        self._voters = voters
        #: lost elections in a row; they set the back-off
        self.lost_count = 0
        #: why the owner cannot lead, None if it can; since when, and how often it has led nevertheless (K29)
        self.cannot_lead: str | None = None
        self._cannot_lead_since_ms = 0
        self._idle_terms = 0

    def owner_cannot_lead(self, reason: str | None, now_ms: int) -> None:
        """The owner does nothing while this member leads, or can again (K29)."""
        self.cannot_lead, self._cannot_lead_since_ms, self._idle_terms = reason, now_ms, 0

    def resigned(self) -> None:
        """A term of this member is over."""
        if self.cannot_lead is not None:
            self._idle_terms += 1

    def timeout_ms(self, now_ms: int) -> int:
        """When the time is over in which a voter wins, or hears of a leader."""
        if self._voters.is_alone:
            return now_ms
        return now_ms + election.election_timeout_ms(self._config, self._random)

    def run_ms(self, now_ms: int) -> int:
        """When to ask for pre-votes if no other voter has led before."""
        if self.cannot_lead is None or self._voters.is_alone:
            return self.timeout_ms(now_ms)
        return now_ms + election.rest_ms(self._config, self._random, self._idle_terms)

    def retry_ms(self, now_ms: int) -> int:
        """When to run again after an election that was lost."""
        if self.cannot_lead is not None:
            return self.run_ms(now_ms)
        return now_ms + election.retry_delay_ms(self._config, self._random, self.lost_count)

    def ranked_delay_ms(self, successors: Sequence[int]) -> int:
        """Delay before this voter runs when the leader has named its successors (K6)."""
        return election.ranked_delay_ms(self._config, self._random, successors)

    def delay_after_ms(self, gone_leader_id: int | None) -> int:
        """Delay before this voter runs after its leader is gone, which named none (D9)."""
        return self.ranked_delay_ms(election.successors_of(self._voters.ids, gone_leader_id))

    def hand_over_ms(self, leader: Leader, high_watermark: int) -> int | None:
        """When this leader, whose owner cannot lead, lets another one lead: after the others had time to
        fetch its log. None if it does not, or not before a majority has its log: it would win again (K29)."""
        if self.cannot_lead is None or not leader.voters or high_watermark <= leader.epoch_start_offset:
            return None
        return max(leader.elected_at_ms, self._cannot_lead_since_ms) + self._config.fetch_timeout_ms
