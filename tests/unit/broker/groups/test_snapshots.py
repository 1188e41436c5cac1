"""The log of the offsets stays short: what counts is written anew, and the log begins there."""

from holdfast.protocol.errors import ErrorCode
from holdfast.protocol.messages.groups import DeleteGroupsRequest
from tests.unit.broker.groups.play import Play


def test_a_log_much_longer_than_what_counts_is_written_anew_and_begins_there() -> None:
    play = Play(snapshot_records=20)
    (member,) = play.stable()
    for offset in range(50):
        play.commit_offset(offset, member, 1)
    assert play.log.end - play.log.start <= 22
    heir = play.successor()
    assert heir.reads[0].start_offset == play.log.start > 0
    assert heir.committed() == {0: 49}
    assert heir.beat(member, 1) == "NONE"
    assert heir.synced(heir.sync(member, 1)) == b"p0"


def test_a_log_with_much_that_counts_is_longer() -> None:
    play = Play(snapshot_records=20)
    for number in range(30):
        play.commit_offset(number, group=f"g{number}")
    assert play.log.start == 0
    for number in range(120):
        play.commit_offset(number, group=f"g{number % 30}")
    assert play.log.start > 0
    assert play.successor().committed("g29") == {0: 119}


def test_what_is_under_way_is_in_the_snapshot_too() -> None:
    play = Play(snapshot_records=20)
    for offset in range(18):
        play.commit_offset(offset)
    play.holds_back = True
    names = [play.commit_offset(offset) for offset in (100, 101, 102)]
    play.partition.high_watermark = play.log.end - 1
    play.coordinator.high_watermark_moved(play.partition.key, play.now_ms)
    play._carry_out()
    assert play.log.start == 0, "the snapshot is not committed"
    play.commit()
    assert [play.commit_code(name) for name in names] == ["NONE"] * 3
    assert play.log.start == 21
    assert play.committed() == play.successor().committed() == {0: 102}


def test_the_first_commit_and_the_first_generation_of_a_group_are_in_it_while_they_are_under_way() -> None:
    play = Play(snapshot_records=20)
    for offset in range(19):
        play.commit_offset(offset, group="old")
    member = play.joined(play.join()).member_id
    play.holds_back = True
    play.commit_offset(19, group="old")
    names = [play.commit_offset(7, group="new"), play.commit_offset(8, group="old", index=1)]
    sync = play.sync(member, 1, {member: b"p0"})
    play.partition.high_watermark = 20
    play.coordinator.high_watermark_moved(play.partition.key, play.now_ms)
    play._carry_out()
    play.commit()
    assert [play.commit_code(name) for name in names] == ["NONE", "NONE"]
    assert play.synced(sync) == b"p0"
    assert play.log.start == 23, "all that was under way lies below the snapshot"
    heir = play.successor()
    assert (heir.committed("new"), heir.committed("old")) == ({0: 7}, {0: 19, 1: 8})
    assert heir.beat(member, 1) == "NONE"


def test_what_a_deletion_under_way_did_is_the_same_here_and_for_the_next_coordinator() -> None:
    """The deletion is refused by the log after the snapshot was written behind it."""
    play = Play(snapshot_records=20)
    for offset in range(18):
        play.commit_offset(offset)
    play.commit_offset(5, group="other")
    play.holds_back = True
    play.commit_offset(18)
    play.appends_slowly = True
    play.request(DeleteGroupsRequest(("other",)))
    play.commit()
    for _ in range(2):
        play.finish_append(ErrorCode.KAFKA_STORAGE_ERROR)
    play.finish_append()
    play.commit()
    assert play.log.start == 20
    assert play.committed("other") == play.successor().committed("other")


def test_a_large_snapshot_takes_several_batches_and_members_go_on_meanwhile() -> None:
    play = Play(snapshot_records=400)
    text = "m" * 4_000
    for number in range(100):
        play.commit_offset(number, group=f"g{number:03}", metadata=text)
    for number in range(299):
        play.commit_offset(number, group="g000")
    play.holds_back = True
    play.commit_offset(1_000, group="g000")
    begin = play.log.end
    while play.log.start == 0:
        play.commit()
        play.commit_offset(2_000, group="g099", metadata="later")
        assert play.log.end < begin + 200
    play.commit()
    assert play.log.start == begin
    heir = play.successor()
    assert (heir.committed("g000"), heir.committed("g050"), heir.committed("g099")) == (
        {0: 1_000},
        {0: 50},
        {0: 2_000},
    )


def test_a_snapshot_of_nothing_makes_the_log_short_too() -> None:
    play = Play(snapshot_records=20)
    for offset in range(12):
        play.commit_offset(offset)
        play.ask(DeleteGroupsRequest(("g",)))
    assert play.log.start > 0
    assert play.successor().committed() == {}


def test_a_snapshot_that_fails_is_made_later() -> None:
    play = Play(snapshot_records=20)
    for offset in range(19):
        play.commit_offset(offset)
    play.holds_back = True
    play.commit_offset(19)
    play.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    play.commit()
    assert play.log.start == 0
    play.refusal, play.holds_back = ErrorCode.NONE, False
    for offset in range(20):
        play.commit_offset(offset)
    assert play.log.start > 0


def test_a_new_coordinator_of_a_long_log_makes_it_short() -> None:
    play = Play()
    for offset in range(50):
        play.commit_offset(offset)
    heir = play.successor(snapshot_records=20)
    assert play.log.start == 50
    assert heir.committed() == heir.successor().committed() == {0: 49}
