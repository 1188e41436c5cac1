"""Options of `format("holdfast")`, spelled as those of Spark's Kafka source, and how offsets become ranges.

Pure: option text in, values out. Owns names, defaults and refusals of docs/spark.md. Each option of
Spark's Kafka source is honoured, or refused with a reason; any other name is refused, too.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

from holdfast.client.core.metadata_cache import parse_addresses
from holdfast.protocol.envelope import CLIENT_ID_MAX

EARLIEST, LATEST = -2, -1
INT32_MAX, _INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
POLL_TIMEOUT_MS = 120_000
MAX_TRIGGER_DELAY_MS = 15 * 60_000
CLIENT_ID = "holdfast-spark"
#: Ranges with no more offsets together are read by one task.
TASK_OFFSETS = 50_000

T = TypeVar("T")
#: `earliest` or `latest` for all, or {(topic, partition): offset, EARLIEST or LATEST}
OffsetSpec: TypeAlias = int | dict[tuple[str, int], int]


class BadOption(ValueError):
    """An option of the data source cannot be used. The text names it and says what is expected."""


class Mode(Enum):
    """What the options are for."""

    BATCH = "batch"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Offsets by time: of the first record whose timestamp is not below so many ms since 1970."""

    #: one for all, or {(topic, partition): ms}
    ms: OffsetSpec
    #: the option that said so
    option: str
    #: True: without such a record the log's end counts; False: that is an error
    or_latest: bool


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read and how."""

    bootstrap_servers: str
    client_id: str
    #: exactly one of the three is set
    subscribe: tuple[str, ...] | None
    subscribe_pattern: str | None
    assign: dict[str, tuple[int, ...]] | None
    starting: OffsetSpec | Timestamps
    ending: OffsetSpec | Timestamps
    min_partitions: int
    #: 0 for no limit
    max_records_per_partition: int
    fail_on_data_loss: bool
    include_headers: bool
    include_leader_epoch: bool
    #: the timestamp as the record has it, in ms: all 64 bits
    include_timestamp_ms: bool
    #: why a record cannot be read, which makes it a row instead of an error
    include_problem: bool
    #: columns that say what ledger values say of themselves (client.core.history)
    parse_values: bool
    #: False leaves key and value out: a verdict needs neither
    include_payload: bool
    poll_timeout_ms: int
    #: of a stream; 0 for no limit
    max_offsets_per_trigger: int
    min_offsets_per_trigger: int
    max_trigger_delay_ms: int
    #: broker whose replica is read; None: the leader
    replica_id: int | None = None

    @property
    def keeps_damaged(self) -> bool:
        """True when what cannot be read is a row."""
        return self.parse_values or self.include_problem or not self.fail_on_data_loss


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    #: (leader epoch, first offset) of what is known to be there, rising; empty when nothing is known
    epochs: tuple[tuple[int, int], ...] = ()
    #: of the topic that was planned, in hex; empty when it is not known
    topic_id: str = ""


# --- names ---------------------------------------------------------------------------------------------

_SERVERS = "kafka.bootstrap.servers"
_CHOICES = ("subscribe", "subscribePattern", "assign")
_BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_READ_NAMES = (
    *(_SERVERS, "kafka.client.id", *_CHOICES, *_BATCH_ONLY, *_STREAM_ONLY),
    *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions", "maxRecordsPerPartition"),
    *("includeHeaders", "includeLeaderEpoch", "includeTimestampMs", "includeProblem", "includePayload"),
    *("parseValues", "readFrom", "kafkaConsumer.pollTimeoutMs"),
)
_NO_GROUPS = "this source is in no consumer group: Spark keeps the offsets"
_RETRIES = "requests are repeated until kafkaConsumer.pollTimeoutMs is over"
#: options of Spark's Kafka source that have no meaning here, with the reason
_REFUSED = {
    "kafka.group.id": _NO_GROUPS,
    "groupIdPrefix": _NO_GROUPS,
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.enable.auto.commit": _NO_GROUPS,
    "kafka.key.deserializer": "keys are bytes: convert them with SQL",
    "kafka.value.deserializer": "values are bytes: convert them with SQL",
    "kafka.isolation.level": "there are no transactions; readers get committed records only",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "path": "topics are named with subscribe, subscribePattern or assign",
}
_NO_KAFKA_CLIENT = "Kafka's own client is not used, so its settings mean nothing here"


def check_names(given: Mapping[str, str], known: tuple[str, ...], refused: Mapping[str, str]) -> None:
    """`given` has lower-case names. Raises: BadOption for a name that is not known, with the nearest one."""
    names = {name.lower(): name for name in known}
    reasons = {name.lower(): (name, reason) for name, reason in refused.items()}
    for key in sorted(given):
        if key in names:
            continue
        if key in reasons:
            name, reason = reasons[key]
            raise BadOption(f"option {name}: {reason}; leave it out")
        near = difflib.get_close_matches(key, names, 1, 0.75)
        if near:
            raise BadOption(f"option {key}: there is none of that name; did you mean {names[near[0]]}?")
        if key.startswith("kafka."):
            raise BadOption(f"option {key}: {_NO_KAFKA_CLIENT}; leave it out")
        raise BadOption(f"option {key}: there is none of that name; there are {', '.join(sorted(known))}")


# --- parsing -------------------------------------------------------------------------------------------


def parse_options(options: Mapping[str, str], mode: Mode | None = None) -> ReadOptions:
    """Options for `mode`; None does not mind options that only the other mode has. Raises: BadOption."""
    given = {key.lower(): value for key, value in options.items()}
    check_names(given, _READ_NAMES, _REFUSED)
    _check_mode(given, mode)
    chosen = [name for name in _CHOICES if name.lower() in given]
    if len(chosen) != 1:
        raise BadOption(f"exactly one of subscribe, subscribePattern, assign is needed, given: {chosen}")
    subscribe = tuple(filter(None, (topic.strip() for topic in given.get("subscribe", "").split(","))))
    if chosen == ["subscribe"] and not subscribe:
        raise BadOption("option subscribe: at least one topic is needed")
    replica_id = _replica_id(given.get("readfrom", "leader"), mode)
    take = _Taker(given)
    most, least = take.integer("maxOffsetsPerTrigger", 0), take.integer("minOffsetsPerTrigger", 0)
    if most and least > most:
        raise BadOption(f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}")
    starting, ending = _starting(given, mode), _ending(given)
    _check_order(starting, ending)
    return ReadOptions(
        bootstrap_servers=servers_of(given),
        client_id=client_id_of(given),
        subscribe=subscribe if chosen == ["subscribe"] else None,
        subscribe_pattern=_pattern(given.get("subscribepattern")),
        assign=_assign(given.get("assign")),
        starting=starting,
        ending=ending,
        min_partitions=take.integer("minPartitions", 0, high=INT32_MAX),
        max_records_per_partition=take.integer("maxRecordsPerPartition", 0),
        fail_on_data_loss=take.boolean("failOnDataLoss", default=True),
        include_headers=take.boolean("includeHeaders", default=False),
        include_leader_epoch=take.boolean("includeLeaderEpoch", default=True),
        include_timestamp_ms=take.boolean("includeTimestampMs", default=False),
        include_problem=take.boolean("includeProblem", default=False),
        parse_values=take.boolean("parseValues", default=False),
        include_payload=take.boolean("includePayload", default=True),
        poll_timeout_ms=take.integer("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS, low=1, high=INT32_MAX),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=take.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        replica_id=replica_id,
    )


def servers_of(given: Mapping[str, str]) -> str:
    """The bootstrap servers. Raises: BadOption."""
    servers = given.get(_SERVERS, "")
    if not servers:
        raise BadOption(f"option {_SERVERS} is needed: host:port[,host:port]")
    try:
        parse_addresses(servers)
    except ValueError as error:
        raise BadOption(f"option {_SERVERS}: {error}") from error
    return servers


def client_id_of(given: Mapping[str, str]) -> str:
    """How brokers see this client. Raises: BadOption."""
    client_id = given.get("kafka.client.id", CLIENT_ID)
    if len(client_id) > CLIENT_ID_MAX:
        raise BadOption(f"option kafka.client.id: {len(client_id)} characters are more than {CLIENT_ID_MAX}")
    return client_id


def _check_mode(given: Mapping[str, str], mode: Mode | None) -> None:
    for name in _STREAM_ONLY if mode is Mode.BATCH else ():
        if name.lower() in given:
            raise BadOption(f"option {name}: a batch has no triggers; it is for readStream")
    for name in _BATCH_ONLY if mode is Mode.STREAM else ():
        if name.lower() in given:
            raise BadOption(f"option {name}: a stream has no end; it is for read")


def _replica_id(text: str, mode: Mode | None) -> int | None:
    word = text.strip().lower()
    if word == "leader":
        return None
    found = re.fullmatch(r"replica:(\d{1,10})", word)
    if found is None or int(found[1]) > INT32_MAX:
        raise BadOption(f"option readFrom: expected leader or replica:ID, got {text!r}")
    if mode is Mode.STREAM:
        raise BadOption("option readFrom: streams read leaders; replica:ID is for batch queries")
    return int(found[1])


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


def check_named(spec: OffsetSpec, option: str, wanted: list[tuple[str, int]]) -> None:
    """Raises: BadOption when `spec` names a partition that is not read."""
    for topic, partition in sorted(set(spec).difference(wanted)) if isinstance(spec, dict) else ():
        raise BadOption(f"option {option}: {topic}-{partition} is named, but it is not read")


def split_ranges(ranges: list[OffsetRange], min_partitions: int, max_records: int = 0) -> list[OffsetRange]:
    """The ranges that are not empty, cut by size into `min_partitions` pieces or more where that can be, none
    of more than `max_records` offsets (0 for no limit)."""
    full = [item for item in ranges if item.end > item.start]
    total = sum(item.end - item.start for item in full)
    pieces: list[OffsetRange] = []
    for item in full:
        size = item.end - item.start
        count = 1
        if len(full) < min_partitions:
            # rounded up, so that all together are never too few; a piece has one record at least
            count = min(size, -(-size * min_partitions // total))
        if max_records:
            count = max(count, -(-size // max_records))
        borders = [item.start + size * index // count for index in range(count + 1)]
        pieces += [replace(item, start=low, end=high) for low, high in pairwise(borders)]
    return pieces


def grouped_ranges(
    ranges: list[OffsetRange], min_groups: int, max_records: int = 0
) -> list[tuple[OffsetRange, ...]]:
    """Small ranges together, for starting a task costs more than reading one; in their order, in
    `min_groups` or more where there are as many, none of more than `max_records` offsets (0 for no limit)
    unless it is a single range."""
    total = sum(item.end - item.start for item in ranges)
    most = min(TASK_OFFSETS, max_records or TASK_OFFSETS, total // max(1, min_groups))
    groups: list[list[OffsetRange]] = []
    room = 0
    for item in ranges:
        size = item.end - item.start
        if size <= room:
            groups[-1].append(item)
        else:
            groups.append([item])
            room = most
        room -= size
    return [tuple(group) for group in groups]


# --- where to begin and end ----------------------------------------------------------------------------


def _starting(given: Mapping[str, str], mode: Mode | None) -> OffsetSpec | Timestamps:
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise BadOption(
            f"option startingOffsetsByTimestampStrategy: expected error or latest, got {strategy!r}"
        )
    by_time = _timestamps(given, "startingTimestamp", "startingOffsetsByTimestamp", strategy == "latest")
    if by_time is not None:
        return by_time
    default = "latest" if mode is Mode.STREAM else "earliest"
    offsets = _offsets("startingOffsets", given.get("startingoffsets", default), EARLIEST)
    if offsets == LATEST and mode is Mode.BATCH:
        raise BadOption("option startingOffsets: latest would read nothing; expected earliest or JSON")
    for (topic, partition), offset in offsets.items() if isinstance(offsets, dict) else ():
        if offset == LATEST and mode is Mode.BATCH:
            raise BadOption(
                f"option startingOffsets: {topic}-{partition}: {LATEST} (latest) would read nothing; "
                f"expected an offset, or {EARLIEST} for earliest"
            )
    return offsets


def _ending(given: Mapping[str, str]) -> OffsetSpec | Timestamps:
    # as in Spark: no record that is so young means the end of the log
    by_time = _timestamps(given, "endingTimestamp", "endingOffsetsByTimestamp", or_latest=True)
    if by_time is not None:
        return by_time
    return _offsets("endingOffsets", given.get("endingoffsets", "latest"), LATEST)


def _check_order(starting: OffsetSpec | Timestamps, ending: OffsetSpec | Timestamps) -> None:
    """Raises: BadOption for offsets between which there is nothing."""
    if not isinstance(starting, dict) or not isinstance(ending, dict):
        return
    for topic, partition in sorted(starting.keys() & ending.keys()):
        start, end = starting[topic, partition], ending[topic, partition]
        if start > end >= 0:
            raise BadOption(
                f"option startingOffsets: {topic}-{partition}: {start} is behind endingOffsets, {end}"
            )


def _timestamps(given: Mapping[str, str], one: str, by_partition: str, or_latest: bool) -> Timestamps | None:
    """As in Spark one timestamp for all outweighs those by partition, and both outweigh offsets."""
    if one.lower() in given:
        return Timestamps(integer_of(one, given[one.lower()]), one, or_latest)
    text = given.get(by_partition.lower())
    if text is None:
        return None
    return Timestamps(_by_partition(by_partition, text, 0, "timestamp in ms"), by_partition, or_latest)


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
    made: dict[str, tuple[int, ...]] = {}
    for topic, indexes in _json("assign", text).items():
        if not isinstance(indexes, list) or not all(_is_number(index, 0, INT32_MAX) for index in indexes):
            raise BadOption(f'option assign: expected {{"topic":[0,1]}}, got {text}')
        made[topic] = tuple(indexes)
    if not any(made.values()):
        raise BadOption("option assign: at least one partition is needed")
    return made


def _offsets(name: str, text: str, default: int) -> OffsetSpec:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        if name == "endingOffsets" and word == "earliest":
            raise BadOption("option endingOffsets: earliest would read nothing; expected latest or JSON")
        return EARLIEST if word == "earliest" else LATEST
    return _by_partition(name, text, default, "offset")


def _by_partition(name: str, text: str, low: int, what: str) -> OffsetSpec:
    """{"topic": {"0": number}} with numbers from `low`."""
    made: dict[tuple[str, int], int] = {}
    for topic, numbers in _json(name, text).items():
        if not isinstance(numbers, dict):
            raise BadOption(f'option {name}: expected {{"topic":{{"0":23,"1":{low}}}}}, got {text}')
        for index, number in numbers.items():
            if not _is_index(index) or not _is_number(number, low, _INT64_MAX):
                raise BadOption(
                    f"option {name}: {topic}-{index}: {number} is no {what} (smallest is {low}, largest "
                    f"{_INT64_MAX})"
                )
            if (topic, int(index)) in made:
                raise BadOption(f"option {name}: {topic}-{int(index)} is named twice")
            made[topic, int(index)] = number
    return made


def _is_index(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and int(text) <= INT32_MAX


def _is_number(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _json(name: str, text: str) -> dict[str, Any]:
    twice: list[str] = []

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [key for key, _ in pairs]
            twice.extend(key for key in made if names.count(key) > 1)
        return made

    try:
        found = json.loads(text, object_pairs_hook=object_of)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadOption(f"option {name}: expected a JSON object, got {text[:_SHOWN_CHARS]!r}")
    if twice:
        raise BadOption(f"option {name}: {twice[0]!r} is named twice in {text}")
    return found


# --- single values -------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[0-9]{1,19}")
#: Of an option's text that is no JSON.
_SHOWN_CHARS = 200
_DURATION = re.compile(r"([0-9]{1,19})\s*(ms|s|m|min|h|d)?")
_UNIT_MS = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class _Taker:
    """Values of options that may be missing."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def integer(self, name: str, default: int, *, low: int = 0, high: int = _INT64_MAX) -> int:
        return self._take(name, default, lambda name, text: integer_of(name, text, low, high))

    def boolean(self, name: str, *, default: bool) -> bool:
        return self._take(name, default, _boolean)

    def duration_ms(self, name: str, default: int) -> int:
        return self._take(name, default, _duration_ms)

    def _take(self, name: str, default: T, parse: Callable[[str, str], T]) -> T:
        text = self._given.get(name.lower())
        return default if text is None else parse(name, text)


def integer_of(name: str, text: str, low: int = 0, high: int = _INT64_MAX) -> int:
    """The number that option `name` says, from `low` to `high`. Raises: BadOption."""
    word = text.strip()
    if _NUMBER.fullmatch(word) is None or not low <= int(word) <= high:
        raise BadOption(f"option {name}: expected a number from {low} to {high}, got {text!r}")
    return int(word)


def _boolean(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise BadOption(f"option {name}: expected true or false, got {text!r}")
    return word == "true"


def _duration_ms(name: str, text: str) -> int:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or int(found[1]) * _UNIT_MS[found[2]] > _INT64_MAX:
        raise BadOption(f"option {name}: expected a time such as 500ms, 30s or 15m, got {text!r}")
    return int(found[1]) * _UNIT_MS[found[2]]
