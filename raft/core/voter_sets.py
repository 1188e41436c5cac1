"""Which nodes are the voters, as the metadata log names them (K30).

Owns what the log says up to its end, committed or not; follows it when it is cut. A log that names no set
leaves it to the configuration.
"""

from collections.abc import Iterable

from holdfast.raft.core.control_records import Voter

#: Longest name of a host.
_HOST_MAX = 255


class VoterSets:
    """The sets of voters, from the first record that names one."""

    __slots__ = ("_history",)

    def __init__(self, history: Iterable[tuple[int, tuple[Voter, ...]]] = ()) -> None:
        """`history`: `(offset, set by id)` of each record that names one, ascending."""
        self._history = list(history)

    @property
    def latest(self) -> tuple[Voter, ...]:
        """The set at the log's end, by id, which counts whether it is committed or not; empty for none."""
        return self._history[-1][1] if self._history else ()

    @property
    def latest_offset(self) -> int:
        """Where that record lies, -1 for none."""
        return self._history[-1][0] if self._history else -1

    def below(self, offset: int) -> tuple[Voter, ...]:
        """The set that the records below `offset` name, empty for none."""
        return next((voters for at, voters in reversed(self._history) if at < offset), ())

    def append(self, offset: int, voters: tuple[Voter, ...]) -> None:
        """A record at `offset`, behind all others, names them."""
        assert self.latest_offset < offset, "records come in order"
        assert voters, "a quorum has a voter"
        self._history.append((offset, voters))

    def truncate_to(self, end_offset: int) -> None:
        """The log ends at `end_offset` now."""
        while self._history and self._history[-1][0] >= end_offset:
            self._history.pop()

    def find(self, voter_id: int) -> Voter | None:
        """The row of a voter at the log's end."""
        return _row(self.latest, voter_id)

    def last_of(self, voter_id: int) -> Voter | None:
        """The row of a voter in the last set that names it."""
        rows = (_row(voters, voter_id) for _, voters in reversed(self._history))
        return next((row for row in rows if row is not None), None)


def _row(voters: tuple[Voter, ...], voter_id: int) -> Voter | None:
    return next((voter for voter in voters if voter.voter_id == voter_id), None)


def parse_endpoint(text: str | None) -> tuple[str, int] | None:
    """(host, port) of host:port; None for another text."""
    host, _, port = (text or "").rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]  # of IPv6
    if 0 < len(host) <= _HOST_MAX and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16:
        return host, int(port)
    return None


def with_voter(voters: tuple[Voter, ...], added: Voter) -> tuple[Voter, ...]:
    """The set with one more voter, by id."""
    return tuple(sorted((*voters, added), key=lambda voter: voter.voter_id))


def without_voter(voters: tuple[Voter, ...], voter_id: int) -> tuple[Voter, ...]:
    """The set without one voter."""
    return tuple(voter for voter in voters if voter.voter_id != voter_id)
