"""`holdfast configs`: Kafka's spelling of keys, values and of the cluster."""

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from holdfast.cli.configs import added_configs, entry_line
from holdfast.client.admin_configs import ConfigEntry, Resource
from holdfast.client.core.errors import RowError
from holdfast.protocol.errors import ErrorCode
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import topic

Run = Callable[..., Result]
MIN_ISR = ConfigEntry("min.insync.replicas", "2", "TOPIC", "1", "int", "")
RETENTION = ConfigEntry("retention.ms", "604800000", "DEFAULT", "604800000", "long", "")
CLUSTER_MIN_ISR = ConfigEntry("min.insync.replicas", "2", "CLUSTER", "1", "int", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=[x,y],b=2", {"a": "x,y", "b": "2"}),
        (" a = 1 , b=[ x ] ", {"a": "1", "b": " x "}),
        ("a=", {"a": ""}),
        ("a=x=y", {"a": "x=y"}),
    ],
)
def test_added_configs_are_read_as_in_kafka(text: str, expected: dict[str, str]) -> None:
    assert added_configs(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1,", "=1", "a=[1", "a=1]", "a=1,a=2"])
def test_what_is_no_list_of_pairs_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError):
        added_configs(text)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--entity-type topics --entity-name t", "one of --describe, --alter"),
        ("--describe --alter --entity-type topics --entity-name t", "one of --describe, --alter"),
        ("--describe --entity-type users", "--entity-type"),
        ("--describe --entity-type clients --all", "leave --all away"),
        ("--describe --entity-type clients --entity-name c --entity-default", "--entity-name names one"),
        ("--alter --entity-type clients --add-config a=b", "--alter needs --entity-name or --entity-default"),
        ("--alter --entity-type clients --entity-name= --add-config a=b", "--entity-name is empty"),
        ("--alter --entity-type topics --add-config a=b", "--alter needs --entity-name"),
        ("--alter --entity-type topics --entity-name t", "needs --add-config"),
        ("--alter --entity-type cluster --entity-name x --add-config a=b", "the cluster has no name"),
        ("--describe --entity-type topics --entity-default", "no --entity-default"),
        ("--describe --entity-type brokers", "needs --entity-default"),
        ("--describe --entity-type brokers --entity-name b1", "named by its number"),
        ("--describe --entity-type cluster --add-config a=b", "belongs to --alter"),
        ("--alter --entity-type cluster --all --add-config a=b", "belongs to --describe"),
        ("--alter --entity-type cluster --add-config a=b --delete-config a", "both added and deleted"),
        ("--alter --entity-type cluster --delete-config ,", "names no key"),
        ("--alter --entity-type cluster --add-config-file nowhere.properties", "cannot read"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    holdfast: Run, admin: FakeAdmin, words: str, complaint: str
) -> None:
    result = holdfast("configs", *words.split())
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not admin.is_closed


def test_describe_shows_what_was_set_for_the_topic_and_all_of_it_on_demand(
    holdfast: Run, admin: FakeAdmin
) -> None:
    admin.configs[Resource.topic("t")] = [MIN_ISR, RETENTION]
    words = ("configs", "--describe", "--entity-type", "topics", "--entity-name", "t")
    assert holdfast(*words).stdout.splitlines() == [
        "Dynamic configs for topic t are:",
        "  min.insync.replicas=2 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:min.insync.replicas=2, "
        "DEFAULT_CONFIG:min.insync.replicas=1}",
    ]
    assert holdfast(*words, "--all").stdout.splitlines()[::2] == [
        "All configs for topic t are:",
        "  retention.ms=604800000 sensitive=false synonyms={DEFAULT_CONFIG:retention.ms=604800000}",
    ]


def test_a_value_that_is_unset_is_null() -> None:
    line = entry_line(ConfigEntry("flush.ms", None, "DEFAULT", None, "long", ""))
    assert line == "  flush.ms=null sensitive=false synonyms={}"


def test_describe_without_a_name_is_about_every_topic(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(name="a"), topic(name="b"))
    admin.configs[Resource.topic("b")] = [MIN_ISR]
    body = json.loads(holdfast("configs", "--describe", "--entity-type", "topics", "--output", "json").stdout)
    assert [(row["topic"], len(row["configs"])) for row in body["data"]] == [("a", 0), ("b", 1)]


@pytest.mark.parametrize("spelling", [["cluster"], ["brokers", "--entity-default"]])
def test_the_cluster_has_two_spellings(holdfast: Run, admin: FakeAdmin, spelling: list[str]) -> None:
    admin.configs[Resource.cluster()] = [CLUSTER_MIN_ISR]
    words = ("configs", "--entity-type", *spelling)
    assert holdfast(*words, "--describe").stdout.splitlines() == [
        "Default configs for brokers in the cluster are:",
        "  min.insync.replicas=2 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:"
        "min.insync.replicas=2, DEFAULT_CONFIG:min.insync.replicas=1}",
    ]
    result = holdfast(*words, "--alter", "--add-config", "unclean.recovery.manager.enabled=false")
    assert result.stdout == "Completed updating default config for brokers in the cluster.\n"
    change: dict[str, str | None] = {"unclean.recovery.manager.enabled": "false"}
    assert admin.asked == [("alter_configs", {Resource.cluster(): change})]


def test_keys_are_set_and_taken_away_in_one_request(holdfast: Run, admin: FakeAdmin, tmp_path: Path) -> None:
    file = tmp_path / "more.properties"
    file.write_text("segment.bytes=1048576\n")
    admin.configs[Resource.topic("t")] = [MIN_ISR]
    words = ("--entity-type", "topics", "--entity-name", "t", "--delete-config", "min.insync.replicas")
    result = holdfast("configs", "--alter", *words, "--add-config-file", str(file))
    assert result.stdout == "Completed updating config for topic t.\n"
    changes = {"segment.bytes": "1048576", "min.insync.replicas": None}
    assert admin.asked == [("alter_configs", {Resource.topic("t"): changes})]


def test_what_was_not_set_cannot_be_deleted(holdfast: Run, admin: FakeAdmin) -> None:
    admin.configs[Resource.topic("t")] = [RETENTION]
    words = ("--entity-type", "topics", "--entity-name", "t", "--delete-config", "retention.ms")
    result = holdfast("configs", "--alter", *words)
    assert result.exit_code == 1
    assert "Invalid config(s): retention.ms" in result.stderr
    assert admin.asked == []


def test_min_isr_of_a_single_broker_is_refused_while_elr_is_on(holdfast: Run, admin: FakeAdmin) -> None:
    """F14: the promise of the ELR needs one value for all brokers."""
    words = ("--entity-type", "brokers", "--entity-name", "2", "--add-config", "min.insync.replicas=1")
    result = holdfast("configs", "--alter", *words)
    assert result.exit_code == 1
    assert "Broker-level min.insync.replicas cannot be altered while ELR is enabled" in result.stderr
    assert admin.asked == []
    admin.features = {"eligible.leader.replicas.version": 0}
    holdfast("configs", "--alter", *words)
    assert [call for call, *_ in admin.asked] == ["alter_configs"]


def test_a_value_that_the_cluster_refuses_names_the_topic(holdfast: Run, admin: FakeAdmin) -> None:
    error = RowError(
        ErrorCode.INVALID_CONFIG, "min.insync.replicas=0: expected an integer in [1, 2147483647]"
    )
    admin.row_errors[Resource.topic("t")] = error
    words = ("--entity-type", "topics", "--entity-name", "t", "--add-config", "min.insync.replicas=0")
    result = holdfast("configs", "--alter", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"error: t: INVALID_CONFIG: {error.message}\n"


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ([], [0, 1]),
        (["--entity-name", "c"], [1]),
        (["--entity-default"], [0]),
        (["--entity-name", "other"], []),
    ],
)
def test_quotas_of_clients_are_described(
    holdfast: Run, admin: FakeAdmin, words: list[str], lines: list[int]
) -> None:
    admin.quotas = {None: {"consumer_byte_rate": 7}, "c": {"consumer_byte_rate": 5, "producer_byte_rate": 6}}
    every = [
        "Quota configs for the default client-id are consumer_byte_rate=7",
        "Quota configs for client-id 'c' are consumer_byte_rate=5, producer_byte_rate=6",
    ]
    result = holdfast("configs", "--describe", "--entity-type", "clients", *words)
    assert result.stdout.splitlines() == [every[number] for number in lines]


def test_quotas_of_clients_are_set_and_taken_away(holdfast: Run, admin: FakeAdmin) -> None:
    admin.quotas = {"c": {"consumer_byte_rate": 5}}
    words = ("configs", "--alter", "--entity-type", "clients")
    change = ("--add-config", "producer_byte_rate=9", "--delete-config", "consumer_byte_rate")
    result = holdfast(*words, "--entity-name", "c", *change)
    assert result.stdout == "Completed updating config for client-id 'c'.\n"
    changes = {"producer_byte_rate": "9", "consumer_byte_rate": None}
    assert admin.asked == [("alter_configs", {Resource.client("c"): changes})]
    missing = holdfast(*words, "--entity-default", *change)
    assert (missing.exit_code, len(admin.asked)) == (1, 1)
    assert missing.stderr.startswith("error: the default client-id: INVALID_CONFIG: Invalid config(s)")
