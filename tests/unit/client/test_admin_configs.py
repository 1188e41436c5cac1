"""Configuration and features: rows become values and errors, changes become requests."""

import pytest

from holdfast.client.admin import Admin
from holdfast.client.admin_configs import ConfigEntry, FeatureRow, FeatureUpdate, Resource
from holdfast.client.core.errors import ClientError, RowError
from holdfast.metadata.image import CLUSTER_RESOURCE, DEFAULT_CLIENT, RESOURCE_CLIENT, RESOURCE_TOPIC
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages import configs as c
from holdfast.protocol.messages.client_quotas import (
    ClientQuota,
    ClientWithQuotas,
    DescribeClientQuotasResponse,
)
from holdfast.protocol.messages.features import (
    DescribedFeature,
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
    UpgradeType,
)
from tests.unit.client.test_admin import admin, asked, play
from tests.unit.client.test_consumer import Play

__all__ = ["admin", "play"]

TOPIC = Resource.topic("t")


def test_resources_are_called_as_images_call_them() -> None:
    assert Resource.cluster() == CLUSTER_RESOURCE
    assert Resource.topic("t") == (RESOURCE_TOPIC, "t")
    assert Resource.client("c") == (RESOURCE_CLIENT, "c")
    assert Resource.client(None) == DEFAULT_CLIENT


async def test_quotas_come_by_client_and_the_default_has_no_name(play: Play, admin: Admin) -> None:
    rows = (
        ClientWithQuotas("", (ClientQuota("consumer_byte_rate", 7),)),
        ClientWithQuotas("c", (ClientQuota("consumer_byte_rate", 5), ClientQuota("producer_byte_rate", 6))),
    )
    play.cluster.scripted = [DescribeClientQuotasResponse(0, None, rows)] * 2
    found = await play.until(admin.describe_client_quotas())
    assert found == {None: {"consumer_byte_rate": 7}, "c": {"consumer_byte_rate": 5, "producer_byte_rate": 6}}
    await play.until(admin.describe_client_quotas([None, "c"]))
    questions = asked(play, ApiKey.DESCRIBE_CLIENT_QUOTAS)
    assert [question.client_ids for question in questions] == [None, ("", "c")]


async def test_described_keys_come_with_their_source_and_refused_resources_with_their_error(
    play: Play, admin: Admin
) -> None:
    row = c.DescribedConfig("retention.ms", "5", c.ConfigSource.TOPIC, "7", "long", "Age.")
    results = (
        c.DescribeConfigsResult(0, None, *TOPIC, (row,)),
        c.DescribeConfigsResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic x", 2, "x", ()),
    )
    play.cluster.scripted = [c.DescribeConfigsResponse(0, None, results)]
    found = await play.until(admin.describe_configs([TOPIC, Resource.topic("x")], ["retention.ms"]))
    assert found == {
        TOPIC: [ConfigEntry("retention.ms", "5", "TOPIC", "7", "long", "Age.")],
        Resource.topic("x"): RowError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic x"),
    }
    (request,) = asked(play, ApiKey.DESCRIBE_CONFIGS)
    assert [resource.configuration_keys for resource in request.resources] == [("retention.ms",)] * 2


async def test_a_value_is_set_and_none_is_deleted(play: Play, admin: Admin) -> None:
    rows = (
        c.AlterConfigsResult(0, None, *TOPIC),
        c.AlterConfigsResult(ErrorCode.INVALID_CONFIG, "too small", *Resource.cluster()),
    )
    play.cluster.scripted = [c.IncrementalAlterConfigsResponse(0, None, rows)]
    changes: dict[Resource, dict[str, str | None]] = {
        TOPIC: {"b": None, "a": "1"},
        Resource.cluster(): {"c": "2"},
    }
    found = await play.until(admin.alter_configs(changes, validate_only=True))
    assert found == {TOPIC: None, Resource.cluster(): RowError(ErrorCode.INVALID_CONFIG, "too small")}
    (request,) = asked(play, ApiKey.INCREMENTAL_ALTER_CONFIGS)
    assert request.validate_only
    set_a = c.AlterableConfig("a", c.ConfigOperation.SET, "1")
    delete_b = c.AlterableConfig("b", c.ConfigOperation.DELETE, None)
    assert [resource.configs for resource in request.resources] == [
        (set_a, delete_b),
        (c.AlterableConfig("c", c.ConfigOperation.SET, "2"),),
    ]


async def test_a_change_whose_answer_was_lost_is_made_again(play: Play, admin: Admin) -> None:
    done = c.IncrementalAlterConfigsResponse(0, None, (c.AlterConfigsResult(0, None, *TOPIC),))
    play.cluster.scripted = [done, done]
    play.cluster.brokers[1].answers_lost = 1
    assert await play.until(admin.alter_configs({TOPIC: {"a": "1"}})) == {TOPIC: None}


async def test_features_come_with_the_offset_that_they_belong_to(play: Play, admin: Admin) -> None:
    play.cluster.features = (DescribedFeature("f", 0, 2, 1),)
    features, offset = await play.until(admin.describe_features())
    assert (features, offset) == ([FeatureRow("f", 0, 2, 1)], play.cluster.offset)


async def test_a_downgrade_is_asked_for_as_one_and_a_refusal_raised(play: Play, admin: Admin) -> None:
    refused = UpdatableFeatureResult("f", ErrorCode.INVALID_UPDATE_VERSION, "too high")
    code = ErrorCode.INVALID_UPDATE_VERSION
    play.cluster.scripted = [
        UpdateFeaturesResponse(0, None, ()),
        UpdateFeaturesResponse(code, "too high", (refused,)),
    ]
    down = {"f": FeatureUpdate(0, allow_downgrade=True), "g": FeatureUpdate(1)}
    await play.until(admin.update_features(down))
    with pytest.raises(ClientError, match="too high") as caught:
        await play.until(admin.update_features({"f": FeatureUpdate(9)}, validate_only=True))
    assert caught.value.code is code
    first, second = asked(play, ApiKey.UPDATE_FEATURES)
    kinds = [(row.feature, row.max_version_level, row.upgrade_type) for row in first.feature_updates]
    assert kinds == [("f", 0, UpgradeType.SAFE_DOWNGRADE), ("g", 1, UpgradeType.UPGRADE)]
    assert (first.validate_only, second.validate_only) == (False, True)
