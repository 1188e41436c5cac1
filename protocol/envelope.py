"""What surrounds a message in a frame's body: who asks what in which version, and which answer is whose (D3).

Request `[api_key, api_version, correlation_id, client_id, message]`; answer `[correlation_id, message]`, or
`[correlation_id, null, [error_code, text]]` when the request was refused before any handler saw it whole.
Pure: builds and takes apart bodies, decides nothing.
"""

from typing import Any, NamedTuple

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import encode_frame
from holdfast.protocol.messages import Api
from holdfast.protocol.schema.fields import SENTENCE_MAX, Attachment, Buffer, SchemaError, encode_message

#: Correlation ids are int32 from 0 on, unique among the unanswered requests of a connection.
CORRELATION_ID_MAX = (1 << 31) - 1
CLIENT_ID_MAX = 255


class MalformedRequest(SchemaError):
    """The body is no request. `correlation_id` is None when not even that could be read."""

    def __init__(self, text: str, correlation_id: int | None) -> None:
        super().__init__(text)
        self.correlation_id = correlation_id


class RequestParts(NamedTuple):
    """A request whose message is not decoded yet."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    message: Any


class ResponseParts(NamedTuple):
    """An answer whose message is not decoded yet, or a refusal."""

    correlation_id: int
    message: Any
    refusal: tuple[int, str] | None


def encode_request(
    api: Api, api_version: int, correlation_id: int, client_id: str, message: Any
) -> list[Buffer]:
    """The buffers of a request's frame. Raises: FrameTooLarge."""
    attachment = Attachment()
    fields = encode_message(message, api_version, attachment)
    return encode_frame([int(api.key), api_version, correlation_id, client_id, fields], attachment.buffers)


def encode_response(api_version: int, correlation_id: int, message: Any) -> list[Buffer]:
    """The buffers of an answer's frame. Raises: FrameTooLarge."""
    attachment = Attachment()
    return encode_frame(
        [correlation_id, encode_message(message, api_version, attachment)], attachment.buffers
    )


def encode_refusal(correlation_id: int, error_code: ErrorCode, text: str) -> list[Buffer]:
    """The buffers of a refusal's frame."""
    return encode_frame([correlation_id, None, [int(error_code), text[:SENTENCE_MAX]]])


def parse_request(body: Any) -> RequestParts:
    """Take a request's body apart. Raises: MalformedRequest."""
    if type(body) is list and len(body) == 5:
        api_key, api_version, correlation_id, client_id, message = body
        if (
            type(api_key) is int
            and type(api_version) is int
            and type(client_id) is str
            and len(client_id) <= CLIENT_ID_MAX
            and _is_correlation_id(correlation_id)
        ):
            return RequestParts(api_key, api_version, correlation_id, client_id, message)
    known = type(body) is list and len(body) > 2 and _is_correlation_id(body[2])
    raise MalformedRequest(
        "a request is [api_key int, api_version int, correlation_id int32 from 0, "
        f"client_id string of at most {CLIENT_ID_MAX}, message array]",
        body[2] if known else None,
    )


def parse_response(body: Any) -> ResponseParts:
    """Take an answer's body apart. Raises: SchemaError."""
    if type(body) is list and len(body) in (2, 3) and _is_correlation_id(body[0]):
        if len(body) == 2:
            return ResponseParts(body[0], body[1], None)
        refusal = body[2]
        if (
            type(refusal) is list
            and len(refusal) == 2
            and type(refusal[0]) is int
            and type(refusal[1]) is str
            and body[1] is None
        ):
            return ResponseParts(body[0], None, (refusal[0], refusal[1]))
    raise SchemaError("an answer is [correlation_id, message] or [correlation_id, null, [error_code, text]]")


def _is_correlation_id(value: Any) -> bool:
    return type(value) is int and 0 <= value <= CORRELATION_ID_MAX
