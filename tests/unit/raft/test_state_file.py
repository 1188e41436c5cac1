import pytest

from holdfast.raft.core.quorum import DamagedQuorumState, QuorumState
from holdfast.raft.state_file import StateFile
from holdfast.runtime.api import DiskError
from holdfast.runtime.memory.machine import MemoryWorld, memory_runtime, settle
from holdfast.storage.checkpoint import read_text, write_atomically
from holdfast.storage.folders import make_durably


class Stored:
    """A state file and what it tells."""

    def __init__(self, *, is_voter: bool = False) -> None:
        runtime, self.world = memory_runtime()
        self.told: list[str] = []
        self.failures: list[Exception] = []
        self.file = StateFile(
            runtime,
            "/m",
            "c",
            lambda state: self.told.append(f"durable {state.raft_epoch}"),
            self.failures.append,
            has_directory=is_voter,
        )

    def ask(self, name: str) -> None:
        self.file.when_durable(lambda: self.told.append(name))


async def stored_epoch(world: MemoryWorld) -> int:
    text = await read_text(world.disk, "/m/quorum-state")
    assert text is not None
    return QuorumState.from_json(text, "c").raft_epoch


async def test_missing_file_is_a_fresh_state() -> None:
    assert await Stored().file.load() == QuorumState()


@pytest.mark.parametrize("text", ["", "{", "\0" * 40, '{"data_version": 0, "clusterId": "c"}'])
async def test_a_damaged_file_stops_a_voter_which_may_have_voted_and_no_observer(text: str) -> None:
    for is_voter in (True, False):
        stored = Stored(is_voter=is_voter)
        await make_durably(stored.world.disk, "/m")
        await write_atomically(stored.world.disk, "/m/quorum-state", text)
        if is_voter:
            with pytest.raises(DamagedQuorumState, match="put it back"):
                await stored.file.load()
            continue
        assert await stored.file.load() == QuorumState()
        stored.file.persist(QuorumState(3))
        await settle()
        assert await stored_epoch(stored.world) == 3


async def test_what_waits_for_a_state_waits_for_exactly_that_write() -> None:
    """Q-9: the write under way does not hold what came after it began."""
    stored = Stored()
    await stored.file.load()
    stored.world.disk.hold_flushes()
    stored.file.persist(QuorumState(1))
    stored.ask("first")
    await settle()
    stored.ask("first again")
    stored.file.persist(QuorumState(2))
    stored.file.persist(QuorumState(3))
    stored.ask("third")
    await settle()
    assert stored.told == []
    stored.world.disk.release_flushes()
    stored.world.disk.hold_flushes()
    await settle()
    assert stored.told == ["first", "first again", "durable 1"]
    stored.world.disk.release_flushes()
    await settle()
    assert stored.told[3:] == ["third", "durable 3"]
    assert await stored_epoch(stored.world) == 3
    stored.ask("later")
    assert stored.told[-1] == "later"


async def test_after_a_failed_write_nothing_is_said() -> None:
    """A-20."""
    stored = Stored()
    await stored.file.load()
    stored.world.disk.fail("flush", "quorum-state.tmp")
    stored.file.persist(QuorumState(1))
    stored.ask("never")
    await settle()
    assert stored.told == []
    assert isinstance(stored.failures[0], DiskError)


async def test_durable_state_survives_a_power_loss() -> None:
    """K1."""
    stored = Stored()
    await stored.file.load()
    stored.file.persist(QuorumState(4, voted_for=2))
    await settle()
    stored.world.disk.power_loss()
    runtime, _ = memory_runtime(disk=stored.world.disk)
    again = StateFile(runtime, "/m", "c", lambda _: None, stored.failures.append)
    assert await again.load() == QuorumState(4, voted_for=2)
