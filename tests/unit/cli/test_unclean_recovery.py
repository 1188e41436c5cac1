"""`holdfast unclean-recovery`: options, files, exit codes and what is printed, on a cluster in memory."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from holdfast.client.core.errors import ClientError, RowError
from holdfast.client.core.replica_log import ReplicaLog
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.elect_leaders import ElectionKind
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import cluster, led, partition, topic

Run = Callable[..., Result]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ("unclean-recovery", "--all-offline-partitions")


def log(broker_id: int, end_offset: int, high_watermark: int = 70) -> ReplicaLog:
    return ReplicaLog(10 + broker_id, 5, 7, end_offset, end_offset, high_watermark)


@pytest.fixture
def offline(admin: FakeAdmin) -> FakeAdmin:
    """t-0 and t-1 without a leader, t-2 with one; 2 has the longest logs."""
    known = {"eligible_leader_replicas": (), "last_known_elr": (2, 3), "last_known_leader": -1}
    admin.add(
        topic(
            partition(**known),
            partition(partition_index=1, **known),
            led(1, (1, 2, 3), partition_index=2),
        )
    )
    admin.logs = {1: log(1, 80), 2: log(2, 90), 3: log(3, 70)}
    return admin


def written(folder: Path, content: object) -> str:
    path = folder / "input.json"
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--show-replica-info", "exactly one of --path-to-json-file and --all-offline-partitions"),
        (
            "--show-replica-info --all-offline-partitions --path-to-json-file x",
            "exactly one of --path-to-json-file and --all-offline-partitions",
        ),
        ("--all-offline-partitions", "say what to do: --show-replica-info"),
        (
            "--all-offline-partitions --automated-recovery --manual-recovery-output-file x",
            "exclude each other",
        ),
        ("--all-offline-partitions --automated-recovery --kip1275-json", "goes with --manual-recovery"),
        ("--all-offline-partitions --automated-recovery --recovery-duration-ms 0", "--recovery-duration-ms"),
        ("--all-offline-partitions --automated-recovery --recovery-election-attempts -1", "attempts"),
        ("--automated-recovery --path-to-json-file nowhere.json", "cannot read nowhere.json"),
        ("--all-offline-partitions --manual-recovery-output-file /", "/ exists"),
        ("--all-offline-partitions --manual-recovery-output-file no/such/folder", "cannot write no/such"),
        ("--all-offline-partitions --manual-recovery-output-file a\0b", "cannot write a"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    holdfast: Run, admin: FakeAdmin, words: str, complaint: str
) -> None:
    """R70; seen before anybody is asked."""
    result = holdfast("unclean-recovery", *words.split())
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not admin.is_closed


def test_the_table_shows_each_replica_and_nothing_is_changed(holdfast: Run, offline: FakeAdmin) -> None:
    result = holdfast(*ALL, "--show-replica-info")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert " ".join(lines[0]) == (
        "TOPIC PARTITION REPLICA ROLE FENCED BROKER-EPOCH LAST-EPOCH CURRENT-EPOCH LEO FLUSHED HWM REPLIED "
        "BEST EST-LOSS"
    )
    assert lines[1] == "t 0 1 OUT_OF_SYNC no 11 5 7 80 80 70 yes - 0".split()
    assert lines[2] == "t 0 2 LKELR no 12 5 7 90 90 70 yes * 0".split()
    assert [line[1] for line in lines[1:]] == ["0"] * 3 + ["1"] * 3
    assert offline.asked == []


def test_the_longest_logs_are_elected(holdfast: Run, offline: FakeAdmin) -> None:
    """R74: by designation and nothing else."""
    result = holdfast(*ALL, "--automated-recovery")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "Successfully completed leader election (DESIGNATION) for partitions t-0, t-1",
        "t-0: broker 2 leads, estimated loss 0 record(s)",
        "t-1: broker 2 leads, estimated loss 0 record(s)",
    ]
    assert offline.asked == [("elect_leaders", ElectionKind.DESIGNATION, [T0, T1], {T0: 2, T1: 2})]


def test_every_election_that_was_not_made_is_told_on_stderr(
    holdfast: Run, offline: FakeAdmin, tmp_path: Path
) -> None:
    """KIP-1275: exit 0 only if all elections of the input succeed; R79."""
    path = written(tmp_path, {"partitions": [{"topic": "t", "partitions": [0, 1, 2, 9]}]})
    offline.row_errors[T1] = RowError(ErrorCode.ELECTION_NOT_NEEDED, "broker 3 leads t-1")
    result = holdfast("unclean-recovery", "--path-to-json-file", path, "--automated-recovery")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0].endswith("for partitions t-0")
    assert result.stderr.splitlines() == [
        "error: t-1: ELECTION_NOT_NEEDED: already online: broker 3 leads t-1",
        "error: t-2: ELECTION_NOT_NEEDED: already online: broker 1 leads",
        "error: t-9: UNKNOWN_TOPIC_OR_PARTITION: there is no partition t-9",
    ]


def test_elections_that_may_succeed_later_are_tried_again(holdfast: Run, offline: FakeAdmin) -> None:
    error = RowError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "broker 2 is not ready")
    offline.row_errors[T0] = error
    result = holdfast(*ALL, "--automated-recovery", "--recovery-election-attempts", "1")
    assert result.exit_code == 1
    assert [call[2] for call in offline.asked] == [[T0, T1], [T0]]
    assert result.stderr.splitlines() == [
        f"1 election(s) are tried again: {error}",
        f"error: t-0: {error}",
    ]


def test_nothing_to_recover_is_a_success(holdfast: Run, admin: FakeAdmin) -> None:
    """R75: what was recovered needs no second run."""
    admin.add(topic(led(1, (1, 2, 3))))
    result = holdfast(*ALL, "--automated-recovery", "--show-replica-info")
    assert (result.exit_code, result.stdout) == (0, "No partition is without a leader.\n")


@pytest.mark.parametrize(("option", "key"), [([], "desiredLeader"), (["--kip1275-json"], "designatedLeader")])
def test_what_is_written_is_what_the_election_tool_reads(
    holdfast: Run, offline: FakeAdmin, tmp_path: Path, option: list[str], key: str
) -> None:
    """R73."""
    path = tmp_path / "elections.json"
    result = holdfast(*ALL, "--manual-recovery-output-file", str(path), *option)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Wrote 2 election(s) to {path}; ")
    rows = [{"topic": "t", "partition": index, key: 2} for index in (0, 1)]
    assert json.loads(path.read_text()) == {"partitions": rows}
    assert offline.asked == []
    words = ("leader-election", "--election-type", "designation", "--path-to-json-file", str(path))
    assert holdfast(*words).exit_code == 0
    assert offline.asked == [("elect_leaders", ElectionKind.DESIGNATION, [T0, T1], {T0: 2, T1: 2})]
    # what was written can also be asked for again, and nothing is overwritten
    again = ("unclean-recovery", "--path-to-json-file", str(path), "--manual-recovery-output-file", str(path))
    result = holdfast(*again)
    assert (result.exit_code, f"{path} exists; nothing is overwritten" in result.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["file", "link to nothing"])
def test_what_exists_is_never_overwritten(
    holdfast: Run, offline: FakeAdmin, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "precious"
    if kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to(tmp_path / "elsewhere")
    assert holdfast(*ALL, "--manual-recovery-output-file", str(path)).exit_code == 2
    assert path.read_text() == "precious" if kind == "file" else not (tmp_path / "elsewhere").exists()


class MadeMeanwhile(FakeAdmin):
    """Another process makes the file while logs are asked for."""

    path: Path

    async def describe_quorum(self, *, timeout_ms: float = 0) -> object:  # type: ignore[override]
        self.path.write_text("precious")
        return await super().describe_quorum()


def test_a_file_that_was_made_meanwhile_is_kept(
    holdfast: Run, offline: FakeAdmin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    late = MadeMeanwhile(topics=offline.topics, logs=offline.logs)
    late.path = tmp_path / "elections.json"
    monkeypatch.setattr("holdfast.client.admin.Admin", lambda servers, runtime: late)
    result = holdfast(*ALL, "--manual-recovery-output-file", str(late.path))
    assert (result.exit_code, late.path.read_text()) == (1, "precious")
    assert "was not written: File exists" in result.stderr


def test_a_file_that_cannot_be_finished_is_taken_away(
    holdfast: Run, offline: FakeAdmin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Half a file would pass for the whole."""
    path = tmp_path / "elections.json"
    real_fsync = os.fsync

    def fsync(number: int) -> None:
        if os.fstat(number).st_size > 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(number)

    monkeypatch.setattr("holdfast.cli.recovery.command.os.fsync", fsync)
    result = holdfast(*ALL, "--manual-recovery-output-file", str(path))
    assert (result.exit_code, path.exists()) == (1, False)
    assert "was not written: No space left on device" in result.stderr


def test_without_anybody_to_elect_there_is_no_file(holdfast: Run, offline: FakeAdmin, tmp_path: Path) -> None:
    offline.logs = {}
    path = tmp_path / "elections.json"
    words = ("--recovery-duration-ms", "20", "--manual-recovery-output-file", str(path))
    result = holdfast(*ALL, *words)
    assert (result.exit_code, path.exists()) == (1, False)
    assert result.stdout == f"No replica is to be elected: {path} was not written.\n"
    assert "error: t-0: ELIGIBLE_LEADERS_NOT_AVAILABLE: no replica told where its log ends: broker 1: " in (
        result.stderr
    )


def test_silent_brokers_are_no_candidates_and_told_of(holdfast: Run, offline: FakeAdmin) -> None:
    """R71, R78: one line a broker, with what it may have."""
    del offline.logs[2]
    offline.cluster = cluster(fenced=(2,))
    result = holdfast(*ALL, "--automated-recovery", "--recovery-duration-ms", "50")
    assert result.exit_code == 0
    assert offline.asked[0][3] == {T0: 1, T1: 1}
    first, second = result.stderr.splitlines()
    assert first.startswith("broker 2 is asked again until 0.05 s have passed: NETWORK_EXCEPTION: ")
    assert second.startswith("warning: the logs of broker 2 are not known for t-0 (LKELR), t-1 (LKELR): ")
    assert second.endswith("what only this broker has is lost if another one leads")


def test_json_tells_the_same(holdfast: Run, offline: FakeAdmin, tmp_path: Path) -> None:
    path = str(tmp_path / "elections.json")
    words = ("--show-replica-info", "--manual-recovery-output-file", path, "--output", "json")
    body = json.loads(holdfast(*ALL, *words).stdout)
    assert (body["schema"], body["ok"], body["errors"]) == ("holdfast.unclean-recovery/1", True, [])
    assert (body["data"]["output_file"], body["data"]["warnings"]) == (path, [])
    first, _ = body["data"]["partitions"]
    assert (first["topic"], first["partition"], first["result"], first["best"]) == ("t", 0, "open", 2)
    assert first["best_estimated_loss"] == {"records": 0, "is_at_least": False}
    assert first["replicas"][1] == {
        "replica": 2,
        "role": "LKELR",
        "fenced": "no",
        "broker_epoch": 12,
        "last_epoch": 5,
        "current_epoch": 7,
        "log_end_offset": 90,
        "flushed_offset": 90,
        "high_watermark": 70,
        "replied": "yes",
        "problem": None,
        "is_best": True,
        "estimated_loss": {"records": 0, "is_at_least": False},
    }
    elected = json.loads(holdfast(*ALL, "--automated-recovery", "--output", "json").stdout)
    assert [row["result"] for row in elected["data"]["partitions"]] == ["elected", "elected"]
    assert "replicas" not in elected["data"]["partitions"][0]


def test_without_a_controller_what_is_shown_may_be_old(holdfast: Run, offline: FakeAdmin) -> None:
    offline.refuses["describe_quorum"] = ClientError("no controller leads", ErrorCode.NOT_CONTROLLER)
    result = holdfast(*ALL, "--show-replica-info")
    assert result.exit_code == 0
    assert result.stderr == "warning: no active controller answered: what is told here may be old\n"


def test_a_signal_tells_that_nothing_was_done(tmp_path: Path) -> None:
    """R75: here no broker had even described the cluster; the file is not there afterwards."""
    path = tmp_path / "elections.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = [*ALL, "--bootstrap-server", address, "--manual-recovery-output-file", str(path)]
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *words, "--output", "json"], stdout=subprocess.PIPE
        )
        with server.accept()[0]:
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    body = json.loads(out)
    assert (body["ok"], body["data"]["partitions"], path.exists()) == (False, [], False)


def test_help_is_there() -> None:
    assert "--recovery-election-attempts" in CliRunner().invoke(main, ["unclean-recovery", "--help"]).output
