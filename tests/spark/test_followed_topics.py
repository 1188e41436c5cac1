"""Topics that ledgers name while they are followed: awaited, read, or withdrawn for a kept reason."""

from pathlib import Path

import pytest

from holdfast.client.core.errors import ClientError
from holdfast.durability.followed_topics import FollowedTopics
from holdfast.protocol.id_text import encode_id
from tests.spark.planted_log import PlantedLogs

pytestmark = pytest.mark.spark


def of(folder: Path, node: PlantedLogs) -> FollowedTopics:
    return FollowedTopics(folder, node.address, 30_000)


def doubts_of(topics: FollowedTopics) -> list[str]:
    return list(topics.doubts)


def read_of(topics: FollowedTopics) -> list[str]:
    return list(topics.read)


def test_a_topic_is_awaited_until_there_is_one_of_its_name(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": (), "later": ()})
        topics.look()
        assert read_of(topics) == ["t"]
        assert doubts_of(topics) == ["topic later: there is none of that name, nothing of it was judged"]
        node.plant("later", 0, [])
        assert topics.are_awaited
        topics.look()
        assert read_of(topics) == ["later", "t"]
        assert doubts_of(topics) == []


def test_a_topic_that_is_compacted_once_is_withdrawn_for_good(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): [], ("u", 0): []}, compacted=["t"]) as node:
        of(tmp_path, node).heard({"t": (), "u": ()})
        of(tmp_path, node).look()
    with PlantedLogs({("t", 0): [], ("u", 0): []}) as node:
        later = of(tmp_path, node)
        later.look()
        assert (list(later.named), read_of(later)) == (["t", "u"], ["u"])
        (doubt,) = doubts_of(later)
        assert doubt.startswith("t: cleanup.policy has compact")


def test_a_topic_of_another_id_than_acknowledged_is_withdrawn(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": [encode_id(node.topic_id("t"))]})
        topics.look()
        assert doubts_of(topics) == []
        node.make_again("t")
        assert topics.look_at({("t", 0)}) == {}
        (doubt,) = doubts_of(topics)
        assert doubt.startswith("topic t was deleted and created again")


def test_nothing_is_said_of_a_topic_that_is_read_and_not_there(tmp_path: Path) -> None:
    """The broker that was asked may not know it yet: the micro-batch fails, and is judged again."""
    with PlantedLogs({("t", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": (), "gone": ()})
        topics.subscribed = ("gone", "t")
        with pytest.raises(ClientError, match="topic gone: UNKNOWN_TOPIC_OR_PARTITION"):
            topics.look_at({("t", 0), ("gone", 0)})
        topics.subscribed = ("t",)
        assert topics.look_at({("t", 0), ("gone", 0)}) == {("t", 0): 0}
