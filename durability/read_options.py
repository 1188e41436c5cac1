"""Options of `format("holdfast")`, spelled as those of Spark's Kafka source, and how offsets become ranges.

Pure: option text in, values out. Owns names, defaults and refusals of docs/validate.md.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

EARLIEST, LATEST = -2, -1
POLL_TIMEOUT_MS = 120_000

#: `earliest` or `latest` for all, or {(topic, partition): offset, EARLIEST or LATEST}
OffsetSpec: TypeAlias = int | dict[tuple[str, int], int]


class BadOption(ValueError):
    """An option of the data source cannot be used. The text names it and says what is expected."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and how."""

    bootstrap_servers: str
    #: exactly one of the three is set
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: dict[str, tuple[int, ...]] | None
    starting: OffsetSpec
    ending: OffsetSpec
    min_partitions: int
    fail_on_data_loss: bool
    include_headers: bool
    include_leader_epoch: bool
    #: columns that say what ledger values say of themselves (client.core.history)
    parse_values: bool
    #: False leaves key and value out: a verdict needs neither
    include_payload: bool
    poll_timeout_ms: int


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Raises: BadOption."""
    given = {key.lower(): value for key, value in options.items()}
    servers = given.get("kafka.bootstrap.servers", "")
    if not servers:
        raise BadOption("option kafka.bootstrap.servers is needed: host:port[,host:port]")
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(chosen) != 1:
        raise BadOption(f"exactly one of subscribe, subscribePattern, assign is needed, given: {chosen}")
    subscribe = tuple(filter(None, (topic.strip() for topic in given.get("subscribe", "").split(","))))
    if chosen == ["subscribe"] and not subscribe:
        raise BadOption("option subscribe: at least one topic is needed")
    return ReadOptions(
        bootstrap_servers=servers,
        subscribe=subscribe if chosen == ["subscribe"] else None,
        subscribe_pattern=_pattern(given.get("subscribepattern")),
        assign=_assign(given.get("assign")),
        starting=_offsets("startingOffsets", given.get("startingoffsets", "earliest"), EARLIEST),
        ending=_offsets("endingOffsets", given.get("endingoffsets", "latest"), LATEST),
        min_partitions=_integer("minPartitions", given.get("minpartitions", "0")),
        fail_on_data_loss=_boolean("failOnDataLoss", given.get("failondataloss", "true")),
        include_headers=_boolean("includeHeaders", given.get("includeheaders", "false")),
        include_leader_epoch=_boolean("includeLeaderEpoch", given.get("includeleaderepoch", "true")),
        parse_values=_boolean("parseValues", given.get("parsevalues", "false")),
        include_payload=_boolean("includePayload", given.get("includepayload", "true")),
        poll_timeout_ms=_integer(
            "kafkaConsumer.pollTimeoutMs", given.get("kafkaconsumer.polltimeoutms", str(POLL_TIMEOUT_MS))
        ),
    )


def offset_of(spec: OffsetSpec, option: str, topic: str, partition: int) -> int:
    """What `spec` says of one partition. Raises: BadOption when it names others but not this one."""
    if isinstance(spec, int):
        return spec
    try:
        return spec[topic, partition]
    except KeyError:
        raise BadOption(
            f"option {option}: {topic}-{partition} is missing; all partitions must be named"
        ) from None


def split_ranges(ranges: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """The ranges that are not empty, cut by size into `min_partitions` pieces or more where that can be."""
    full = [item for item in ranges if item.end > item.start]
    total = sum(item.end - item.start for item in full)
    if len(full) >= min_partitions:
        return full
    pieces: list[OffsetRange] = []
    for item in full:
        size = item.end - item.start
        # rounded up, so that all together are never too few; a piece has one record at least
        count = min(size, -(-size * min_partitions // total))
        borders = [item.start + size * index // count for index in range(count + 1)]
        pieces += [OffsetRange(item.topic, item.partition, low, high) for low, high in pairwise(borders)]
    return pieces


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            raise BadOption(f"option subscribePattern: {text!r} is no regular expression: {error}") from error
    return text


def _assign(text: str | None) -> dict[str, tuple[int, ...]] | None:
    if text is None:
        return None
    found = _json("assign", text)
    try:
        made = {str(topic): tuple(int(index) for index in indexes) for topic, indexes in found.items()}
    except (TypeError, ValueError) as error:
        raise BadOption(f'option assign: expected {{"topic":[0,1]}}, got {text}') from error
    if not any(made.values()):
        raise BadOption("option assign: at least one partition is needed")
    return made


def _offsets(name: str, text: str, default: int) -> OffsetSpec:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if name == "endingOffsets" and word == "earliest":
            raise BadOption("option endingOffsets: earliest would read nothing; expected latest or JSON")
        return EARLIEST if word == "earliest" else LATEST
    made = {}
    for topic, offsets in _json(name, text).items():
        if not isinstance(offsets, dict):
            raise BadOption(f'option {name}: expected {{"topic":{{"0":23,"1":{default}}}}}, got {text}')
        for index, offset in offsets.items():
            low = LATEST if name == "endingOffsets" else EARLIEST
            if not index.isdecimal() or not isinstance(offset, int) or offset < low:
                raise BadOption(f"option {name}: {topic}-{index}: {offset} is no offset (smallest is {low})")
            made[topic, int(index)] = offset
    return made


def _json(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadOption(f"option {name}: expected a JSON object, got {text!r}")
    return found


def _integer(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise BadOption(f"option {name}: expected a number from 0, got {text!r}")
    return int(text)


def _boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise BadOption(f"option {name}: expected true or false, got {text!r}")
    return word == "true"
