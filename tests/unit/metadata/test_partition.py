"""PartitionRegistration: merging (R2), invariants (R9), printed form."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metadata.partition import PartitionRegistration, effective_min_isr
from holdfast.metadata.records import (
    RECOVERED,
    RECOVERING,
    PartitionChangeRecord,
    decode_record,
    encode_record,
)

TOPIC_ID = bytes(15) + b"\x07"
SOUND = PartitionRegistration((1, 2, 3), (1, 2, 3), 1, 4, 9, 2)


def change(**fields: object) -> PartitionChangeRecord:
    names = [
        "isr",
        "leader",
        "replicas",
        "removing_replicas",
        "adding_replicas",
        "original_replicas",
        "elr",
        "last_known_elr",
        "last_known_leader",
        "leader_recovery_state",
        "min_isr",
    ]
    values = dict.fromkeys(names) | fields
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_index=0, **values)


def test_every_record_moves_the_partition_epoch_and_a_leader_decision_the_leader_epoch() -> None:
    """R2: also a decision for no leader, or for the same leader."""
    shrunk = SOUND.merge(change(isr=(1, 2)))
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.partition_epoch) == ((1, 2), 4, 10)
    again = shrunk.merge(change(leader=1))
    assert (again.leader, again.leader_epoch, again.partition_epoch) == (1, 5, 11)
    leaderless = again.merge(change(leader=-1, isr=(), elr=(1, 2), last_known_leader=1))
    assert (leaderless.leader, leaderless.leader_epoch, leaderless.last_known_leader) == (None, 6, 1)
    assert leaderless.merge(change(last_known_leader=-1)).last_known_leader is None


def test_an_empty_list_of_original_replicas_ends_the_reassignment() -> None:
    running = SOUND.merge(change(replicas=(1, 2, 4, 3), adding_replicas=(4,), original_replicas=(1, 2, 3)))
    assert running.is_reassigning
    assert running.merge(change(isr=(1, 2))).is_reassigning
    assert not running.merge(change(adding_replicas=(), original_replicas=())).is_reassigning


def test_a_registration_survives_the_way_through_its_record() -> None:
    value = PartitionRegistration(
        (3, 1, 2), (), None, 5, 6, 2, (1,), (2,), 1, RECOVERING, (2,), (1,), original_replicas=(3, 1)
    )
    record = value.to_record(TOPIC_ID, 4)
    assert PartitionRegistration.from_record(decode_record(encode_record(record))) == value  # type: ignore[arg-type]


def test_printed_form() -> None:
    assert str(SOUND) == (
        "leader=1@4 isr=(1,2,3) elr=() last_known_elr=() last_known_leader=none min_isr=2 pe=9"
    )
    odd = PartitionRegistration(
        (1, 2, 3, 4), (), None, 7, 8, 2, (2,), (3,), 2, RECOVERING, (4,), (1,), original_replicas=(1, 2, 3)
    )
    assert str(odd) == (
        "leader=none@7 isr=() elr=(2) last_known_elr=(3) last_known_leader=2 min_isr=2 pe=8"
        " recovering adding=(4) removing=(1)"
    )


def test_diff_names_what_changed_and_nothing_else() -> None:
    after = replace(SOUND, leader=2, leader_epoch=5, isr=(2, 3), partition_epoch=10)
    assert after.diff(SOUND) == "leader 1@4 -> 2@5, isr (1,2,3) -> (2,3)"


def test_effective_min_isr_is_bounded_by_the_replicas() -> None:
    assert [effective_min_isr(configured, 3) for configured in (1, 3, 9)] == [1, 3, 3]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"replicas": (1, 2, 2)}, "distinct"),
        ({"isr": (2, 1)}, "isr must ascend"),
        ({"isr": (1, 2, 4)}, "isr must be assigned"),
        ({"isr": (1,), "elr": (4,)}, "elr must be assigned"),
        ({"isr": (1,), "elr": (1,)}, "disjoint"),
        ({"elr": (3,), "isr": (1, 2)}, "elr must be empty"),
        ({"last_known_elr": (3,), "isr": (1, 2)}, "last_known_elr must be empty"),
        ({"isr": (1,), "elr": (2,), "last_known_elr": (2,)}, "no member of isr or elr"),
        ({"isr": (2, 3)}, "leader must be in isr"),
        ({"last_known_leader": 2}, "only without a leader"),
        ({"leader": None, "isr": (), "last_known_leader": 5}, "last_known_leader must be assigned"),
        ({"leader_recovery_state": RECOVERING}, "alone in isr"),
        ({"min_isr": 0}, "at least 1"),
        ({"min_isr": 4}, "exceeds"),
        ({"adding_replicas": (3,)}, "only during a reassignment"),
        (
            {"adding_replicas": (3,), "removing_replicas": (3,), "original_replicas": (1, 2, 3)},
            "adding and removing must be disjoint",
        ),
    ],
)
def test_a_broken_invariant_is_named(changes: dict[str, object], sentence: str) -> None:
    broken = replace(SOUND, **changes).broken_invariants()  # type: ignore[arg-type]
    assert any(sentence in text for text in broken), broken


ids = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@given(
    st.builds(
        PartitionRegistration,
        replicas=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
        isr=ids,
        leader=st.none() | st.integers(1, 4),
        leader_epoch=st.just(0),
        partition_epoch=st.just(0),
        min_isr=st.integers(0, 4),
        elr=ids,
        last_known_elr=st.just(()) | ids,
        last_known_leader=st.none() | st.integers(1, 4),
        leader_recovery_state=st.sampled_from((RECOVERED, RECOVERING)),
    )
)
def test_the_quick_check_never_passes_what_the_thorough_one_refuses(value: PartitionRegistration) -> None:
    assert value.broken_invariants() == value._all_broken_invariants()
