"""R5 and R6: who stays eligible, who is only remembered."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.controller.core.partitions.elr import EligibleSets, next_eligible

REPLICAS = (1, 2, 3, 4)


def test_leavers_of_an_isr_that_falls_below_min_become_eligible() -> None:
    sets = next_eligible(EligibleSets(), old_isr=(1, 2, 3), new_isr=(1,), min_isr=2, replicas=REPLICAS)
    assert sets == EligibleSets((2, 3), ())


def test_no_replica_is_eligible_once_the_isr_reaches_min() -> None:
    sets = next_eligible(EligibleSets((3,), (4,)), old_isr=(1,), new_isr=(1, 2), min_isr=2, replicas=REPLICAS)
    assert sets == EligibleSets()


def test_a_leaver_of_an_isr_that_stays_at_min_is_not_eligible() -> None:
    sets = next_eligible(EligibleSets(), old_isr=(1, 2, 3), new_isr=(1, 2), min_isr=2, replicas=REPLICAS)
    assert sets == EligibleSets()


def test_an_unclean_member_loses_its_seat_and_is_remembered() -> None:
    """Also one that was in the ISR and never in the ELR (D8.2)."""
    sets = next_eligible(
        EligibleSets((2,), ()), old_isr=(1, 3), new_isr=(1,), min_isr=3, replicas=REPLICAS, unclean=(2, 3)
    )
    assert sets == EligibleSets((), (2, 3))


def test_a_forgotten_broker_is_in_neither_set() -> None:
    """B10: an unregistered broker would block every later recovery."""
    sets = next_eligible(
        EligibleSets((2,), (3,)), old_isr=(1,), new_isr=(1,), min_isr=2, replicas=REPLICAS, forgotten=(2, 3)
    )
    assert sets == EligibleSets()


def test_only_assigned_replicas_are_kept() -> None:
    """B4: a ghost could never be elected, and would hold up all others."""
    sets = next_eligible(
        EligibleSets((2,), (3,)), old_isr=(1, 4), new_isr=(1,), min_isr=2, replicas=(1, 3), unclean=()
    )
    assert sets == EligibleSets((), (3,))


subset = st.sets(st.sampled_from(REPLICAS))


@given(
    parts=st.lists(st.sampled_from(["isr", "elr", "known", "out"]), min_size=4, max_size=4),
    new_isr=subset,
    min_isr=st.integers(1, 4),
    replicas=subset,
    unclean=subset,
    forgotten=subset,
)
def test_each_replica_taken_alone_gives_the_same_sets(
    parts: list[str],
    new_isr: set[int],
    min_isr: int,
    replicas: set[int],
    unclean: set[int],
    forgotten: set[int],
) -> None:
    """A second, slow version: one replica at a time, in words of the rule."""

    def of(part: str) -> tuple[int, ...]:
        return tuple(r for r, place in zip(REPLICAS, parts, strict=True) if place == part)

    sets = next_eligible(
        EligibleSets(of("elr"), of("known")),
        old_isr=of("isr"),
        new_isr=new_isr,
        min_isr=min_isr,
        replicas=replicas,
        unclean=unclean,
        forgotten=forgotten,
    )
    for replica, part in zip(REPLICAS, parts, strict=True):
        was_complete = part in ("isr", "elr")
        may_have_a_seat = (
            len(new_isr) < min_isr and replica in replicas and replica not in new_isr | forgotten
        )
        eligible = may_have_a_seat and was_complete and replica not in unclean
        remembered = may_have_a_seat and not eligible and part != "out"
        assert (replica in sets.elr) is eligible
        assert (replica in sets.last_known_elr) is remembered
    assert list(sets.elr) == sorted(sets.elr)
    assert list(sets.last_known_elr) == sorted(sets.last_known_elr)
