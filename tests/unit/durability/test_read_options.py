"""Options of the data source: Spark's Kafka spelling, clear refusals, ranges that cover everything once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durability.read_options import (
    EARLIEST,
    LATEST,
    BadOption,
    OffsetRange,
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
        (SERVERS | {"subscribe": "t", "startingOffsets": "yesterday"}, "JSON object"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"0":-3}}'}, "smallest is -2"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"²":3}}'}, "smallest is -2"),
        (SERVERS | {"subscribe": "t", "startingOffsets": '{"t":5}'}, "expected"),
        (SERVERS | {"subscribe": "t", "endingOffsets": "earliest"}, "would read nothing"),
        (SERVERS | {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'}, "smallest is -1"),
        (SERVERS | {"subscribe": "t", "minPartitions": "-1"}, "number"),
        (SERVERS | {"subscribe": "t", "includeHeaders": "yes"}, "true or false"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(given_options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        parse_options(given_options)


def test_offsets_as_json_must_name_every_partition() -> None:
    options = parse_options(SERVERS | {"subscribe": "t", "startingOffsets": '{"t":{"0":23,"1":-1}}'})
    assert offset_of(options.starting, "startingOffsets", "t", 0) == 23
    assert offset_of(options.starting, "startingOffsets", "t", 1) == LATEST
    with pytest.raises(BadOption, match="t-2 is missing"):
        offset_of(options.starting, "startingOffsets", "t", 2)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 5000)), max_size=6),
    st.integers(0, 40),
)
def test_split_ranges_cover_every_offset_once_and_are_enough(
    parts: list[tuple[int, int]], min_partitions: int
) -> None:
    ranges = [OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(parts)]
    pieces = split_ranges(ranges, min_partitions)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(item.partition, offset) for item in ranges for offset in range(item.start, item.end)]
    total = sum(size for _, size in parts)
    assert len(pieces) >= min(min_partitions, total)
    assert all(piece.end > piece.start for piece in pieces)
