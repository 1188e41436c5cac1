"""Well-formed requests with any values: each has an answer, and what is asked of brokers can be sent on."""

from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.translation import Ask, HangUp
from holdfast.kafka_listener.core.translations import TRANSLATIONS
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import API_OF_REQUEST
from holdfast.protocol.schema.fields import Attachment, decode_message, encode_message
from tests.unit.kafka_listener.cluster_view import VIEW
from tests.unit.kafka_listener.hostile import requests
from tests.unit.kafka_listener.test_translations import answer_of, request_of, written


def forwarded(message: Any) -> None:
    """What another node reads of our request."""
    version, attachment = API_OF_REQUEST[type(message)].max_version, Attachment()
    raw = msgpack.unpackb(msgpack.packb(encode_message(message, version, attachment)))
    decode_message(type(message), raw, version, memoryview(b"".join(attachment.buffers)))


@given(requests, st.booleans())
@settings(max_examples=150)
def test_every_value_that_the_schemas_allow_has_an_answer(
    wanted: tuple[KafkaApi, int, dict[str, Any]], refused: bool
) -> None:
    request = request_of(*wanted)
    outcome = TRANSLATIONS[request.api](request, VIEW)
    while isinstance(outcome, Ask):
        forwarded(outcome.message)
        if refused:
            outcome = outcome.refused(ErrorCode.BROKER_NOT_AVAILABLE, "try again")
        else:
            outcome = outcome.answer(answer_of(outcome.message))
    assert outcome is None or isinstance(outcome, HangUp) or written(request, outcome)
