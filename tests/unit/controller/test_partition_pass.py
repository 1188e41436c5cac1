"""A pass in slices looks at all partitions once, not in each slice, and has left nothing when it is over."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pytest

from holdfast.controller.core.draft import Draft
from holdfast.controller.core.partitions.partition_pass import PartitionPass
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.ids import PartitionId
from holdfast.metadata.image import MetadataImage
from holdfast.metadata.partition import PartitionRegistration
from holdfast.metadata.records import MetadataRecord, PartitionChangeRecord, RemoveTopicRecord, TopicRecord

#: `b` sorts behind `a`, though its id is lower
A, B = b"\x02" * 16, b"\x01" * 16
SLICE = 2


def applied(image: MetadataImage, *records: MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record, delta.apply().offset, 1)
    return delta.apply()


def partition(topic_id: bytes, index: int) -> MetadataRecord:
    return PartitionRegistration((1, 2), (1, 2), 1, 0, 0, 1).to_record(topic_id, index)


def with_isr(topic_id: bytes, index: int, *isr: int) -> MetadataRecord:
    nothing: dict[str, Any] = dict.fromkeys(field.name for field in fields(PartitionChangeRecord))
    changes = {"topic_id": topic_id, "partition_index": index, "isr": isr, "leader": isr[0]}
    return PartitionChangeRecord(**{**nothing, **changes})


class Pass:
    """Takes broker 1 out of all ISRs."""

    def __init__(self) -> None:
        topics = (TopicRecord("b", B), TopicRecord("a", A))
        self.image = applied(
            MetadataImage(), *topics, *(partition(topic, index) for topic in (B, A) for index in range(3))
        )
        self.looked_at = 0
        self._pass = PartitionPass()

    def slice(self, *, changes: bool = True) -> tuple[list[str], bool]:
        """The partitions that are visited, and whether that was the last slice."""
        draft, visited = Draft(self.image, self.image.offset, 1), []
        for topic, index, _ in self._pass.visits(draft, self._keys, self._is_wanted, SLICE):
            visited.append(f"{topic.name}{index}")
            if changes:
                draft.write(with_isr(topic.topic_id, index, 2))
        self.image = draft.image
        return visited, self._pass.is_over

    def rest(self, *, changes: bool = True) -> list[str]:
        visited: list[str] = []
        is_over = False
        while not is_over:
            more, is_over = self.slice(changes=changes)
            assert len(more) <= SLICE
            visited += more
        return visited

    def _keys(self, image: MetadataImage) -> Iterable[PartitionId]:
        return image.assigned_to(1)

    def _is_wanted(self, _: PartitionId, registration: PartitionRegistration) -> bool:
        self.looked_at += 1
        return 1 in registration.isr


@pytest.fixture
def of_six() -> Pass:
    return Pass()


def test_partitions_are_visited_by_topic_name_and_index(of_six: Pass) -> None:
    assert of_six.rest() == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_slice_looks_at_those_that_it_visits_alone(of_six: Pass) -> None:
    of_six.slice()
    assert of_six.looked_at == 6 + SLICE
    of_six.slice()
    assert of_six.looked_at == 6 + 2 * SLICE


def test_what_cannot_be_changed_counts_and_is_not_visited_again(of_six: Pass) -> None:
    """Ten thousand partitions of which none can be elected are no reason to stand still."""
    assert of_six.rest(changes=False) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_partition_that_is_wanted_anew_is_visited_before_the_pass_is_over(of_six: Pass) -> None:
    """The leader may take a broker back that is not fenced yet."""
    of_six.slice()
    of_six.image = applied(of_six.image, with_isr(A, 0, 1, 2))
    assert of_six.rest() == ["a2", "b0", "b1", "b2", "a0"]


def test_what_is_not_wanted_any_more_is_left_out(of_six: Pass) -> None:
    of_six.slice()
    of_six.image = applied(of_six.image, with_isr(A, 2, 2), RemoveTopicRecord(B))
    assert of_six.rest() == []


def test_without_a_limit_one_slice_visits_all(of_six: Pass) -> None:
    draft, rest = Draft(of_six.image, of_six.image.offset, 1), PartitionPass()
    visited = list(rest.visits(draft, lambda image: image.assigned_to(2), lambda *_: True))
    assert (len(visited), rest.is_over) == (6, True)
