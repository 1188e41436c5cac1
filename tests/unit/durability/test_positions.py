"""Where a stream stands: what its checkpoint says, what was lost, how far a micro-batch goes."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durability.core.positions import (
    Loss,
    PartitionLog,
    Place,
    Position,
    StreamOffsets,
    advanced,
    limited,
    loss_of,
    ranges_between,
    resumed,
    without_beginning,
)
from holdfast.durability.read_options import BadOption, OffsetRange

PLACE = ("t", 0)
STOOD = Position(200, ((3, 0), (5, 150)))


def log(start: int = 0, end: int = 200, topic_id: str = "aa") -> PartitionLog:
    return PartitionLog(topic_id, start, end, 7)


def test_offsets_survive_the_checkpoint() -> None:
    offsets = StreamOffsets(
        {"t": "aa", "with-dash": "bb"},
        {PLACE: Position(7, ((3, 0), (12, 5)), 2, 4), ("t", 10): Position(0), ("with-dash", 2): Position(1)},
    )
    assert StreamOffsets.parse(json.loads(json.dumps(offsets.as_json()))) == offsets


@pytest.mark.parametrize(
    ("found", "agreed", "epochs", "sentence", "count", "resumes"),
    [
        (log(topic_id="bb"), 200, (), r"deleted and made again \(topic id aa, now bb\)", 0, 0),
        (log(start=210, end=300), 200, (), "offsets 200 to 209 were deleted", 10, 210),
        (log(), 120, ((6, 120),), "offset 120 was read in leader epoch 3.*of leader epoch 6", 80, 120),
        (log(end=160), 160, (), "offset 160 was read in leader epoch 5, and the log ends there", 40, 160),
    ],
)
def test_a_loss_names_the_partition_the_offset_and_the_epochs(
    found: PartitionLog,
    agreed: int,
    epochs: tuple[tuple[int, int], ...],
    sentence: str,
    count: int,
    resumes: int,
) -> None:
    loss = loss_of(PLACE, "aa", STOOD, found, agreed, epochs)
    assert loss is not None
    assert loss.sentence.startswith("t-0: ")
    assert re.search(sentence, loss.sentence)
    assert (loss.count, loss.resumes) == (count, resumes)
    begins = resumed(STOOD, loss)
    assert (begins.offset, begins.begins, begins.lost) == (resumes, resumes, count)


def test_without_a_loss_a_stream_goes_on_where_it_stood() -> None:
    assert loss_of(PLACE, "aa", STOOD, log(start=200), 200) is None
    assert resumed(Position(5, ((3, 0),), 1, begins=2), None) == Position(5, ((3, 0),), 1)


def test_after_a_truncation_only_the_epochs_before_it_are_remembered() -> None:
    loss = loss_of(PLACE, "aa", STOOD, log(), 120, ((6, 120),))
    assert resumed(STOOD, loss).epochs == ((3, 0),)
    assert resumed(STOOD, Loss(PLACE, "", 10, 210)).epochs == ()


def test_a_position_moves_on_with_the_epochs_that_it_passed() -> None:
    begin = Position(200, ((5, 150),), 3)
    assert advanced(begin, 260, ((5, 200), (6, 220), (7, 260))) == Position(260, ((5, 150), (6, 220)), 3)


def test_a_micro_batch_reads_from_where_it_begins_to_where_it_ends() -> None:
    start = StreamOffsets({"t": "aa"}, {PLACE: Position(5), ("t", 1): Position(9)})
    end = StreamOffsets(
        {"t": "aa"},
        {PLACE: Position(8, ((1, 0),)), ("t", 1): Position(9), ("t", 2): Position(4, (), begins=1)},
    )
    assert ranges_between(start, end) == [
        OffsetRange("t", 0, 5, 8, ((1, 0),), "aa"),
        OffsetRange("t", 2, 1, 4, topic_id="aa"),
    ]


def test_what_the_start_of_a_micro_batch_does_not_know_is_named_and_not_read() -> None:
    """A first micro-batch that is planned with more than there is when a later process repeats it."""
    start = StreamOffsets({"t": "aa"}, {PLACE: Position(5)})
    end = StreamOffsets(
        {"t": "aa", "u": "bb"},
        {PLACE: Position(8), ("u", 1): Position(4), ("u", 0): Position(4), ("t", 2): Position(4, begins=1)},
    )
    assert without_beginning(start, end) == [("u", 0), ("u", 1)]
    assert ranges_between(start, end) == [
        OffsetRange("t", 0, 5, 8, topic_id="aa"),
        OffsetRange("t", 2, 1, 4, topic_id="aa"),
    ]


@given(
    st.dictionaries(
        st.tuples(st.just("t"), st.integers(0, 9)), st.tuples(st.integers(0, 50), st.integers(0, 10_000))
    ),
    st.integers(1, 500),
)
def test_a_limit_is_kept_and_leaves_out_no_partition_that_it_can_serve(
    logs: dict[Place, tuple[int, int]], most: int
) -> None:
    begins = {place: begin for place, (begin, _) in logs.items()}
    ends = {place: begin + size for place, (begin, size) in logs.items()}
    found = limited(begins, ends, most)
    taken = {place: found[place] - begins[place] for place in logs}
    sizes = {place: size for place, (_, size) in logs.items()}
    assert all(0 <= taken[place] <= sizes[place] for place in logs)
    assert sum(taken.values()) == min(most, sum(sizes.values()))
    full = [place for place, size in sizes.items() if size]
    if most >= len(full):
        assert all(taken[place] for place in full)


@pytest.mark.parametrize("found", [{"t": {"0": 5}}, {"t": 5}, {"t": {"id": "aa", "partitions": {"0": 5}}}])
def test_a_checkpoint_of_another_source_is_said_to_be_one(found: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match="checkpointLocation: its offsets are of another source"):
        StreamOffsets.parse(found)
