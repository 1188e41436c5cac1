"""Answers that take long are made in steps, between which others have their turn.

Owns how large a step is. The image that is read does not change, so that the answer is of one moment.
"""

from collections.abc import Generator
from typing import Any, TypeAlias

#: Yields between steps, returns the answer.
AnswerSteps: TypeAlias = Generator[None, None, Any]

#: Rows of an answer that are made in one step, of some microseconds each.
ROWS_A_STEP = 500


class Pace:
    """Counts rows."""

    def __init__(self) -> None:
        self._rows = 0

    def is_step_over(self, rows: int) -> bool:
        """So many more rows were made; True when it is time for others."""
        self._rows += rows
        if self._rows < ROWS_A_STEP:
            return False
        self._rows = 0
        return True


def is_one_step(rows: int) -> bool:
    """An answer of so many rows needs no pause."""
    return rows <= ROWS_A_STEP


def in_one_go(steps: AnswerSteps) -> Any:
    """The answer, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
