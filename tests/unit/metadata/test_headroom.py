"""The formulas of failures still survived, over the cases that people ask about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.metadata.headroom import Headroom, headroom


@pytest.mark.parametrize(
    ("isr", "elr", "min_isr", "fenced", "expected"),
    [
        pytest.param((1, 2, 3), (), 2, (), Headroom(1, 2, 1), id="whole"),
        pytest.param((1, 2), (), 2, (3,), Headroom(0, 1, 1), id="just min ISR"),
        pytest.param(
            (1,), (2,), 2, (2, 3), Headroom(-1, 0, 1), id="the ELR keeps a second copy, but is away"
        ),
        pytest.param((1,), (2,), 2, (3,), Headroom(-1, 1, 1), id="an unfenced ELR member could lead"),
        pytest.param((), (3,), 2, (1, 2, 3), Headroom(-2, -1, 0), id="the picture of a waiting partition"),
        pytest.param((), (), 2, (), Headroom(-2, -1, -1), id="no replica surely has everything"),
        pytest.param((1, 2, 3), (), 1, (), Headroom(2, 2, 0), id="min ISR 1 promises one copy"),
    ],
)
def test_failures_survived(
    isr: tuple[int, ...], elr: tuple[int, ...], min_isr: int, fenced: tuple[int, ...], expected: Headroom
) -> None:
    found = headroom(isr, elr, min_isr, lambda replica: replica not in fenced)
    assert found == expected
    assert found.is_offline == (expected.online < 0)


@given(st.sets(st.integers(1, 5)), st.sets(st.integers(1, 5)), st.integers(1, 3), st.integers(1, 5))
def test_losing_a_member_never_adds_headroom(isr: set[int], elr: set[int], min_isr: int, lost: int) -> None:
    def numbers(without: tuple[int, ...]) -> Headroom:
        left = tuple(sorted(isr - set(without)))
        others = tuple(sorted(elr - isr - set(without)))
        return headroom(left, others, min_isr, lambda _: True)

    before, after = numbers(()), numbers((lost,))
    assert after.writes <= before.writes
    assert after.online <= before.online
    assert after.lossy <= before.lossy
