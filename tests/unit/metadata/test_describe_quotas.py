"""Quotas of clients as an image has them, and DescribeClientQuotas about them."""

import pytest

from holdfast.metadata.answer_steps import in_one_go
from holdfast.metadata.delta import MetadataDelta
from holdfast.metadata.describe_quotas import describe_client_quotas_steps
from holdfast.metadata.history import MetadataHistory
from holdfast.metadata.image import CLUSTER_RESOURCE, DEFAULT_CLIENT, RESOURCE_CLIENT, MetadataImage
from holdfast.metadata.records import ConfigRecord
from holdfast.metadata.snapshot import MetadataState, SnapshotReader, snapshot_values
from holdfast.protocol.messages.client_quotas import (
    ClientQuota,
    ClientWithQuotas,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"


def image_with(*values: tuple[tuple[int, str], str, str | None]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for offset, (resource, name, value) in enumerate(values):
        delta.replay(ConfigRecord(*resource, name, value), offset, 1)
    return delta.apply()


IMAGE = image_with(
    ((RESOURCE_CLIENT, "b"), PRODUCER, "5"),
    ((RESOURCE_CLIENT, "b"), CONSUMER, "6"),
    ((RESOURCE_CLIENT, "a"), PRODUCER, "7"),
    (DEFAULT_CLIENT, CONSUMER, "8"),
    (CLUSTER_RESOURCE, "min.insync.replicas", "2"),
    ((RESOURCE_CLIENT, "gone"), PRODUCER, "9"),
    ((RESOURCE_CLIENT, "gone"), PRODUCER, None),
    ((RESOURCE_CLIENT, "later"), "request_percentage", "12.5"),
)


def test_an_image_has_the_quotas_of_clients_and_leaves_out_what_a_later_build_has_set() -> None:
    assert IMAGE.client_quotas() == {"": {CONSUMER: 8}, "a": {PRODUCER: 7}, "b": {CONSUMER: 6, PRODUCER: 5}}


@pytest.mark.parametrize(
    ("client_ids", "expected"), [(None, ["", "a", "b"]), (("b", "c"), ["b"]), (("",), [""]), ((), [])]
)
def test_all_or_some_are_described(client_ids: tuple[str, ...] | None, expected: list[str]) -> None:
    steps = describe_client_quotas_steps(IMAGE, DescribeClientQuotasRequest(client_ids))
    answer: DescribeClientQuotasResponse = in_one_go(steps)
    assert [row.client_id for row in answer.clients] == expected
    if client_ids is None:
        assert answer.clients[2] == ClientWithQuotas(
            "b", (ClientQuota(CONSUMER, 6), ClientQuota(PRODUCER, 5))
        )


def test_a_snapshot_keeps_them() -> None:
    reader = SnapshotReader()
    reader.take(snapshot_values(MetadataState(IMAGE, MetadataHistory())))
    assert reader.state(IMAGE.offset).image.client_quotas() == IMAGE.client_quotas()
