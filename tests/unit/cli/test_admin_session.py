"""The stand-in for the client has the calls of the real one; refusals become sentences and exit code 1."""

import inspect
import json
from collections.abc import Callable

import pytest
from click.testing import Result

from holdfast.client.admin import Admin
from holdfast.client.core.errors import ClientError, TimedOut
from holdfast.protocol.errors import ErrorCode
from tests.unit.cli.fake_admin import FakeAdmin

CALLS = [
    name for name, value in vars(FakeAdmin).items() if inspect.iscoroutinefunction(value) or name == "close"
]


@pytest.mark.parametrize("name", CALLS)
def test_the_stand_in_takes_what_the_real_client_takes(name: str) -> None:
    def shape(function: Callable[..., object]) -> list[tuple[object, ...]]:
        # how long each waits by itself does not matter here, the tools always say
        limits = ("timeout_ms", "partitions_per_answer")
        return [
            (one.name, one.kind, one.annotation, None if one.name in limits else one.default)
            for one in inspect.signature(function).parameters.values()
        ]

    real: Callable[..., object] = getattr(Admin, name)
    assert shape(getattr(FakeAdmin, name)) == shape(real)
    assert inspect.iscoroutinefunction(real)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("topics", "--list"), "list_topics"),
        (("topics", "--describe"), "describe_topics"),
        (("configs", "--describe", "--entity-type", "cluster"), "describe_configs"),
        (("features", "describe"), "describe_features"),
        (("features", "upgrade", "--feature", "x=1"), "update_features"),
        (("leader-election", "--election-type", "preferred", "--all-topic-partitions"), "elect_leaders"),
        (("reassign-partitions", "--list"), "list_partition_reassignments"),
        (("cluster", "unregister", "--id", "3"), "unregister_broker"),
        (("replica-verification",), "describe_topics"),
        (("metadata-quorum", "describe"), "describe_quorum"),
        (("metadata-quorum", "readmit", "--voter", "3"), "add_raft_voter"),
        (("metadata-quorum", "resign"), "resign_quorum_leader"),
        (("metadata-quorum", "upgrade"), "upgrade_quorum"),
        (("metadata-quorum", "add-controller", "--controller", "4@h:1"), "add_controller"),
        (("metadata-quorum", "remove-controller", "--controller", "4"), "remove_controller"),
    ],
)
def test_what_the_cluster_refuses_is_one_sentence_and_exit_code_1(
    holdfast: Callable[..., Result], admin: FakeAdmin, words: tuple[str, ...], call: str
) -> None:
    admin.refuses[call] = TimedOut("no node answered within 5 ms", ErrorCode.NETWORK_EXCEPTION)
    result = holdfast(*words, "--output", "json")
    assert result.exit_code == 1
    body = json.loads(result.stdout)
    assert body["ok"] is False
    assert body["schema"].startswith("holdfast.")
    assert body["errors"] == [{"code": "NETWORK_EXCEPTION", "message": "no node answered within 5 ms"}]
    assert admin.is_closed


def test_a_refusal_in_text_goes_to_stderr(holdfast: Callable[..., Result], admin: FakeAdmin) -> None:
    admin.refuses["list_topics"] = ClientError("NOT_CONTROLLER: ask again", ErrorCode.NOT_CONTROLLER)
    result = holdfast("topics", "--list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: NOT_CONTROLLER: ask again\n"
