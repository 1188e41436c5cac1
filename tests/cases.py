"""Which cases of a table are played when: by `make check`, in `make test` too, or in `make test-all` alone.

`parametrize("seed", [3, *slow(4, 5), *long(range(6, 60))])`: a case is a value, or a tuple of values.
"""

from typing import Any

import pytest


def slow(*cases: Any) -> list[Any]:
    """Cases that `make test` plays, and `make check` does not."""
    return _marked(pytest.mark.slow, cases)


def long(*cases: Any) -> list[Any]:
    """Cases that `make test-all` alone plays: others of the same kind hold the rule in `make test`."""
    return _marked(pytest.mark.long, cases)


def _marked(mark: pytest.MarkDecorator, cases: tuple[Any, ...]) -> list[Any]:
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=mark) for case in cases]
