"""How SIGINT and SIGTERM end a command that breaks things: its `finally` blocks run, and run to their end."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGTERM_EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, by an exception; else it would end the process on the spot."""
    if not _is_possible():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Neither signal interrupts the block: for healing, which a second Ctrl-C must not cut short.

    A signal has its effect after the block, unless an exception ends the command already. It is held by a
    handler and not ignored: processes that are started meanwhile would ignore it, too.
    """
    if not _is_possible():
        yield
        return
    is_ending = sys.exc_info()[0] is not None
    held: list[int] = []
    before = {number: signal.signal(number, lambda number, _: held.append(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held and not is_ending:
        signal.raise_signal(held[0])


def _is_possible() -> bool:
    return threading.current_thread() is threading.main_thread()


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(SIGTERM_EXIT_CODE)
