"""Which metadata a broker may follow, and which it must not."""

import pytest

from holdfast.broker.core.registration.metadata_lineage import MetadataLineage
from holdfast.metadata import history as history_module
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.history import CommittedRecord, MetadataHistory
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord
from holdfast.metadata.snapshot import MetadataState
from tests.unit.broker.core_harness import KEY, change, partition, register

MINE, LATER, OTHER = bytes([1]) * 16, b"l" * 16, b"o" * 16


def replayed(seen: MetadataLineage, *epochs: int) -> MetadataLineage:
    """Registrations of broker 1 (incarnation `MINE`) at these offsets."""
    for epoch in epochs:
        seen.replayed(epoch, register(1, epoch))
    return seen


def test_metadata_that_holds_the_last_registration_is_followed() -> None:
    assert replayed(MetadataLineage(1, 5, MINE), 2, 5, 9).problem_with(9, LATER) is None


def test_a_broker_that_was_never_registered_follows_any() -> None:
    assert MetadataLineage(1).problem_with(0, MINE) is None


def test_metadata_that_is_too_short_for_the_last_registration_is_refused() -> None:
    """The controllers began anew, or with an older copy."""
    text = replayed(MetadataLineage(1, 5, MINE), 3).problem_with(3, LATER)
    assert text is not None
    for part in (
        "epoch 5",
        "with 3",
        "restore their metadata.log.dir",
        "No partition was deleted",
    ):
        assert part in text


def test_metadata_that_has_grown_past_the_last_registration_is_refused_too() -> None:
    """Every attempt to register makes it longer."""
    seen = MetadataLineage(1, 5, MINE)
    seen.replayed(5, TopicRecord("t", b"t" * 16))
    assert replayed(seen, 9).problem_with(9, LATER) is not None


def test_another_registration_in_its_place_is_not_the_last_one() -> None:
    """Of another broker, or ours but of an attempt at metadata that began anew: young clusters look alike."""
    seen = MetadataLineage(1, 5, MINE)
    seen.replayed(5, register(2, 5))
    assert seen.problem_with(9, LATER) is not None
    assert replayed(MetadataLineage(1, 5, OTHER), 5).problem_with(9, LATER) is not None


@pytest.mark.parametrize("epoch", [4, 5])
def test_without_a_noted_incarnation_epochs_must_rise(epoch: int) -> None:
    """What an older version stored."""
    assert replayed(MetadataLineage(1, 5), 5).problem_with(epoch, LATER) is not None
    assert replayed(MetadataLineage(1, 5), 5).problem_with(9, LATER) is None


def test_the_same_registration_again_is_no_problem_and_needs_no_note() -> None:
    """A heartbeat was told that it was over, by a controller that was deposed before that was committed."""
    seen = MetadataLineage(1)
    assert seen.followed(5, MINE)
    assert seen.problem_with(5, MINE) is None
    assert not seen.followed(5, MINE)


def test_each_new_registration_is_noted_and_is_the_one_to_be_found() -> None:
    """Also of the same process, which was unregistered meanwhile (N-2)."""
    seen = MetadataLineage(1)
    assert seen.followed(5, MINE)
    assert seen.problem_with(9, MINE) is None
    assert seen.followed(9, MINE)
    assert seen.broker_epoch == 9
    assert seen.problem_with(8, MINE) is not None


def test_a_log_that_was_never_given_to_this_broker_is_of_other_metadata() -> None:
    """An older copy may hold the last registration, and not the topics that were made after it."""
    seen = replayed(MetadataLineage(1, 5, MINE), 5, 9)
    text = seen.problem_with_logs([KEY])
    assert text is not None
    assert "1 of its 1 partitions" in text
    seen.replayed(10, partition(2, replicas=(2, 3)))
    assert seen.problem_with_logs([KEY]) is not None
    seen.replayed(11, change(isr=(2,)))
    assert seen.problem_with_logs([KEY]) is not None


def test_a_log_that_was_given_to_this_broker_may_have_been_taken_away() -> None:
    """From its beginning, or by a reassignment."""
    for first in (partition(1), partition(2, replicas=(2, 3))):
        seen = MetadataLineage(1)
        records: list[MetadataRecord] = [first, change(replicas=(2, 1)), change(replicas=(2, 3))]
        for offset, record in enumerate(records):
            seen.replayed(offset, record)
        assert seen.problem_with_logs([KEY]) is None


def test_logs_are_compared_once_in_a_process() -> None:
    """From then on they are made as metadata says."""
    seen = MetadataLineage(1)
    seen.followed(5, MINE)
    assert seen.problem_with_logs([KEY]) is None


# --- behind a snapshot (K15) ---------------------------------------------------------------------------


def snapshot_of(*records: MetadataRecord) -> MetadataState:
    """Of a log with these records, at offsets from 0 on."""
    image, history = MetadataImage(), MetadataHistory()
    for offset, record in enumerate(records):
        history.note(image, [CommittedRecord(offset, 0, record)])
        delta = MetadataDelta(image)
        delta.replay(record, offset, 1)
        image = delta.apply()
    return MetadataState(image, history)


def test_a_registration_below_a_snapshot_is_found_in_its_history() -> None:
    seen = MetadataLineage(1, 1, MINE)
    seen.loaded(snapshot_of(TopicRecord("t", b"t" * 16), register(1, 1), register(1, 2)))
    assert replayed(seen, 9).problem_with(9, LATER) is None


@pytest.mark.parametrize(
    "records",
    [
        (TopicRecord("t", b"t" * 16), TopicRecord("u", b"u" * 16)),
        (register(1, 0), TopicRecord("t", b"t" * 16)),
        (TopicRecord("t", b"t" * 16), register(2, 1)),
    ],
    ids=["none", "another", "of another broker"],
)
def test_a_snapshot_without_the_last_registration_is_of_other_metadata(
    records: tuple[MetadataRecord, ...],
) -> None:
    seen = MetadataLineage(1, 1, MINE)
    seen.loaded(snapshot_of(*records))
    assert replayed(seen, 9).problem_with(9, LATER) is not None


def test_a_registration_behind_the_snapshot_is_looked_for_in_the_log() -> None:
    seen = MetadataLineage(1, 5, MINE)
    seen.loaded(snapshot_of(register(1, 0)))
    assert replayed(seen, 9).problem_with(9, LATER) is not None
    seen = MetadataLineage(1, 5, MINE)
    seen.loaded(snapshot_of(register(1, 0)))
    assert replayed(seen, 5, 9).problem_with(9, LATER) is None


def test_a_registration_older_than_the_history_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "REGISTRATIONS_MAX", 2)
    seen = MetadataLineage(1, 0, MINE)
    seen.loaded(snapshot_of(*(register(1, offset) for offset in range(4))))
    assert replayed(seen, 9).problem_with(9, LATER) is None


def test_logs_of_deleted_and_moved_partitions_were_given_once() -> None:
    topic = TopicRecord("t", KEY.topic_id)
    for last in (RemoveTopicRecord(KEY.topic_id), change(replicas=(2, 3))):
        seen = MetadataLineage(1)
        seen.loaded(snapshot_of(topic, partition(1), last))
        assert seen.problem_with_logs([KEY]) is None
    seen = MetadataLineage(1)
    seen.loaded(snapshot_of(topic, partition(2, replicas=(2, 3))))
    assert seen.problem_with_logs([KEY]) is not None


def test_logs_are_no_evidence_when_the_history_has_dropped_assignments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history_module, "ASSIGNMENTS_MAX", 0)
    seen = MetadataLineage(1)
    topic = TopicRecord("t", KEY.topic_id)
    seen.loaded(snapshot_of(topic, partition(1), RemoveTopicRecord(KEY.topic_id)))
    assert seen.problem_with_logs([KEY]) is None
