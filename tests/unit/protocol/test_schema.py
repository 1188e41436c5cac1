"""Schemas are the single truth: what they declare comes back, else is refused with its path (D3)."""

import dataclasses
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast.protocol.messages.topics import DeletableTopicResult, DeleteTopicsResponse
from holdfast.protocol.messages.unregister_broker import UnregisterBrokerResponse
from holdfast.protocol.schema.fields import (
    ARRAY_MAX,
    BYTES_MAX,
    NESTING_MAX,
    SENTENCE_MAX,
    STRING_MAX,
    Attachment,
    FieldSpec,
    FieldType,
    Kind,
    SchemaError,
    array,
    array_of,
    binary,
    boolean,
    decode_by_schema,
    decode_message,
    encode_message,
    field,
    has_later_fields,
    int8,
    int32,
    int64,
    message,
    nullable,
    records,
    schema_of,
    sentence,
    string,
    struct,
    uuid,
)
from tests.unit.protocol.samples import MESSAGE_CLASSES, messages_of, sample


@message
class Inner:
    """A nested message that has grown by one field."""

    number: int = field(int8, "A number.")
    text: str | None = field(nullable(string), "A text.", since=2, default="unset")


@message
class Outer:
    """Every kind of field, and kinds inside kinds."""

    flag: bool = field(boolean, "A flag.")
    topic_id: bytes = field(uuid, "A uuid.")
    blob: bytes = field(binary, "Bytes.")
    inner: Inner | None = field(nullable(struct(Inner)), "One.")
    inners: tuple[Inner, ...] = field(array_of(Inner, limit=4), "Some.")
    grid: tuple[tuple[int, ...] | None, ...] = field(array(nullable(array(int32))), "Rows of numbers.")
    data: memoryview = field(records, "Records.")
    more: int = field(int64, "New in 1.", since=1, default=-1)
    most: tuple[Inner, ...] = field(array_of(Inner), "New in 2.", since=2, default=())


OUTER = Outer(
    flag=True,
    topic_id=bytes(16),
    blob=b"b",
    inner=Inner(1, None),
    inners=(Inner(2, "two"), Inner(-128, "")),
    grid=((1, 2), None, ()),
    data=memoryview(b"records"),
    more=5,
    most=(Inner(3, "three"),),
)


def over_the_wire(value: Any, version: int) -> tuple[Any, memoryview]:
    attachment = Attachment()
    packed = msgpack.packb(encode_message(value, version, attachment))
    return msgpack.unpackb(packed), memoryview(b"".join(attachment.buffers))


def latest_version(cls: type) -> int:
    """In which the message has all its fields, and those of the messages inside."""
    latest = 0
    for spec in schema_of(cls):
        inner: FieldType | None = spec.type
        while inner is not None and inner.cls is None:
            inner = inner.of
        nested = 0 if inner is None or inner.cls is None else latest_version(inner.cls)
        latest = max(latest, spec.since, nested)
    return latest


@pytest.mark.parametrize("cls", MESSAGE_CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=15)  # for each of the classes
@given(data=st.data())
def test_every_declared_message_comes_back_as_it_was(cls: type, data: st.DataObject) -> None:
    value = data.draw(messages_of(cls))
    latest = latest_version(cls)
    raw, attachment = over_the_wire(value, latest)
    assert decode_message(cls, raw, latest, attachment) == value


@given(value=messages_of(Outer), version=st.integers(0, 2))
def test_kinds_inside_kinds_come_back_at_every_version(value: Outer, version: int) -> None:
    raw, attachment = over_the_wire(value, version)
    back = decode_message(Outer, raw, version, attachment)
    if version == 2:
        assert back == value
    assert (back.flag, back.grid, back.data) == (value.flag, value.grid, value.data)
    assert back.more == (value.more if version else -1)


# --- evolution --------------------------------------------------------------------------------------------


def test_an_older_version_leaves_out_what_came_later_and_the_reader_takes_defaults() -> None:
    raw, attachment = over_the_wire(OUTER, 0)
    assert len(raw) == 7
    back = decode_message(Outer, raw, 0, attachment)
    expected = dataclasses.replace(
        OUTER,
        inner=Inner(1, "unset"),
        inners=(Inner(2, "unset"), Inner(-128, "unset")),
        more=-1,
        most=(),
    )
    assert back == expected


def test_a_peer_that_sends_fewer_appended_fields_than_its_version_has_gets_defaults() -> None:
    raw, attachment = over_the_wire(OUTER, 2)
    back = decode_message(Outer, raw[:8], 2, attachment)
    assert back == dataclasses.replace(OUTER, most=())


def test_extra_trailing_elements_of_a_newer_peer_are_passed_over() -> None:
    raw, attachment = over_the_wire(OUTER, 2)
    raw[3].append("newer")
    raw.append([[["newer"]]])
    assert decode_message(Outer, raw, 2, attachment) == OUTER


def test_extra_elements_may_not_nest_without_bound() -> None:
    raw, attachment = over_the_wire(OUTER, 2)
    extra: list[Any] = []
    for _ in range(NESTING_MAX - 1):
        extra = [extra]
    assert decode_message(Outer, [*raw, extra], 2, attachment) == OUTER
    with pytest.raises(SchemaError, match="nests deeper"):
        decode_message(Outer, [*raw, [extra]], 2, attachment)


def test_only_appended_fields_may_be_new() -> None:
    with pytest.raises(AssertionError, match="only appends"):

        @message
        class Wrong:
            late: int = field(int8, "Late.", since=1, default=0)
            early: int = field(int8, "Early.", default=0)

    with pytest.raises(AssertionError, match="needs a default"):
        field(int8, "No default.", since=1)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "raw", "text"),
    [
        (0, 1, "Outer.flag: expected boolean, got int"),
        (1, bytes(15), "Outer.topic_id: expected a uuid of 16 bytes"),
        (2, "b", "Outer.blob: expected bytes, got str"),
        (2, bytes(BYTES_MAX + 1), f"Outer.blob: {BYTES_MAX + 1} bytes are more than {BYTES_MAX}"),
        (3, [128], "Outer.inner.number: 128 is outside int8"),
        (3, [True, None], "Outer.inner.number: expected int8, got bool"),
        (3, [], "Outer.inner: field number is missing"),
        (3, "x", "Outer.inner: expected an array of fields, got str"),
        (4, [[1, 5]], "Outer.inners.text: expected string, got int"),
        (4, [[1, "x" * (STRING_MAX + 1)]], "Outer.inners.text: string of 32768 characters is longer"),
        (4, [[1, ""]] * 5, "Outer.inners: array of 5 is longer than 4"),
        (4, None, "Outer.inners: expected array of Inner, got NoneType"),
        (5, [[1.5]], "Outer.grid: expected int32, got float"),
        (5, [[2**31]], "Outer.grid: 2147483648 is outside int32"),
        (5, [[[]]], "Outer.grid: expected int32, got list"),
        (6, [0], r"Outer.data: expected \[offset, length\]"),
        (6, [0, 8], r"Outer.data: \[0, 8\] lies outside the attachment of 7 bytes"),
        (6, [-1, 2], "lies outside the attachment"),
        (6, [1, -1], "lies outside the attachment"),
        (6, [0.0, 1], r"expected \[offset, length\]"),
        (7, 2**63, "Outer.more: 9223372036854775808 is outside int64"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(position: int, raw: Any, text: str) -> None:
    fields, attachment = over_the_wire(OUTER, 2)
    fields[position] = raw
    with pytest.raises(SchemaError, match=text):
        decode_message(Outer, fields, 2, attachment)


def test_a_message_that_is_no_array_or_too_short_is_refused() -> None:
    with pytest.raises(SchemaError, match="Outer: expected an array of fields, got dict"):
        decode_message(Outer, {}, 0, memoryview(b""))
    with pytest.raises(SchemaError, match="Outer: field topic_id is missing"):
        decode_message(Outer, [True], 0, memoryview(b""))


def test_arrays_have_a_limit_where_none_is_declared() -> None:
    with pytest.raises(SchemaError, match=f"longer than {ARRAY_MAX}"):
        decode_message(FetchResponse, [0, None, [None] * (ARRAY_MAX + 1)], 0, memoryview(b""))


# --- the compiled codec equals the reference ------------------------------------------------------------

raw_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=3)
    | st.binary(max_size=17),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)


@given(value=messages_of(Outer), version=st.integers(0, 2), data=st.data())
def test_compiled_and_reference_codec_agree_on_damaged_messages(
    value: Outer, version: int, data: st.DataObject
) -> None:
    raw, attachment = over_the_wire(value, version)
    place = raw
    while True:
        action = data.draw(st.sampled_from(["replace", "remove", "add", "descend"]))
        nested = [item for item in place if type(item) is list]
        if action == "descend" and nested:
            place = data.draw(st.sampled_from(nested))
            continue
        position = data.draw(st.integers(0, len(place)))
        if action == "add" or position == len(place):
            place.insert(position, data.draw(raw_values))
        elif action == "remove":
            del place[position]
        else:
            place[position] = data.draw(raw_values)
        break
    outcomes: list[Any] = []
    for decode in (decode_message, decode_by_schema):
        try:
            outcomes.append(decode(Outer, raw, version, attachment))
        except SchemaError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@given(value=messages_of(Outer), version=st.integers(0, 2), data=st.data())
def test_a_field_that_is_not_declared_is_seen_at_any_depth(
    value: Outer, version: int, data: st.DataObject
) -> None:
    raw, _ = over_the_wire(value, version)
    assert not has_later_fields(Outer, raw)
    inners = [item for item in [raw[3], *raw[4]] if item is not None]
    place = data.draw(st.sampled_from([raw, *inners]))
    known = len(schema_of(Outer if place is raw else Inner))
    place += [0] * (known - len(place) + 1)
    assert has_later_fields(Outer, raw)


# --- messages as values -----------------------------------------------------------------------------------


def test_messages_are_frozen_hashable_values() -> None:
    one, other = Inner(1, "a"), Inner(number=1, text="a")
    assert one == other
    assert hash(one) == hash(other)
    assert Inner(1) == Inner(1, "unset")
    assert repr(one) == "Inner(number=1, text='a')"
    assert dataclasses.replace(one, number=2) == Inner(2, "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.number = 2  # type: ignore[misc]
    decoded = decode_message(Inner, [1, "a"], 2, memoryview(b""))
    assert type(decoded) is Inner
    with pytest.raises(dataclasses.FrozenInstanceError):
        decoded.number = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Inner()  # type: ignore[call-arg]


def test_records_may_be_given_as_one_buffer_or_as_several() -> None:
    attachment = Attachment()
    several = dataclasses.replace(OUTER, data=[b"rec", memoryview(b"ords")])  # type: ignore[arg-type]
    assert encode_message(several, 0, attachment)[6] == [0, 7]
    assert encode_message(OUTER, 0, attachment)[6] == [7, 7]
    assert [bytes(buffer) for buffer in attachment.buffers] == [b"rec", b"ords", b"records"]


@pytest.mark.parametrize(
    "answer",
    [
        UnregisterBrokerResponse(5, "e" * (STRING_MAX + 1)),
        DeleteTopicsResponse(0, None, (DeletableTopicResult("t", bytes(16), 3, "e" * (STRING_MAX + 1)),)),
    ],
)
def test_an_error_that_names_what_a_peer_sent_is_one_that_the_peer_reads(answer: Any) -> None:
    """A name may have as many characters as a string; with a sentence around it, it would be no string."""
    raw, attachment = over_the_wire(answer, 0)
    read = decode_message(type(answer), raw, 0, attachment)
    row = read.topics[0] if isinstance(read, DeleteTopicsResponse) else read
    assert row.error_message == "e" * SENTENCE_MAX
    short = decode_message(UnregisterBrokerResponse, [5, None], 0, memoryview(b""))
    assert encode_message(short, 0, Attachment()) == [5, None]


def all_fields() -> list[tuple[str, FieldSpec]]:
    """The declared fields of all messages and of what they nest, with the class that each is of."""
    classes = dict.fromkeys(MESSAGE_CLASSES)
    waiting = list(classes)
    while waiting:
        for spec in schema_of(waiting.pop()):
            waiting += [inner for inner in spec.type.inner if inner not in classes]
            classes.update(dict.fromkeys(spec.type.inner))
    assert all(cls.__doc__ for cls in classes)
    return [(f"{cls.__name__}.{spec.name}", spec) for cls in classes for spec in schema_of(cls)]


def test_every_error_message_is_cut() -> None:
    found = [spec.type.of for _, spec in all_fields() if spec.name == "error_message"]
    assert len(found) > 30
    assert set(found) == {sentence}


def test_every_field_says_what_it_is_in_a_sentence() -> None:
    assert [name for name, spec in all_fields() if not spec.about.endswith(".")] == []


def test_records_travel_only_outside_msgpack() -> None:
    request = sample(FetchRequest)
    assert all(spec.type.kind is not Kind.RECORDS for spec in schema_of(FetchRequest))
    raw, attachment = over_the_wire(sample(FetchResponse), 0)
    assert b"records " not in msgpack.packb(raw)
    assert bytes(attachment).count(b"records ") == 2
    assert request == sample(FetchRequest)


def test_every_api_has_an_answer_class_and_versions() -> None:
    for key, api in APIS.items():
        assert key is api.key
        assert 0 <= api.min_version <= api.max_version
        assert schema_of(api.response)
