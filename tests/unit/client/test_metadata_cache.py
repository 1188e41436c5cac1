"""What a client believes about leaders, and whom it asks when (D9)."""

from dataclasses import replace

import pytest

from holdfast.client.core.backoff import Backoff
from holdfast.client.core.metadata_cache import (
    NO_LEADER,
    Address,
    LeaderAndEpoch,
    MetadataCache,
    NodeChooser,
    RefreshSchedule,
    parse_addresses,
)
from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)

ID = b"\x01" * 16


def answer(
    offset: int,
    *leaders: tuple[int, int],
    topic_id: bytes = ID,
    error: ErrorCode = ErrorCode.NONE,
    cluster_id: str = "c",
    port: int = 9_000,
) -> MetadataResponse:
    rows = tuple(MetadataPartition(0, i, *leader, (1, 2), (1, 2), ()) for i, leader in enumerate(leaders))
    brokers = tuple(MetadataBroker(n, "h", port + n, None) for n in (1, 2, 3))
    return MetadataResponse(cluster_id, 101, offset, brokers, (MetadataTopic(error, "t", topic_id, rows),))


def test_an_answer_tells_leaders_and_addresses() -> None:
    cache = MetadataCache()
    assert cache.update(answer(10, (1, 5), (2, 5))) == [("t", 0), ("t", 1)]
    assert cache.leader("t", 1) == LeaderAndEpoch(2, 5)
    assert cache.leader("t", 2) == cache.leader("other", 0) == NO_LEADER
    assert cache.address(2) == Address("h", 9_002)


def test_a_node_that_lags_does_not_bring_an_old_leader_back() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5), (2, 5)))
    assert cache.update(answer(9, (3, 4), (3, 6))) == [("t", 1)]
    assert [cache.leader("t", p) for p in (0, 1)] == [LeaderAndEpoch(1, 5), LeaderAndEpoch(3, 6)]


def test_partitions_out_of_order_are_passed_over() -> None:
    """A broker must not end a client by what it says; another one may know better."""
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    (topic,) = answer(11, (2, 6), (3, 6)).topics
    odd = replace(answer(11), topics=(replace(topic, partitions=topic.partitions[::-1]),))
    assert cache.update(odd) == []
    assert cache.leader("t", 0) == LeaderAndEpoch(1, 5)
    fresh = MetadataCache()
    assert fresh.update(odd) == []
    assert fresh.topic_error("t") is ErrorCode.UNKNOWN_SERVER_ERROR


def test_no_leader_in_the_same_epoch_is_news() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    assert cache.update(answer(11, (-1, 6))) == [("t", 0)]
    assert cache.leader("t", 0).broker_id == -1


def test_a_topic_made_again_starts_over_unless_the_answer_is_older() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    assert cache.update(answer(9, (2, 0), topic_id=bytes(16))) == []
    cache.update(answer(11, (2, 0), topic_id=b"\x02" * 16))
    assert cache.leader("t", 0) == LeaderAndEpoch(2, 0)


def test_a_deleted_topic_is_forgotten_and_a_lagging_node_cannot_delete_it() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    cache.update(answer(9, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert cache.topic("t") is not None
    cache.update(answer(11, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert cache.topic("t") is None
    assert cache.topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_added_later_are_news() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    assert cache.update(answer(12, (1, 5), (2, 0))) == [("t", 1)]


def test_a_cluster_made_anew_at_the_same_addresses_is_believed_from_its_first_answer() -> None:
    """Its offsets and epochs begin again: measured by those of the old one it would never be news."""
    cache = MetadataCache()
    cache.update(answer(100, (1, 7), (2, 7)))
    anew = answer(5, (3, 0), topic_id=b"\x02" * 16, cluster_id="anew", port=9_100)
    assert cache.update(anew) == [("t", 0)]
    assert cache.leader("t", 0) == LeaderAndEpoch(3, 0)
    assert cache.leader("t", 1) == NO_LEADER
    assert cache.address(3) == Address("h", 9_103)
    assert (cache.cluster_id, cache.metadata_offset) == ("anew", 5)


def test_topics_of_the_cluster_before_are_forgotten() -> None:
    cache = MetadataCache()
    cache.update(answer(100, (1, 7)))
    cache.update(answer(5, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, cluster_id="anew"))
    assert cache.topic("t") is None
    assert cache.topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_node_that_does_not_know_its_cluster_yet_forgets_nothing() -> None:
    cache = MetadataCache()
    cache.update(answer(100, (1, 7)))
    assert cache.update(answer(5, (3, 6), cluster_id="")) == []
    assert (cache.leader("t", 0), cache.cluster_id) == (LeaderAndEpoch(1, 7), "c")


def test_nothing_is_known_of_a_topic_that_is_not_asked_for_any_more() -> None:
    """Asked for again it is new: it may be another one of its name by then."""
    cache = MetadataCache()
    cache.update(answer(100, (1, 7)))
    cache.forget("t")
    cache.forget("never heard of")
    assert (cache.topic("t"), cache.leader("t", 0)) == (None, LeaderAndEpoch(-1, -1))
    assert cache.update(answer(100, (2, 3))) == [("t", 0)]
    cache.forget("t")
    cache.update(answer(101, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    cache.forget("t")
    assert cache.topic_error("t") is None


def test_a_hint_counts_only_when_it_is_later_and_leads_somewhere() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    assert not cache.note_leader("t", ID, 0, 2, 5)
    assert not cache.note_leader("t", ID, 0, 9, 6)
    assert not cache.note_leader("t", bytes(16), 0, 2, 6)
    assert cache.note_leader("t", ID, 0, 2, 6)
    assert cache.leader("t", 0) == LeaderAndEpoch(2, 6)


def test_addresses_of_an_older_image_do_not_replace_newer_ones() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    older = MetadataResponse("c", 101, 9, (MetadataBroker(1, "old", 1, None),), ())
    cache.update(older)
    assert cache.address(1) == Address("h", 9_001)


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9", "host:0", "host:x", "h:²", "a..b:1", ",", "SSL://a:1", "\udcff:1"]
)
def test_bootstrap_servers_must_be_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_bootstrap_servers_in_every_spelling() -> None:
    assert parse_addresses("a:1, b:2") == (Address("a", 1), Address("b", 2))
    assert parse_addresses("PLAINTEXT://a:1,b:2,,") == (Address("a", 1), Address("b", 2))
    assert parse_addresses(["[::1]:3"]) == (Address("::1", 3),)


# --- when ----------------------------------------------------------------------------------------------


def schedule() -> RefreshSchedule:
    return RefreshSchedule(Backoff(first_ms=10, max_ms=100), max_age_ms=1_000)


def refresh(made: RefreshSchedule, now_ms: int, *, news: bool) -> None:
    made.started()
    made.finished(now_ms, news=news)


def test_the_first_wish_is_due_at_once() -> None:
    made = schedule()
    assert made.due_ms() is None
    made.want(5)
    assert made.due_ms() == 5


def test_pauses_grow_while_refreshes_bring_nothing_and_end_with_news() -> None:
    made = schedule()
    pauses = []
    now_ms = 0
    for news in (True, False, False, False, True, True):
        made.want(now_ms)
        due_ms = made.due_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
        refresh(made, now_ms, news=news)
    assert pauses == [0, 0, 10, 20, 40, 0]


def test_a_wish_during_a_request_asks_again_because_the_answer_may_miss_the_news() -> None:
    made = schedule()
    made.want(0)
    made.started()
    made.want(1)
    assert made.due_ms() is None
    made.finished(2, news=True)
    assert made.due_ms() == 2


def test_without_wishes_metadata_is_asked_for_when_it_is_old() -> None:
    made = schedule()
    made.want(0)
    refresh(made, 3, news=True)
    assert made.due_ms() == 1_003


def test_trouble_after_a_quiet_time_is_answered_at_once() -> None:
    made = schedule()
    for now_ms in (0, 1, 2, 3):
        made.want(now_ms)
        refresh(made, now_ms, news=False)
    refresh(made, 9_000, news=False)
    made.want(9_000)
    assert made.due_ms() == 9_000


# --- whom ----------------------------------------------------------------------------------------------

A, B, C = Address("a", 1), Address("b", 1), Address("c", 1)


def test_the_node_that_answered_is_asked_again_until_it_fails() -> None:
    chooser = NodeChooser([A], suspicion_ms=100)
    assert chooser.choose([], 0) == A
    chooser.succeeded(B)
    assert chooser.choose([A, B, C], 0) == B
    chooser.failed(B, 0)
    assert chooser.choose([A, B, C], 0) == A
    chooser.failed(A, 0)
    assert chooser.choose([A, B, C], 0) == C


def test_when_all_are_suspect_the_oldest_suspicion_is_tried_and_suspicion_ends() -> None:
    chooser = NodeChooser([A, B], suspicion_ms=100)
    chooser.failed(B, 0)
    chooser.failed(A, 10)
    assert chooser.choose([], 20) == B
    assert chooser.choose([], 110) == A


def test_a_topic_that_an_answer_about_all_does_not_name_is_gone() -> None:
    cache = MetadataCache()
    cache.update(answer(10, (1, 5)))
    assert [*cache.topic_names] == ["t"]
    late = replace(answer(9), topics=())
    cache.update_all(late)
    assert [*cache.topic_names] == ["t"], "an answer that is older says nothing"
    cache.update_all(replace(late, metadata_offset=11))
    assert not cache.topic_names
    assert cache.topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
