"""DescribeClientQuotas and AlterClientQuotas, and what a throttled client is told."""

from typing import Any

import pytest

from holdfast.kafka_listener.core.api_table import KafkaApi
from holdfast.kafka_listener.core.translation import Ask
from holdfast.kafka_listener.core.translations import TRANSLATIONS
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.client_quotas import (
    ClientQuota,
    ClientWithQuotas,
    DescribeClientQuotasResponse,
)
from holdfast.protocol.messages.configs import AlterConfigsResult, IncrementalAlterConfigsResponse
from holdfast.runtime.memory.machine import settle
from tests.unit.kafka_listener.cluster_view import VIEW
from tests.unit.kafka_listener.test_server import KafkaNode, produce
from tests.unit.kafka_listener.test_translations import answer_of, asks, request_of, written

DESCRIBE, ALTER = KafkaApi.DESCRIBE_CLIENT_QUOTAS, KafkaApi.ALTER_CLIENT_QUOTAS
EXACT, DEFAULT, ANY = 0, 1, 2
INVALID = int(ErrorCode.INVALID_REQUEST)


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def filtered(*components: dict[str, Any], strict: bool = False) -> Any:
    """What comes of a question with these filters, in Kafka's form unless it is a question to the broker."""
    request = request_of(DESCRIBE, 1, {"components": components, "strict": strict})
    outcome = TRANSLATIONS[DESCRIBE](request, VIEW)
    return outcome if isinstance(outcome, Ask) else written(request, outcome)


@pytest.mark.parametrize(
    ("components", "asked"),
    [
        ([], None),
        ([component("client-id", ANY)], None),
        ([component("client-id", EXACT, "c")], ("c",)),
        ([component("client-id", DEFAULT)], ("",)),
    ],
)
def test_clients_are_asked_for_by_their_match(
    components: list[dict[str, Any]], asked: tuple[str, ...] | None
) -> None:
    assert filtered(*components).message.client_ids == asked


def test_the_default_of_all_clients_has_no_name() -> None:
    rows = (
        ClientWithQuotas("", (ClientQuota("consumer_byte_rate", 8),)),
        ClientWithQuotas("c", (ClientQuota("producer_byte_rate", 5),)),
    )
    ask = asks(DESCRIBE, 1, {"components": (), "strict": False})
    request = request_of(DESCRIBE, 1, {"components": (), "strict": False})
    found = written(request, ask.answer(DescribeClientQuotasResponse(0, None, rows)))
    assert [
        (row["entity"][0]["entity_name"], [(one["key"], one["value"]) for one in row["values"]])
        for row in found["entries"]
    ] == [(None, [("consumer_byte_rate", 8.0)]), ("c", [("producer_byte_rate", 5.0)])]


@pytest.mark.parametrize(
    ("components", "strict"),
    [([component("user", ANY)], False), ([component("ip", EXACT, "::1")], False), ([], True)],
)
def test_users_and_addresses_have_no_quotas(components: list[dict[str, Any]], *, strict: bool) -> None:
    found = filtered(*components, strict=strict)
    assert (found["error_code"], found["entries"]) == (0, ())


@pytest.mark.parametrize(
    "components",
    [
        [component("host", ANY)],
        [component("client-id", 3)],
        [component("client-id", EXACT)],
        [component("client-id", EXACT, "")],
        [component("client-id", DEFAULT, "c")],
        [component("client-id", ANY), component("client-id", DEFAULT)],
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components: list[dict[str, Any]]) -> None:
    found = filtered(*components)
    assert (found["error_code"], found["entries"]) == (INVALID, None)
    assert found["error_message"]


def entry(*entity: tuple[str, str | None], key: str = "producer_byte_rate", value: float = 5.0) -> Any:
    """Sets a quota; a value of 0 removes it."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value, "remove": not value}],
    }


def test_quotas_become_values_of_clients_and_each_entry_has_its_answer() -> None:
    entries = [
        entry(("user", "u")),
        entry(("client-id", "c")),
        entry(("client-id", "c"), ("user", "u")),
        entry(("client-id", None), value=0),
        entry(("client-id", "d"), value=0.5),
        entry(("client-id", "e"), value=float("nan")),
        entry(("client-id", "")),
        entry(("client-id", "f"), value=1e300),
    ]
    request = request_of(ALTER, 1, {"entries": entries, "validate_only": True})
    ask = TRANSLATIONS[ALTER](request, VIEW)
    assert isinstance(ask, Ask)
    assert ask.message.validate_only
    assert [
        (row.resource_type, row.resource_name, *((one.config_operation, one.value) for one in row.configs))
        for row in ask.message.resources
    ] == [(100, "c", (0, "5")), (100, "", (1, None)), (100, "f", (0, str(int(1e300))))]
    codes = (0, 0, int(ErrorCode.INVALID_CONFIG))
    rows = tuple(AlterConfigsResult(code, None, 100, name) for code, name in zip(codes, "cdf", strict=True))
    answers = (
        (IncrementalAlterConfigsResponse(0, None, rows), (0, 0, INVALID)),
        (IncrementalAlterConfigsResponse(int(ErrorCode.NOT_CONTROLLER), "elsewhere", ()), None),
    )
    for answer, expected in answers:
        found = written(request, ask.answer(answer))["entries"]
        own = [row["error_code"] for row in found]
        assert [own[number] for number in (0, 2, 4, 5, 6)] == [INVALID] * 5
        of_broker = [own[number] for number in (1, 3, 7)]
        assert tuple(of_broker) == expected if expected else 0 not in of_broker
        assert [row["entity"][0]["entity_name"] for row in found] == ["u", "c", "c", None, "d", "e", "", "f"]


def test_entries_that_are_all_refused_ask_no_broker() -> None:
    entries = [entry(("ip", "::1")), entry(("client-id", "x" * 256))]
    request = request_of(ALTER, 1, {"entries": entries, "validate_only": False})
    rows = written(request, TRANSLATIONS[ALTER](request, VIEW))["entries"]
    assert [row["error_code"] for row in rows] == [INVALID, INVALID]


async def test_the_answer_tells_a_throttled_client_how_long_its_connection_rests() -> None:
    node = KafkaNode()
    peer = await node.peer()
    await peer.send(produce(1, -1))
    node.parked[0].throttle(700)
    node.parked[0].respond(answer_of(node.parked[0].message))
    await settle()
    (answer,) = peer.answers
    # behind the rows of a flexible answer: the time, and no tagged fields
    assert int.from_bytes(answer[-5:-1], "big") == 700
    await peer.send(produce(2, -1))
    await node.world.clock.advance(699)
    await settle()
    assert len(node.parked) == 1
    await node.world.clock.advance(1)
    await settle()
    assert len(node.parked) == 2
    node.parked[1].respond(answer_of(node.parked[1].message))
    await settle()
    assert int.from_bytes(peer.answers[1][-5:-1], "big") == 0
