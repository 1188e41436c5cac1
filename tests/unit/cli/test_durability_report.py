"""The `--durability` view: failures still survived, who is next, and in what state a partition is."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from holdfast.cli.durability.report import ClusterContext, durability_report, report_lines
from holdfast.client.admin_configs import ConfigEntry, Resource
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.errors import RowError, TimedOut
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.quorum import DescribeQuorumResponse
from holdfast.protocol.messages.topics import DescribedPartition
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import cluster, led, partition, topic

Run = Callable[..., Result]


def cells(row: DescribedPartition, *, fenced: tuple[int, ...] = ()) -> dict[str, str]:
    """The line of a partition of topic t, by its heads; the state may contain blanks."""
    around = ClusterContext(cluster(fenced=fenced), {TopicPartition("t", 0): 120})
    heads, line = report_lines([durability_report("t", row, around)])
    names = heads.split()
    return dict(zip(names, line.split(maxsplit=len(names) - 1), strict=True))


def test_a_partition_that_waits_looks_as_specified() -> None:
    assert cells(partition(last_known_leader=-1), fenced=(1, 2, 3)) == {
        "TOPIC": "t",
        "PART": "0",
        "LEADER": "none",
        "EPOCH": "7",
        "HWM": "120",
        "LEO": "-",
        "MIN": "2",
        "ISR": "-",
        "ELR": "3",
        "LKELR": "2",
        "NEXT": "3*",
        "WRITES": "0",
        "ONLINE": "-",
        "LOSSY": "0",
        "AT-RISK": "-",
        "STATE": "WAITING_ELR(3: fenced)",
    }


def test_columns_are_aligned_and_no_list_is_cut() -> None:
    many = led(1, tuple(range(1, 40)), replicas=tuple(range(1, 40)))
    around = ClusterContext(cluster(40), {})
    lines = report_lines(
        [durability_report("t", many, around), durability_report("longer", led(1, (1,)), around)]
    )
    assert ",".join(map(str, range(1, 40))) in lines[1]
    starts = {line.index(word) for line, word in zip(lines, ("STATE", "OK", "UNDER_MIN_ISR"), strict=True)}
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("row", "fenced", "following", "survived"),
    [
        pytest.param(led(1, (1, 2, 3)), (), "2", "1 2 1", id="whole"),
        pytest.param(led(1, (1, 2)), (3,), "2", "0 1 1", id="just min ISR"),
        pytest.param(led(1, (1,), (2,)), (2,), "2*", "0 0 1", id="the ELR is away"),
        pytest.param(led(1, (1,), min_isr=1), (), "-", "0 0 0", id="alone"),
        pytest.param(
            partition(eligible_leader_replicas=(), last_known_elr=(1, 2, 3)),
            (3,),
            "-",
            "0 - -",
            id="no replica surely has everything",
        ),
        pytest.param(
            partition(eligible_leader_replicas=(), last_known_elr=(1, 2, 3)),
            (),
            "3",
            "0 - -",
            id="Kafka trusts the last known leader",
        ),
    ],
)
def test_next_leader_and_failures_survived(
    row: DescribedPartition, fenced: tuple[int, ...], following: str, survived: str
) -> None:
    found = cells(row, fenced=fenced)
    assert found["NEXT"] == following
    assert f"{found['WRITES']} {found['ONLINE']} {found['LOSSY']}" == survived


@pytest.mark.parametrize(
    ("row", "fenced", "state"),
    [
        (led(1, (1, 2, 3)), (), "OK"),
        (led(1, (1, 2)), (3,), "UNDER_REPLICATED"),
        (led(1, (1,), (2,)), (2,), "UNDER_MIN_ISR"),
        (led(1, (1,), leader_recovery_state=1), (), "RECOVERING"),
        (partition(), (), "ELECTING LastKnownLeader: 3"),
        (partition(), (3,), "WAITING_ELR(3: fenced) LastKnownLeader: 3"),
        (
            partition(eligible_leader_replicas=(), last_known_elr=(1, 2)),
            (2, 3),
            "NEEDS_RECOVERY(last known: 1: unfenced, 2: fenced) LastKnownLeader: 3",
        ),
        (
            partition(isr=(2,), eligible_leader_replicas=None, last_known_elr=None, last_known_leader=-1),
            (2,),
            "WAITING_ISR(2: fenced)",
        ),
    ],
)
def test_the_state_says_what_a_partition_waits_for(
    row: DescribedPartition, fenced: tuple[int, ...], state: str
) -> None:
    assert cells(row, fenced=fenced)["STATE"] == state


def test_a_partition_on_the_move_is_not_under_replicated_by_what_is_to_come() -> None:
    row = led(1, (1, 2, 3), replicas=(4, 1, 2, 3))
    moves = {TopicPartition("t", 0): Reassignment((4, 1, 2, 3), (4,), (3,))}
    assert durability_report("t", row, ClusterContext(cluster(4), {}, moves)).state == "REASSIGNING"
    assert durability_report("t", row, ClusterContext(cluster(4), {})).state == "UNDER_REPLICATED"


def test_elr_that_is_off_is_not_available() -> None:
    found = cells(led(1, (1, 2, 3), eligible_leader_replicas=None, last_known_elr=None))
    assert (found["ELR"], found["LKELR"]) == ("N/A", "N/A")


def test_the_view_asks_leaders_for_high_watermarks_and_the_cluster_for_its_switches(
    holdfast: Run, admin: FakeAdmin
) -> None:
    """With the recovery manager on, an unclean election compares logs: no replica is next for sure."""
    admin.add(topic(led(1, (1,), min_isr=1), partition(partition_index=1)))
    admin.offsets[TopicPartition("t", 0)] = 77
    entry = ConfigEntry("unclean.leader.election.enable", "true", "TOPIC", "false", "boolean", "")
    admin.configs[Resource.topic("t")] = [entry]

    def rows() -> list[dict[str, object]]:
        result = holdfast("topics", "--describe", "--durability", "--output", "json")
        return json.loads(result.stdout)["data"][0]["partitions"]  # type: ignore[no-any-return]

    first, second = rows()
    assert (first["high_watermark"], first["next_leader"], first["next_leader_reason"]) == (
        77,
        2,
        "unclean_random",
    )
    assert second["high_watermark"] is None
    assert second["failures_survived"] == {"writes": -2, "online": 0, "lossy": 0}
    manager = ConfigEntry("unclean.recovery.manager.enabled", "true", "CLUSTER", "false", "boolean", "")
    admin.configs[Resource.cluster()] = [manager]
    assert rows()[0]["next_leader"] is None


def log(end_offset: int, flushed_offset: int, high_watermark: int = -1) -> ReplicaLog:
    return ReplicaLog(11, 3, 7, end_offset, flushed_offset, high_watermark)


@pytest.mark.parametrize(
    ("row", "high_watermarks", "logs", "shown"),
    [
        pytest.param(
            led(1, (1, 2)), {0: 120}, {1: log(130, 100), 2: log(120, 108)}, ("120", "130", "12"), id="led"
        ),
        pytest.param(
            led(1, (1, 2)), {0: 120}, {2: log(125, 125)}, ("120", "-", "0"), id="leader says nothing"
        ),
        pytest.param(
            partition(), {}, {1: log(90, 90, 80), 2: log(140, 108, 120)}, ("120", "-", "12"), id="no leader"
        ),
        pytest.param(partition(), {}, {1: log(90, 90)}, ("-", "-", "-"), id="no high watermark is known"),
        pytest.param(led(1, (1, 2)), {0: 120}, {}, ("120", "-", "-"), id="no broker says anything"),
    ],
)
def test_at_risk_is_what_no_replica_has_on_disk(
    row: DescribedPartition,
    high_watermarks: dict[int, int],
    logs: dict[int, ReplicaLog],
    shown: tuple[str, ...],
) -> None:
    """High watermark minus the best flushed offset of the replicas that answered."""
    marks = {TopicPartition("t", index): offset for index, offset in high_watermarks.items()}
    around = ClusterContext(cluster(), marks, replica_logs={TopicPartition("t", 0): logs})
    heads, line = (text.split() for text in report_lines([durability_report("t", row, around)]))
    assert tuple(line[heads.index(head)] for head in ("HWM", "LEO", "AT-RISK")) == shown


def test_the_view_asks_each_broker_for_its_logs(holdfast: Run, admin: FakeAdmin) -> None:
    """A fenced one too, and no command complains of it: it is expected to be silent."""
    admin.add(topic(led(1, (1, 2), replicas=(1, 2, 3, 4))))
    admin.cluster = cluster(4, fenced=(3,))
    admin.offsets[TopicPartition("t", 0)] = 77
    admin.logs = {1: log(80, 70), 2: RowError(ErrorCode.REPLICA_NOT_AVAILABLE, "still loading")}
    result = holdfast("topics", "--describe", "--durability", "--output", "json")
    (row,) = json.loads(result.stdout)["data"][0]["partitions"]
    assert (row["log_end_offset"], row["at_risk"]) == (80, 7)
    text = "broker 4 did not answer: no process listens there"
    assert result.stderr == f"warning: the logs of broker 4 are not known: {text}\n"


def test_leaders_that_do_not_answer_hide_nothing_else(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    admin.logs = dict.fromkeys((1, 2, 3), log(80, 80))
    admin.refuses["list_offsets"] = TimedOut("no leader")
    result = holdfast("topics", "--describe", "--durability")
    assert result.exit_code == 0
    assert result.stdout.split()[-1] == "OK"
    assert result.stderr == "warning: high watermarks of leaders are not shown: no leader\n"


def test_metadata_from_before_what_is_committed_is_shown_with_a_warning(
    holdfast: Run, admin: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a broker that was paused or cut off; there may be no other."""
    admin.add(topic(led(1, (1, 2, 3))))
    admin.logs = dict.fromkeys((1, 2, 3), log(80, 80))

    async def ahead(*, timeout_ms: float = 0) -> DescribeQuorumResponse:
        return DescribeQuorumResponse(0, None, 101, 1, admin.cluster.metadata_offset + 1, (), ())

    monkeypatch.setattr(admin, "describe_quorum", ahead)
    result = holdfast("topics", "--describe", "--durability", "--timeout-ms", "50")
    assert result.exit_code == 0
    assert result.stdout.split()[-1] == "OK"
    known = "the node that was asked knows metadata up to offset 50 only, 51 is committed"
    assert result.stderr == f"warning: what is told here may be old: {known}: ask another one\n"


def test_without_a_quorum_the_view_is_what_one_node_knows(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    admin.logs = dict.fromkeys((1, 2, 3), log(80, 80))
    admin.refuses["describe_quorum"] = TimedOut("no active controller")
    result = holdfast("topics", "--describe", "--durability")
    assert (result.exit_code, result.stdout.split()[-1]) == (0, "OK")
    assert result.stderr == "warning: what is told here may be old: no active controller\n"
