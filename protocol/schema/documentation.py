"""Renders docs/protocol.md from the schemas, so that the page cannot say anything else than the code does.

Pure: gets the metadata record classes handed in (they are declared above this package) and returns text.
`python -m holdfast.tools.protocol_docs` writes the file; a test compares it.
"""

import dataclasses
from collections.abc import Mapping

from holdfast.protocol.envelope import CLIENT_ID_MAX
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import BODY_MAX_BYTES, FRAME_MAX_BYTES
from holdfast.protocol.messages import APIS, Api
from holdfast.protocol.record_batch import HEADER_SIZE
from holdfast.protocol.schema.fields import (
    ARRAY_MAX,
    BYTES_MAX,
    NESTING_MAX,
    SENTENCE_MAX,
    STRING_MAX,
    FieldSpec,
    schema_of,
)

_HEAD = f"""# The wire

Generated from the schemas by `python -m holdfast.tools.protocol_docs`; do not edit.

## Frames

TCP, both directions. Numbers in front are big endian.

| Bytes | Field | Meaning |
|---|---|---|
| 4 | `frame_length` | u32, bytes after this field, at most {FRAME_MAX_BYTES:,} |
| 4 | `body_length` | u32, bytes of the body, at most {BODY_MAX_BYTES:,} |
| `body_length` | body | one msgpack value |
| the rest | attachment | record batches, neither copied nor unpacked on the way |

A request's body is `[api_key, api_version, correlation_id, client_id, message]`, an answer's
`[correlation_id, message]`, or `[correlation_id, null, [error_code, text]]` when the request was refused as a
whole. Correlation ids are int32 from 0 on, chosen by the asking side, unique among its unanswered requests;
`client_id` has at most {CLIENT_ID_MAX} characters and is a label only. Requests of one connection are started
in the order of arrival; answers come when they are ready, in any order. The first request of a connection is
ApiVersions; each one after it goes in the highest version that both sides speak.

A message is a msgpack array of its fields in the order declared below. Evolution only appends: a reader gives
a missing appended field its default and passes over what it does not know.

| Type | In msgpack | Limit |
|---|---|---|
| `int8` `int16` `int32` `int64` | integer | signed range of that many bits |
| `boolean` | true or false | |
| `string` | str | {STRING_MAX:,} characters; an `error_message` is cut to {SENTENCE_MAX:,} |
| `bytes` | bin | {BYTES_MAX:,} bytes |
| `uuid` | bin | exactly 16 bytes |
| `array of T` | array | {ARRAY_MAX:,} elements |
| `nullable T` | nil or T | |
| `records` | `[offset, length]` into the attachment | inside the attachment |
| a message's name | array of its fields | unknown trailing fields nest at most {NESTING_MAX} levels |

Maps and extension types are not used and refused.

A request that does not fit gets MALFORMED_FRAME where its correlation id could be read, and its connection is
closed. An unknown API or version gets UNSUPPORTED_VERSION and the connection stays. A server may set lower
limits than these, stops reading from a connection that has too many unanswered requests or does not read its
answers, and closes one that takes too long over a frame, leaves its answers unread or is idle.

## Record batches

Fields of type `records` hold whole batches in Kafka's v2 format, byte for byte the one on disk: a header of
{HEADER_SIZE} bytes, then the records, compressed by the client or not. The leader sets `base offset` and
`leader epoch`; the crc covers neither.

| At | Bytes | Field |
|---|---|---|
| 0 | 8 | base offset |
| 8 | 4 | batch length: bytes after this field |
| 12 | 4 | leader epoch |
| 16 | 1 | magic: 2 |
| 17 | 4 | crc32c of all bytes after this field |
| 21 | 2 | attributes, by bit: 0-2 compression, 3 log append time, 4 transactional, 5 control |
| 23 | 4 | last offset delta |
| 27 | 8 | base timestamp, ms since the epoch |
| 35 | 8 | max timestamp |
| 43 | 8 | producer id, -1 for none |
| 51 | 2 | producer epoch |
| 53 | 4 | base sequence |
| 57 | 4 | record count |

Compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
"""


def render(record_classes: Mapping[int, type]) -> str:
    """The whole page. `record_classes` is `{record key: class}` of the metadata log."""
    parts = [_HEAD, "## APIs\n", _api_table()]
    for api in sorted(APIS.values(), key=lambda api: api.key):
        parts.append(f"### {_title(api)} ({int(api.key)})\n")
        parts += _message_parts([api.request, api.response])
    parts += ["## Metadata records\n", _RECORDS_TEXT]
    for key, cls in sorted(record_classes.items()):
        parts.append(f"### {cls.__name__} ({key})\n")
        parts += _message_parts([cls], title=False)
    parts += ["## Error codes\n", _error_table()]
    return "\n".join(parts).rstrip() + "\n"


_RECORDS_TEXT = (
    "A record's value is msgpack `[record_key, version, fields]`, the fields as in messages. Those from 200 "
    "on are in snapshots only.\n"
)


def _title(api: Api) -> str:
    return "".join(word.capitalize() for word in api.key.name.split("_"))


def _api_table() -> str:
    rows = [
        f"| [{_title(api)}](#{_title(api).lower()}-{int(api.key)}) | {int(api.key)} | "
        f"{api.min_version} to {api.max_version} | {_sentence(api.request)} |"
        for api in sorted(APIS.values(), key=lambda api: api.key)
    ]
    return "\n".join(["| API | Key | Versions | Request |", "|---|---|---|---|", *rows]) + "\n"


def _message_parts(classes: list[type], *, title: bool = True) -> list[str]:
    """Tables of the classes, each followed by the messages that it nests, each once."""
    parts: list[str] = []
    waiting, seen = list(classes), set(classes)
    while waiting:
        cls = waiting.pop(0)
        if title or cls not in classes:
            parts.append(f"**{cls.__name__}**\n")
        parts.append(f"{_sentence(cls)}\n")
        specs = schema_of(cls)
        if specs:
            parts.append(_field_table(specs))
        nested = [inner for spec in specs for inner in spec.type.inner if inner not in seen]
        seen.update(nested)
        waiting[:0] = dict.fromkeys(nested)
    return parts


def _field_table(specs: tuple[FieldSpec, ...]) -> str:
    has_versions = any(spec.since for spec in specs)
    head = ["| Field | Type | Meaning |", "|---|---|---|"]
    if has_versions:
        head = ["| Field | Type | Since | Meaning |", "|---|---|---|---|"]
    rows = []
    for spec in specs:
        since = f" {spec.since} |" if has_versions else ""
        default = "" if spec.default is dataclasses.MISSING else f" Default `{spec.default!r}`."
        rows.append(f"| `{spec.name}` | {spec.type.name} |{since} {_cell(spec.about)}{default} |")
    return "\n".join(head + rows) + "\n"


def _error_table() -> str:
    rows = [
        f"| {int(code)} | {code.name} | {'yes' if code.is_retriable else ''} |"
        for code in sorted(ErrorCode, key=int)
    ]
    head = [
        "A code never travels alone: a sentence beside it says what to do. Retriable: the same request may",
        "succeed later, perhaps at another node. Names and numbers are Kafka's, those above 200 are ours.\n",
        "| Code | Name | Retriable |",
        "|---|---|---|",
    ]
    return "\n".join(head + rows) + "\n"


def _sentence(cls: type) -> str:
    return _cell(" ".join((cls.__doc__ or "").split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
