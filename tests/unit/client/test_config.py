"""Settings that cannot be are refused when a client is made, with a sentence that names them."""

from typing import Any

import pytest

from holdfast.client.consumer import Consumer
from holdfast.client.core.config import ConsumerConfig, ProducerConfig
from holdfast.client.core.fetcher_effects import ResetPolicy
from holdfast.client.producer import Producer


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"acks": "some"}, "acks 'some'"),
        ({"compression": "brotli"}, "compression brotli: expected one of none, gzip"),
        ({"in_flight_max": 6}, "in_flight_max 6: idempotent producers have 1 to 5"),
        ({"batch_size_bytes": 0}, "batch_size_bytes must be above 0"),
        ({"batch_size_bytes": 5 << 20}, "not above request_size_bytes_max"),
        ({"request_size_bytes_max": 64 << 20}, "no frame has room for more"),
        ({"linger_ms": -1}, "linger_ms must not be negative"),
        ({"linger_ms": 5, "delivery_timeout_ms": 5}, "delivery_timeout_ms must be above it"),
    ],
)
def test_a_producer_refuses_what_cannot_be(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Producer("h:1", **settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"auto_offset_reset": "newest"}, "newest: expected earliest, latest or none"),
        ({"max_wait_ms": 5_000}, "request_timeout_ms must be above max_wait_ms"),
    ],
)
def test_a_consumer_refuses_what_cannot_be(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Consumer("h:1", **settings)


def test_without_answers_there_is_no_idempotence() -> None:
    config: ProducerConfig = Producer("h:1", acks=0).config
    assert config.idempotent
    assert not config.for_sender().idempotent


def test_the_words_of_a_reset_policy_are_those_of_kafka() -> None:
    config: ConsumerConfig = Consumer("h:1", auto_offset_reset="latest").config
    assert config.for_fetcher().reset is ResetPolicy.LATEST
