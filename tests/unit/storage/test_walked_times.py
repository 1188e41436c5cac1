"""Times behind an offset within a segment are known as far as the headers were walked over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.record_batch import parse_header
from holdfast.storage.core import walked_times
from holdfast.storage.core.walked_times import WalkedTimes
from tests.unit.storage.batches import batch

#: where the walk begins
POSITION = 70
SIZE = len(batch())


def walked(times: list[int]) -> WalkedTimes:
    found = WalkedTimes(5, POSITION)
    for time_ms in times:
        found.note(parse_header(batch(timestamp_ms=time_ms)))
    return found


@given(st.lists(st.integers(-1, 12)), st.integers(-1, 13))
def test_a_lookup_begins_shortly_before_the_first_batch_that_is_late_enough(
    times: list[int], asked: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walked_times, "BATCHES_PER_MARK", 3)
        found = walked(times)
    assert found.position == POSITION + len(times) * SIZE
    assert found.newest_ms == max(times, default=-1)
    number, rest = divmod(found.floor(asked) - POSITION, SIZE)
    assert not rest
    assert all(time_ms < asked for time_ms in times[:number])
    first = next((number for number, time_ms in enumerate(times) if time_ms >= asked), None)
    if first is not None and asked > -1:
        assert number <= first <= number + 6


def test_a_batch_that_compaction_has_emptied_has_no_time() -> None:
    found = WalkedTimes(5, POSITION)
    found.note(parse_header(batch(timestamp_ms=1000))._replace(record_count=0))
    assert (found.newest_ms, found.position) == (-1, POSITION + SIZE)
