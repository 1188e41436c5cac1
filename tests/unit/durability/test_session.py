"""What a Spark session leaves alone in the process that starts it."""

import signal
from collections.abc import Iterator

import pytest

from holdfast.durability.session import DRIVER_MEMORY, keep_interrupts, settings_of, why_not_started


@pytest.fixture
def _handler_is_put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def _with_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that starts hands it on."""
    monkeypatch.setenv("PYTHONPATH", "")


@pytest.mark.usefixtures("_handler_is_put_back")
def test_an_interrupt_is_heard_by_the_handler_of_the_process() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    with keep_interrupts():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
    assert heard == [signal.SIGINT]


@pytest.mark.usefixtures("_with_python_path")
def test_a_heap_is_as_large_as_asked_for() -> None:
    def heaps(memory: str | None) -> tuple[str | None, ...]:
        settings = settings_of("spark://host:7077", is_short=False, memory=memory)
        return tuple(settings.get(f"spark.{who}.memory") for who in ("driver", "executor"))

    assert heaps("800m") == ("800m", "800m")
    assert heaps(None) == (DRIVER_MEMORY, None)


@pytest.mark.parametrize(
    ("chatter", "why"),
    [
        (
            ":: loading settings\n\t:: UNRESOLVED DEPENDENCIES ::\n"
            'Exception in thread "main" java.lang.NotFound: [unresolved dependency: a#b;1: not found]\n'
            "\tat org.apache.spark.util.MavenUtils$.resolve(MavenUtils.scala:539)\n",
            "unresolved dependency: a#b;1: not found",
        ),
        ("Error: Could not create the Java Virtual Machine.\n", None),
    ],
)
def test_packages_that_there_are_not_are_a_line_and_no_page(chatter: str, why: str | None) -> None:
    assert why_not_started(chatter) == why
