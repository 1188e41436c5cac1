"""What /v1/events says: all that is, then only what changed, and what a page missed when it returns."""

from typing import Any

from holdfast.metadata.board import IMAGES_KEPT, Board, BoardWatch
from holdfast.metadata.status import PARTITIONS_A_STEP
from holdfast.protocol.messages.topics import DeleteTopicsRequest
from tests.unit.controller.harness import Quorum, make_config
from tests.unit.controller.test_topics import create
from tests.unit.metadata.test_status import view


def sound() -> Quorum:
    made = Quorum(make_config(min_insync_replicas="2"))
    made.start_brokers(1, 2, 3)
    create(made, "orders", -1, -1, (1, 2, 3), (2, 3, 1))
    create(made, "audit", -1, -1, (3,))
    return made


def board_of(made: Quorum) -> Board:
    return Board(lambda: view(made))


def news(watch: BoardWatch) -> list[tuple[str, dict[str, Any]]]:
    return [(event.kind, event.body) for event in watch.news() if event is not None]


def rows(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [
        f"{row['topic']}-{row['partition']}"
        for kind, body in events
        if kind == "partitions"
        for row in body["rows"]
    ]


def test_a_new_page_gets_all_that_is_and_then_nothing_until_something_changes() -> None:
    watch = board_of(sound()).watch(None)
    first = news(watch)
    assert [kind for kind, _ in first] == ["cluster", "partitions", "offset"]
    assert first[0][1]["is_whole"]
    assert [broker["id"] for broker in first[0][1]["brokers"]] == [1, 2, 3]
    assert rows(first) == ["audit-0", "orders-0", "orders-1"]
    assert news(watch) == []


def test_a_change_of_one_partition_sends_that_one() -> None:
    made = sound()
    watch = board_of(made).watch(None)
    news(watch)
    create(made, "new", -1, -1, (1,))
    then = news(watch)
    assert rows(then) == ["new-0"]
    assert not then[0][1]["is_whole"]
    assert then[-1] == ("offset", {"metadata_offset": made.image.offset})


def test_a_broker_that_goes_changes_what_every_row_says_of_its_replicas() -> None:
    made = sound()
    watch = board_of(made).watch(None)
    news(watch)
    made.vanish(3)
    then = news(watch)
    assert {broker["id"]: broker["state"] for broker in then[0][1]["brokers"]}[3] == "fenced"
    assert rows(then) == ["audit-0", "orders-0", "orders-1"]
    offline = {row["topic"]: row["offline_replicas"] for row in then[1][1]["rows"]}
    assert offline == {"audit": [3], "orders": [3]}


def test_a_page_that_returns_gets_what_it_missed_and_an_unknown_one_everything() -> None:
    made = sound()
    board = board_of(made)
    first = news(board.watch(None))
    known = first[-1][1]["metadata_offset"]
    create(made, "missed", -1, -1, (1,))
    again = news(board.watch(known))
    assert (again[0][1]["is_whole"], rows(again)) == (False, ["missed-0"])
    stranger = news(board.watch(known + 1_000_000))
    assert (stranger[0][1]["is_whole"], len(rows(stranger))) == (True, 4)


def test_a_deleted_topic_goes_and_one_made_again_under_its_name_stays() -> None:
    made = sound()
    watch = board_of(made).watch(None)
    news(watch)
    made.request(DeleteTopicsRequest(0, ("orders", "audit")))
    create(made, "audit", -1, -1, (1,))
    then = news(watch)
    assert rows(then) == ["audit-0"]
    assert dict(then)["deleted"] == {"partitions": ["orders-0", "orders-1"]}


def test_another_active_controller_is_news_without_a_change_of_metadata() -> None:
    made = sound()
    leader = [101]
    watch = Board(lambda: view(made, controller_id=leader[0])).watch(None)
    news(watch)
    leader[0] = 102
    then = news(watch)
    assert [kind for kind, _ in then] == ["cluster", "offset"]
    assert then[0][1]["quorum"]["leader_id"] == 102


def test_many_partitions_are_told_in_pieces_and_few_images_are_kept() -> None:
    made = sound()
    create(made, "many", -1, -1, *[(1, 2, 3)] * (2 * PARTITIONS_A_STEP))
    board = board_of(made)
    events = list(board.watch(None).news())
    assert events.count(None) == 2
    first = made.image.offset
    for number in range(IMAGES_KEPT):
        create(made, f"t{number}", -1, -1, (1,))
        board.look()
    assert news(board.watch(first))[0][1]["is_whole"]
