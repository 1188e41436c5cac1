"""`holdfast topics`: what is asked of the cluster, and what does not go together."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from holdfast.client.admin import CreatedTopic
from holdfast.client.admin_partitions import NewPartitions
from holdfast.client.core.errors import RowError
from holdfast.protocol.errors import ErrorCode
from tests.unit.cli.fake_admin import FakeAdmin
from tests.unit.cli.rows import led, partition, topic

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--create", "--delete", "--topic", "t"], "one of --create, --delete, --alter, --list, --describe"),
        (["--alter", "--topic", "t"], "--alter adds partitions"),
        (
            ["--alter", "--topic", "t", "--partitions", "3", "--replica-assignment", "1:2"],
            "lists 1 partitions",
        ),
        (["--alter", "--topic", "t", "--partitions", "3", "--config", "a=b"], "--config belongs to --create"),
        (["--list", "--durability"], "--durability belongs to --describe"),
        (["--list", "--if-exists"], "--if-exists belongs to --delete, --alter, --describe"),
        (["--describe", "--if-not-exists"], "--if-not-exists belongs to --create"),
        (["--create", "--topic", "t", "--watch"], "--watch belongs to --list, --describe"),
        (["--describe", "--topic", "t", "--topic-id", "x"], "exclude each other"),
        (["--describe", "--elr-partitions", "--unavailable-partitions"], "choose one of"),
        (["--describe", "--durability", "--topics-with-overrides"], "--durability shows partitions"),
        (["--describe", "--topic", "a["], "no regular expression"),
        (["--create", "--topic", "t", "--replica-assignment", "1:x"], "expected ids like 1:2:3,2:3:1"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(
    holdfast: Run, admin: FakeAdmin, words: list[str], complaint: str
) -> None:
    result = holdfast("topics", *words)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not admin.is_closed  # no broker was asked


def test_properties_of_kafkas_client_warn_and_do_no_harm(holdfast: Run, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\n")
    for option in ("--command-config", "--admin.config"):
        result = holdfast("topics", "--list", option, str(file))
        assert result.exit_code == 0
        assert result.stderr == "warning: security.protocol is not known here and has no effect\n"


def test_create_hands_over_what_was_typed(holdfast: Run, admin: FakeAdmin) -> None:
    words = ("--topic", "t", "--replica-assignment", "1:2,2:3", "--config", "min.insync.replicas=2")
    assert holdfast("topics", "--create", *words).stdout == "Created topic t.\n"
    assignments = {0: (1, 2), 1: (2, 3)}
    assert admin.asked == [("create_topic", "t", -1, -1, {"min.insync.replicas": "2"}, assignments)]


@pytest.mark.parametrize(
    ("replicas", "min_isr", "warning"),
    [
        (1, 1, "warning: t has one replica: the loss of its broker loses records"),
        (3, 1, "warning: t has min.insync.replicas=1: what one broker alone has is acknowledged"),
        (3, 2, ""),
        (None, None, ""),
    ],
)
def test_create_warns_when_acknowledged_records_are_on_one_broker_only(
    holdfast: Run, admin: FakeAdmin, replicas: int | None, min_isr: int | None, warning: str
) -> None:
    """Kafka's defaults are unsafe; what the cluster's defaults made of the topic stands in the answer."""
    admin.created = CreatedTopic(bytes(16), replicas, min_isr)
    result = holdfast("topics", "--create", "--topic", "t")
    assert (result.exit_code, result.stdout) == (0, "Created topic t.\n")
    assert result.stderr.split(";")[0] == warning


@pytest.mark.parametrize(("words", "code"), [((), 1), (("--if-not-exists",), 0)])
def test_a_topic_that_exists_is_fine_when_that_is_said(
    holdfast: Run, admin: FakeAdmin, words: tuple[str, ...], code: int
) -> None:
    admin.add(topic())
    assert holdfast("topics", "--create", "--topic", "t", *words).exit_code == code


def test_alter_raises_the_count_of_partitions(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    assert holdfast("topics", "--alter", "--topic", "t", "--partitions", "4").exit_code == 0
    assert admin.asked == [("create_partitions", {"t": NewPartitions(4, None)})]


def test_alter_takes_the_lists_of_all_partitions_and_sends_the_new_ones(
    holdfast: Run, admin: FakeAdmin
) -> None:
    """As in Kafka, except that lists which are not those of the old partitions are not silently dropped."""
    admin.add(topic(led(1, (1, 2, 3))))
    result = holdfast("topics", "--alter", "--topic", "t", "--replica-assignment", "1:2:3,3:1:2")
    assert result.exit_code == 0
    assert admin.asked == [("create_partitions", {"t": NewPartitions(2, ((3, 1, 2),))})]
    result = holdfast("topics", "--alter", "--topic", "t", "--replica-assignment", "2:1:3,3:1:2")
    assert result.exit_code == 1
    assert "holdfast reassign-partitions" in result.stderr
    assert len(admin.asked) == 1


def test_a_count_that_is_refused_names_the_topic(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3))))
    admin.row_errors["t"] = RowError(ErrorCode.INVALID_PARTITIONS, "t has 1 already; ask for more")
    result = holdfast("topics", "--alter", "--topic", "t", "--partitions", "1")
    assert (result.exit_code, result.stderr) == (
        1,
        "error: t: INVALID_PARTITIONS: t has 1 already; ask for more\n",
    )


@pytest.mark.parametrize("action", [["--delete"], ["--describe"], ["--alter", "--partitions", "3"]])
def test_a_topic_that_does_not_exist_is_fine_only_when_that_is_said(
    holdfast: Run, admin: FakeAdmin, action: list[str]
) -> None:
    result = holdfast("topics", *action, "--topic", "nix")
    assert result.exit_code == 1
    assert "nix: UNKNOWN_TOPIC_OR_PARTITION" in result.stderr
    assert holdfast("topics", *action, "--topic", "nix", "--if-exists").exit_code == 0


def test_a_name_is_no_pattern_though_it_has_dots(holdfast: Run, admin: FakeAdmin) -> None:
    """Kafka deletes a-b too."""
    admin.add(topic(name="a.b"), topic(name="a-b"))
    holdfast("topics", "--delete", "--topic", "a.b")
    assert admin.asked == [("delete_topic", "a.b")]


def test_an_expression_means_the_topics_that_it_matches_whole(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(*(topic(name=name) for name in ("orders", "orders-old", "payments", "x")))
    assert holdfast("topics", "--list", "--topic", "orders.*,pay[a-z]+").stdout.split() == [
        "orders",
        "orders-old",
        "payments",
    ]
    assert holdfast("topics", "--list", "--topic", "orders").stdout.split() == ["orders"]
    assert holdfast("topics", "--delete", "--topic", "z+").exit_code == 1
    assert holdfast("topics", "--delete", "--topic", "z+", "--if-exists").exit_code == 0
    assert holdfast("topics", "--describe", "--topic", "z+").exit_code == 1
    assert admin.asked == []


def test_internal_topics_can_be_left_out(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(name="__own", is_internal=True), topic(name="t"))
    assert holdfast("topics", "--list").stdout.split() == ["__own", "t"]
    assert holdfast("topics", "--list", "--exclude-internal").stdout.split() == ["t"]
    assert "__own" not in holdfast("topics", "--describe", "--exclude-internal").stdout


def test_a_topic_can_be_described_by_its_id(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic())
    assert "Topic: t\t" in holdfast("topics", "--describe", "--topic-id", "AAECAwQFBgcICQoLDA0ODw").stdout
    result = holdfast("topics", "--describe", "--topic-id", "AAAA")
    assert result.exit_code == 1
    assert "UNKNOWN_TOPIC_ID" in result.stderr


def test_partitions_whose_elr_is_in_use_can_be_picked(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(led(1, (1, 2, 3)), partition(partition_index=1)))
    lines = holdfast("topics", "--describe", "--elr-partitions").stdout.splitlines()
    assert [line.split("\t")[2] for line in lines] == ["Partition: 1"]


def test_json_has_everything_in_one_object(holdfast: Run, admin: FakeAdmin) -> None:
    admin.add(topic(partition()))
    body = json.loads(holdfast("topics", "--describe", "--output", "json").stdout)
    assert (body["schema"], body["ok"], body["errors"]) == ("holdfast.topics-describe/1", True, [])
    (found,) = body["data"]
    assert found["partitions"][0]["leader"] is None
    assert found["partitions"][0]["elr"] == [3]
