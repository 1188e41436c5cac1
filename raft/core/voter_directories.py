"""Under which directory each voter counts, as the metadata log names it (K8).

Owns what the log says up to its end, committed or not; follows it when it is cut. A voter whose directory is
not named yet may have any.
"""

from collections.abc import Iterable


class VoterDirectories:
    """The directories of the voters, from the first record that names some."""

    __slots__ = ("_history",)

    def __init__(self, history: Iterable[tuple[int, dict[int, bytes]]] = ()) -> None:
        """`history`: `(offset, {voter: directory id})` of each record that names some, ascending."""
        self._history = list(history)

    @property
    def known(self) -> dict[int, bytes]:
        """`{voter: directory id}` at the log's end."""
        return self._history[-1][1] if self._history else {}

    def below(self, offset: int) -> dict[int, bytes]:
        """`{voter: directory id}` as the records below `offset` name them."""
        return next((named for at, named in reversed(self._history) if at < offset), {})

    def append(self, offset: int, directories: dict[int, bytes]) -> None:
        """A record at `offset`, behind all others, names them."""
        assert not self._history or self._history[-1][0] < offset, "records come in order"
        if directories != self.known:
            self._history.append((offset, directories))

    def truncate_to(self, end_offset: int) -> None:
        """The log ends at `end_offset` now."""
        while self._history and self._history[-1][0] >= end_offset:
            self._history.pop()

    def is_other(self, voter_id: int, directory_id: bytes | None) -> bool:
        """True when the log names another directory for this voter."""
        named = self.known.get(voter_id)
        return named is not None and directory_id is not None and named != directory_id

    def is_named_below(self, offset: int, voter_id: int, directory_id: bytes) -> bool:
        """True when a record below `offset` names this directory, and no later one another."""
        first = None
        for at, named in reversed(self._history):
            if named.get(voter_id) != directory_id:
                break
            first = at
        return first is not None and first < offset
