"""Configuration and features as administrators see them: values with their sources, levels with their ranges.

All changes may be repeated when an answer was lost: setting a key or a level again changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.client.admin_rows import ask_whole, check_complete
from holdfast.client.cluster_client import ClusterClient
from holdfast.client.core.errors import RowError, row_error
from holdfast.protocol.messages.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from holdfast.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ResourceType,
)
from holdfast.protocol.messages.features import FeatureUpdate as WireFeatureUpdate
from holdfast.protocol.messages.features import UpdateFeaturesRequest, UpgradeType
from holdfast.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse


class Resource(NamedTuple):
    """What has configuration: a topic, a client, a broker, or the whole cluster. Equals the pair that images
    use as key."""

    kind: int
    name: str

    @classmethod
    def topic(cls, name: str) -> "Resource":
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def cluster(cls) -> "Resource":
        """The cluster itself."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def broker(cls, broker_id: int) -> "Resource":
        """One broker."""
        return cls(ResourceType.BROKER, str(broker_id))

    @classmethod
    def client(cls, client_id: str | None) -> "Resource":
        """A client, None for the default of all clients. It has quotas alone."""
        return cls(ResourceType.CLIENT, client_id or "")


#: Each gives a dozen rows: more of them would hold up the broker that answers.
RESOURCES_A_REQUEST = 500


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as it counts for a resource."""

    name: str
    #: None when it is unset
    value: str | None
    #: TOPIC, BROKER, CLUSTER, STATIC (file of the node that answered) or DEFAULT
    source: str
    default: str | None
    #: int, long, boolean, string, list or enum
    kind: str
    doc: str


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """A feature; all levels are inclusive."""

    name: str
    min_supported: int
    max_supported: int
    #: 0 is off
    finalized_level: int


class Features(NamedTuple):
    """Features by name, and the metadata offset at which that was so."""

    features: list[FeatureRow]
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """A level that is wanted; a lower one than before only if that is allowed."""

    level: int
    allow_downgrade: bool = False


async def describe_configs(
    cluster: ClusterClient, resources: Sequence[Resource], keys: Sequence[str] | None, timeout_ms: float
) -> dict[Resource, list[ConfigEntry] | RowError]:
    """See `Admin.describe_configs`."""
    wanted = None if keys is None else tuple(keys)
    asked = [ConfigResource(*resource, wanted) for resource in dict.fromkeys(resources)]
    rows: list[DescribeConfigsResult] = []
    for start in range(0, len(asked), RESOURCES_A_REQUEST):
        request = DescribeConfigsRequest(tuple(asked[start : start + RESOURCES_A_REQUEST]))
        answer: DescribeConfigsResponse
        answer, _ = await ask_whole(cluster, request, timeout_ms, "DescribeConfigs")
        rows += answer.results
    found: dict[Resource, list[ConfigEntry] | RowError] = {}
    for row in rows:
        error = row_error(row.error_code, row.error_message)
        found[Resource(row.resource_type, row.resource_name)] = error or [
            ConfigEntry(
                config.name,
                config.value,
                ConfigSource(config.config_source).name,
                config.default_value,
                config.config_type,
                config.documentation,
            )
            for config in row.configs
        ]
    check_complete(resources, found, "DescribeConfigs")
    return found


async def alter_configs(
    cluster: ClusterClient,
    changes: Mapping[Resource, Mapping[str, str | None]],
    validate_only: bool,
    timeout_ms: float,
) -> dict[Resource, RowError | None]:
    """See `Admin.alter_configs`."""
    resources = tuple(
        AlterConfigsResource(
            *resource, tuple(_change(name, value) for name, value in sorted(of_resource.items()))
        )
        for resource, of_resource in changes.items()
    )
    answer: IncrementalAlterConfigsResponse
    request = IncrementalAlterConfigsRequest(validate_only, resources)
    answer, _ = await ask_whole(cluster, request, timeout_ms, "IncrementalAlterConfigs")
    errors = {
        Resource(row.resource_type, row.resource_name): row_error(row.error_code, row.error_message)
        for row in answer.responses
    }
    check_complete(changes, errors, "IncrementalAlterConfigs")
    return errors


async def describe_client_quotas(
    cluster: ClusterClient, client_ids: Sequence[str | None] | None, timeout_ms: float
) -> dict[str | None, dict[str, int]]:
    """See `Admin.describe_client_quotas`."""
    asked = None if client_ids is None else tuple(name or "" for name in client_ids)
    answer: DescribeClientQuotasResponse
    request = DescribeClientQuotasRequest(asked)
    answer, _ = await ask_whole(cluster, request, timeout_ms, "DescribeClientQuotas")
    return {
        row.client_id or None: {quota.name: quota.value for quota in row.quotas} for row in answer.clients
    }


def _change(name: str, value: str | None) -> AlterableConfig:
    return AlterableConfig(name, ConfigOperation.DELETE if value is None else ConfigOperation.SET, value)


async def describe_features(cluster: ClusterClient, timeout_ms: float) -> Features:
    """See `Admin.describe_features`."""
    answer: DescribeClusterResponse
    answer, _ = await ask_whole(cluster, DescribeClusterRequest(), timeout_ms, "DescribeCluster")
    rows = [
        FeatureRow(row.name, row.min_supported_level, row.max_supported_level, row.finalized_level)
        for row in answer.features
    ]
    return Features(rows, answer.metadata_offset)


async def update_features(
    cluster: ClusterClient, updates: Mapping[str, FeatureUpdate], validate_only: bool, timeout_ms: float
) -> None:
    """See `Admin.update_features`."""
    rows = tuple(
        WireFeatureUpdate(
            name, update.level, UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
        )
        for name, update in updates.items()
    )
    await ask_whole(
        cluster, UpdateFeaturesRequest(int(timeout_ms), validate_only, rows), timeout_ms, "UpdateFeatures"
    )
