"""SIGINT and SIGTERM end a command by an exception, and never within its healing."""

import signal
from collections.abc import Callable

import pytest

from holdfast.localcluster.endings import SIGTERM_EXIT_CODE, ended_by_sigterm, undisturbed


def healed_at(number: signal.Signals, done: list[str]) -> None:
    """A command that gets a signal while it heals."""
    with ended_by_sigterm(), undisturbed():
        signal.raise_signal(number)
        done.append("healed")


def healed_after(raises: Callable[[], None], done: list[str]) -> None:
    """A command that is ended, and gets Ctrl-C while it heals."""
    with ended_by_sigterm():
        try:
            raises()
        finally:
            with undisturbed():
                signal.raise_signal(signal.SIGINT)
                done.append("healed")


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_within_healing_has_its_effect_behind_it(
    number: signal.Signals, error: type[BaseException]
) -> None:
    done: list[str] = []
    with pytest.raises(error):
        healed_at(number, done)
    assert done == ["healed"]


def test_a_second_signal_neither_stops_the_healing_nor_hides_the_first() -> None:
    done: list[str] = []
    with pytest.raises(SystemExit) as ended:
        healed_after(lambda: signal.raise_signal(signal.SIGTERM), done)
    assert ended.value.code == SIGTERM_EXIT_CODE
    assert done == ["healed"]


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with ended_by_sigterm(), undisturbed():
        pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
