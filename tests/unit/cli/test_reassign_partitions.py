"""`holdfast reassign-partitions`: proposals, Kafka's lines, and how far a move is."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import Result

from holdfast.cli.admin_session import AdminSession
from holdfast.cli.options import CommandAnswer
from holdfast.cli.reassign_partitions import wait_for_moves
from holdfast.cli.reassignment_plan import CannotPropose, MoveProgress, propose, verify
from holdfast.cli.reassignment_throttle import throttled_moves
from holdfast.client.admin import Admin
from holdfast.client.admin_configs import ConfigEntry, Resource
from holdfast.client.admin_partitions import Reassignment
from holdfast.client.core.errors import RowError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.topic_names import TopicPartition
from holdfast.runtime.api import Clock
from holdfast.runtime.tasks import HeldTasks
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import cluster, led, topic

Run = Callable[..., Result]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RACKS = [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "c")]


@pytest.fixture
def move(tmp_path: Path) -> str:
    """A file that moves t-0 to 2,3."""
    path = tmp_path / "move.json"
    path.write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2,3]}]}')
    return str(path)


# --- the plan --------------------------------------------------------------------------------------------


def test_a_proposal_spreads_leaders_evenly_and_replicas_over_racks() -> None:
    """R106's placement, with the factors that are there."""
    current: dict[TopicPartition, tuple[int, ...]]
    current = {TopicPartition("t", index): (1, 2, 3) for index in range(12)}
    current |= {TopicPartition("u", index): (1, 2) for index in range(6)}
    proposed = propose(current, RACKS)
    assert proposed.keys() == current.keys()
    rack_of = dict(RACKS)
    for partition, replicas in proposed.items():
        assert len(replicas) == len(current[partition])
        assert len({rack_of[replica] for replica in replicas}) == len(replicas)
    assert set(Counter(replicas[0] for replicas in proposed.values()).values()) == {3}


def test_a_proposal_needs_as_many_brokers_as_replicas() -> None:
    with pytest.raises(CannotPropose, match="t-0 has 3 replicas, --broker-list names 2 brokers"):
        propose({T0: (1, 2, 3)}, RACKS[:2])


def test_brokers_with_and_without_racks_are_mixed_only_on_demand() -> None:
    brokers = [(1, "a"), (2, None)]
    with pytest.raises(CannotPropose, match="--disable-rack-aware"):
        propose({T0: (1,)}, brokers)
    assert propose({T0: (1,)}, brokers, rack_aware=False) == {T0: (1,)}


@pytest.mark.parametrize(
    ("current", "moving", "progress", "line"),
    [
        ((2, 3), None, MoveProgress.COMPLETED, "Reassignment of partition t-0 is completed."),
        (
            (2, 3, 1),
            Reassignment((2, 3, 1), (3,), (1,)),
            MoveProgress.IN_PROGRESS,
            "Reassignment of partition t-0 is still in progress.",
        ),
        (
            (1, 2),
            None,
            MoveProgress.DIFFERENT,
            "There is no active reassignment of partition t-0, but replica set is 1,2 rather than 2,3.",
        ),
        (
            (4, 1, 2),
            Reassignment((4, 1, 2), (4,), (1, 2)),
            MoveProgress.DIFFERENT,
            "Partition t-0 is being moved to 4 rather than 2,3.",
        ),
        (None, None, MoveProgress.UNKNOWN, "There is no partition t-0."),
    ],
)
def test_how_far_a_partition_is(
    current: tuple[int, ...] | None, moving: Reassignment | None, progress: MoveProgress, line: str
) -> None:
    (step,) = verify(
        {T0: (2, 3)}, {} if current is None else {T0: current}, {} if moving is None else {T0: moving}
    )
    assert (step.progress, step.line) == (progress, line)


# --- the command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("", "one of --generate, --execute, --verify, --cancel, --list"),
        ("--execute --verify --reassignment-json-file x", "one of"),
        ("--execute", "--execute needs --reassignment-json-file"),
        ("--generate --broker-list 1", "--generate needs --topics-to-move-json-file"),
        ("--generate --topics-to-move-json-file x", "--generate needs --broker-list"),
        ("--verify --reassignment-json-file x --additional", "--additional belongs to --execute"),
        ("--list --reassignment-json-file x", "--reassignment-json-file belongs to"),
        ("--execute --reassignment-json-file nowhere.json", "cannot read nowhere.json"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    holdfast: Run, admin: FakeAdmin, words: str, complaint: str
) -> None:
    result = holdfast("reassign-partitions", *words.split())
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not admin.is_closed


@pytest.mark.parametrize("ids", ["1,x", "", "1,,2", "1,2,1"])
def test_a_broker_list_is_made_of_different_numbers(
    holdfast: Run, admin: FakeAdmin, ids: str, tmp_path: Path
) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"topics":[{"topic":"t"}]}')
    words = ("--topics-to-move-json-file", str(path), "--broker-list", ids)
    assert holdfast("reassign-partitions", "--generate", *words).exit_code == 2
    assert not admin.is_closed


def test_generate_prints_what_is_and_what_could_be(holdfast: Run, admin: FakeAdmin, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text('{"topics":[{"topic":"t"}],"version":1}')
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))
    words = ("reassign-partitions", "--generate", "--topics-to-move-json-file", str(path), "--broker-list")
    lines = holdfast(*words, "3,2").stdout.splitlines()
    assert lines[:4] == [
        "Current partition replica assignment",
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}',
        "",
        "Proposed partition reassignment configuration",
    ]
    (proposed,) = json.loads(lines[4])["partitions"]
    assert sorted(proposed["replicas"]) == [2, 3]
    assert admin.asked == []
    assert "broker 9 is not registered" in holdfast(*words, "1,9").stderr
    admin.cluster = cluster(racks={1: "a"})
    assert "--disable-rack-aware" in holdfast(*words, "1,2").stderr
    assert holdfast(*words, "1,2", "--disable-rack-aware").exit_code == 0
    path.write_text('{"topics":[{"topic":"nix"}]}')
    assert "nix: UNKNOWN_TOPIC_OR_PARTITION" in holdfast(*words, "1,2").stderr


def test_execute_prints_the_way_back_first(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))
    result = holdfast("reassign-partitions", "--execute", "--reassignment-json-file", move)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Current partition replica assignment",
        "",
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}',
        "",
        "Save this to use as the --reassignment-json-file option during rollback",
        "Successfully started partition reassignment for t-0",
    ]
    assert admin.asked == [("alter_partition_reassignments", {T0: (2, 3)}, True)]


def test_execute_while_others_move_needs_additional(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    """What the move under way has added is no place to go back to (R105)."""
    admin.add(topic(led(1, (1, 2), replicas=(4, 1, 2))))
    admin.moving[T0] = Reassignment((4, 1, 2), (4,), (1, 2))
    words = ("reassign-partitions", "--execute", "--reassignment-json-file", move)
    result = holdfast(*words)
    assert result.exit_code == 1
    assert "Use --additional to override this" in result.stderr
    assert admin.asked == []
    result = holdfast(*words, "--additional", "--disallow-replication-factor-change")
    assert '"replicas":[1,2]' in result.stdout
    assert admin.asked == [("alter_partition_reassignments", {T0: (2, 3)}, False)]


def test_a_partition_that_does_not_exist_stops_everything(
    holdfast: Run, admin: FakeAdmin, tmp_path: Path
) -> None:
    admin.add(topic(led(1, (1, 2))))
    path = tmp_path / "move.json"
    rows = [{"topic": "t", "partition": index, "replicas": [1]} for index in (0, 5)]
    path.write_text(json.dumps({"partitions": rows}))
    result = holdfast("reassign-partitions", "--execute", "--reassignment-json-file", str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: t-5: UNKNOWN_TOPIC_OR_PARTITION")
    assert admin.asked == []


def test_a_refused_partition_is_told_beside_those_that_move(
    holdfast: Run, admin: FakeAdmin, tmp_path: Path
) -> None:
    admin.add(topic(led(1, (1, 2)), led(1, (1, 2), partition_index=1)))
    admin.row_errors[T1] = RowError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9 is not registered")
    path = tmp_path / "move.json"
    rows = [{"topic": "t", "partition": index, "replicas": [2, 9 * index or 3]} for index in (0, 1)]
    path.write_text(json.dumps({"partitions": rows}))
    result = holdfast("reassign-partitions", "--execute", "--reassignment-json-file", str(path))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "Successfully started partition reassignment for t-0"
    assert result.stderr == "error: t-1: INVALID_REPLICA_ASSIGNMENT: broker 9 is not registered\n"


def test_verify_tells_progress_and_fails_only_where_nothing_moves(
    holdfast: Run, admin: FakeAdmin, move: str
) -> None:
    words = ("reassign-partitions", "--verify", "--reassignment-json-file", move)
    admin.add(topic(led(2, (2, 3), replicas=(2, 3))))
    result = holdfast(*words)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
    ]
    admin.moving[T0] = Reassignment((2, 3, 1), (3,), (1,))
    assert holdfast(*words).exit_code == 0
    admin.moving.clear()
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))
    assert holdfast(*words).exit_code == 1


# --- the throttle ----------------------------------------------------------------------------------------

RATES: dict[str, str | None] = {
    "leader.replication.throttled.rate": "5000",
    "follower.replication.throttled.rate": "5000",
}
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


def test_a_throttle_is_set_before_anything_moves(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    """At the brokers with a replica of it, for those that send and those that are added."""
    admin.cluster = cluster(4)
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))
    words = ("reassign-partitions", "--execute", "--reassignment-json-file", move, "--throttle", "5000")
    result = holdfast(*words)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-3:] == [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the "
        "throttle is removed.",
        "The inter-broker throttle limit was set to 5000 B/s",
        "Successfully started partition reassignment for t-0",
    ]
    changes: dict[Resource, dict[str, str | None]] = {
        Resource.topic("t"): {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"},
        **{Resource.broker(broker_id): RATES for broker_id in (1, 2, 3)},
    }
    assert admin.asked == [
        ("alter_configs", changes),
        ("alter_partition_reassignments", {T0: (2, 3)}, True),
    ]


def test_moves_that_are_under_way_are_throttled_too() -> None:
    moving = {
        T0: Reassignment((4, 1, 2), (4,), (1, 2)),
        T1: Reassignment((1, 2), (2,), ()),
        TopicPartition("u", 10): Reassignment((1, 12), (12,), (1,)),
    }
    assert throttled_moves({T0: (2, 3)}, {T0: (1, 2)}, moving) == {
        Resource.topic("t"): {LEADERS: "0:1,0:2,1:1", FOLLOWERS: "0:3,1:2"},
        Resource.topic("u"): {LEADERS: "10:1", FOLLOWERS: "10:12"},
    }


def test_a_list_of_replicas_that_no_value_can_hold_throttles_the_whole_topic(
    holdfast: Run, admin: FakeAdmin, tmp_path: Path
) -> None:
    """Those that send are two a partition; the list of those that are added is short enough."""
    admin.cluster = cluster(4)
    admin.add(topic(*(led(1, (1, 2), replicas=(1, 2), partition_index=index) for index in range(3_300))))
    path = tmp_path / "move.json"
    rows = [{"topic": "t", "partition": index, "replicas": [2, 3]} for index in range(3_300)]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    words = ("reassign-partitions", "--execute", "--reassignment-json-file", str(path), "--throttle", "5000")
    assert holdfast(*words).exit_code == 0
    call, changes = admin.asked[0][:2]
    assert call == "alter_configs"
    assert changes == {
        Resource.topic("t"): {LEADERS: "*", FOLLOWERS: ",".join(f"{index}:3" for index in range(3_300))},
        **{Resource.broker(broker_id): RATES for broker_id in (1, 2, 3)},
    }


def test_nothing_moves_when_the_throttle_is_refused(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))
    admin.row_errors[Resource.broker(3)] = RowError(ErrorCode.INVALID_CONFIG, "not known")
    words = ("reassign-partitions", "--execute", "--reassignment-json-file", move)
    result = holdfast(*words, "--throttle", "5000")
    assert (result.exit_code, result.stderr) == (1, "error: broker 3: INVALID_CONFIG: not known\n")
    assert [call for call, *_ in admin.asked] == ["alter_configs"]
    assert "at least 1 byte a second" in holdfast(*words, "--throttle", "0").stderr


@pytest.fixture
def throttled(admin: FakeAdmin) -> FakeAdmin:
    """Moved to 2,3, with throttles; the cluster's own rate is no broker's."""
    admin.add(topic(led(2, (2, 3), replicas=(2, 3))))

    def entry(name: str, source: str) -> ConfigEntry:
        return ConfigEntry(name, "7", source, None, "", "")

    rate = next(iter(RATES))
    admin.configs[Resource.topic("t")] = [entry(LEADERS, "TOPIC"), entry("retention.ms", "TOPIC")]
    admin.configs[Resource.broker(1)] = [entry(rate, "CLUSTER")]
    admin.configs[Resource.broker(3)] = [entry(rate, "BROKER")]
    return admin


REMOVED = (
    "alter_configs",
    {Resource.broker(3): {next(iter(RATES)): None}, Resource.topic("t"): {LEADERS: None}},
)


@pytest.mark.parametrize(
    ("words", "moving", "removed"),
    [
        ("--verify", {}, True),
        ("--verify --wait", {}, True),
        ("--execute --wait --throttle 5000", {}, True),
        ("--execute --wait", {}, False),
        ("--verify --preserve-throttles", {}, False),
        ("--verify", {T0: Reassignment((2, 3, 1), (3,), (1,))}, False),
        ("--verify", {T1: Reassignment((2, 3, 1), (3,), (1,))}, False),
        ("--cancel", {T0: Reassignment((2, 3, 1), (3,), (1,))}, True),
        ("--cancel", {}, True),
        ("--cancel --preserve-throttles", {T0: Reassignment((2, 3, 1), (3,), (1,))}, False),
    ],
)
def test_throttles_are_removed_once_nothing_moves_or_the_move_is_cancelled(
    holdfast: Run,
    throttled: FakeAdmin,
    move: str,
    words: str,
    moving: dict[TopicPartition, Reassignment],
    removed: bool,
) -> None:
    throttled.moving = moving
    result = holdfast("reassign-partitions", *words.split(), "--reassignment-json-file", move)
    assert result.exit_code == 0
    assert (REMOVED in throttled.asked) == removed
    told = [
        "Clearing broker-level throttles on broker 3",
        "Clearing topic-level throttles on topic t",
    ]
    assert (result.stdout.splitlines()[-2:] == told) == removed


def test_throttles_stay_while_a_partition_is_elsewhere_and_does_not_move(
    holdfast: Run, throttled: FakeAdmin, move: str
) -> None:
    """The broker that answers may not have heard of the move yet."""
    throttled.add(topic(led(1, (1, 2), replicas=(1, 2))))
    assert holdfast("reassign-partitions", "--verify", "--reassignment-json-file", move).exit_code == 1
    assert throttled.asked == []


def test_a_refused_move_leaves_no_throttle(holdfast: Run, throttled: FakeAdmin, move: str) -> None:
    throttled.row_errors[T0] = RowError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no")
    words = ("--execute", "--reassignment-json-file", move, "--throttle", "5000", "--output", "json")
    body = json.loads(holdfast("reassign-partitions", *words).stdout)
    assert throttled.asked[-1] == REMOVED
    assert body["data"]["throttle"] == 5000
    assert body["data"]["throttles_removed"] == {"brokers": [3], "topics": ["t"]}


# --- waiting, cancelling, listing ------------------------------------------------------------------------


def test_waiting_ends_when_all_is_where_it_should_be(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    admin.add(topic(led(2, (2, 3), replicas=(2, 3))))
    words = ("reassign-partitions", "--execute", "--reassignment-json-file", move, "--wait")
    result = holdfast(*words)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "Reassignment of partition t-0 is completed."


def test_waiting_ends_with_the_timeout(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    admin.add(topic(led(2, (2, 1), replicas=(2, 3, 1))))
    admin.moving[T0] = Reassignment((2, 3, 1), (3,), (1,))
    words = ("reassign-partitions", "--verify", "--reassignment-json-file", move, "--wait")
    result = holdfast(*words, "--timeout-ms", "100")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: t-0: REQUEST_TIMED_OUT: still in progress after 100 ms")


class Hours:
    """A clock that jumps to the end of each sleep; `story` happens on the way, one change a sleep."""

    def __init__(self, *story: Callable[[], object]) -> None:
        self.ms = 0.0
        self.story = list(story)

    def now_ms(self) -> int:
        return int(self.ms)

    async def sleep(self, delay_ms: float) -> None:
        self.ms += delay_ms
        if self.story:
            self.story.pop(0)()


async def waited(admin: FakeAdmin, clock: Hours) -> CommandAnswer:
    """What an hour's patience for t-0 to be on 2,3 ends with."""
    answer = CommandAnswer("reassign-partitions-verify", {})
    session = AdminSession(cast(Admin, admin), answer, 3_600_000, cast(Clock, clock), HeldTasks())
    await wait_for_moves(session, {T0: (2, 3)}, [])
    return answer


async def test_waiting_outlasts_a_broker_that_has_not_heard_of_the_move() -> None:
    """R113: the answering broker's metadata may be older than the move."""
    admin = FakeAdmin()
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))

    def complete() -> None:
        admin.moving.clear()
        admin.add(topic(led(2, (2, 3), replicas=(2, 3))))

    story = [lambda: None, lambda: admin.moving.update({T0: Reassignment((2, 3, 1), (3,), (1,))}), complete]
    clock = Hours(*story)
    answer = await waited(admin, clock)
    assert answer.errors == []
    assert answer.data["partitions"] == [{"topic": "t", "partition": 0, "progress": "completed"}]
    assert clock.story == []


async def test_waiting_gives_up_what_does_not_move() -> None:
    admin = FakeAdmin()
    admin.add(topic(led(1, (1, 2), replicas=(1, 2))))
    clock = Hours()
    answer = await waited(admin, clock)
    assert [error["code"] for error in answer.errors] == ["NO_REASSIGNMENT_IN_PROGRESS"]
    assert clock.now_ms() < 10_000


def test_cancel_ends_the_moves_that_run(holdfast: Run, admin: FakeAdmin, move: str) -> None:
    words = ("reassign-partitions", "--cancel", "--reassignment-json-file", move)
    result = holdfast(*words)
    assert (result.exit_code, result.stdout) == (0, "None of the specified partition moves are active.\n")
    admin.moving[T0] = Reassignment((2, 3, 1), (3,), (1,))
    result = holdfast(*words)
    assert result.stdout == "Successfully cancelled partition reassignment for: t-0\n"
    assert admin.asked == [("alter_partition_reassignments", {T0: None}, True)]


def test_list_prints_what_moves(holdfast: Run, admin: FakeAdmin) -> None:
    assert holdfast("reassign-partitions", "--list").stdout == "No partition reassignments found.\n"
    admin.moving = {T1: Reassignment((1, 2, 3), (3,), ()), T0: Reassignment((2, 3, 1), (3,), (1,))}
    assert holdfast("reassign-partitions", "--list").stdout.splitlines() == [
        "Current partition reassignments:",
        "t-0: replicas: 2,3,1. adding: 3. removing: 1.",
        "t-1: replicas: 1,2,3. adding: 3.",
    ]


async def test_waiting_does_not_take_the_beginning_of_a_move_for_its_end() -> None:
    """R113: the broker hears of a move that only adds replicas between the two questions."""

    class Hears(FakeAdmin):
        async def list_partition_reassignments(self, *words: Any, **named: Any) -> Any:
            found = await super().list_partition_reassignments(*words, **named)
            self.moving[T0] = Reassignment((2, 3), (3,), ())
            self.add(topic(led(2, (2,), replicas=(2, 3))))
            return found

    admin = Hears()
    admin.add(topic(led(2, (2,), replicas=(2,))))
    answer = await waited(admin, Hours())
    assert [error["code"] for error in answer.errors] == ["REQUEST_TIMED_OUT"]
