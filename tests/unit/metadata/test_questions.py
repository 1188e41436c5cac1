"""The one table of questions: each is answered, by the answering node's own knowledge."""

from collections.abc import Generator
from typing import Any

import pytest

from holdfast.metadata import answer_steps as steps_of_answers
from holdfast.metadata.questions import QUESTION_APIS, Asked, answer_question, answer_steps
from holdfast.protocol.api_keys import ApiKey
from holdfast.protocol.messages import APIS
from holdfast.protocol.messages.client_quotas import DescribeClientQuotasRequest
from holdfast.protocol.messages.configs import ConfigResource, ConfigSource, DescribeConfigsRequest
from holdfast.protocol.messages.metadata import DescribeClusterRequest, MetadataRequest
from holdfast.protocol.messages.reassignments import ListPartitionReassignmentsRequest
from holdfast.protocol.messages.topics import DescribeTopicPartitionsRequest
from tests.unit.metadata.test_describe import IMAGE

ASKED = Asked("B", "c", None, 4, 2, {"min.insync.replicas": 3})
QUESTIONS = {
    ApiKey.METADATA: MetadataRequest(None),
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest((ConfigResource(4, "", ("min.insync.replicas",)),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest(0, None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasRequest(None),
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterRequest(),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DescribeTopicPartitionsRequest((), 100, None),
}


def test_every_question_has_the_answer_of_its_api() -> None:
    assert sorted(QUESTIONS) == sorted(QUESTION_APIS)
    for key, question in QUESTIONS.items():
        assert type(answer_question(IMAGE, question, ASKED)) is APIS[key].response


def test_answers_carry_what_only_the_asked_node_knows() -> None:
    cluster = answer_question(IMAGE, QUESTIONS[ApiKey.DESCRIBE_CLUSTER], ASKED)
    assert (cluster.cluster_id, cluster.controller_id, cluster.controller_epoch) == ("c", -1, 4)
    page = answer_question(IMAGE, QUESTIONS[ApiKey.DESCRIBE_TOPIC_PARTITIONS], ASKED)
    assert sum(len(topic.partitions) for topic in page.topics) == 2
    configs = answer_question(IMAGE, QUESTIONS[ApiKey.DESCRIBE_CONFIGS], ASKED)
    (value,) = configs.results[0].configs
    assert (value.value, value.config_source) == ("3", ConfigSource.STATIC)
    metadata = answer_question(IMAGE, QUESTIONS[ApiKey.METADATA], ASKED)
    assert [(broker.broker_id, broker.port) for broker in metadata.brokers] == [(1, 2)]


@pytest.mark.parametrize(("rows_a_step", "pauses"), [(1, 6), (2, 3), (100, 0)])
def test_an_answer_about_all_topics_is_made_in_steps_and_stays_the_same(
    rows_a_step: int, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two topics of four partitions: six rows."""
    whole = answer_question(IMAGE, QUESTIONS[ApiKey.METADATA], ASKED)
    monkeypatch.setattr(steps_of_answers, "ROWS_A_STEP", rows_a_step)
    taken: list[None] = []

    def take_all() -> Generator[None, None, Any]:
        steps = answer_steps(IMAGE, QUESTIONS[ApiKey.METADATA], ASKED)
        answer = yield from steps
        assert answer == whole

    taken += take_all()
    assert len(taken) == pauses
