"""`holdfast health` and `cluster status --bootstrap-server`: what is not well, in sentences."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.errors import TimedOut
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import cluster, led, partition, topic

Run = Callable[..., Result]


def test_a_cluster_in_which_all_is_well_is_0(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    done = holdfast("health")
    assert (done.exit_code, done.stdout) == (0, "all is well\n")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (led(1, (1, 2)), "1 partition lacks a replica in its ISR: t-0"),
        (led(1, (1,)), "1 partition is below min ISR and refuses writes with acks=all: t-0"),
        (partition(), "1 partition has no leader: t-0"),
        (
            partition(eligible_leader_replicas=()),
            "1 partition has no leader, and no replica may lead without loss: t-0",
        ),
    ],
)
def test_a_partition_counts_for_the_worst_that_is_true_of_it(
    holdfast: Run, admin: FakeAdmin, row: DescribedPartition, sentence: str
) -> None:
    admin.add(topic(row))
    done = holdfast("health")
    assert (done.exit_code, done.stdout) == (1, sentence + "\n")


def test_many_partitions_are_counted_and_the_first_are_named(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(*(led(1, (1, 2), partition_index=index) for index in range(12))))
    sentence = holdfast("health").stdout
    assert sentence.startswith("12 partitions lack a replica in their ISR: t-0, t-1, ")
    assert sentence.endswith("t-9 and 2 more\n")
    body = json.loads(holdfast("health", "--output", "json").stdout)
    assert not body["ok"]
    (found,) = body["data"]["findings"]
    assert (found["code"], len(found["names"])) == ("UNDER_REPLICATED", 12)


def test_replicas_that_a_move_adds_are_not_missing(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3), replicas=(1, 2, 3, 4))))
    admin.moving[TopicPartition("t", 0)] = Reassignment((1, 2, 3, 4), (4,), ())
    assert holdfast("health").exit_code == 0


def test_fenced_brokers_and_a_missing_controller_are_said(holdfast: Run, admin: FakeAdmin) -> None:
    admin.cluster = replace(cluster(fenced=(2, 3)), controller_id=-1)
    assert holdfast("health").stdout == "2 brokers are fenced: 2, 3\nno active controller is known\n"


def test_a_cluster_that_does_not_answer_is_not_healthy(holdfast: Run, admin: FakeAdmin) -> None:
    admin.refuses["describe_quorum"] = TimedOut("no node answers")
    done = holdfast("health")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no node answers" in done.stderr


def test_the_status_of_a_cluster_anywhere_shows_brokers_and_what_is_not_well(
    holdfast: Run, admin: FakeAdmin
) -> None:
    admin.cluster = cluster(fenced=(3,), racks={1: "a"})
    admin.add(topic(led(1, (1, 2))))
    done = holdfast("cluster", "status")
    assert done.exit_code == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[1] == ["1", "h:9092", "a", "online", "clean", "11", "1", "1"]
    assert lines[3] == ["3", "h:9092", "-", "fenced", "clean", "13", "0", "1"]
    assert "active controller: 101, epoch 1" in done.stdout
    assert "1 partition lacks a replica in its ISR: t-0; 1 broker is fenced: 3" in done.stdout
    data = json.loads(holdfast("cluster", "status", "--output", "json").stdout)["data"]
    assert [row["state"] for row in data["brokers"]] == ["online", "online", "fenced"]


def test_the_status_needs_a_folder_or_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_BOOTSTRAP_SERVER", raising=False)
    done = CliRunner().invoke(main, ["cluster", "status"])
    assert done.exit_code == 2
    assert "one of --dir and --bootstrap-server is needed" in done.output
