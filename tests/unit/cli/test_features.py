"""`holdfast features`: Kafka's lines, and levels that go one way."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.__main__ import main
from holdfast.client.admin_configs import FeatureUpdate
from holdfast.client.core.errors import ClientError
from holdfast.protocol.errors import ErrorCode
from tests.unit.cli.fake_admin import FakeAdmin

Run = Callable[..., Result]
ELR = "eligible.leader.replicas.version"


def test_describe_prints_kafkas_line(holdfast: Run) -> None:
    assert holdfast("features", "describe").stdout == (
        f"Feature: {ELR}\tSupportedMinVersion: 0\tSupportedMaxVersion: 1\tFinalizedVersionLevel: 1"
        "\tEpoch: 50\n"
    )


@pytest.mark.usefixtures("admin")
@pytest.mark.parametrize(("group", "answer"), [("features", "Feature: "), ("metadata-quorum", "ClusterId: ")])
def test_the_servers_may_stand_before_the_command_as_in_kafka(group: str, answer: str) -> None:
    result = CliRunner().invoke(main, [group, "--bootstrap-server", "127.0.0.1:1", "describe"])
    assert result.stdout.lstrip().startswith(answer)
    assert CliRunner().invoke(main, [group, "describe"]).exit_code == 2


def test_the_servers_are_those_of_the_command_then_of_the_environment_then_of_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "profile.properties"
    profile.write_text("bootstrap.servers=profile:1\n")
    asked = []
    monkeypatch.setattr(
        "holdfast.cli.features.ask", lambda given, *_: asked.append(given["bootstrap_server"])
    )

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, ["features", *words])
        return result.stderr

    assert "Missing option '--bootstrap-server'" in run("describe")
    assert run("describe", "--command-config", str(profile)) == ""
    monkeypatch.setenv("HOLDFAST_COMMAND_CONFIG", str(profile))
    run("describe")
    monkeypatch.setenv("HOLDFAST_BOOTSTRAP_SERVER", "environment:1")
    run("describe")
    run("--bootstrap-server", "group:1", "describe")
    run("describe", "--bootstrap-server", "command:1")
    assert asked == ["profile:1", "profile:1", "environment:1", "group:1", "command:1"]


@pytest.mark.parametrize(
    ("words", "line", "update", "is_trial"),
    [
        (["upgrade"], f"{ELR} was upgraded to 1.", FeatureUpdate(1), False),
        (["upgrade", "--dry-run"], f"{ELR} can be upgraded to 1.", FeatureUpdate(1), True),
        (["downgrade"], f"{ELR} was downgraded to 1.", FeatureUpdate(1, True), False),
        (
            ["downgrade", "--unsafe", "--dry-run"],
            f"{ELR} can be downgraded to 1.",
            FeatureUpdate(1, True),
            True,
        ),
    ],
)
def test_a_level_is_finalized_or_tried(
    holdfast: Run, admin: FakeAdmin, words: list[str], line: str, update: FeatureUpdate, is_trial: bool
) -> None:
    assert holdfast("features", *words, "--feature", f"{ELR}=1").stdout == line + "\n"
    assert admin.asked == [("update_features", {ELR: update}, is_trial)]


@pytest.mark.parametrize(("verb", "now", "level"), [("upgrade", 1, 0), ("downgrade", 0, 1)])
def test_a_level_in_the_other_direction_is_refused(
    holdfast: Run, admin: FakeAdmin, verb: str, now: int, level: int
) -> None:
    admin.features = {ELR: now}
    result = holdfast("features", verb, "--feature", f"{ELR}={level}")
    assert result.exit_code == 1
    assert result.stdout.startswith(f"Could not {verb} {ELR} to {level}. ")
    assert result.stderr == "1 out of 1 operation(s) failed.\n"
    assert admin.asked == []


def test_a_refusal_by_the_cluster_is_told_with_its_reason(holdfast: Run, admin: FakeAdmin) -> None:
    reason = "t-0 has an empty ISR"
    admin.refuses["update_features"] = ClientError(
        f"INVALID_UPDATE_VERSION: {reason}", ErrorCode.INVALID_UPDATE_VERSION
    )
    result = holdfast("features", "downgrade", "--feature", f"{ELR}=0")
    assert (result.exit_code, result.stdout) == (1, f"Could not downgrade {ELR} to 0. {reason}\n")


@pytest.mark.parametrize(
    "values", [["x"], ["x="], ["=1"], ["x=-1"], ["x=one"], ["x=99999"], ["x=1", "--feature", "x=0"], []]
)
def test_what_is_no_level_is_wrong_usage(holdfast: Run, admin: FakeAdmin, values: list[str]) -> None:
    words = ["--feature", *values] if values else []
    assert holdfast("features", "upgrade", *words).exit_code == 2
    assert not admin.is_closed
