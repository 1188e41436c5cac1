"""`holdfast check can-stop`: the verdict as exit code, and three ways to write it."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from holdfast.client.core.errors import TimedOut
from holdfast.protocol.messages.quorum import DescribeQuorumResponse
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import cluster, led, partition, topic

Run = Callable[..., Result]


def test_ok_is_0_and_one_line(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    result = holdfast("check", "can-stop", "--broker", "1")
    assert result.exit_code == 0
    assert result.stdout == (
        "CAN-STOP OK: broker 1 can stop, its 1 partition(s) keep what they need"
        " | goes_offline=0;;0 loses_writes=0;0 needs_broker=0;0 hosted=1\n"
    )


def test_lost_writes_are_1_and_name_the_partitions(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(*(led(1, (1, 2), partition_index=index) for index in range(12))))
    result = holdfast("check", "can-stop", "--broker", "2")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        "CAN-STOP WARNING: broker 2 should not stop: 12 would refuse acks=all writes: t-0, t-1, "
    )
    assert "t-9 and 2 more | " in result.stdout
    body = json.loads(holdfast("check", "can-stop", "--broker", "2", "--format", "json").stdout)
    assert (body["ok"], body["data"]["verdict"]) == (False, "WARNING")
    assert len(body["data"]["loses_writes"]) == 12


def test_a_partition_without_leader_is_2(holdfast: Run, admin: FakeAdmin) -> None:
    admin.cluster = cluster(fenced=(2,), stopping=(3,))
    admin.add(topic(led(1, (1, 2), (), min_isr=1)))
    result = holdfast("check", "can-stop", "--broker", "1", "--format", "prometheus")
    assert result.exit_code == 2
    assert 'holdfast_check_can_stop{broker="1"} 2' in result.stdout.splitlines()
    line = 'holdfast_check_can_stop_partitions{broker="1",effect="goes_offline"} 1'
    assert line in result.stdout.splitlines()


def test_a_partition_that_waits_for_the_broker_is_a_warning(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(partition()))
    result = holdfast("check", "can-stop", "--broker", "3")
    assert result.exit_code == 1
    assert "1 already lack replicas and need it: t-0" in result.stdout


@pytest.mark.parametrize("form", ["nagios", "json", "prometheus"])
def test_no_answer_is_3(holdfast: Run, admin: FakeAdmin, form: str) -> None:
    admin.refuses["describe_cluster"] = TimedOut("no process listens there")
    result = holdfast("check", "can-stop", "--broker", "3", "--format", form)
    assert result.exit_code == 3
    # numbers of partitions would look like a verdict
    assert "no process listens there" in result.stdout or 'broker="3"} 3\n' in result.stdout
    assert "partitions{" not in result.stdout


def test_a_broker_that_is_not_registered_is_3(holdfast: Run) -> None:
    result = holdfast("check", "can-stop", "--broker", "9")
    assert (result.exit_code, result.stdout) == (3, "CAN-STOP UNKNOWN: broker 9 is not registered\n")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--broker", "x"],
        ["--broker", "1", "--format", "xml"],
        ["--broker", "1", "--command-config", "nowhere.properties"],
        ["--nix"],
    ],
)
def test_wrong_usage_is_no_verdict(holdfast: Run, words: list[str]) -> None:
    """Nagios reads 2 as critical."""
    result = holdfast("check", "can-stop", *words)
    assert result.exit_code == 3
    assert "Usage:" in result.stderr


def test_metadata_from_before_what_is_committed_is_no_verdict(
    holdfast: Run, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was paused or cut off still answers, from before the others were lost."""
    admin.add(topic(led(1, (1, 2, 3))))

    async def ahead(*, timeout_ms: float = 0) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(0, None, 101, 1, admin.cluster.metadata_offset + 1, (), ())

    monkeypatch.setattr(admin, "describe_quorum", ahead)
    result = holdfast("check", "can-stop", "--broker", "1", "--timeout-ms", "50")
    assert result.exit_code == 3
    assert "is committed" in result.stdout


def test_output_json_is_its_form_as_everywhere(holdfast: Run) -> None:
    told = [holdfast("check", "can-stop", "--broker", "3", *words) for words in (FORM, OUTPUT)]
    assert told[0].stdout == told[1].stdout
    assert json.loads(told[0].stdout)["data"]["broker"] == 3


FORM, OUTPUT = ("--format", "json"), ("--output", "json")
