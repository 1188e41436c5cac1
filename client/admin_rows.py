"""Answers with a row an item: the whole request's error is raised, a row's error is a value."""

from collections.abc import Collection, Iterable
from typing import Any

from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.errors import ClientError, code_of
from holdfast.protocol.errors import ErrorCode


async def ask_whole(cluster: ClusterClient, request: Any, timeout_ms: float, what: str) -> tuple[Any, bool]:
    """Ask until the request as a whole is answered; errors of rows are final here, retriable ones too.

    Returns the answer and whether an earlier attempt may have been carried out.
    Raises: ClientError, TimedOut.
    """
    answer, maybe_done = await cluster.ask(
        request, timeout_ms, code_of_answer=lambda found: code_of(found.error_code), what=what
    )
    raise_refusal(answer.error_code, answer.error_message, what)
    return answer, maybe_done


def check_complete(asked: Iterable[Any], answered: Collection[Any], what: str) -> None:
    """Silence about an item is no success of it. Raises: ClientError, when one was asked for in vain."""
    unanswered = next((item for item in asked if item not in answered), None)
    if unanswered is not None:
        raise ClientError(
            f"{what}: no answer for {unanswered}; whether it was done is unknown, look and ask again",
            ErrorCode.UNKNOWN_SERVER_ERROR,
        )


def raise_refusal(number: int, text: str | None, what: str) -> None:
    """Raise what is wrong with the whole of it. Raises: ClientError."""
    code = code_of(number)
    if code is not ErrorCode.NONE:
        raise ClientError(f"{what}: {code.name}: {text or 'no reason given'}", code)
