"""`holdfast configs --describe|--alter`: dynamic values of topics and of the whole cluster, and the quotas of
clients, in Kafka's spelling.

Kafka calls the cluster `--entity-type brokers --entity-default`; `--entity-type cluster` is the same here.
The run-time switches of unclean elections are keys of the cluster.
"""

import re
from typing import Any

import click

from holdfast.cli.admin_session import AdminSession, ask
from holdfast.cli.options import (
    INT32_MAX,
    CommandAnswer,
    bootstrap,
    one_action,
    output,
    read_properties,
    refuse_strangers,
    whole_number,
)
from holdfast.client.admin_configs import ConfigEntry, Resource
from holdfast.client.core.errors import RowError
from holdfast.metadata.image import RESOURCE_BROKER, RESOURCE_CLIENT
from holdfast.metadata.records import ELR_FEATURE
from holdfast.protocol.errors import ErrorCode

_MIN_ISR = "min.insync.replicas"
#: {option: the actions that it belongs to}
_ACTIONS_OF: dict[str, tuple[str, ...]] = {
    "all": ("describe",),
    "add_config": ("alter",),
    "add_config_file": ("alter",),
    "delete_config": ("alter",),
}
#: Kafka's names of where a value comes from
_SOURCES = {
    "TOPIC": "DYNAMIC_TOPIC_CONFIG",
    "BROKER": "DYNAMIC_BROKER_CONFIG",
    "CLUSTER": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC": "STATIC_BROKER_CONFIG",
    "DEFAULT": "DEFAULT_CONFIG",
}


@click.command()
@bootstrap
@click.option("--describe", "actions", flag_value="describe", multiple=True, help="Show values.")
@click.option("--alter", "actions", flag_value="alter", multiple=True, help="Set or take away values.")
@click.option(
    "--entity-type",
    required=True,
    type=click.Choice(["topics", "brokers", "cluster", "clients"]),
    help="What is configured; brokers with --entity-default is the cluster.",
)
@click.option("--entity-name", help="A topic or client id; --describe without it shows all of them.")
@click.option(
    "--entity-default", is_flag=True, help="With brokers or clients: what counts where no other value does."
)
@click.option("--all", is_flag=True, help="--describe: values that were never set, too.")
@click.option("--add-config", metavar="K=V[,K=V]", help="--alter: set these; a list is K=[V,V].")
@click.option("--add-config-file", metavar="FILE", help="--alter: set what this properties file says.")
@click.option("--delete-config", metavar="K[,K]", help="--alter: take these away.")
@output
def command(actions: tuple[str, ...], **given: Any) -> None:
    """Show and change dynamic configuration."""
    action = one_action(actions, ("describe", "alter"))
    refuse_strangers(action, given, _ACTIONS_OF)
    resource = _resource(action, given["entity_type"], given["entity_name"], given["entity_default"])
    is_of_clients = given["entity_type"] == "clients"
    if is_of_clients and given["all"]:
        raise click.UsageError("a client has what was set for it alone; leave --all away")
    changes = _changes(action, given)
    answer = CommandAnswer(f"configs-{action}")
    text: list[str] = []

    async def act(session: AdminSession) -> None:
        if action == "describe" and is_of_clients:
            text.extend(await _describe_quotas(session, resource))
        elif action == "describe":
            text.extend(await _describe(session, resource, everything=given["all"]))
        else:
            assert resource is not None
            text.extend(await _alter(session, resource, changes))

    ask(given, answer, act)
    answer.finish(given["output"], "\n".join(text))


def _resource(action: str, kind: str, name: str | None, is_default: bool) -> Resource | None:
    """What is meant; None for every topic, or every client. Raises: click.UsageError."""
    if name is not None and (is_default or kind == "cluster"):
        raise click.UsageError("--entity-name names one thing, the cluster has no name")
    if kind == "cluster":
        return Resource.cluster()
    if kind == "topics":
        if is_default:
            raise click.UsageError("topics have no --entity-default; the cluster's values are their defaults")
        if name is None and action == "alter":
            raise click.UsageError("--alter needs --entity-name")
        return None if name is None else Resource.topic(name)
    if kind == "clients":
        if name == "":
            raise click.UsageError("--entity-name is empty; --entity-default is for clients without quotas")
        if name is None and not is_default:
            if action == "alter":
                raise click.UsageError("--alter needs --entity-name or --entity-default")
            return None
        return Resource.client(name)
    if is_default:
        return Resource.cluster()
    if name is None:
        raise click.UsageError("--entity-type brokers needs --entity-default (the cluster) or --entity-name")
    if whole_number(name, INT32_MAX) is None:
        raise click.UsageError(f"--entity-name {name}: a broker is named by its number")
    return Resource.broker(int(name))


def _changes(action: str, given: dict[str, Any]) -> dict[str, str | None]:
    """{key: its new value, or None to take it away}. Raises: click.UsageError."""
    if action == "describe":
        return {}
    options = ("add_config", "add_config_file", "delete_config")
    named = [f"--{name.replace('_', '-')}" for name in options if given[name] is not None]
    if not named:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    if given["add_config"] is not None and given["add_config_file"] is not None:
        raise click.UsageError("--add-config and --add-config-file exclude each other")
    changes: dict[str, str | None] = {}
    if given["add_config_file"] is not None:
        changes.update(read_properties(given["add_config_file"]))
    if given["add_config"] is not None:
        changes.update(added_configs(given["add_config"]))
    for key in (key.strip() for key in (given["delete_config"] or "").split(",")):
        if key in changes:
            raise click.UsageError(f"{key} is both added and deleted")
        if key:
            changes[key] = None
    if not changes:
        raise click.UsageError(f"{named[0]} names no key")
    return changes


def added_configs(text: str) -> dict[str, str]:
    """The pairs of `k=v,k=[v,v]`; brackets keep the commas of a list. Raises: click.UsageError."""
    found: dict[str, str] = {}
    for pair in re.split(r",(?![^\[]*\])", text):
        key, separator, value = (part.strip() for part in pair.partition("="))
        if not separator or not key:
            raise click.UsageError(f"--add-config {text}: all configs must be in the format key=val")
        if value.startswith("[") != value.endswith("]"):
            raise click.UsageError(f"--add-config {text}: a list is written [a,b]")
        if key in found:
            raise click.UsageError(f"--add-config {text}: {key} is there twice")
        found[key] = value.removeprefix("[").removesuffix("]")
    return found


# --- describe --------------------------------------------------------------------------------------------


async def _describe(session: AdminSession, resource: Resource | None, *, everything: bool) -> list[str]:
    if resource is None:
        names = await session.admin.list_topics(timeout_ms=session.timeout_ms)
        resources = [Resource.topic(name) for name in names]
    else:
        resources = [resource]
    if not resources:
        session.answer.data = []
        return []
    found = await session.admin.describe_configs(resources, timeout_ms=session.timeout_ms)
    session.answer.data = []
    lines: list[str] = []
    for one, entries in found.items():
        if isinstance(entries, RowError):
            resource_refused(session.answer, one, entries)
            continue
        shown = [entry for entry in entries if everything or _is_set_for(one, entry)]
        session.answer.data.append(_resource_json(one, shown))
        lines += [_head(one, everything=everything), *map(entry_line, shown)]
    return lines


def _is_set_for(resource: Resource, entry: ConfigEntry) -> bool:
    if resource == Resource.cluster():
        return entry.source == "CLUSTER"
    return entry.source == ("TOPIC" if resource == Resource.topic(resource.name) else "BROKER")


def _head(resource: Resource, *, everything: bool) -> str:
    kind = "All" if everything else "Dynamic"
    if resource == Resource.cluster():
        return f"{'All d' if everything else 'D'}efault configs for brokers in the cluster are:"
    return f"{kind} configs for {_name(resource)} are:"


def entry_line(entry: ConfigEntry) -> str:
    """One key as Kafka prints it; the synonyms are what is known of where the value comes from."""
    synonyms = [] if entry.value is None else [f"{_SOURCES[entry.source]}:{entry.name}={entry.value}"]
    if entry.source != "DEFAULT" and entry.default is not None:
        synonyms.append(f"DEFAULT_CONFIG:{entry.name}={entry.default}")
    value = "null" if entry.value is None else entry.value
    return f"  {entry.name}={value} sensitive=false synonyms={{{', '.join(synonyms)}}}"


def _resource_json(resource: Resource, entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        **_resource_name(resource),
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": _SOURCES[entry.source],
                "default": entry.default,
                "type": entry.kind,
                "doc": entry.doc,
            }
            for entry in entries
        ],
    }


async def _describe_quotas(session: AdminSession, resource: Resource | None) -> list[str]:
    asked = None if resource is None else [resource.name or None]
    found = await session.admin.describe_client_quotas(asked, timeout_ms=session.timeout_ms)
    session.answer.data = [
        {"entity": "client", "client": client_id, "quotas": quotas} for client_id, quotas in found.items()
    ]
    return [
        f"Quota configs for {_name(Resource.client(client_id))} are "
        + ", ".join(f"{name}={value}" for name, value in quotas.items())
        for client_id, quotas in found.items()
    ]


# --- alter -----------------------------------------------------------------------------------------------


async def _alter(session: AdminSession, resource: Resource, changes: dict[str, str | None]) -> list[str]:
    if resource.kind == RESOURCE_BROKER and resource.name and _MIN_ISR in changes:
        features = await session.admin.describe_features(timeout_ms=session.timeout_ms)
        if any(row.name == ELR_FEATURE and row.finalized_level >= 1 for row in features.features):
            text = f"Broker-level {_MIN_ISR} cannot be altered while ELR is enabled; use --entity-default"
            resource_refused(session.answer, resource, RowError(ErrorCode.INVALID_CONFIG, text))
            return []
    deleted = sorted(key for key, value in changes.items() if value is None)
    if deleted:
        there = await _set_keys(session, resource)
        if isinstance(there, RowError):
            resource_refused(session.answer, resource, there)
            return []
        missing = [key for key in deleted if key not in there]
        if missing:
            text = f"Invalid config(s): {','.join(missing)}; only what `--describe` shows can be deleted"
            resource_refused(session.answer, resource, RowError(ErrorCode.INVALID_CONFIG, text))
            return []
    outcome = await session.admin.alter_configs({resource: changes}, timeout_ms=session.timeout_ms)
    for one, error in outcome.items():
        if error is not None:
            resource_refused(session.answer, one, error)
    if session.answer.errors:
        return []
    session.answer.data = {**_resource_name(resource), "changes": changes}
    if resource == Resource.cluster():
        return ["Completed updating default config for brokers in the cluster."]
    return [f"Completed updating config for {_name(resource)}."]


async def _set_keys(session: AdminSession, resource: Resource) -> set[str] | RowError:
    """The keys that were set for the resource."""
    if resource.kind == RESOURCE_CLIENT:
        client_id = resource.name or None
        quotas = await session.admin.describe_client_quotas([client_id], timeout_ms=session.timeout_ms)
        return set(quotas.get(client_id, {}))
    rows = (await session.admin.describe_configs([resource], timeout_ms=session.timeout_ms))[resource]
    if isinstance(rows, RowError):
        return rows
    return {entry.name for entry in rows if _is_set_for(resource, entry)}


def resource_refused(answer: CommandAnswer, resource: Resource, error: RowError) -> None:
    """Take down what was said about one resource."""
    where = _resource_name(resource)
    node = {} if "topic" in where else {"node": _name(resource)}
    answer.errors.append({"code": error.code.name, **where, **node, "message": error.message})


def _name(resource: Resource) -> str:
    if resource == Resource.cluster():
        return "the cluster"
    if resource == Resource.client(None):
        return "the default client-id"
    if resource.kind == RESOURCE_CLIENT:
        return f"client-id '{resource.name}'"
    kind = "broker" if resource.kind == RESOURCE_BROKER else "topic"
    return f"{kind} {resource.name}"


def _resource_name(resource: Resource) -> dict[str, Any]:
    if resource == Resource.cluster():
        return {"entity": "cluster"}
    if resource.kind == RESOURCE_CLIENT:
        return {"entity": "client", "client": resource.name or None}
    if resource.kind == RESOURCE_BROKER:
        return {"entity": "broker", "broker": int(resource.name)}
    return {"entity": "topic", "topic": resource.name}
