"""The metadata log of a live cluster, read by a tool that the quorum does not count."""

from collections.abc import AsyncIterator

import pytest

from holdfast.cli.inspect import metadata_log
from holdfast.cli.inspect.metadata_log import fetch_log
from holdfast.cli.inspect.partition_story import LoggedRecord, ReadLog, story_of
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.controller.core.decisions import CauseKind
from holdfast.metadata.records import PartitionChangeRecord
from holdfast.protocol.messages.quorum import DescribeQuorumRequest
from holdfast.runtime.memory.machine import memory_runtime
from tests.unit.broker.cluster import CONTROLLER_ID, CONTROLLER_PORT, Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = await Cluster().boot()
    yield made
    await made.end()


async def read(cluster: Cluster, servers: str, timeout_ms: int = 20_000) -> list[LoggedRecord]:
    """The records that the tool reads of a whole log."""
    log = await read_log(cluster, servers, timeout_ms)
    assert log.base is None
    return log.records


async def read_log(cluster: Cluster, servers: str, timeout_ms: int = 20_000) -> ReadLog:
    """What the tool reads on a machine of its own."""
    runtime, _ = memory_runtime(clock=cluster.clock, network=cluster.network)
    done: list[ReadLog] = []
    failed: list[ClientError] = []

    async def work() -> None:
        try:
            done.append(await fetch_log(runtime, servers, timeout_ms))
        except ClientError as error:
            failed.append(error)

    runtime.tasks.start("explain", work())
    await cluster.eventually(lambda: bool(done or failed))
    if failed:
        raise failed[0]
    return done[0]


async def test_brokers_and_controllers_give_the_same_story(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "FETCH_BYTES", 300)  # many fetches, each from where the last one ended
    await cluster.topic()
    leader = await cluster.leader()
    await leader.kill()
    other = await cluster.leader(not_one_of=(leader.id,))
    by_controller = await read(cluster, f"localhost:{CONTROLLER_PORT}")
    # a node that is down is passed over
    by_broker = await read(cluster, f"localhost:{leader.port},localhost:{other.port}")
    assert by_broker[: len(by_controller)] == by_controller
    told = story_of(by_controller, "t", 0)
    assert told.complaints == ()
    change = next(step for step in told.steps if isinstance(step.logged.record, PartitionChangeRecord))
    assert change.decision is not None
    assert change.decision.cause.kind is CauseKind.CONNECTION_REFUSED
    assert change.decision.cause.broker_id == leader.id
    assert change.logged.timestamp_ms > 0


async def test_a_reader_is_no_observer_of_the_quorum(cluster: Cluster) -> None:
    assert await read(cluster, f"localhost:{CONTROLLER_PORT}")
    described = await cluster.ask_controller(DescribeQuorumRequest())
    assert [voter.replica_id for voter in described.voters] == [CONTROLLER_ID]
    assert [observer.replica_id for observer in described.observers] == [1, 2, 3]


async def test_without_anybody_to_ask_the_time_ends(cluster: Cluster) -> None:
    with pytest.raises(TimedOut, match="could not be read within the time given: localhost:1 refused"):
        await read(cluster, "localhost:1", timeout_ms=1000)
