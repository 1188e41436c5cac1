"""The bytes that members say to each other, against those of two libraries."""

from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from holdfast.client.core.groups.consumer_protocol import (
    UNKNOWN_GENERATION,
    Subscription,
    assigned_partitions,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from holdfast.protocol.topic_names import TopicPartition

T0, T2, U1 = TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)
SAID = Subscription(("t", "ü"), (T0, T2, U1), 7)


def of_kio(message: str, version: int) -> Any:
    """kio's module with the classes of a message."""
    return import_module(f"kio.schema.consumer_protocol_{message}.v{version}.data")


def written(version: int, **fields: object) -> bytes:
    """A subscription as kio writes it."""
    kind = of_kio("subscription", version).ConsumerProtocolSubscription
    buffer = BytesIO()
    entity_writer(kind)(buffer, kind(topics=("t", "ü"), **fields))
    return version.to_bytes(2, "big") + buffer.getvalue()


def test_what_is_said_is_understood() -> None:
    assert decode_subscription(encode_subscription(SAID)) == SAID
    assert assigned_partitions(encode_assignment((T2, U1, T0))) == (T0, T2, U1)
    assert assigned_partitions(encode_assignment(())) == ()


def test_kio_reads_the_same() -> None:
    said, _ = entity_reader(of_kio("subscription", 3).ConsumerProtocolSubscription)(
        encode_subscription(SAID), 2
    )
    assert (said.topics, said.user_data, said.generation_id, said.rack_id) == (("t", "ü"), None, 7, None)
    assert [(row.topic, row.partitions) for row in said.owned_partitions] == [("t", (0, 2)), ("u", (1,))]
    given_, _ = entity_reader(of_kio("assignment", 3).ConsumerProtocolAssignment)(
        encode_assignment((T0, U1)), 2
    )
    assert [(row.topic, row.partitions) for row in given_.assigned_partitions] == [("t", (0,)), ("u", (1,))]


def test_aiokafka_reads_the_same_though_it_knows_only_the_first_version() -> None:
    said = ConsumerProtocolMemberMetadata.decode(encode_subscription(SAID))
    assert said.subscription == ["t", "ü"]
    assigned = ConsumerProtocolMemberAssignment.decode(encode_assignment((T0, T2)))
    assert [tuple(one) for one in assigned.partitions()] == [T0, T2]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_a_subscription_is_read(version: int) -> None:
    fields: dict[str, object] = {"user_data": b"of its own"}
    if version >= 1:
        row = of_kio("subscription", version).TopicPartition
        fields["owned_partitions"] = (row(topic="t", partitions=(0, 2)),)
    if version >= 2:
        fields["generation_id"] = 7
    expected = Subscription(
        ("t", "ü"), (T0, T2) if version >= 1 else (), 7 if version >= 2 else UNKNOWN_GENERATION
    )
    assert decode_subscription(written(version, **fields)) == expected


def test_a_version_of_the_future_begins_as_the_newest_known_one() -> None:
    newest = encode_subscription(SAID)
    assert decode_subscription(b"\x00\x09" + newest[2:] + b"more") == SAID


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\x00\x03\x00\x00\x00\x01" + rest))
def test_any_bytes_are_something_or_nothing_and_never_an_error(packed: bytes) -> None:
    assert isinstance(assigned_partitions(packed), tuple)
    said = decode_subscription(packed)
    assert said is None or all(isinstance(topic, str) for topic in said.topics)


def test_a_count_of_thousands_of_millions_costs_nothing() -> None:
    assert decode_subscription(b"\x00\x01\x7f\xff\xff\xff") is None
    assert assigned_partitions(b"\x00\x01\x7f\xff\xff\xff") == ()
