"""What a Spark session leaves alone in the process that starts it."""

import signal
from collections.abc import Iterator

import pytest

from holdfast.durability.session import keep_interrupts


@pytest.fixture
def _handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_handler_is_put_back")
def test_an_interrupt_is_heard_by_the_handler_of_the_process() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    with keep_interrupts():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
    assert heard == [signal.SIGINT]
