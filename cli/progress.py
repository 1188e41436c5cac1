"""What a long command does right now: one line on a terminal, nothing in pipes, files and CI.

Owns whether and how it is shown, on stderr; rich draws it. Lines that the command prints meanwhile appear
above it. Rich is loaded on a terminal only.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_REFRESHES_PER_SECOND = 4


class Progress:
    """The line, while a `with` block lasts. Usable from any thread; a block that is inside another's shows
    its phases in that one's line."""

    _outer: "Progress | None" = None

    def __init__(self) -> None:
        self._display: Any = None
        self._task: Any = None
        self._is_inner = False

    def __enter__(self) -> "Progress":
        if Progress._outer is not None:
            self._is_inner = True
            return Progress._outer
        Progress._outer = self
        if is_shown():
            self._display = _display()
            self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_inner:
            return
        Progress._outer = None
        if self._display is not None:
            self._display.stop()
            self._display.console.file.close()
            self._display = self._task = None

    def phase(
        self,
        name: str,
        total: float | None = None,
        unit: str = "",
        count: Callable[[], float] | None = None,
    ) -> None:
        """What is done from now on, in place of the phase before.

        total: of `unit`; None: not known, so the remaining time is not either.
        count: looked at for each refresh, in another thread; without it `at` says how far the phase is.
        """
        if self._display is None:
            return
        self.rest()
        self._display.count = count
        self._task = self._display.add_task(name, total=total, unit=unit)

    def rest(self) -> None:
        """Nothing that takes long is done until the next phase."""
        if self._display is not None and self._task is not None:
            self._display.remove_task(self._task)
            self._task = None

    def at(self, done: float, name: str | None = None) -> None:
        """How far the phase is; `name` replaces its name."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, completed=done, **({"description": name} if name else {}))


def is_shown() -> bool:
    """There is a terminal that a person looks at."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("CI")


@contextmanager
def shown(name: str) -> Iterator[None]:
    """A single phase of unknown length."""
    with Progress() as progress:
        progress.phase(name)
        yield


def figures(done: float, total: float | None, per_second: float | None, unit: str) -> str:
    """`1,200 of 5,000 records, 400 records/s`; empty when nothing is counted."""
    if not unit:
        return ""
    text = f"{done:,.0f}" if total is None else f"{done:,.0f} of {total:,.0f}"
    if not per_second or unit == "s":  # seconds pass at a rate that all know
        return f"{text} {unit}"
    rate = f"{per_second:,.0f} {unit}/s" if per_second >= 10 else f"{60 * per_second:,.0f} {unit}/min"
    return f"{text} {unit}, {rate}"


def _display() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Figures(ProgressColumn):
        """What is counted, and how fast."""

        def render(self, task: Task) -> Text:
            return Text(figures(task.completed, task.total, task.speed, task.fields["unit"]))

    class Display(Bars):
        """Looks at the count before each refresh."""

        count: Callable[[], float] | None = None

        def get_renderables(self) -> Any:
            if self.count is not None:
                for task_id in self.task_ids:
                    self.update(task_id, completed=self.count())
            return super().get_renderables()

    # a descriptor of its own: while Spark starts, 2 leads elsewhere
    terminal = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
    return Display(
        SpinnerColumn("line"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        Figures(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(file=terminal, highlight=False, soft_wrap=False),
        refresh_per_second=_REFRESHES_PER_SECOND,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )
