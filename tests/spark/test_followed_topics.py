"""Topics that ledgers name while they are followed: awaited, read, or withdrawn for a kept reason."""

from pathlib import Path

import pytest

from holdfast.client.core.errors import ClientError
from holdfast.durability.followed_topics import FollowedTopics
from holdfast.protocol.errors import ErrorCode
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
        topics.were_judged(["t"])
        assert doubts_of(topics) == ["topic later: there is none of that name, nothing of it was judged"]
        node.plant("later", 0, [])
        assert topics.are_awaited
        topics.look()
        assert read_of(topics) == ["later", "t"]
        assert doubts_of(topics) == ["topic later: nothing of it was judged yet"]
        topics.were_judged(["later", "t"])
        assert doubts_of(topics) == []


def test_a_topic_that_is_compacted_once_is_withdrawn_for_good(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): [], ("u", 0): []}, compacted=["t"]) as node:
        of(tmp_path, node).heard({"t": (), "u": ()})
        of(tmp_path, node).look()
    with PlantedLogs({("t", 0): [], ("u", 0): []}) as node:
        later = of(tmp_path, node)
        later.look()
        later.were_judged(["u"])
        assert (list(later.named), read_of(later)) == (["t", "u"], ["u"])
        (doubt,) = doubts_of(later)
        assert doubt.startswith("t: cleanup.policy has compact")


def test_a_topic_of_another_id_than_acknowledged_is_withdrawn(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": [encode_id(node.topic_id("t"))]})
        topics.look()
        topics.were_judged(["t"])
        assert doubts_of(topics) == []
        node.make_again("t")
        assert topics.look_at({("t", 0)}) == {}
        (doubt,) = doubts_of(topics)
        assert doubt.startswith("topic t was deleted and created again")


def test_nothing_is_said_of_a_topic_that_a_broker_does_not_know_until_it_is_withdrawn(
    tmp_path: Path,
) -> None:
    """The broker may lag: the micro-batch fails, and is judged again. A stream that went on without the topic
    would pass over its records, so one that comes back too late stays withdrawn."""
    with PlantedLogs({("t", 0): [], ("u", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": (), "u": ()})
        topics.look()
        assert topics.begin() == ("t", "u")
        topics.were_judged(["t"])
        node.hide("u")
        for asked in (topics, of(tmp_path, node)):
            with pytest.raises(ClientError, match="topic u: UNKNOWN_TOPIC_OR_PARTITION"):
                asked.look_at({("t", 0), ("u", 0)})
            assert read_of(asked) == ["t", "u"]
        node.refuse_configs("t", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert not topics.withdraw_missing(), "the cluster has not said so"
        node.refuse_configs("t", ErrorCode.NONE)
        assert topics.withdraw_missing()
        node.show()
        for asked in (topics, of(tmp_path, node)):
            assert asked.look_at({("t", 0), ("u", 0)}) == {("t", 0): 0}
            assert (read_of(asked), asked.withdraw_missing()) == (["t"], False)
            assert doubts_of(asked) == [
                "topic u: it was read, and there is none of that name now; nothing more of it was judged"
            ]


def test_a_topic_that_was_never_read_is_awaited_however_long_it_is_missing(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": (), "later": ()})
        topics.look()
        assert topics.begin() == ("t",)
        assert (topics.withdraw_missing(), topics.are_awaited) == (False, True)


def test_nothing_is_said_of_a_topic_of_which_it_is_not_known_whether_it_is_compacted(tmp_path: Path) -> None:
    with PlantedLogs({("t", 0): []}) as node:
        topics = of(tmp_path, node)
        topics.heard({"t": ()})
        node.refuse_configs("t", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        with pytest.raises(ClientError, match=r"cleanup\.policy of topic t: CLUSTER_AUTHORIZATION_FAILED"):
            topics.look_at({("t", 0)})


def test_what_cannot_be_kept_is_not_taken_as_known(tmp_path: Path) -> None:
    """The next run would not know it."""
    with PlantedLogs({("t", 0): []}) as node:
        (tmp_path / "no folder").write_text("")
        topics = of(tmp_path / "no folder", node)
        with pytest.raises(OSError, match="no folder"):
            topics.heard({"t": ()})
        assert topics.named == ()
