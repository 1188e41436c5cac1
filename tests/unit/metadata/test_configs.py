"""Configuration: files, environment, ranges, addresses."""

import pytest

from holdfast.metadata.config_keys import (
    BROKER_FILE_KEYS,
    CLUSTER_KEYS,
    CONTROLLER_FILE_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    Kind,
)
from holdfast.metadata.configs import (
    ConfigError,
    advertised_listeners,
    check_protocols,
    endpoint_problem,
    environment_name,
    host_problem,
    parse_address,
    parse_listeners,
    parse_value,
    parse_voters,
    read_keys,
    topic_config_problem,
)
from holdfast.protocol.messages.broker_registration import ListenerEndpoint

SMALLEST = {
    "node.id": "1",
    "process.roles": "broker",
    "listeners": "PLAINTEXT://:9092",
    "controller.quorum.voters": "101@c:9093",
    "holdfast.cluster.id": "test",
}


def test_unset_keys_take_their_default_and_the_environment_wins_over_the_file() -> None:
    values, warnings = read_keys(
        BROKER_FILE_KEYS, {**SMALLEST, "num.partitions": "3"}, {"HOLDFAST_NODE_ID": "7", "PATH": "/bin"}
    )
    assert warnings == []
    assert values["node.id"] == 7
    assert values["num.partitions"] == 3
    assert values["replica.lag.time.max.ms"] == 30_000
    assert values["process.roles"] == ("broker",)
    assert values["log.flush.interval.ms"] is None


def test_own_keys_drop_their_prefix_in_the_environment() -> None:
    assert environment_name("holdfast.cluster.id") == "HOLDFAST_CLUSTER_ID"
    assert environment_name("controller.quorum.voters") == "HOLDFAST_CONTROLLER_QUORUM_VOTERS"


def test_no_two_keys_share_an_environment_variable() -> None:
    names = {key.name for key in BROKER_FILE_KEYS + CONTROLLER_FILE_KEYS}
    assert len({environment_name(name) for name in names}) == len(names)


def test_unknown_keys_warn_with_a_hint_and_keys_of_the_other_role_do_not() -> None:
    _, warnings = read_keys(
        BROKER_FILE_KEYS,
        {
            **SMALLEST,
            "replica.lag.time.ms": "1",
            "log.preallocate": "true",
            "broker.session.timeout.ms": "1",
        },
        {"HOLDFAST_NODE_IDD": "2"},
    )
    assert len(warnings) == 3
    assert "log.preallocate is ignored" in warnings[0]
    assert "did you mean replica.lag.time.max.ms?" in warnings[1]
    assert "did you mean HOLDFAST_NODE_ID?" in warnings[2]


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("min.insync.replicas", "0", "[1, 2147483647]"),
        ("min.insync.replicas", "two", "an integer"),
        ("controlled.shutdown.enable", "yes", "true or false"),
        ("process.roles", "broker,zookeeper", "broker, controller"),
        # a coordinator must be able to read what it has written
        ("offset.metadata.max.bytes", "32768", "[0, 32767]"),
        ("group.max.size", "100001", "[1, 100000]"),
    ],
)
def test_a_bad_value_names_key_value_and_allowed_range(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_keys(BROKER_FILE_KEYS, {**SMALLEST, name: text}, {})
    assert f"{name}={text}" in str(caught.value)
    assert allowed in str(caught.value)


@pytest.mark.parametrize("name", ["controller.quorum.retry.backoff.ms", "replica.fetch.wait.max.ms"])
def test_a_pause_without_which_a_node_would_spin_cannot_be_zero(name: str) -> None:
    with pytest.raises(ConfigError, match=r"an integer in \[1, "):
        read_keys(BROKER_FILE_KEYS, {**SMALLEST, name: "0"}, {})


@pytest.mark.parametrize("name", list(SMALLEST))
def test_required_keys_must_be_set(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_keys(BROKER_FILE_KEYS, {**SMALLEST, name: ""}, {})


def test_enums_ignore_case_and_know_the_older_strategy_names() -> None:
    key = next(key for key in CLUSTER_KEYS if key.name == "unclean.recovery.strategy")
    assert [parse_value(key, text) for text in ("BALANCED", "proactive", "manual")] == [
        "Balanced",
        "Aggressive",
        "None",
    ]


def test_topic_overrides_are_checked_by_the_same_table() -> None:
    assert topic_config_problem("min.insync.replicas", "2") is None
    assert "[1, 2147483647]" in str(topic_config_problem("min.insync.replicas", "0"))
    assert "did you mean flush.messages?" in str(topic_config_problem("flush.message", "1"))


@pytest.mark.parametrize(
    ("name", "served", "other"),
    [("message.timestamp.type", "CreateTime", "LogAppendTime"), ("compression.type", "producer", "zstd")],
)
def test_a_key_with_one_value_is_taken_for_frameworks_that_name_it(
    name: str, served: str, other: str
) -> None:
    assert topic_config_problem(name, served) is None
    assert f"expected one of {served}" in str(topic_config_problem(name, other))


def test_topic_keys_and_their_node_keys_agree_on_kind_and_default() -> None:
    by_name = {key.name: key for key in BROKER_FILE_KEYS + CONTROLLER_FILE_KEYS + CLUSTER_KEYS}
    for key in TOPIC_KEYS:
        if key.synonym:
            node_key = by_name[key.synonym]
            assert (key.kind, key.default, key.low, key.high) == (
                node_key.kind,
                node_key.default,
                node_key.low,
                node_key.high,
            ), key.name


def test_every_default_lies_in_its_own_range() -> None:
    def text(key: ConfigKey) -> str:
        if key.kind is Kind.BOOLEAN:
            return str(key.default).lower()
        return ",".join(key.default) if isinstance(key.default, tuple) else str(key.default)

    for key in BROKER_FILE_KEYS + CONTROLLER_FILE_KEYS + TOPIC_KEYS + CLUSTER_KEYS:
        assert key.default is None or parse_value(key, text(key)) == key.default, key.name


def test_addresses() -> None:
    assert parse_address("k", "h:1") == ("h", 1)
    assert parse_address("k", "[::1]:65535") == ("::1", 65535)
    assert parse_listeners("k", ("A://:0", "B://h:2")) == (
        ListenerEndpoint("A", "", 0),
        ListenerEndpoint("B", "h", 2),
    )
    assert parse_voters("k", ("3@c:1", "1@a:1", "2@b:1")) == {1: ("a", 1), 2: ("b", 1), 3: ("c", 1)}


@pytest.mark.parametrize(
    "items",
    [("A:h:1",), ("A://h",), ("A://h:65536",), ("A://b2..example:1",), ("A://h:1", "A://h:2")],
)
def test_bad_listeners_are_refused(items: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="listeners"):
        parse_listeners("listeners", items)


@pytest.mark.parametrize(
    "host", ["h", "a.example.", "10.0.0.1", "fe80::1%eth0", "bücher.example", "a." * 126]
)
def test_hosts(host: str) -> None:
    assert host_problem(host) is None
    assert endpoint_problem(ListenerEndpoint("A", host, 65_535)) is None


@pytest.mark.parametrize("host", ["b2..example", ".", "b" * 64, "é" * 60, "a." * 127, "\ud800"])
def test_what_no_machine_can_be_called_is_told(host: str) -> None:
    """A look-up of such a name is no error of the network in Python."""
    assert "is not a host" in str(host_problem(host))


@pytest.mark.parametrize("items", [("c:1",), ("1@c",), ("1@c:0",), ("1@a:1", "1@b:1"), ("1@a:1", "2@b:1")])
def test_bad_voters_are_refused(items: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="voters"):
        parse_voters("voters", items)


def test_each_listener_is_told_with_its_advertised_address_or_its_own() -> None:
    listeners = parse_listeners("listeners", ("A://:1", "B://h:2"))
    assert advertised_listeners(listeners, parse_listeners("k", ("A://a.example:7",))) == (
        ListenerEndpoint("A", "a.example", 7),
        ListenerEndpoint("B", "h", 2),
    )
    with pytest.raises(ConfigError, match="others can reach"):
        advertised_listeners(listeners, ())
    with pytest.raises(ConfigError, match="not among"):
        advertised_listeners(listeners, parse_listeners("k", ("C://h:1",)))


def test_protocols_that_nothing_speaks_are_refused() -> None:
    taken = ("INTERNAL:PLAINTEXT", "HOST:plaintext", "K:KAFKA", "OTHER:SSL")
    check_protocols("listener.security.protocol.map", taken, ("INTERNAL", "HOST", "K"))
    for item in ("HOST:SSL", "HOST", ":PLAINTEXT"):
        with pytest.raises(ConfigError, match="NAME:PLAINTEXT"):
            check_protocols("listener.security.protocol.map", (item,), ("HOST",))
