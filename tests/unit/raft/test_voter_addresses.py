"""K30: a controller that has moved is found by the configured list, and one that is not in it by the log."""

import pytest

from holdfast.raft.core.control_records import Voter
from holdfast.raft.core.voter_addresses import Address, VoterAddresses
from holdfast.raft.core.voter_sets import VoterSets

LOG, LIST = ("log", 1), ("list", 1)


def named(address: Address | None) -> VoterSets:
    """The sets of a log that names voter 7 there, or not at all."""
    return VoterSets() if address is None else VoterSets([(0, (Voter(7, b"d" * 16, *address),))])


@pytest.mark.parametrize(
    ("known", "configured", "tried"),
    [
        pytest.param(LOG, LIST, [LOG, LIST, LOG], id="in turn"),
        pytest.param(LOG, LOG, [LOG, LOG, LOG], id="the same"),
        pytest.param(LOG, None, [LOG, LOG, LOG], id="not in the list"),
        pytest.param(None, LIST, [LIST, LIST, LIST], id="not in the log"),
        pytest.param(None, None, [None], id="in neither"),
    ],
)
def test_both_addresses_are_tried(
    known: Address | None, configured: Address | None, tried: list[Address | None]
) -> None:
    addresses = VoterAddresses(1, {} if configured is None else {7: configured})
    seen: list[Address | None] = []
    for _ in tried:
        seen.append(address := addresses.choose(7, named(known)))
        if address is not None:
            is_another_tried = addresses.missed(7, address, named(known))
            assert is_another_tried == (tried[0] != tried[1])
    assert seen == tried


def test_an_address_that_answers_is_kept() -> None:
    addresses = VoterAddresses(1, {7: LIST})
    assert addresses.missed(7, LOG, named(LOG))
    assert [addresses.choose(7, named(LOG)) for _ in range(3)] == [LIST] * 3


def test_a_new_address_in_the_log_is_tried_at_once() -> None:
    addresses = VoterAddresses(1, {7: LIST})
    assert addresses.missed(7, LOG, named(LOG))
    assert addresses.choose(7, named(("moved", 2))) == ("moved", 2)
