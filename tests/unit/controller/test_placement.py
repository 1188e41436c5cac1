"""Even placement over brokers and racks (R106)."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.core.partitions.placement import place_more, place_replicas

Broker = tuple[int, str | None]


def without_racks(count: int) -> list[Broker]:
    return [(broker_id, None) for broker_id in range(count)]


@given(
    active=st.integers(1, 7),
    fenced=st.integers(0, 3),
    partitions=st.integers(1, 40),
    start=st.integers(0, 50),
)
def test_replicas_are_distinct_active_ones_first_and_leaders_even(
    active: int, fenced: int, partitions: int, start: int
) -> None:
    for factor in range(1, active + fenced + 1):
        spare: list[Broker] = [(100 + broker_id, None) for broker_id in range(fenced)]
        placed = place_replicas(
            without_racks(active), spare, partition_count=partitions, replication_factor=factor, start=start
        )
        assert len(placed) == partitions
        for replicas in placed:
            assert len(set(replicas)) == factor
            assert list(replicas) == sorted(replicas, key=lambda replica: replica >= 100)
            assert sum(replica < 100 for replica in replicas) == min(active, factor)
        leaders = Counter(replicas[0] for replicas in placed)
        assert max(leaders.values()) - min(leaders[broker_id] for broker_id in range(active)) <= 1


def test_followers_of_one_leader_differ() -> None:
    placed = place_replicas(without_racks(5), [], partition_count=20, replication_factor=2, start=0)
    assert {replicas[1] for replicas in placed if replicas[0] == 0} == {1, 2, 3, 4}
    assert set(Counter(replica for replicas in placed for replica in replicas).values()) == {8}


def test_single_partition_topics_spread_as_one_big_topic_does() -> None:
    one_by_one = [
        place_replicas(without_racks(3), [], partition_count=1, replication_factor=2, start=number)[0]
        for number in range(12)
    ]
    assert one_by_one == place_replicas(
        without_racks(3), [], partition_count=12, replication_factor=2, start=0
    )


def test_racks_get_one_replica_each_before_any_gets_two() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    brokers: list[Broker] = list(racks.items())
    for factor, spread in ((2, [1, 1]), (3, [1, 1, 1]), (5, [1, 2, 2])):
        placed = place_replicas(brokers, [], partition_count=30, replication_factor=factor, start=0)
        for replicas in placed:
            assert sorted(Counter(racks[replica] for replica in replicas).values()) == spread
        assert set(Counter(replicas[0] for replicas in placed).values()) == {5}


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    partitions=st.integers(1, 40),
    factor=st.integers(1, 4),
    start=st.integers(0, 100),
)
def test_leaders_are_even_and_racks_used_up_however_brokers_are_spread_over_them(
    racks: list[str | None], partitions: int, factor: int, start: int
) -> None:
    """Racks fail as a whole: no rack has two replicas while another has none."""
    factor = min(factor, len(racks))
    brokers: list[Broker] = list(enumerate(racks))
    placed = place_replicas(brokers, [], partition_count=partitions, replication_factor=factor, start=start)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker_id] for broker_id in range(len(racks))) <= 1
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks)))


def test_the_same_question_gets_the_same_answer() -> None:
    brokers = without_racks(4)
    first = place_replicas(brokers, [], partition_count=9, replication_factor=3, start=5)
    assert first == place_replicas(
        list(reversed(brokers)), [], partition_count=9, replication_factor=3, start=5
    )


@given(
    active=st.integers(1, 7),
    first=st.integers(1, 30),
    more=st.integers(1, 30),
    start=st.integers(0, 50),
    factor=st.integers(1, 3),
)
def test_a_topic_that_grows_stays_even(active: int, first: int, more: int, start: int, factor: int) -> None:
    factor = min(factor, active)
    brokers = without_racks(active)
    placed = place_replicas(brokers, [], partition_count=first, replication_factor=factor, start=start)
    preferred = [replicas[0] for replicas in placed]
    placed += place_more(brokers, [], preferred, partition_count=more, replication_factor=factor)
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker_id] for broker_id in range(active)) <= 1


def test_leaders_go_on_around_the_ring_wherever_the_topic_began() -> None:
    placed = place_more(without_racks(4), [], [1], partition_count=5, replication_factor=1)
    assert placed == [(2,), (3,), (0,), (1,), (2,)]


def test_a_broker_that_came_later_leads_new_partitions_until_it_has_its_share() -> None:
    preferred = [0, 1, 2, 0, 1, 2]
    placed = place_more(without_racks(4), [], preferred, partition_count=6, replication_factor=2)
    leaders = [replicas[0] for replicas in placed]
    assert leaders[:2] == [3, 3]
    assert Counter(preferred + leaders) == {0: 3, 1: 3, 2: 3, 3: 3}


def test_new_partitions_spread_over_racks_too_and_leave_gone_brokers_alone() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_more(list(racks.items()), [], [9, 9], partition_count=30, replication_factor=3)
    for replicas in placed:
        assert sorted(racks[replica] for replica in replicas) == ["a", "b", "c"]
    assert set(Counter(replicas[0] for replicas in placed).values()) == {5}
    assert set(Counter(replica for replicas in placed for replica in replicas).values()) == {15}
