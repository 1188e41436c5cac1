"""What random worlds of raft nodes go through, and what must hold of each once it has peace."""

from collections.abc import Sequence

from tests.unit.raft.simulation import World


def disturb(world: World, faults_ms: int, *, first_ms: int = 0) -> None:
    """Start all, then faults and records, the faults from `first_ms` on; all links are whole after it."""
    for id in sorted(world.machines):
        world.later(world.random.randint(0, 300), lambda id=id: world.boot(id))  # type: ignore[misc]
    for _ in range(world.random.randint(5, 40)):
        world.later(world.random.randint(first_ms, faults_ms - 1_500), lambda: fault(world))
    for _ in range(80):
        world.later(world.random.randint(0, faults_ms), world.propose_everywhere)
    world.run_until(faults_ms)
    world.calm = True
    world.cut()


def assert_one_leads(world: World, leaders: Sequence[int], peace_ms: int) -> None:
    """One leader, which commits, and equal logs within a second."""
    assert len(leaders) == 1, f"L-8: peace for {peace_ms} ms, and the leaders are {leaders}"
    last_value = world.propose(leaders[0])
    world.run_until(world.now_ms + 1_000)
    world.check_converged()
    assert last_value in world.acked, "a quorum at peace commits"


def fault(world: World) -> None:
    """One random act: crash, restart, perhaps with a new disk, partition, pause, resignation. Leaders are
    favourite victims."""
    ids = sorted(world.machines)
    leaders = [id for id in ids if world.role(id) == "Leader"]
    pool = leaders if leaders and world.random.random() < 0.5 else ids
    id = pool[world.random.randint(0, len(pool) - 1)]
    match world.random.randint(0, 9):
        case 0 | 1 | 2:
            world.crash(id)
            if world.random.random() < 0.2:
                world.wipe(id)
            world.later(world.random.randint(1, 1_500), lambda: world.boot(id))
        case 3:
            for other in ids:
                world.crash(other)
                world.later(world.random.randint(1, 1_500), lambda id=other: world.boot(id))  # type: ignore[misc]
        case 4:
            inside = tuple(other for other in ids if world.random.random() < 0.5)
            world.cut(inside, tuple(other for other in ids if other not in inside))
        case 5:
            world.cut((id,), tuple(other for other in ids if other != id))
        case 6 | 7:
            world.cut()
        case 8:
            world.pause(id, world.random.randint(50, 4_000))
        case _:
            world.resign(id)
