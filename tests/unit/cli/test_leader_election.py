"""`holdfast leader-election`: which partitions, which leaders, and Kafka's lines."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import Result

from holdfast.cli.election_dry_run import try_election
from holdfast.client.admin_configs import ConfigEntry, Resource
from holdfast.client.core.errors import RowError
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.messages.topics import DescribedPartition, DescribedTopic
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import led, partition, topic

Run = Callable[..., Result]
ONE = ("--topic", "t", "--partition", "0")


def elections(tmp_path: Path, *rows: Mapping[str, object]) -> str:
    path = tmp_path / "elections.json"
    path.write_text(json.dumps({"partitions": rows}))
    return str(path)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("preferred", ElectionKind.PREFERRED),
        ("UNCLEAN", ElectionKind.UNCLEAN),
        ("longest_log_aggressive", ElectionKind.LONGEST_LOG_AGGRESSIVE),
        ("Longest-Log-Balanced", ElectionKind.LONGEST_LOG_BALANCED),
    ],
)
def test_types_are_known_in_any_case(holdfast: Run, admin: FakeAdmin, word: str, kind: ElectionKind) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    result = holdfast("leader-election", "--election-type", word, *ONE)
    assert result.stdout == f"Successfully completed leader election ({kind.name}) for partitions t-0\n"
    assert admin.asked == [("elect_leaders", kind, [TopicPartition("t", 0)], {})]


@pytest.mark.parametrize("option", ["--designated-leader", "--desired-leader"])
@pytest.mark.parametrize("word", ["designation", "DESIGNATED"])
def test_a_designated_leader_is_handed_over(holdfast: Run, admin: FakeAdmin, word: str, option: str) -> None:
    """Both names of the field (KIP-966, KIP-1275)."""
    holdfast("leader-election", "--election-type", word, *ONE, option, "3")
    one = TopicPartition("t", 0)
    assert admin.asked == [("elect_leaders", ElectionKind.DESIGNATION, [one], {one: 3})]


def test_leaders_of_a_file_are_for_designations_only(holdfast: Run, admin: FakeAdmin, tmp_path: Path) -> None:
    """The same file serves all types (KIP-966: the field is required in DESIGNATION only)."""
    rows = ({"topic": "t", "partition": 0, "desiredLeader": 2}, {"topic": "a", "partition": 1})
    path = elections(tmp_path, *rows)
    holdfast("leader-election", "--election-type", "unclean", "--path-to-json-file", path)
    both = [TopicPartition("t", 0), TopicPartition("a", 1)]
    assert admin.asked == [("elect_leaders", ElectionKind.UNCLEAN, both, {})]
    result = holdfast("leader-election", "--election-type", "designation", "--path-to-json-file", path)
    assert result.exit_code == 2
    assert "a-1 has no desiredLeader" in result.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--election-type preferred", "say which partitions"),
        ("--election-type preferred --all-topic-partitions --topic t --partition 0", "say which partitions"),
        ("--election-type preferred --all-topic-partitions --path-to-json-file x", "say which partitions"),
        ("--election-type preferred --topic t", "--topic and --partition go together"),
        ("--election-type preferred --partition 0", "--topic and --partition go together"),
        ("--election-type preferred --topic t --partition -1", "--partition"),
        ("--election-type soon --topic t --partition 0", "expected one of PREFERRED, UNCLEAN"),
        ("--topic t --partition 0", "--election-type"),
        ("--election-type designation --topic t --partition 0", "needs --designated-leader"),
        ("--election-type designation --all-topic-partitions", "use --path-to-json-file"),
        ("--election-type unclean --topic t --partition 0 --designated-leader 1", "goes with DESIGNATION"),
        ("--election-type preferred --path-to-json-file nowhere.json", "cannot read nowhere.json"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    holdfast: Run, admin: FakeAdmin, words: str, complaint: str
) -> None:
    result = holdfast("leader-election", *words.split())
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not admin.is_closed


def test_elected_not_needed_and_refused_are_told_in_kafkas_lines(
    holdfast: Run, admin: FakeAdmin, tmp_path: Path
) -> None:
    indexes = (3, 1, 0, 2)
    path = elections(tmp_path, *({"topic": "t", "partition": index} for index in indexes))
    not_needed = RowError(ErrorCode.ELECTION_NOT_NEEDED, "broker 1 leads t-2")
    not_there = RowError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "start one of them")
    admin.row_errors = {TopicPartition("t", 2): not_needed, TopicPartition("t", 1): not_there}
    words = ("leader-election", "--election-type", "unclean", "--path-to-json-file", path)
    result = holdfast(*words)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "Successfully completed leader election (UNCLEAN) for partitions t-0, t-3",
        "Valid replica already elected for partitions t-2",
        "Error completing leader election (UNCLEAN) for partition: t-1: ELIGIBLE_LEADERS_NOT_AVAILABLE: "
        "start one of them",
    ]
    assert result.stderr == "1 replica(s) could not be elected\n"
    body = json.loads(holdfast(*words, "--output", "json").stdout)
    assert body["errors"] == [
        {
            "code": "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            "topic": "t",
            "partition": 1,
            "message": "start one of them",
        }
    ]
    assert body["data"]["not_needed"] == [{"topic": "t", "partition": 2}]


def test_an_election_that_is_not_needed_is_no_failure_and_no_success(holdfast: Run, admin: FakeAdmin) -> None:
    """R19: a replica leads, perhaps not the one that was designated."""
    admin.row_errors[TopicPartition("t", 0)] = RowError(ErrorCode.ELECTION_NOT_NEEDED, "broker 1 leads t-0")
    words = ("--election-type", "designation", *ONE, "--designated-leader", "3")
    result = holdfast("leader-election", *words)
    assert (result.exit_code, result.stdout) == (0, "Valid replica already elected for partitions t-0\n")


def test_all_partitions_are_one_question(holdfast: Run, admin: FakeAdmin) -> None:
    result = holdfast("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assert (result.exit_code, result.stdout) == (0, "No partition needs an election\n")
    assert admin.asked == [("elect_leaders", ElectionKind.PREFERRED, None, {})]


class LateLeader(FakeAdmin):
    """The comparison of logs finds a leader between two looks."""

    async def describe_topics(
        self, names: Sequence[str] | None = None, *, partitions_per_answer: int = 0, timeout_ms: float = 0
    ) -> list[DescribedTopic]:
        shown = await super().describe_topics(names)
        self.add(topic(led(2, (2,))))
        return shown


def test_a_comparison_of_logs_has_succeeded_when_there_is_a_leader(
    holdfast: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller's answer says only that it has begun."""
    late = LateLeader()
    late.add(topic(partition()))
    monkeypatch.setattr("holdfast.client.admin.Admin", lambda servers, runtime: late)
    result = holdfast("leader-election", "--election-type", "longest_log_aggressive", *ONE)
    assert (result.exit_code, late.topics["t"].partitions[0].leader_id) == (0, 2)
    assert result.stdout.startswith("Successfully completed leader election (LONGEST_LOG_AGGRESSIVE)")


@pytest.mark.parametrize(
    ("topics", "complaint"),
    [
        (
            [topic(partition(eligible_leader_replicas=(), last_known_elr=(1, 2), offline_replicas=(2, 3)))],
            "t-0: REQUEST_TIMED_OUT: the comparison of logs has begun and goes on; offline of those that may "
            "have everything: 2; ",
        ),
        ([], "t-0: UNKNOWN_TOPIC_OR_PARTITION: there is no such partition any more"),
    ],
)
def test_a_comparison_that_found_no_leader_yet_is_no_success(
    holdfast: Run, admin: FakeAdmin, topics: list[DescribedTopic], complaint: str
) -> None:
    admin.add(*topics)
    words = ("--election-type", "longest_log_balanced", *ONE, "--timeout-ms", "150")
    result = holdfast("leader-election", *words)
    assert result.exit_code == 1
    assert complaint in result.stdout
    assert "Successfully" not in result.stdout


# --- dry run ---------------------------------------------------------------------------------------------

LEADERLESS = partition()
ON_FAILED_DISK = partition(
    eligible_leader_replicas=(), last_known_elr=(1, 2), last_known_leader=-1, offline_replicas=(1,)
)
FORGETFUL = partition(eligible_leader_replicas=(), last_known_elr=(1, 2), last_known_leader=-1)


@pytest.mark.parametrize(
    ("kind", "row", "fenced", "text"),
    [
        (ElectionKind.PREFERRED, led(2, (1, 2, 3)), (), "would elect 1 (preferred)"),
        (ElectionKind.UNCLEAN, FORGETFUL, (1,), "would elect 2 (unclean_random); records may be lost"),
        (ElectionKind.UNCLEAN, LEADERLESS, (1, 2), "would elect 3 (elr)"),
        (ElectionKind.DESIGNATION, FORGETFUL, (), "would elect 3 (designated); records may be lost"),
        (ElectionKind.DESIGNATION, LEADERLESS, (), "would elect 3 (elr)"),
        (ElectionKind.LONGEST_LOG_AGGRESSIVE, FORGETFUL, (1,), "would compare the logs of 2,3"),
        (ElectionKind.LONGEST_LOG_BALANCED, FORGETFUL, (1,), "would compare the logs of 2,3, and wait for 1"),
        (ElectionKind.LONGEST_LOG_AGGRESSIVE, LEADERLESS, (3,), "would compare the logs of 1,2"),
        # R27: the broker is there, the log dir of this replica is not
        (ElectionKind.UNCLEAN, ON_FAILED_DISK, (), "would elect 2 (unclean_random); records may be lost"),
    ],
)
def test_a_dry_run_says_what_the_controller_would_do(
    kind: ElectionKind, row: DescribedPartition, fenced: tuple[int, ...], text: str
) -> None:
    assert try_election(kind, row, lambda replica: replica not in fenced, 3).text == text


@pytest.mark.parametrize(
    ("kind", "row", "fenced", "leader", "code"),
    [
        (ElectionKind.PREFERRED, led(1, (1, 2)), (), None, ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionKind.PREFERRED, led(2, (2, 3)), (), None, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionKind.UNCLEAN, led(2, (2,)), (), None, ErrorCode.ELECTION_NOT_NEEDED),
        (ElectionKind.UNCLEAN, LEADERLESS, (1, 2, 3), None, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (ElectionKind.DESIGNATION, LEADERLESS, (), 4, ErrorCode.INVALID_REQUEST),
        (ElectionKind.LONGEST_LOG_BALANCED, LEADERLESS, (3,), None, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (ElectionKind.DESIGNATION, LEADERLESS, (3,), 3, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (ElectionKind.DESIGNATION, ON_FAILED_DISK, (), 1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
        (
            ElectionKind.LONGEST_LOG_BALANCED,
            partition(eligible_leader_replicas=None, last_known_elr=None),
            (),
            None,
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_dry_run_refuses_what_the_controller_would_refuse(
    kind: ElectionKind,
    row: DescribedPartition,
    fenced: tuple[int, ...],
    leader: int | None,
    code: ErrorCode,
) -> None:
    error = try_election(kind, row, lambda replica: replica not in fenced, leader).error
    assert error is not None
    assert error.code is code


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("true", "t-0: would compare the logs of 1,2,3"),
        ("false", "t-0: would be refused: INVALID_REQUEST: logs are compared with the recovery manager and "),
    ],
)
def test_a_dry_run_knows_whether_logs_are_compared(
    holdfast: Run, admin: FakeAdmin, value: str, line: str
) -> None:
    admin.add(topic(FORGETFUL))
    entry = ConfigEntry("unclean.recovery.manager.enabled", value, "CLUSTER", "true", "boolean", "")
    admin.configs[Resource.cluster()] = [entry]
    words = ("leader-election", "--election-type", "longest_log_balanced", *ONE, "--dry-run")
    assert holdfast(*words).stdout.startswith(line)


def test_a_dry_run_changes_nothing_and_counts_refusals(
    holdfast: Run, admin: FakeAdmin, tmp_path: Path
) -> None:
    admin.add(topic(led(2, (1, 2, 3)), led(1, (1, 2), partition_index=1)))
    path = elections(tmp_path, *({"topic": "t", "partition": index} for index in (0, 1, 9)))
    words = ("leader-election", "--election-type", "preferred", "--dry-run")
    result = holdfast(*words, "--path-to-json-file", path)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "t-0: would elect 1 (preferred)",
        "t-1: nothing to do: the preferred replica 1 leads already",
        "t-9: would be refused: UNKNOWN_TOPIC_OR_PARTITION: there is no partition t-9",
    ]
    assert admin.asked == []
    result = holdfast(*words, "--all-topic-partitions")
    assert (result.exit_code, result.stdout) == (0, "t-0: would elect 1 (preferred)\n")
