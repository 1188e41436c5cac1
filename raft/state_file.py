"""The quorum-state file: vote, epoch and leader, durable before any message that depends on them (Q-9).

Owns the file and the actions that wait for it. A later state keeps everything that an earlier one has
promised (`QuorumState.allows`), so of the states that come during a write only the latest is written next.
"""

import logging
import posixpath
from collections.abc import Callable
from dataclasses import replace

from holdfast.raft.core.quorum import DamagedQuorumState, QuorumState
from holdfast.runtime.api import DiskError, Runtime, Task
from holdfast.storage.checkpoint import read_text, write_atomically
from holdfast.storage.folders import make_durably

FILE_NAME = "quorum-state"

_log = logging.getLogger("holdfast.raft")


class StateFile:
    """Writes one state at a time and then runs the actions that wait for it."""

    def __init__(
        self,
        runtime: Runtime,
        folder: str,
        cluster_id: str,
        persisted: Callable[[QuorumState], None],
        failed: Callable[[Exception], None],
        *,
        has_directory: bool = False,
    ) -> None:
        """`has_directory`: the file gives its folder an identity, a voter's directory id (K8)."""
        self._runtime = runtime
        self._path = posixpath.join(folder, FILE_NAME)
        self._cluster_id = cluster_id
        self._persisted = persisted
        self._failed = failed
        self._has_directory = has_directory
        self._durable: QuorumState | None = None
        self._latest: QuorumState | None = None
        #: the state being written, None when none is
        self._writing: QuorumState | None = None
        self._waiting_for_writing: list[Callable[[], None]] = []
        self._waiting_for_latest: list[Callable[[], None]] = []
        self._task: Task | None = None

    async def load(self) -> QuorumState:
        """The stored state, a new one when there is no file, or a damaged one of an observer, which never
        votes. With it a voter's directory gets its id: it is admitted at once when an earlier build has made
        the file, which knew of none. Raises: BadQuorumState, DiskError."""
        disk = self._runtime.disk
        folder = posixpath.dirname(self._path)
        state = QuorumState()
        if await disk.exists(self._path):
            # An unreadable file is not a missing one: this voter may have given its vote (K5).
            try:
                state = QuorumState.from_json(await read_text(disk, self._path) or "", self._cluster_id)
            except DamagedQuorumState as damage:
                if self._has_directory:
                    raise
                _log.warning("%s is made again: %s", self._path, damage.what)
        else:
            await make_durably(disk, folder)
            state = replace(state, is_admitted=not self._has_directory)
        if self._has_directory and state.directory_id is None:
            state = replace(state, directory_id=self._runtime.random.uuid())
            await write_atomically(disk, self._path, state.to_json(self._cluster_id))
        self._durable = self._latest = state
        return state

    def persist(self, state: QuorumState) -> None:
        """Make `state`, or a later one, durable."""
        if state == self._latest:
            return
        is_observer = not self._has_directory
        assert self._latest is not None and self._latest.allows(state, is_observer=is_observer), (
            f"{state} after {self._latest}"
        )
        self._latest = state
        if self._task is None or self._task.is_done:
            self._task = self._runtime.tasks.start(f"write {self._path}", self._write())

    def when_durable(self, action: Callable[[], None]) -> None:
        """Run `action` once the latest state is durable: at once if it is."""
        if self._latest == self._durable:
            action()
        elif self._latest == self._writing:
            self._waiting_for_writing.append(action)
        else:
            self._waiting_for_latest.append(action)

    async def settle(self) -> None:
        """Wait until nothing is being written."""
        if self._task is not None:
            await self._task.wait()

    async def _write(self) -> None:
        while self._latest is not None and self._latest != self._durable:
            state = self._writing = self._latest
            self._waiting_for_writing, self._waiting_for_latest = self._waiting_for_latest, []
            try:
                await write_atomically(self._runtime.disk, self._path, state.to_json(self._cluster_id))
            except DiskError as error:
                # Neither used nor retried: what the file holds now is unknown.
                self._failed(error)
                return
            self._durable, self._writing = state, None
            actions, self._waiting_for_writing = self._waiting_for_writing, []
            for action in actions:
                action()
            self._persisted(state)
