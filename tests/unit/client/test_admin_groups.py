"""Groups as an operator asks about them: what a repetition after a lost answer means."""

from typing import Any, cast

import pytest

from holdfast.client.admin_groups import delete_group
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import (
    Coordinator,
    DeletedGroup,
    DeleteGroupsResponse,
    FindCoordinatorResponse,
)
from holdfast.rpc.channel import CallRefused, CallTimedOut, Disconnected
from holdfast.runtime.api import Clock, ConnectionRefused

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


class Coordinating:
    """A cluster client and a clock: broker 1 coordinates, and answers each call with the next outcome."""

    def __init__(self, *outcomes: ErrorCode | Exception) -> None:
        self.outcomes = list(outcomes)

    async def ask(self, *_: Any, **__: Any) -> Any:
        return FindCoordinatorResponse(0, None, (Coordinator("g", 0, None, 1, "h", 9),)), False

    async def call(self, *_: Any) -> DeleteGroupsResponse:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return DeleteGroupsResponse(0, None, (DeletedGroup("g", outcome, None),))

    def suspect(self, broker_id: int) -> None:
        """It is asked again all the same."""

    def now_ms(self) -> int:
        return 0

    async def sleep(self, duration_ms: float) -> None:
        """No time passes."""

    async def delete(self) -> str:
        """`deleted`, or the error."""
        try:
            await delete_group(cast("ClusterClient", self), cast("Clock", self), "g", 1_000)
        except ClientError as error:
            return getattr(error.code, "name", "")
        return "deleted"


@pytest.mark.parametrize(
    "before",
    [
        Disconnected("in between"),
        CallTimedOut("silence"),
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
    ids=repr,
)
async def test_a_group_that_is_gone_after_a_lost_answer_was_deleted(before: ErrorCode | Exception) -> None:
    assert await Coordinating(before, NOT_FOUND).delete() == "deleted"
    again = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await Coordinating(before, again, NOT_FOUND).delete() == "deleted"
    assert await Coordinating(before, ErrorCode.NON_EMPTY_GROUP).delete() == "NON_EMPTY_GROUP"


@pytest.mark.parametrize(
    "before",
    [
        ConnectionRefused("no listener"),
        CallRefused(ErrorCode.REQUEST_LIMIT_REACHED, "busy"),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
    ids=repr,
)
async def test_a_group_that_never_was_is_not_found_also_at_the_second_attempt(
    before: ErrorCode | Exception,
) -> None:
    assert await Coordinating(NOT_FOUND).delete() == "GROUP_ID_NOT_FOUND"
    assert await Coordinating(before, NOT_FOUND).delete() == "GROUP_ID_NOT_FOUND"
