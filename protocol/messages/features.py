"""UpdateFeatures (57), and the row that DescribeCluster tells of each feature.

Kafka tells levels in ApiVersions; ours is answered by the transport, which knows no metadata.
"""

from enum import IntEnum

from holdfast.protocol.schema.fields import (
    array_of,
    boolean,
    field,
    int8,
    int16,
    int32,
    message,
    nullable,
    sentence,
    string,
)


class UpgradeType(IntEnum):
    """What the caller allows, numbered as in Kafka."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@message
class DescribedFeature:
    """One feature: what every registered broker and this software support, and what is in force."""

    name: str = field(string, "Feature.")
    min_supported_level: int = field(int16, "Lowest.")
    max_supported_level: int = field(int16, "Highest.")
    finalized_level: int = field(int16, "Level in force, 0 for off.")


@message
class FeatureUpdate:
    """A level that is wanted."""

    feature: str = field(string, "Feature.")
    max_version_level: int = field(int16, "Level to finalize.")
    upgrade_type: int = field(int8, "1 upgrade, 2 safe downgrade, 3 unsafe downgrade.")


@message
class UpdateFeaturesRequest:
    """All levels are finalized, or none. Answered when the records are committed."""

    timeout_ms: int = field(int32, "How long the caller waits.")
    validate_only: bool = field(boolean, "Check, change nothing.")
    feature_updates: tuple[FeatureUpdate, ...] = field(array_of(FeatureUpdate), "Each feature once.")


@message
class UpdatableFeatureResult:
    """What is wrong with one level."""

    feature: str = field(string, "Feature.")
    error_code: int = field(int16, "NONE, INVALID_UPDATE_VERSION or INVALID_REQUEST.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")


@message
class UpdateFeaturesResponse:
    """With any error nothing was changed."""

    error_code: int = field(int16, "The first row's error, NOT_CONTROLLER and the like.")
    error_message: str | None = field(nullable(sentence), "What to do about the error.")
    results: tuple[UpdatableFeatureResult, ...] = field(
        array_of(UpdatableFeatureResult), "In order of the request."
    )
