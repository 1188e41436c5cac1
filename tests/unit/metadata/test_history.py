"""What a trimmed metadata log still tells: the last changes, registrations and lost assignments, bounded."""

from itertools import pairwise

import pytest

from holdfast.metadata import history as module
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory, PastRegistration
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import RemoveTopicRecord, TopicRecord
from tests.unit.metadata.test_snapshot import T, change, partition, played, register

KEY = PartitionId(T, 0)


def test_the_last_changes_of_a_partition_are_kept_with_the_states_around_them() -> None:
    flaps = [change(T, 0, isr=(1,) if number % 2 else (1, 2)) for number in range(9)]
    state = played(TopicRecord("t", T), partition(T, 0, 1, 2), *flaps)
    kept = state.history.changes_of(KEY)
    assert [one.offset for one in kept] == [7, 8, 9, 10]
    assert [one.timestamp_ms for one in kept] == [1_007, 1_008, 1_009, 1_010]
    assert kept[-1].after == state.image.partition(*KEY)
    for one, following in pairwise(kept):
        assert one.after == following.before


def test_changes_that_are_committed_together_follow_each_other() -> None:
    image = played(TopicRecord("t", T), partition(T, 0, 1, 2)).image
    history = MetadataHistory()
    records = [change(T, 0, isr=(1,)), change(T, 0, leader=-1, last_known_leader=1, isr=())]
    history.note(image, [CommittedRecord(2 + index, 0, record) for index, record in enumerate(records)])
    first, second = history.changes_of(KEY)
    assert first.after == second.before
    assert second.after.leader is None


def test_the_oldest_change_of_all_is_dropped_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_MAX", 3)
    state = played(TopicRecord("t", T), *(partition(T, index, 1) for index in range(5)))
    kept = [bool(state.history.changes_of(PartitionId(T, index))) for index in range(5)]
    assert kept == [False, False, True, True, True]


def test_a_deleted_topic_leaves_only_who_had_it() -> None:
    state = played(TopicRecord("t", T), partition(T, 0, 1, 2), RemoveTopicRecord(T))
    assert state.history.changes_of(KEY) == []
    assert list(state.history.taken_from(2)) == [KEY]


def test_a_topic_that_is_made_and_deleted_within_one_batch_had_replicas() -> None:
    history = MetadataHistory()
    records = [TopicRecord("t", T), partition(T, 0, 1, 2), RemoveTopicRecord(T)]
    history.note(MetadataImage(), [CommittedRecord(index, 0, record) for index, record in enumerate(records)])
    assert list(history.taken_from(1)) == [KEY]
    assert history.changes_of(KEY) == []


def test_assignments_are_bounded_and_it_is_known_that_some_were_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ASSIGNMENTS_MAX", 2)
    moves = [change(T, index, replicas=(2,)) for index in range(3)]
    state = played(TopicRecord("t", T), *(partition(T, index, 1) for index in range(3)), *moves)
    assert list(state.history.taken_from(1)) == [PartitionId(T, 1), PartitionId(T, 2)]
    assert state.history.has_dropped_assignments
    assert not played().history.has_dropped_assignments


def test_the_last_registrations_of_a_broker_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REGISTRATIONS_MAX", 2)
    one, two, three = (bytes([number]) * 16 for number in range(3))
    history = played(register(1, 0, one), register(1, 1, two)).history
    assert history.registrations_of(1) == (
        PastRegistration(0, one, is_first=True),
        PastRegistration(1, two, is_first=False),
    )
    history = played(register(1, 0, one), register(1, 1, two), register(1, 2, three)).history
    assert not history.registrations_of(1)[0].is_first
    assert history.registrations_of(2) == ()


def test_a_change_of_a_partition_that_is_not_there_is_left_to_replay() -> None:
    history = MetadataHistory()
    history.note(MetadataDelta(MetadataImage()).apply(), [CommittedRecord(0, 0, change(T, 0, isr=(1,)))])
    assert history.changes_of(KEY) == []
