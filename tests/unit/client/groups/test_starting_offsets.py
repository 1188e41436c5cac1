"""Where a member begins to read what it is given."""

import pytest

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.effects import RefreshMetadata
from holdfast.client.core.groups.effects import Effect, Position
from holdfast.client.core.groups.offset_requests import OffsetRequests
from holdfast.client.core.groups.starting_offsets import StartingOffsets
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.client.groups.play import metadata

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Play:
    """The offsets, and what is asked because of them."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.asks = OffsetRequests("g", None, Backoff(100, 1_000))
        self.starts = StartingOffsets(self.asks, self.cache)
        self.starts.begin(gone_ms=500)

    def look_up(self, *partitions: TopicPartition, now_ms: int = 0) -> list[Effect]:
        effects: list[Effect] = []
        self.starts.look_up(partitions, now_ms, effects)
        return effects

    @property
    def asked(self) -> list[list[TopicPartition]]:
        return [list(ask.partitions.values()) for ask in self.asks.all]


@pytest.fixture
def play() -> Play:
    return Play()


def test_all_of_them_are_asked_for_at_once_and_only_once(play: Play) -> None:
    play.cache.update(metadata(1, 2))
    assert play.look_up(FIRST, SECOND) == play.look_up(FIRST, SECOND) == []
    assert play.asked == [[FIRST, SECOND]]


def test_they_are_known_when_each_of_them_is(play: Play) -> None:
    play.starts.found({FIRST: Position(7)})
    assert play.starts.of([FIRST, SECOND]) is None
    play.starts.found({SECOND: None})
    assert play.starts.of([FIRST, SECOND]) == {FIRST: Position(7), SECOND: None}


def test_what_the_metadata_lack_is_looked_for_in_them_first(play: Play) -> None:
    play.cache.update(metadata(1, 1))
    assert play.look_up(FIRST, SECOND) == [RefreshMetadata()]
    assert play.asked == []


def test_a_topic_that_is_denied_for_long_has_no_offsets(play: Play) -> None:
    play.cache.update(metadata(1, 1))
    play.cache.update_all(metadata(2, 0))
    assert play.look_up(FIRST, now_ms=499) == [RefreshMetadata()]
    assert play.look_up(FIRST, now_ms=500) == []
    assert (play.starts.of([FIRST]), play.asked) == ({FIRST: None}, [])


def test_nothing_is_known_or_asked_of_an_assignment_that_does_not_count_any_more(play: Play) -> None:
    play.cache.update(metadata(1, 2))
    play.starts.found({FIRST: Position(7)})
    play.look_up(FIRST, SECOND)
    play.starts.forget()
    assert (play.starts.of([FIRST]), play.asked) == (None, [])
