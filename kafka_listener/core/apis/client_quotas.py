"""DescribeClientQuotas and AlterClientQuotas: how fast clients may send and fetch, by client id.

There are no users here, and addresses have no quotas: a question about them finds none, and to set one is
refused.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.kafka_listener.core.envelope import Request
from holdfast.kafka_listener.core.error_codes import admin_code, kafka_code
from holdfast.kafka_listener.core.schema_writer import Fields
from holdfast.kafka_listener.core.translation import Ask, ClusterView, Outcome
from holdfast.protocol.envelope import CLIENT_ID_MAX
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ResourceType,
)

_CLIENT_ID = "client-id"
_ENTITY_TYPES = (_CLIENT_ID, "user", "ip")
#: Kafka's ways to match an entity.
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_ONLY_CLIENTS = "quotas are by client-id alone here: name one, or the default with a null name"


def describe_client_quotas(request: Request, cluster: ClusterView) -> Outcome:
    """By client id, the default included; those of users and addresses are never there."""
    components: Sequence[Any] = request.message.components
    problem = _filter_problem(components)
    if problem is not None:
        return _described(kafka_code(ErrorCode.INVALID_REQUEST), problem, None)
    if any(one.entity_type != _CLIENT_ID for one in components):
        return _described(0, None, [])
    if not components and request.message.strict:
        return _described(0, None, [])
    wanted = components[0] if components else None

    def answer(response: DescribeClientQuotasResponse) -> Outcome:
        rows: list[Fields] = [
            {
                "entity": [_entity(row.client_id)],
                "values": [{"key": quota.name, "value": float(quota.value)} for quota in row.quotas],
            }
            for row in response.clients
        ]
        return _described(kafka_code(response.error_code), response.error_message, rows)

    asked = None
    if wanted is not None and wanted.match_type != _ANY:
        asked = (wanted.match if wanted.match_type == _EXACT else "",)
    return Ask(
        DescribeClientQuotasRequest(asked),
        answer,
        lambda code, text: _described(admin_code(code), text, None),
    )


def _filter_problem(components: Sequence[Any]) -> str | None:
    types = [one.entity_type for one in components]
    if len(set(types)) < len(types):
        return "an entity type is named twice"
    for one in components:
        if one.entity_type not in _ENTITY_TYPES:
            return f"there is no entity type {one.entity_type}; expected {', '.join(_ENTITY_TYPES)}"
        if one.match_type not in (_EXACT, _DEFAULT, _ANY):
            return f"match type {one.match_type} is not 0 (exact), 1 (default) or 2 (any)"
        if (one.match_type == _EXACT) != (one.match is not None):
            return "an exact match has a name, another one has none"
        if one.match == "":
            return "a client without a name has no quota of its own; match the default"
    return None


def _described(code: int, text: str | None, rows: list[Fields] | None) -> Fields:
    return {"error_code": code, "error_message": text, "entries": rows}


def _entity(client_id: str) -> Fields:
    return {"entity_type": _CLIENT_ID, "entity_name": client_id or None}


# --- AlterClientQuotas ---------------------------------------------------------------------------------


def alter_client_quotas(request: Request, cluster: ClusterView) -> Outcome:
    """Set and remove quotas of client ids and of the default; the broker forwards them."""
    entries: Sequence[Any] = request.message.entries
    problems = [_entry_problem(entry) for entry in entries]
    resources = tuple(
        AlterConfigsResource(
            ResourceType.CLIENT, entry.entity[0].entity_name or "", tuple(map(_change, entry.ops))
        )
        for entry, problem in zip(entries, problems, strict=True)
        if problem is None
    )
    invalid = kafka_code(ErrorCode.INVALID_REQUEST)

    def rows(others: Iterable[tuple[int, str | None]]) -> Fields:
        """Give each entry without a problem of its own the next of `others`."""
        following = iter(others)
        return {
            "entries": [
                _altered(entry, *(next(following) if problem is None else (invalid, problem)))
                for entry, problem in zip(entries, problems, strict=True)
            ]
        }

    def answer(response: IncrementalAlterConfigsResponse) -> Outcome:
        if response.error_code:
            return refused(response.error_code, response.error_message or "")
        return rows((_code_of(row.error_code), row.error_message) for row in response.responses)

    def refused(code: int, text: str) -> Outcome:
        return rows((admin_code(code), text) for _ in resources)

    if not resources:
        return rows(())
    return Ask(IncrementalAlterConfigsRequest(request.message.validate_only, resources), answer, refused)


def _code_of(code: int) -> int:
    """Kafka's code of a change: for it a quota is no configuration."""
    return kafka_code(ErrorCode.INVALID_REQUEST if code == ErrorCode.INVALID_CONFIG else code)


def _entry_problem(entry: Any) -> str | None:
    if (
        len(entry.entity) != 1
        or entry.entity[0].entity_type != _CLIENT_ID
        or entry.entity[0].entity_name == ""
    ):
        return _ONLY_CLIENTS
    if len(entry.entity[0].entity_name or "") > CLIENT_ID_MAX:
        return f"a client id has at most {CLIENT_ID_MAX} characters"
    for change in entry.ops:
        if not change.remove and not float(change.value).is_integer():
            return f"{change.key}={change.value}: expected a whole number of bytes a second"
    return None


def _change(change: Any) -> AlterableConfig:
    if change.remove:
        return AlterableConfig(change.key, ConfigOperation.DELETE, None)
    return AlterableConfig(change.key, ConfigOperation.SET, str(int(change.value)))


def _altered(entry: Any, code: int, text: str | None) -> Fields:
    entity = [{"entity_type": one.entity_type, "entity_name": one.entity_name} for one in entry.entity]
    return {"error_code": code, "error_message": text, "entity": entity}
