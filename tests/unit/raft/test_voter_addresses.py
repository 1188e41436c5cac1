"""K30: a controller that has moved is found by the configured list, and one that is not in it by the log."""

import pytest

from holdfast.raft.core.voter_addresses import Address, VoterAddresses

LOG, LIST = ("log", 1), ("list", 1)


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
    addresses = VoterAddresses({} if configured is None else {7: configured})
    seen: list[Address | None] = []
    for _ in tried:
        seen.append(address := addresses.choose(7, known))
        if address is not None:
            is_another_tried = addresses.missed(7, address, known)
            assert is_another_tried == (tried[0] != tried[1])
    assert seen == tried


def test_an_address_that_answers_is_kept() -> None:
    addresses = VoterAddresses({7: LIST})
    assert addresses.missed(7, LOG, LOG)
    assert [addresses.choose(7, LOG) for _ in range(3)] == [LIST] * 3


def test_a_new_address_in_the_log_is_tried_at_once() -> None:
    addresses = VoterAddresses({7: LIST})
    assert addresses.missed(7, LOG, LOG)
    assert addresses.choose(7, ("moved", 2)) == ("moved", 2)
