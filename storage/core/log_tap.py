"""What observers of a log hear: the resets and the retention passes."""


class LogTap:
    """Observes a log and changes nothing. A base class: each method does nothing."""

    __slots__ = ()

    def reset_begins(self) -> None:
        """Called before `reset_to` drops everything."""

    def reset_ended(self) -> None:
        """Called when everything is dropped, durably."""

    def retention_begins(self, wall_ms: int) -> None:
        """Called before retention looks for old segments by this wall clock."""

    def retention_ended(self, deleted_count: int) -> None:
        """Called when retention has deleted so many segments."""
