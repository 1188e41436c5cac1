"""Reads and checks configuration by the table in `metadata.config_keys`.

Owns parsing, ranges, the names of environment variables and the texts about bad values; no defaults. Unknown
keys cause a warning and are ignored, so that a file written for Kafka can be used; bad values raise.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from holdfast.metadata.config_keys import (
    BROKER_DYNAMIC_KEY_BY_NAME,
    BROKER_FILE_KEYS,
    BROKER_KEYS,
    CLIENT_KEY_BY_NAME,
    CLIENT_KEYS,
    CLUSTER_KEY_BY_NAME,
    CLUSTER_KEYS,
    COMMON_KEYS,
    CONTROLLER_FILE_KEYS,
    CONTROLLER_KEYS,
    FILE_KEY_NAMES,
    INT_MAX,
    LONG_MAX,
    TOPIC_KEY_BY_NAME,
    TOPIC_KEYS,
    ConfigKey,
    ConfigValue,
    Kind,
)
from holdfast.protocol.messages.broker_registration import ListenerEndpoint

__all__ = [
    "ANY_HOST",
    "BROKER_DYNAMIC_KEY_BY_NAME",
    "BROKER_FILE_KEYS",
    "BROKER_KEYS",
    "CLIENT_KEYS",
    "CLIENT_KEY_BY_NAME",
    "CLUSTER_KEYS",
    "CLUSTER_KEY_BY_NAME",
    "COMMON_KEYS",
    "CONTROLLER_FILE_KEYS",
    "CONTROLLER_KEYS",
    "INT_MAX",
    "LONG_MAX",
    "TOPIC_KEYS",
    "TOPIC_KEY_BY_NAME",
    "ConfigError",
    "ConfigKey",
    "ConfigValue",
    "Kind",
    "advertised_listeners",
    "allowed_values",
    "check_protocols",
    "endpoint_problem",
    "environment_name",
    "host_problem",
    "kafka_listeners",
    "parse_address",
    "parse_listeners",
    "parse_value",
    "parse_voters",
    "read_keys",
    "request_memory",
    "topic_config_problem",
    "unknown_key_problem",
    "value_problem",
    "value_text",
]

#: Prefix of environment variables: HOLDFAST_NODE_ID is node.id.
ENVIRONMENT_PREFIX = "HOLDFAST_"
_OWN_PREFIX = "holdfast."
PORT_MAX = 65_535
_KAFKA_PROTOCOL = "KAFKA"
_PROTOCOLS = ("PLAINTEXT", _KAFKA_PROTOCOL)
_REQUEST_MEMORY_BYTES = 128 << 20
#: Longest host name in DNS, in characters.
HOST_MAX = 253
#: Hosts of a listener that mean all addresses of the machine: no other node reaches it by them.
ANY_HOST = ("", "0.0.0.0", "::")


class ConfigError(ValueError):
    """A value cannot be used. The text names the key, the value and what is allowed."""


def environment_name(key_name: str) -> str:
    """The variable of a key: HOLDFAST_NODE_ID for `node.id`, HOLDFAST_CLUSTER_ID for
    `holdfast.cluster.id`."""
    return ENVIRONMENT_PREFIX + key_name.removeprefix(_OWN_PREFIX).upper().replace(".", "_")


def parse_value(key: ConfigKey, text: str) -> ConfigValue:
    """The typed value of `text`. Raises: ConfigError naming the allowed range."""
    text = text.strip()
    if key.kind in (Kind.INT, Kind.LONG, Kind.DOUBLE):
        try:
            number = float(text) if key.kind is Kind.DOUBLE else int(text)
        except ValueError:
            raise _refused(key, text) from None
        if not key.low <= number <= key.high:
            raise _refused(key, text)
        return number
    if key.kind is Kind.BOOLEAN:
        if text.lower() not in ("true", "false"):
            raise _refused(key, text)
        return text.lower() == "true"
    if key.kind is Kind.LIST:
        items = tuple(item.strip() for item in text.split(",") if item.strip())
        if key.choices and any(item not in key.choices for item in items):
            raise _refused(key, text)
        if key.form[0] and not re.fullmatch(key.form[0], ",".join(items)):
            raise _refused(key, text)
        return items
    if key.kind is Kind.ENUM:
        by_spelling = {choice.lower(): choice for choice in key.choices} | dict(key.aliases)
        if text.lower() not in by_spelling:
            raise _refused(key, text)
        return by_spelling[text.lower()]
    return text


def _refused(key: ConfigKey, text: str) -> ConfigError:
    return ConfigError(f"{key.name}={text}: expected {allowed_values(key)}")


def allowed_values(key: ConfigKey) -> str:
    """The allowed values of a key, in words that follow `expected`."""
    if key.kind in (Kind.INT, Kind.LONG):
        return f"an integer in [{key.low}, {key.high}]"
    if key.kind is Kind.DOUBLE:
        return f"a number in [{key.low}, {key.high}]"
    if key.kind is Kind.BOOLEAN:
        return "true or false"
    if key.form[1]:
        return key.form[1]
    if not key.choices:
        return "a comma-separated list" if key.kind is Kind.LIST else "any text"
    kinds = "a comma-separated list of " if key.kind is Kind.LIST else "one of "
    return kinds + ", ".join(key.choices)


def value_text(value: ConfigValue) -> str | None:
    """The text of a typed value, which `parse_value` reads again. None means unset."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def read_keys(
    keys: Sequence[ConfigKey], properties: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """The typed value of each key by name, and warnings about unknown names.

    The environment wins over the file. Raises: ConfigError.
    """
    warnings = [_unknown(name, FILE_KEY_NAMES) for name in sorted(properties) if name not in FILE_KEY_NAMES]
    variables = {environment_name(name) for name in FILE_KEY_NAMES}
    warnings += [
        _unknown(name, variables)
        for name in sorted(environment)
        if name.startswith(ENVIRONMENT_PREFIX) and name not in variables
    ]
    values: dict[str, Any] = {}
    for key in keys:
        text = environment.get(environment_name(key.name), properties.get(key.name))
        if text is None or (not text.strip() and key.kind is not Kind.STRING):
            if key.required:
                raise ConfigError(f"{key.name} must be set: {key.doc}")
            values[key.name] = key.default
        else:
            values[key.name] = parse_value(key, text)
            if key.required and values[key.name] in ((), ""):
                raise ConfigError(f"{key.name} must not be empty: {key.doc}")
    return values, warnings


def request_memory(values: Mapping[str, Any]) -> int | None:
    """Bytes for requests and answers of all listeners, None for any number. Raises: ConfigError."""
    least = 2 * int(values["socket.request.max.bytes"])  # half of it is for large requests
    name = "queued.max.request.bytes"
    given: int | None = values[name]
    if given is None:
        return max(_REQUEST_MEMORY_BYTES, least)
    if given == -1:
        return None
    if given < least:
        raise ConfigError(f"{name}={given}: expected -1, or at least twice socket.request.max.bytes, {least}")
    return given


def connection_limit(values: Mapping[str, Any]) -> int | None:
    """Connections of all listeners together, None for any number: nothing was asked for."""
    given: int = values["max.connections"]
    return None if given == INT_MAX else given


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown configuration key {name} is ignored{hint}"


def topic_config_problem(name: str, value: str) -> str | None:
    """What is wrong with a topic's override, or None."""
    key = TOPIC_KEY_BY_NAME.get(name)
    return unknown_key_problem(name, TOPIC_KEY_BY_NAME) if key is None else value_problem(key, value)


def unknown_key_problem(name: str, known: Iterable[str]) -> str:
    """What to answer about an unknown key."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f"there is no dynamic key {name} here" + (f"; did you mean {near[0]}?" if near else "")


def value_problem(key: ConfigKey, text: str) -> str | None:
    """What is wrong with the text of a value, or None."""
    try:
        parse_value(key, text)
    except ConfigError as error:
        return str(error)
    return None


# --- addresses -------------------------------------------------------------------------------------------


def parse_address(key_name: str, text: str, *, port_low: int = 0) -> tuple[str, int]:
    """(host, port) of `host:port`, host possibly empty, IPv6 in brackets. Raises: ConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not port_low <= int(port) <= PORT_MAX:
        raise ConfigError(f"{key_name}={text}: expected host:port with a port in [{port_low}, {PORT_MAX}]")
    host = host.removeprefix("[").removesuffix("]")
    problem = host_problem(host)
    if problem is not None:
        raise ConfigError(f"{key_name}={text}: {problem}")
    return host, int(port)


def host_problem(host: str) -> str | None:
    """Why no host can have that name or address, or None. Other nodes try to reach it and must not fail."""
    try:
        if len(host.encode("idna")) <= HOST_MAX:
            return None
    except UnicodeError:
        pass
    return f"{host!r} is not a host: at most 63 characters between two dots, {HOST_MAX} in all"


def endpoint_problem(listener: ListenerEndpoint) -> str | None:
    """Why no client can connect to a broker's listener, or None."""
    problem = host_problem(listener.host) if listener.host else "a host is needed"
    if problem is None and not 1 <= listener.port <= PORT_MAX:
        problem = f"port {listener.port} is not in [1, {PORT_MAX}]"
    return None if problem is None else f"listener {listener.name}: {problem}"


def parse_listeners(
    key_name: str, items: Sequence[str], *, port_low: int = 0
) -> tuple[ListenerEndpoint, ...]:
    """The endpoints of `NAME://host:port` items, in order. Raises: ConfigError."""
    found: list[ListenerEndpoint] = []
    for item in items:
        name, separator, address = item.partition("://")
        if not separator or not name:
            raise ConfigError(f"{key_name}={item}: expected NAME://host:port")
        if any(other.name == name for other in found):
            raise ConfigError(f"{key_name}: listener {name} is given twice; use every name once")
        found.append(ListenerEndpoint(name, *parse_address(key_name, address, port_low=port_low)))
    return tuple(found)


def check_protocols(key_name: str, items: Sequence[str], listener_names: Container[str]) -> None:
    """Check `NAME:PROTOCOL` items; those of other listeners count as well, but may have any protocol.

    Raises: ConfigError for a listener that is to speak what nothing here speaks.
    """
    for item in items:
        name, _, protocol = item.partition(":")
        if not name or not protocol or (name in listener_names and protocol.upper() not in _PROTOCOLS):
            known = " or ".join(f"NAME:{protocol}" for protocol in _PROTOCOLS)
            raise ConfigError(f"{key_name}={item}: expected {known}")


def kafka_listeners(listeners: Sequence[ListenerEndpoint], protocol_map: Sequence[str]) -> tuple[str, ...]:
    """Names of the listeners that speak Kafka's protocol, by `listener.security.protocol.map`.

    Raises: ConfigError for a listener that is there twice.
    """
    protocols: dict[str, str] = {}
    for item in protocol_map:
        name, _, protocol = item.partition(":")
        if name in protocols:
            raise ConfigError(f"listener.security.protocol.map: listener {name} is given twice")
        protocols[name] = protocol.upper()
    return tuple(
        one.name for one in listeners if protocols.get(one.name, one.name.upper()) == _KAFKA_PROTOCOL
    )


def parse_voters(key_name: str, items: Sequence[str]) -> dict[int, tuple[str, int]]:
    """{voter_id: (host, port)} of `id@host:port` items, by id. Raises: ConfigError."""
    found: dict[int, tuple[str, int]] = {}
    for item in items:
        voter_id, at, address = item.partition("@")
        if not at or not voter_id.isdecimal() or int(voter_id) > INT_MAX:
            raise ConfigError(f"{key_name}={item}: expected id@host:port")
        if int(voter_id) in found:
            raise ConfigError(f"{key_name}: voter {voter_id} is given twice")
        found[int(voter_id)] = parse_address(key_name, address, port_low=1)
    if len(found) not in (1, 3, 5):
        raise ConfigError(f"{key_name}: expected 1, 3 or 5 voters, got {len(found)} (D7)")
    return dict(sorted(found.items()))


def advertised_listeners(
    listeners: Sequence[ListenerEndpoint], advertised: Sequence[ListenerEndpoint]
) -> tuple[ListenerEndpoint, ...]:
    """The addresses for clients and brokers: the advertised one of a listener, else its own.

    Raises: ConfigError for an advertised name that is not a listener, or an address that no client can use.
    """
    by_name = {listener.name: listener for listener in advertised}
    unknown = sorted(set(by_name) - {listener.name for listener in listeners})
    if unknown:
        raise ConfigError(f"advertised.listeners: {unknown[0]} is not among the listeners")
    told = tuple(by_name.get(listener.name, listener) for listener in listeners)
    for listener in told:
        if listener.host in ANY_HOST:
            raise ConfigError(
                f"advertised.listeners: {listener.name} needs a host that others can reach, "
                f"not {listener.host!r}"
            )
    return told
