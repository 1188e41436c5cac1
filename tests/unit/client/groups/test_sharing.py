"""What a generation's leader shares, and when that is out of date."""

from holdfast.client.core.groups.consumer_protocol import (
    Subscription,
    assigned_partitions,
    encode_subscription,
)
from holdfast.client.core.groups.sharing import SHARE_PATIENCE_MS, Sharing
from holdfast.client.core.metadata_cache import MetadataCache
from holdfast.protocol.messages.groups import JoinGroupMember
from holdfast.protocol.topic_names import TopicPartition
from tests.unit.client.groups.play import metadata


def sharing_of(cache: MetadataCache, *, skips_assignment: bool = False) -> Sharing:
    """Member a wants t, member b wants t and u; it is 100 ms."""
    sharing = Sharing(cache)
    members = [
        JoinGroupMember(member_id, None, encode_subscription(Subscription(topics)))
        for member_id, topics in (("a", ("t",)), ("b", ("t", "u")))
    ]
    sharing.begin(members, 100, skips_assignment=skips_assignment)
    return sharing


def shares(sharing: Sharing, now_ms: int) -> dict[str, tuple[TopicPartition, ...]] | None:
    rows = sharing.share("range", now_ms)
    return None if rows is None else {row.member_id: assigned_partitions(row.assignment) for row in rows}


def test_every_partition_of_what_members_subscribe_to_is_given_to_one_of_them() -> None:
    cache = MetadataCache()
    cache.update(metadata(1, 2, u=1))
    sharing = sharing_of(cache)
    assert sharing.topics == ("t", "u")
    assert shares(sharing, 100) == {
        "a": (TopicPartition("t", 0),),
        "b": (TopicPartition("t", 1), TopicPartition("u", 0)),
    }
    assert sharing.shared_topics == ("t", "u")


def test_metadata_is_waited_for_but_not_for_ever() -> None:
    cache = MetadataCache()
    cache.update(metadata(1, 2))
    sharing = sharing_of(cache)
    assert shares(sharing, 99 + SHARE_PATIENCE_MS) is None
    assert shares(sharing, 100 + SHARE_PATIENCE_MS) == {
        "a": (TopicPartition("t", 0),),
        "b": (TopicPartition("t", 1),),
    }


def test_shares_of_an_earlier_generation_can_be_kept() -> None:
    cache = MetadataCache()
    cache.update(metadata(1, 2, u=1))
    assert shares(sharing_of(cache, skips_assignment=True), 100) == {}


def test_what_was_shared_is_outdated_when_there_are_other_partitions() -> None:
    cache = MetadataCache()
    cache.update(metadata(1, 2, u=1))
    sharing = sharing_of(cache)
    assert not sharing.is_outdated
    shares(sharing, 100)
    assert not sharing.is_outdated
    cache.update(metadata(2, 3, u=1))
    assert sharing.is_outdated
    sharing.forget()
    assert not sharing.is_outdated
