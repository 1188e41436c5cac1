"""How partitions are shared: every one has one owner, shares are even, and what need not move stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.core.groups.assignors import ASSIGNORS, JoinedMember, assign_cooperative_sticky
from holdfast.client.core.groups.consumer_protocol import UNKNOWN_GENERATION, Subscription
from holdfast.protocol.topic_names import TopicPartition


def member(
    name: str,
    *topics: str,
    owned: str = "",
    generation: int = UNKNOWN_GENERATION,
    instance: str | None = None,
) -> JoinedMember:
    """`owned`: `t0 t1 u0`."""
    partitions = tuple(TopicPartition(word[0], int(word[1:])) for word in owned.split())
    return JoinedMember(name, instance, Subscription(topics, partitions, generation))


def shown(assignment: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {
        name: " ".join(f"{topic}{index}" for topic, index in partitions)
        for name, partitions in assignment.items()
    }


CASES = [
    ("range", [member("a", "t", "u"), member("b", "t", "u")], {"a": "t0 t1 u0 u1", "b": "t2 u2"}),
    ("range", [member("a", "t"), member("b", "t", "u")], {"a": "t0 t1", "b": "t2 u0 u1 u2"}),
    ("roundrobin", [member("a", "t", "u"), member("b", "t", "u")], {"a": "t0 t2 u1", "b": "t1 u0 u2"}),
    ("roundrobin", [member("a", "t"), member("b", "t", "u")], {"a": "t0 t2", "b": "t1 u0 u1 u2"}),
    ("range", [member("z", "t", instance="1"), member("a", "t")], {"z": "t0 t1", "a": "t2"}),
    ("cooperative-sticky", [member("a", "t"), member("b", "t")], {"a": "t0 t2", "b": "t1"}),
    # the newcomer waits until the owner has let go
    ("cooperative-sticky", [member("a", "t", owned="t0 t1 t2"), member("b", "t")], {"a": "t0 t1", "b": ""}),
    (
        "cooperative-sticky",
        [member("a", "t", owned="t0 t1"), member("b", "t")],
        {"a": "t0 t1", "b": "t2"},
    ),
    # what came with an older generation counts for nothing
    (
        "cooperative-sticky",
        [member("a", "t", owned="t0 t1", generation=3), member("b", "t", owned="t1 t2", generation=4)],
        {"a": "t0", "b": "t1 t2"},
    ),
    # two say that they read it: both let go
    (
        "cooperative-sticky",
        [member("a", "t", owned="t0", generation=4), member("b", "t", owned="t0 t1", generation=4)],
        {"a": "t2", "b": "t1"},
    ),
    # a topic that is not wanted any more, a partition that is not there
    ("cooperative-sticky", [member("a", "t", owned="u0 t7")], {"a": "t0 t1 t2"}),
    # b cannot give to c itself: a stands between
    (
        "cooperative-sticky",
        [member("a", "t", "u", owned="t0 t1"), member("b", "u", owned="u0 u1 u2"), member("c", "t")],
        {"a": "t0", "b": "u0 u1", "c": "t2"},
    ),
]


@pytest.mark.parametrize(("name", "members", "expected"), CASES)
def test_partitions_are_shared(name: str, members: list[JoinedMember], expected: dict[str, str]) -> None:
    assert shown(ASSIGNORS[name](members, {"t": 3, "u": 3})) == expected


def groups() -> st.SearchStrategy[list[JoinedMember]]:
    names = ["a", "b", "c", "d"]
    rows = st.tuples(st.sets(st.sampled_from("tuv")), st.integers(-1, 2), st.lists(st.integers(0, 7)))
    return st.lists(rows, min_size=1, max_size=4).map(
        lambda found: [
            JoinedMember(
                name,
                None,
                Subscription(
                    tuple(sorted(topics)),
                    tuple(TopicPartition(topic, index) for topic in sorted(topics) for index in owned),
                    generation,
                ),
            )
            for name, (topics, generation, owned) in zip(names, found, strict=False)
        ]
    )


COUNTS = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 6))


def wanted(members: list[JoinedMember], counts: dict[str, int]) -> set[TopicPartition]:
    topics = {topic for one in members for topic in one.subscription.topics}
    return {TopicPartition(topic, index) for topic in topics for index in range(counts.get(topic, 0))}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(members=groups(), counts=COUNTS)
def test_each_partition_has_one_owner_that_wants_it(
    name: str, members: list[JoinedMember], counts: dict[str, int]
) -> None:
    found = ASSIGNORS[name](members, counts)
    given_ = [(one.member_id, p) for one in members for p in found[one.member_id]]
    assert sorted(p for _, p in given_) == sorted(wanted(members, counts))
    topics = {one.member_id: one.subscription.topics for one in members}
    assert all(p.topic in topics[name] for name, p in given_)


@given(members=groups(), counts=COUNTS)
def test_sticky_members_that_do_as_they_are_told_come_to_even_shares_in_which_nothing_moves_any_more(
    members: list[JoinedMember], counts: dict[str, int]
) -> None:
    found: dict[str, list[TopicPartition]] = {}
    for generation in range(3, 7):
        owners = {p: one.member_id for one in members for p in one.subscription.owned}
        found = assign_cooperative_sticky(members, counts)
        for one in members:  # none gets what another one reads
            others = {p for p in owners if owners[p] != one.member_id}
            assert not others & set(found[one.member_id]) - set(one.subscription.owned)
        members = [
            one._replace(
                subscription=Subscription(one.subscription.topics, tuple(found[one.member_id]), generation)
            )
            for one in members
        ]
    assert sorted(p for rows in found.values() for p in rows) == sorted(wanted(members, counts))
    assert assign_cooperative_sticky(members, counts) == found
    for giver in members:
        for taker in members:
            could_have = [p for p in found[giver.member_id] if p.topic in taker.subscription.topics]
            assert not could_have or len(found[giver.member_id]) - len(found[taker.member_id]) < 2
