"""What surrounds a message: requests and answers are taken apart or refused, with their id where known."""

from typing import Any

import pytest

from holdfast.protocol.envelope import (
    CORRELATION_ID_MAX,
    MalformedRequest,
    encode_refusal,
    parse_request,
    parse_response,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.frames import FrameDecoder
from holdfast.protocol.schema.fields import SchemaError


@pytest.mark.parametrize(
    ("body", "correlation_id"),
    [
        (["0", 0, 7, "c", []], 7),
        ([0, 0.0, 7, "c", []], 7),
        ([0, 0, 7, None, []], 7),
        ([0, 0, 7, "c" * 256, []], 7),
        ([0, 0, 7], 7),
        ([0, 0, 7, "c", [], 1], 7),
        ([0, 0, -1, "c", []], None),
        ([0, 0, CORRELATION_ID_MAX + 1, "c", []], None),
        ([0, 0, True, "c", []], None),
        ([0, 0], None),
        ("request", None),
        (None, None),
    ],
)
def test_what_is_no_request_is_refused_with_its_id_where_known(body: Any, correlation_id: int | None) -> None:
    with pytest.raises(MalformedRequest, match="a request is") as caught:
        parse_request(body)
    assert caught.value.correlation_id == correlation_id


@pytest.mark.parametrize("body", [[7], [7, None, [1]], [7, [], [1, "x"]], [-1, []], "x", [7, [], None, 0]])
def test_what_is_no_answer_is_refused(body: Any) -> None:
    with pytest.raises(SchemaError, match="an answer is"):
        parse_response(body)


def test_a_peer_never_gets_its_own_text_back_at_full_length() -> None:
    (frame,) = FrameDecoder().feed(b"".join(encode_refusal(1, ErrorCode.INVALID_REQUEST, "x" * 5_000)))
    assert parse_response(frame.body).refusal == (42, "x" * 1_000)
