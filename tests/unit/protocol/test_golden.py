"""The bytes of the wire never change by accident: one file an API and direction, one a metadata record.

`REWRITE_GOLDEN=1 pytest tests/unit/protocol/test_golden.py` refills the files; review the difference.
"""

import os
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.metadata.records import RECORD_CLASSES
from holdfast.metadata.snapshot_records import (
    SNAPSHOT_RECORD_CLASSES,
    decode_snapshot_record,
    encode_snapshot_record,
)
from holdfast.protocol.envelope import (
    encode_refusal,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.messages import APIS, Api
from holdfast.protocol.schema.fields import decode_message, schema_of
from tests.unit.protocol.samples import sample

ALL_RECORD_CLASSES = RECORD_CLASSES | SNAPSHOT_RECORD_CLASSES
FOLDER = Path(__file__).parent / "golden"
CORRELATION_ID = 0x01020304


def compare(name: str, data: bytes, story: Any) -> bytes:
    """The bytes in the golden file, after they were compared with `data`."""
    path = FOLDER / f"{name}.txt"
    rows = [data[start : start + 32].hex(" ") for start in range(0, len(data), 32)]
    text = "\n".join([f"# {story}", *rows]) + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"the bytes of {name} have changed"
    return bytes.fromhex("".join(line for line in path.read_text().splitlines() if not line.startswith("#")))


def as_of(version: int, message: Any) -> Any:
    """The message as a peer of that version knows it: later fields have their defaults, at any depth."""
    if isinstance(message, tuple):
        return tuple(as_of(version, item) for item in message)
    if not is_dataclass(message) or isinstance(message, type):
        return message
    fields = {
        spec.name: spec.default if spec.since > version else as_of(version, getattr(message, spec.name))
        for spec in schema_of(type(message))
    }
    return replace(message, **fields)


def cut(data: bytes) -> Any:
    (frame,) = FrameDecoder().feed(data)
    return frame


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.key.name.lower())
def test_frames_of_every_api_are_the_golden_bytes(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        request, response = as_of(version, sample(api.request)), as_of(version, sample(api.response))
        data = b"".join(encode_request(api, version, CORRELATION_ID, "golden", request))
        name = f"{api.key.name.lower()}_v{version}"
        frame = cut(compare(f"{name}_request", data, cut(data).body))
        parts = parse_request(frame.body)
        assert (parts.api_key, parts.api_version, parts.correlation_id, parts.client_id) == (
            api.key,
            version,
            CORRELATION_ID,
            "golden",
        )
        assert decode_message(api.request, parts.message, version, frame.attachment) == request

        data = b"".join(encode_response(version, CORRELATION_ID, response))
        frame = cut(compare(f"{name}_response", data, cut(data).body))
        answer = parse_response(frame.body)
        assert answer.correlation_id == CORRELATION_ID
        assert decode_message(api.response, answer.message, version, frame.attachment) == response


def test_a_refusal_is_the_golden_bytes() -> None:
    data = b"".join(encode_refusal(CORRELATION_ID, ErrorCode.UNSUPPORTED_VERSION, "ask ApiVersions first"))
    frame = cut(compare("refusal", data, cut(data).body))
    assert parse_response(frame.body).refusal == (35, "ask ApiVersions first")


@pytest.mark.parametrize("cls", ALL_RECORD_CLASSES.values(), ids=lambda cls: cls.__name__)
def test_metadata_records_are_the_golden_bytes(cls: type) -> None:
    record = sample(cls)
    data = encode_snapshot_record(record)
    assert decode_snapshot_record(compare(f"metadata_{cls.__name__}", data, record)) == record


def test_every_golden_file_belongs_to_something() -> None:
    expected = {f"metadata_{cls.__name__}" for cls in ALL_RECORD_CLASSES.values()} | {"refusal"}
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            expected |= {f"{api.key.name.lower()}_v{version}_{way}" for way in ("request", "response")}
    assert {path.stem for path in FOLDER.iterdir()} == expected
