"""Drafts: scratch replay before anything is written (D7), and a bounded number of lines."""

import pytest

from holdfast.controller.core import answers
from holdfast.controller.core.draft import NOTES_MAX, Draft
from holdfast.controller.core.partitions.partition_change import InvariantBroken
from holdfast.controller.core.producer_ids import BLOCK_LENGTH, allocate
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import TopicRecord, UnfenceBrokerRecord
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.producer_ids import AllocateProducerIdsRequest
from holdfast.runtime.stats import Level
from tests.unit.metadata.test_delta import register


def test_later_steps_see_what_earlier_ones_have_drafted() -> None:
    base = MetadataImage()
    draft = Draft(base, 5, 1)
    assert draft.image is base
    draft.write(register(7, 5))
    draft.write(UnfenceBrokerRecord(7, 5))
    assert draft.image.is_active(7)
    assert (draft.base_offset, draft.next_offset, draft.image.offset) == (5, 7, 7)
    assert not base.brokers


def test_a_record_that_replay_would_complain_about_cannot_be_drafted() -> None:
    draft = Draft(MetadataImage(), 0, 1)
    draft.write(TopicRecord("t", b"t" * 16))
    leader_outside_isr = PartitionRegistration((1, 2), (2,), 1, 0, 0, 1)
    with pytest.raises(InvariantBroken, match="leader must be in isr"):
        draft.write(leader_outside_isr.to_record(b"t" * 16, 0))


def test_what_is_written_whole_is_one_part_and_all_else_one_each() -> None:
    """K21."""
    draft = Draft(MetadataImage(), 0, 1)
    ids = [bytes([number]) * 16 for number in range(5)]
    draft.write(TopicRecord("t0", ids[0]))
    with draft.whole():
        draft.write(TopicRecord("t1", ids[1]))
        with draft.whole():
            draft.write(TopicRecord("t2", ids[2]))
        draft.write(TopicRecord("t3", ids[3]))
    with draft.whole():
        pass
    draft.write(TopicRecord("t4", ids[4]))
    parts = [[record.name for record in part if type(record) is TopicRecord] for part in draft.parts()]
    assert parts == [["t0"], ["t1", "t2", "t3"], ["t4"]]


def test_lines_are_bounded_and_the_rest_is_counted() -> None:
    draft = Draft(MetadataImage(), 0, 1)
    for number in range(NOTES_MAX + 5):
        if draft.has_room_for_note():
            draft.note(str(number))
    draft.note("important", Level.WARNING)
    texts = [note.text for note in draft.all_notes()]
    assert texts[NOTES_MAX - 1 :] == [str(NOTES_MAX - 1), "important", texts[-1]]
    assert texts[-1].startswith("... and 5 more transitions")


def test_blocks_of_producer_ids_never_overlap() -> None:
    """D12."""
    draft = Draft(MetadataImage(), 0, 1)
    draft.write(register(7, 0))
    starts = [allocate(draft, AllocateProducerIdsRequest(7, 0)).producer_id_start for _ in range(3)]
    assert starts == [0, BLOCK_LENGTH, 2 * BLOCK_LENGTH]
    assert allocate(draft, AllocateProducerIdsRequest(7, 9)).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_every_write_has_an_answer_that_refuses_it() -> None:
    for request_class in answers.WRITES:
        request = object.__new__(request_class)
        refused = answers.refusal(request, ErrorCode.NOT_CONTROLLER, "ask another")
        assert (refused.error_code, refused.error_message) == (ErrorCode.NOT_CONTROLLER, "ask another")
    with pytest.raises(AssertionError):
        answers.refusal(object(), ErrorCode.NOT_CONTROLLER, "")
