"""Placement of new partitions' replicas: even over brokers, spread over racks (R106).

Deterministic, without randomness: the starting broker moves on with the number of existing partitions. Fenced
brokers are used only when there are too few active ones, and never as preferred replica.
"""

from collections import Counter
from collections.abc import Sequence

#: (broker_id, rack)
Candidate = tuple[int, str | None]


def place_replicas(
    active: Sequence[Candidate],
    fenced: Sequence[Candidate],
    *,
    partition_count: int,
    replication_factor: int,
    start: int,
) -> list[tuple[int, ...]]:
    """Replica lists of the partitions, the preferred replica first.

    `active` and `fenced` are (broker_id, rack): at least one active, together at least `replication_factor`.
    `start` is the number of partitions placed before, so that leaders go on around the ring.
    """
    assert active and len(active) + len(fenced) >= replication_factor >= 1
    ring, spare = _ring(active), _ring(fenced)
    #: with few brokers the lists of ten thousand partitions are few
    known: dict[tuple[int, int, int], tuple[int, ...]] = {}
    placed: list[tuple[int, ...]] = []
    for number in range(start, start + partition_count):
        key = number % len(ring), number // len(ring) % max(1, len(ring) - 1), number % max(1, len(spare))
        replicas = known.get(key)
        if replicas is None:
            replicas = known[key] = _place(ring, spare, number, replication_factor)
        placed.append(replicas)
    return placed


def place_more(
    active: Sequence[Candidate],
    fenced: Sequence[Candidate],
    preferred: Sequence[int],
    *,
    partition_count: int,
    replication_factor: int,
) -> list[tuple[int, ...]]:
    """Replica lists of further partitions of a topic whose preferred replicas are `preferred`, by index.

    The broker that is preferred for the fewest partitions of the topic is next, so that a newer broker
    catches up; among equals the ring goes on after the last one.
    """
    assert active and len(active) + len(fenced) >= replication_factor >= 1
    ring, spare = _ring(active), _ring(fenced)
    times = Counter(preferred)
    leads = [times[broker_id] for broker_id, _ in ring]
    ids = [broker_id for broker_id, _ in ring]
    behind = ids.index(preferred[-1]) + 1 if preferred and preferred[-1] in ids else 0
    placed: list[tuple[int, ...]] = []
    for _ in range(partition_count):
        least = min(leads)
        place = next(
            i % len(ring) for i in range(behind, behind + len(ring)) if leads[i % len(ring)] == least
        )
        # `least` counts this leader's partitions so far: its next one gets other followers
        placed.append(_place(ring, spare, least * len(ring) + place, replication_factor))
        leads[place] += 1
        behind = place + 1
    return placed


def _place(
    ring: list[Candidate], spare: list[Candidate], number: int, replication_factor: int
) -> tuple[int, ...]:
    """The replicas of the partition with that number, which gives its place on the ring and its round."""
    leader = number % len(ring)
    # the shift changes once per round, so that a leader's partitions have different followers
    shift = number // len(ring)
    others = len(ring) - 1
    order = [ring[leader], *(ring[(leader + 1 + (shift + j) % others) % len(ring)] for j in range(others))]
    order += [spare[(number + j) % len(spare)] for j in range(len(spare))]
    return _spread(order, replication_factor, len(ring))


def _ring(brokers: Sequence[Candidate]) -> list[Candidate]:
    """Brokers by id, taking turns by rack: a1 b1 c1 a2 b2 c2."""
    by_rack: dict[str, list[Candidate]] = {}
    for broker in sorted(brokers):
        by_rack.setdefault(broker[1] or "", []).append(broker)
    racks = [by_rack[rack] for rack in sorted(by_rack)]
    rounds = max(map(len, racks), default=0)
    return [rack[i] for i in range(rounds) for rack in racks if i < len(rack)]


def _spread(order: list[Candidate], count: int, active_count: int) -> tuple[int, ...]:
    """The first `count` of `order`: active before fenced, and each rack once before any rack twice."""
    chosen: list[Candidate] = []
    for group in (order[:active_count], order[active_count:]):
        left = list(group)
        while left and len(chosen) < count:
            uses = {rack: sum(1 for _, other in chosen if other == rack) for _, rack in left}
            least = min(uses.values())
            chosen.append(left.pop(next(i for i, (_, rack) in enumerate(left) if uses[rack] == least)))
    return tuple(broker_id for broker_id, _ in chosen)
