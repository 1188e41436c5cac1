"""`holdfast verifiable-consumer` against brokers in memory: what it writes down, and when a session ends."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.cli.verifiable_consumer import ConsumerRun
from holdfast.client.core.errors import ClientError
from holdfast.client.core.history import make_value
from holdfast.protocol.id_text import encode_id
from holdfast.runtime.memory.machine import memory_runtime, settle
from tests.unit.broker.groups.play import T
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.fake_groups import FakeGroups
from tests.unit.client.test_consumer import Play

FOLDER = "/polls"


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    """Topic t has two partitions, with three records of producer p in each."""
    runtime, world = memory_runtime()
    cluster = FakeCluster(runtime, world)
    await cluster.start()
    cluster.add_topic("t", 2)
    cluster.topic_ids["t"] = T
    play = Play(cluster)
    for partition in (0, 1):
        for number in range(3):
            await play.write(make_value("p", 3 * partition + number, 64).decode(), partition=partition)
    yield play
    await settle()
    await world.tasks.cancel_all()


def made(play: Play, **more: Any) -> ConsumerRun:
    given = {
        "bootstrap_server": play.cluster.bootstrap_servers,
        "timeout_ms": 5_000,
        "topic": "t",
        "group_id": None,
        "partitions": (),
        "reset_policy": "earliest",
        "max_messages": None,
        "seconds": None,
        "idle_timeout_ms": 1_000,
        "ledger_folder": FOLDER,
        "run_name": "run",
        "quiet": False,
    }
    return ConsumerRun(play.cluster.runtime, "c", {**given, **more})


async def lines(play: Play) -> list[dict[str, Any]]:
    found = []
    for name in sorted(await play.world.disk.listdir(FOLDER)):
        file = await play.world.disk.open(f"{FOLDER}/{name}", create=False)
        found += [json.loads(line) for line in file.read_at(0, file.size).splitlines()]
    return found


def read(found: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """(number of the session, partition, offset) of each record."""
    sessions = list(dict.fromkeys(line["session"] for line in found))
    return [
        (sessions.index(line["session"]), line["partition"], record[0])
        for line in found
        for record in line["records"]
    ]


async def test_every_record_is_written_down_with_the_mark_and_the_topic_id(
    play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await play.until(made(play).work()) == 0
    found = await lines(play)
    assert sorted(read(found)) == [(0, partition, offset) for partition in (0, 1) for offset in range(3)]
    assert {line["high_watermark"] for line in found} == {3}
    assert {line["topic_id"] for line in found} == {encode_id(play.cluster.topic_ids["t"])}
    assert sorted(record[3:] for line in found for record in line["records"]) == [
        ["p", number] for number in range(6)
    ]
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["name"] for line in said][:2] == ["partitions_assigned", "startup_complete"]
    assert said[-2] | {"at_ns": 0} == {"name": "progress", "consumed": 6, "at_ns": 0}
    assert sum(line["count"] for line in said if line["name"] == "records_consumed") == 6


async def test_it_stops_behind_so_many_records_of_the_chosen_partition(play: Play) -> None:
    assert await play.until(made(play, partitions=(1,), max_messages=2, idle_timeout_ms=None).work()) == 0
    assert {partition for _, partition, _ in read(await lines(play))} == {1}
    with pytest.raises(ClientError, match="t has partitions 0 to 1, not 2"):
        await play.until(made(play, partitions=(2,)).work())


async def test_it_stops_after_its_time(play: Play) -> None:
    assert await play.until(made(play, seconds=0.5, idle_timeout_ms=None).work()) == 0
    assert len(read(await lines(play))) == 6


async def test_a_log_that_was_cut_begins_another_session_where_it_begins_now(play: Play) -> None:
    partition, clock = play.cluster.topics["t"][0], play.world.clock
    last = partition.log[2]

    def cut() -> None:
        partition.log_start, partition.log = 2, []

    clock.call_later(500, cut)
    clock.call_later(2_000, lambda: partition.log.append(last))
    assert await play.until(made(play, partitions=(0,), idle_timeout_ms=4_000).work()) == 0
    assert read(await lines(play)) == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 2)]


async def test_latest_begins_behind_what_is_there(play: Play) -> None:
    assert await play.until(made(play, reset_policy="latest").work()) == 0
    assert await lines(play) == []


async def test_a_member_of_a_group_begins_a_session_with_its_assignment_and_commits(play: Play) -> None:
    play.cluster.groups = FakeGroups()
    assert await play.until(made(play, group_id="g").work()) == 0
    first = read(await lines(play))
    assert sorted((partition, offset) for _, partition, offset in first) == [
        (partition, offset) for partition in (0, 1) for offset in range(3)
    ]
    assert await play.until(made(play, group_id="g").work()) == 0
    assert read(await lines(play)) == first, "the next member goes on behind what was read"
