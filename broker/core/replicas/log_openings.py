"""The logs of a broker: which are open, which are being opened, and that they are deleted.

Owns the order in which folders change: one opening at a time per folder, so that the log of a deleted topic
is opened and deleted before the log of a new topic with its name is asked for. Appends effects to the list
that it shares with its owner, `broker.core.replicas.replica_manager`, which decides which logs there should
be.
"""

from collections.abc import Iterator

from holdfast.broker.core.events import DeleteLog, Effect, OpenLog
from holdfast.broker.core.replicas.divergence import LogView
from holdfast.metadata.ids import PartitionId
from holdfast.storage.core.config import LogConfig

#: Topic name and partition index: they name a log's folder.
Place = tuple[str, int]


class LogOpenings:
    """Of one broker; once all are loaded, a collection of those that are open."""

    def __init__(self, outbox: list[Effect]) -> None:
        #: open logs, with or without a role; None until all are loaded
        self._logs: dict[PartitionId, LogView] | None = None
        #: logs being opened by folder, and the folder of each
        self._opening: dict[Place, PartitionId] = {}
        self._places: dict[PartitionId, Place] = {}
        self._effects = outbox

    def __contains__(self, key: object) -> bool:
        assert self._logs is not None
        return key in self._logs

    def __iter__(self) -> Iterator[PartitionId]:
        assert self._logs is not None
        return iter(self._logs)

    def __len__(self) -> int:
        assert self._logs is not None
        return len(self._logs)

    @property
    def are_loaded(self) -> bool:
        """All that the start found are open."""
        return self._logs is not None

    def get(self, key: PartitionId) -> LogView | None:
        """This log, None while it is not open."""
        assert self._logs is not None
        return self._logs.get(key)

    def loaded(self, logs: dict[PartitionId, LogView]) -> None:
        """These were found at the start."""
        self._logs = logs

    def opened(self, key: PartitionId, log: LogView) -> None:
        """A log that was asked for is open."""
        assert self._logs is not None
        self._logs[key] = log

    def lost(self, key: PartitionId) -> None:
        """A log cannot be used any more; its files stay."""
        if self._logs is not None:
            self._logs.pop(key, None)

    def open(self, key: PartitionId, place: Place, config: LogConfig) -> None:
        """Ask for a log, unless one in the same folder is being opened."""
        if place not in self._opening:
            self._opening[place] = key
            self._places[key] = place
            self._effects.append(OpenLog(key, place[0], config))

    def opening_over(self, key: PartitionId) -> Place | None:
        """The opening of this log has succeeded or failed; its folder, None when it was not being opened."""
        place = self._places.pop(key, None)
        if place is not None:
            del self._opening[place]
        return place

    def delete(self, key: PartitionId) -> None:
        """Delete a log if it is open. An opening under way goes on: a second one after it could find the log
        that is being deleted."""
        assert self._logs is not None
        if self._logs.pop(key, None) is not None:
            self._effects.append(DeleteLog(key))
