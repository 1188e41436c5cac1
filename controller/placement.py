"""Which brokers get the replicas of new partitions: even over brokers, spread over racks.

Owns the placement rule of R106; deterministic, without randomness: the start moves on with the number of
partitions that exist. Fenced brokers are used only when there are too few active ones, and never preferred.
"""

from collections.abc import Sequence


def place_replicas(
    active: Sequence[tuple[int, str | None]],
    fenced: Sequence[tuple[int, str | None]],
    *,
    partition_count: int,
    replication_factor: int,
    start: int,
) -> list[tuple[int, ...]]:
    """Replica lists of the partitions, the preferred replica first.

    `active` and `fenced` are (broker_id, rack): at least one active one, `replication_factor` together.
    `start` counts the partitions placed before, so that leaders go on around the ring.
    """
    assert active and len(active) + len(fenced) >= replication_factor >= 1
    ring = _ring(active)
    spare = _ring(fenced)
    placed: list[tuple[int, ...]] = []
    for number in range(start, start + partition_count):
        leader = number % len(ring)
        # the shift changes once a round, so that a leader's partitions have different followers
        shift = number // len(ring)
        others = len(ring) - 1
        order = [
            ring[leader],
            *(ring[(leader + 1 + (shift + j) % others) % len(ring)] for j in range(others)),
        ]
        order += [spare[(number + j) % len(spare)] for j in range(len(spare))]
        placed.append(_spread(order, replication_factor, len(ring)))
    return placed


def _ring(brokers: Sequence[tuple[int, str | None]]) -> list[tuple[int, str | None]]:
    """Brokers by id, racks taking turns: a1 b1 c1 a2 b2 c2."""
    by_rack: dict[str, list[tuple[int, str | None]]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker[1] or "", []).append(broker)
    racks = [by_rack[rack] for rack in sorted(by_rack)]
    rounds = max(map(len, racks), default=0)
    return [rack[i] for i in range(rounds) for rack in racks if i < len(rack)]


def _spread(order: list[tuple[int, str | None]], count: int, active_count: int) -> tuple[int, ...]:
    """The first `count` of `order`: active before fenced, and each rack once before any rack twice."""
    chosen: list[tuple[int, str | None]] = []
    for group in (order[:active_count], order[active_count:]):
        left = list(group)
        while left and len(chosen) < count:
            uses = {rack: sum(1 for _, other in chosen if other == rack) for _, rack in left}
            least = min(uses.values())
            chosen.append(left.pop(next(i for i, (_, rack) in enumerate(left) if uses[rack] == least)))
    return tuple(broker_id for broker_id, _ in chosen)
