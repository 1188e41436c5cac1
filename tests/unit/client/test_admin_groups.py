"""Groups as an operator asks about them: what a repetition after a lost answer means."""

from typing import Any, cast

import pytest

from holdfast.client.admin_groups import alter_group_offsets, delete_group
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.committed_offsets import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from holdfast.protocol.messages.groups import (
    Coordinator,
    DeletedGroup,
    DeleteGroupsResponse,
    FindCoordinatorResponse,
)
from holdfast.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopic
from holdfast.protocol.topic_names import TopicPartition
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


class Committing(Coordinating):
    """It has topic t, and takes each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[list[tuple[int, int]]] = []

    async def ask(self, request: Any, *_: Any, **__: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return MetadataResponse("c", -1, 1, (), (MetadataTopic(0, "t", bytes(16), ()),)), False
        return await super().ask()

    async def call(self, _: Any, request: OffsetCommitRequest, *__: Any) -> Any:
        self.commits.append([(row.partition_index, row.offset) for row in request.partitions])
        rows = (
            OffsetCommitPartitionResponse(row.topic_id, row.partition_index, 0) for row in request.partitions
        )
        return OffsetCommitResponse(0, None, tuple(rows))


@pytest.mark.parametrize(
    ("count", "portions"), [(0, [[]]), (2, [[(0, 0), (1, 1)]]), (3, [[(0, 0), (1, 1)], [(2, 2)]])]
)
async def test_offsets_of_many_partitions_are_committed_in_portions(
    count: int, portions: list[list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is asked once at least: the group may have members."""
    monkeypatch.setattr("holdfast.client.admin_groups.ROWS_MAX", 2)
    cluster = Committing()
    offsets = {TopicPartition("t", index): index for index in reversed(range(count))}
    await alter_group_offsets(cast("ClusterClient", cluster), cast("Clock", cluster), "g", offsets, 1_000)
    assert cluster.commits == portions


@pytest.mark.parametrize("refused", [1, 2])
async def test_a_portion_that_is_refused_says_how_many_offsets_are_set(
    refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.client.admin_groups.ROWS_MAX", 2)

    class Refusing(Committing):
        async def call(self, _: Any, request: OffsetCommitRequest, *__: Any) -> Any:
            await super().call(_, request)
            code = ErrorCode.UNKNOWN_MEMBER_ID if len(self.commits) == refused else 0
            rows = (
                OffsetCommitPartitionResponse(row.topic_id, row.partition_index, code)
                for row in request.partitions
            )
            return OffsetCommitResponse(0, None, tuple(rows))

    cluster = Refusing()
    offsets = {TopicPartition("t", index): index for index in range(3)}
    with pytest.raises(ClientError) as met:
        await alter_group_offsets(cast("ClusterClient", cluster), cast("Clock", cluster), "g", offsets, 1_000)
    assert str(met.value).startswith("2 of 3 offsets are set; ") is (refused == 2)
    assert len(cluster.commits) == refused
