"""The epoch cache against a log that remembers the epoch of every offset (R80, R85, I-18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.core.leader_epoch_cache import EpochEnd, EpochEntry, LeaderEpochCache

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("lead"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("go on"), st.just(0), st.integers(1, 4)),
    ),
    max_size=30,
)


@given(steps)
def test_it_answers_like_a_log_that_is_read_from_the_start(commands: list[tuple[str, int, int]]) -> None:
    cache = LeaderEpochCache()
    epochs: dict[int, int] = {}  # offset -> epoch
    start, end, epoch = 0, 0, 0
    for command, number, count in commands:
        if command == "append":
            epoch += number
            cache.assign(epoch, end)
            epochs.update(dict.fromkeys(range(end, end + count), epoch))
            end += count
        elif command == "lead":
            epoch += number
            cache.assign(epoch, end)
        elif command == "go on" and end - 1 in epochs:
            # As a follower: more of the newest epoch with data, also after leaders that wrote nothing.
            cache.assign(epochs[end - 1], end)
            epochs.update(dict.fromkeys(range(end, end + count), epochs[end - 1]))
            end += count
        elif command == "truncate" and start <= number:
            end = min(end, number)
            cache.truncate_from_end(end)
            epochs = {offset: found for offset, found in epochs.items() if offset < end}
        elif command == "start" and start < number <= end:
            start = number
            cache.truncate_from_start(start)
            # the last one that is deleted is remembered
            epochs = {offset: found for offset, found in epochs.items() if offset >= start - 1}
        for offset in range(start, end):
            assert cache.epoch_at(offset) == epochs[offset]
        assert cache.last_written(end) == epochs.get(end - 1, -1)
        with_data = sorted(set(epochs.values()))
        for asked in range(epoch + 2):
            answer = cache.end_offset_for(asked, end)
            below = [found for found in with_data if found <= asked]
            if answer is None:
                assert not below
            elif answer.epoch in with_data:
                assert answer.epoch == below[-1]
                written = [offset for offset, found in epochs.items() if found == answer.epoch]
                assert answer.end_offset == max(written) + 1
        entries = cache.entries
        assert list(entries) == sorted(set(entries))
        assert len({entry.start_offset for entry in entries}) == len(entries)


def test_a_larger_epoch_than_any_known_gets_the_end_of_the_last_one() -> None:
    cache = LeaderEpochCache([EpochEntry(2, 10), EpochEntry(5, 30)])
    assert cache.end_offset_for(4, 50) == EpochEnd(2, 30)
    assert cache.end_offset_for(5, 50) == EpochEnd(5, 50)
    assert cache.end_offset_for(9, 50) == EpochEnd(5, 50)
    assert cache.end_offset_for(1, 50) is None


def test_an_epoch_without_data_gives_way_to_batches_of_an_older_one() -> None:
    cache = LeaderEpochCache([EpochEntry(2, 0)])
    cache.assign(7, 10)  # led here, wrote nothing
    cache.assign(4, 10)  # and follows a log that epoch 4 wrote
    assert cache.entries == ((2, 0), (4, 10))


def test_the_epoch_before_goes_on_where_one_without_data_gives_way() -> None:
    """R54, R81: elected with less of epoch 2 than the next leader, which never saw epoch 7."""
    cache = LeaderEpochCache([EpochEntry(2, 0)])
    cache.assign(7, 10)
    version = cache.version
    assert cache.assign(2, 10)
    assert cache.entries == ((2, 0),)
    assert cache.version > version
    assert cache.end_offset_for(2, 12) == EpochEnd(2, 12)


def test_an_epoch_below_written_ones_is_our_own_bug() -> None:
    cache = LeaderEpochCache([EpochEntry(2, 0), EpochEntry(5, 10)])
    with pytest.raises(AssertionError):
        cache.assign(4, 20)
