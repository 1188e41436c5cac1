"""A member's poll ends however it comes out: from then on the application has to ask again in time."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class _Polled(Protocol):
    def _end_poll(self) -> None: ...


C = TypeVar("C", bound=_Polled)
P = ParamSpec("P")
T = TypeVar("T")


def ends_poll(
    poll: Callable[Concatenate[C, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
    """Also when it raises, or is cancelled."""

    @wraps(poll)
    async def ending(consumer: C, /, *args: P.args, **more: P.kwargs) -> T:
        try:
            return await poll(consumer, *args, **more)
        except BaseException:
            consumer._end_poll()
            raise

    return ending
