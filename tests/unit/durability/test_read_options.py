"""Options of the data source: Spark's Kafka spelling, clear refusals, ranges that cover everything once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durability.read_options import (
    EARLIEST,
    LATEST,
    BadOption,
    Mode,
    OffsetRange,
    Timestamps,
    check_named,
    grouped_ranges,
    offset_of,
    parse_options,
    split_ranges,
)

SERVERS = {"kafka.bootstrap.servers": "h:1"}


def test_defaults_are_those_of_a_batch_read() -> None:
    options = parse_options(SERVERS | {"subscribe": "a, b"})
    assert options.subscribe == ("a", "b")
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert options.include_leader_epoch
    assert options.include_payload
    assert not options.include_headers
    assert not options.parse_values


def test_option_names_do_not_mind_case() -> None:
    options = parse_options(
        {
            "KAFKA.bootstrap.SERVERS": "h:1",
            "Assign": '{"t":[1,0]}',
            "MINPARTITIONS": "4",
            "failondataloss": "FALSE",
        }
    )
    assert options.assign == {"t": (1, 0)}
    assert options.min_partitions == 4
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given_options", "reason"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers"),
        (SERVERS, "exactly one of"),
        (SERVERS | {"subscribe": "t", "assign": '{"t":[0]}'}, "exactly one of"),
        (SERVERS | {"subscribe": " , "}, "at least one topic"),
        (SERVERS | {"subscribePattern": "("}, "regular expression"),
        (SERVERS | {"assign": "t"}, "JSON object"),
        (SERVERS | {"assign": '{"t":0}'}, "assign: expected"),
        (SERVERS | {"assign": "{}"}, "at least one partition"),
        (SERVERS | {"assign": '{"t":"01"}'}, "assign: expected"),
        (SERVERS | {"assign": '{"t":["0"]}'}, "assign: expected"),
        (SERVERS | {"assign": '{"t":[0.5]}'}, "assign: expected"),
        (SERVERS | {"assign": '{"t":[true]}'}, "assign: expected"),
        (SERVERS | {"assign": '{"t":[-1]}'}, "assign: expected"),
        (SERVERS | {"assign": '{"t":[2147483648]}'}, "assign: expected"),
        (SERVERS | {"assign": '{"t":[0],"t":[1]}'}, "assign: 't' is named twice"),
        ({"kafka.bootstrap.servers": "h", "subscribe": "t"}, "kafka.bootstrap.servers: .*'h': expected host"),
        (
            {"kafka.bootstrap.servers": "ssl://h:1", "subscribe": "t"},
            "kafka.bootstrap.servers: .* there is no TLS",
        ),
        (SERVERS | {"subscribe": "t", "startingOffsets": "yesterday"}, "JSON object"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"0":-3}}'}, "smallest is -2"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"²":3}}'}, "smallest is -2"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":5}'}, "expected"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"0":1,"00":2}}'}, "t-0 is named twice"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"0":1,"0":2}}'}, "'0' is named twice"),
        (SERVERS | {"subscribe": "t", "startingOffsets": f'{{"t":{{"0":{2**63}}}}}'}, "no offset"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"99999999999":1}}'}, "no offset"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":' + "[" * 10_000}, "JSON object"),
        (SERVERS | {"subscribe": "t", "endingOffsets": "earliest"}, "would read nothing"),
        (SERVERS | {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, "smallest is -1"),
        (SERVERS | {"subscribe": "t", "kafka.client.id": "x" * 256}, "kafka.client.id: 256 characters"),
        (
            SERVERS
            | {"subscribe": "t", "startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":5}}'},
            "startingOffsets: t-0: 9 is behind endingOffsets, 5",
        ),
        (SERVERS | {"subscribe": "t", "minPartitions": "-1"}, "number"),
        (SERVERS | {"subscribe": "t", "minPartitions": "2147483648"}, "from 0 to 2147483647"),
        (SERVERS | {"subscribe": "t", "maxRecordsPerPartition": "9" * 5000}, "number"),
        (SERVERS | {"subscribe": "t", "kafkaConsumer.pollTimeoutMs": "0"}, "from 1 to 2147483647"),
        (
            SERVERS | {"subscribe": "t", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger, 5",
        ),
        (SERVERS | {"subscribe": "t", "includeHeaders": "yes"}, "true or false"),
        (SERVERS | {"subscribe": "t", "startingOfsets": "latest"}, "did you mean startingOffsets"),
        (SERVERS | {"subscribe": "t", "failOnDataLos": "true"}, "did you mean failOnDataLoss"),
        (
            SERVERS | {"subscribe": "t", "kafka.bootstrap.server": "h:1"},
            "did you mean kafka.bootstrap.servers",
        ),
        (SERVERS | {"subscribe": "t", "colour": "red"}, "option colour: there is none of that name"),
        (SERVERS | {"subscribe": "t", "kafka.group.id": "g"}, "in no consumer group"),
        (SERVERS | {"subscribe": "t", "groupIdPrefix": "g"}, "in no consumer group"),
        (SERVERS | {"subscribe": "t", "kafka.sasl.mechanism": "PLAIN"}, "Kafka's own client is not used"),
        (SERVERS | {"subscribe": "t", "fetchOffset.numRetries": "3"}, "pollTimeoutMs"),
        (SERVERS | {"subscribe": "t", "readFrom": "replica:9999999999"}, "expected leader or replica:ID"),
        (SERVERS | {"subscribe": "t", "readFrom": "anywhere"}, "expected leader or replica:ID"),
        (SERVERS | {"subscribe": "t", "startingTimestamp": "-1"}, "number"),
        (SERVERS | {"subscribe": "t", "startingTimestamp": str(2**63)}, "number"),
        (SERVERS | {"subscribe": "t", "startingTimestamp": "\u0661"}, "number"),
        (SERVERS | {"subscribe": "t", "endingTimestamp": "soon"}, "number"),
        (SERVERS | {"subscribe": "t", "startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "no timestamp"),
        (SERVERS | {"subscribe": "t", "startingOffsetsByTimestampStrategy": "best"}, "error or latest"),
        (SERVERS | {"subscribe": "t", "maxTriggerDelay": "soon"}, "expected a time"),
        (SERVERS | {"subscribe": "t", "maxTriggerDelay": f"{2**62}s"}, "expected a time"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(given_options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        parse_options(given_options)


def test_options_of_the_other_mode_are_refused() -> None:
    one = SERVERS | {"subscribe": "t"}
    with pytest.raises(BadOption, match="maxOffsetsPerTrigger: a batch has no triggers"):
        parse_options(one | {"maxOffsetsPerTrigger": "5"}, Mode.BATCH)
    with pytest.raises(BadOption, match="startingOffsets: latest would read nothing"):
        parse_options(one | {"startingOffsets": "latest"}, Mode.BATCH)
    with pytest.raises(BadOption, match="startingOffsets: t-1: -1 .latest. would read nothing"):
        parse_options(one | {"startingOffsets": '{"t":{"0":7,"1":-1}}'}, Mode.BATCH)
    assert parse_options(one | {"startingOffsets": '{"t":{"0":-1}}'}, Mode.STREAM).starting == {
        ("t", 0): LATEST
    }
    with pytest.raises(BadOption, match="endingOffsets: a stream has no end"):
        parse_options(one | {"endingOffsets": "latest"}, Mode.STREAM)
    assert parse_options(one, Mode.STREAM).starting == LATEST


def test_timestamps_outweigh_offsets_and_one_for_all_outweighs_those_by_partition() -> None:
    given = SERVERS | {
        "subscribe": "t",
        "startingOffsets": "latest",
        "startingOffsetsByTimestamp": '{"t":{"0":7}}',
        "endingOffsetsByTimestamp": '{"t":{"0":9}}',
    }
    options = parse_options(given)
    assert options.starting == Timestamps({("t", 0): 7}, "startingOffsetsByTimestamp", or_latest=False)
    assert options.ending == Timestamps({("t", 0): 9}, "endingOffsetsByTimestamp", or_latest=True)
    options = parse_options(
        given | {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "LATEST"}
    )
    assert options.starting == Timestamps(5, "startingTimestamp", or_latest=True)


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("90 s", 90_000), ("1h", 3_600_000), ("7", 7)])
def test_delays_have_units(text: str, ms: int) -> None:
    assert parse_options(SERVERS | {"subscribe": "t", "maxTriggerDelay": text}).max_trigger_delay_ms == ms


def test_a_partition_that_is_not_read_cannot_be_named() -> None:
    with pytest.raises(BadOption, match="startingOffsets: t-3 is named, but it is not read"):
        check_named({("t", 0): 1, ("t", 3): 1}, "startingOffsets", [("t", 0)])


def test_offsets_as_json_must_name_every_partition() -> None:
    options = parse_options(SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"0":23,"1":-1}}'})
    assert isinstance(options.starting, dict)
    assert offset_of(options.starting, "startingOffsets", "t", 0) == 23
    assert offset_of(options.starting, "startingOffsets", "t", 1) == LATEST
    with pytest.raises(BadOption, match="t-2 is missing"):
        offset_of(options.starting, "startingOffsets", "t", 2)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=6),
    st.integers(0, 40),
    st.integers(0, 400),
)
def test_split_ranges_cover_every_offset_once_and_are_enough(
    parts: list[tuple[int, int]], min_partitions: int, max_records: int
) -> None:
    ranges = [OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(parts)]
    pieces = split_ranges(ranges, min_partitions, max_records)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(item.partition, offset) for item in ranges for offset in range(item.start, item.end)]
    total = sum(size for _, size in parts)
    assert len(pieces) >= min(min_partitions, total)
    assert all(piece.end > piece.start for piece in pieces)
    assert not max_records or all(piece.end - piece.start <= max_records for piece in pieces)
    groups = grouped_ranges(pieces, min_partitions, max_records)
    assert [piece for group in groups for piece in group] == pieces
    assert len(groups) >= min(min_partitions, len(pieces))
    sizes = [sum(piece.end - piece.start for piece in group) for group in groups]
    assert not max_records or max(sizes, default=0) <= max_records
    if not min_partitions and not max_records:
        assert len(groups) <= 1, "so few records are read by one task"
