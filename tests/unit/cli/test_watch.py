"""`holdfast watch`: what the events of a node become, and how it is drawn."""

from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast.cli.__main__ import main
from holdfast.cli.watch import stream
from holdfast.cli.watch.frame import frame
from holdfast.cli.watch.state import BoardState, Groups, ServerSentEvent, events_of
from holdfast.cli.watch.stream import Address, Following


def partition(index: int = 0, **changes: Any) -> dict[str, Any]:
    """A partition in which all is well, as `/v1/events` sends it; with `changes`."""
    return {
        "topic": "t", "partition": index, "leader": 1, "replicas": [1, 2, 3], "isr": [1, 2, 3], "elr": [],
        "last_known_elr": [], "offline_replicas": [], "states": [],
        "headroom": {"writes": 1, "online": 2, "lossy": 1},
        "next_leader": {"leader": 2, "reason": "isr", "waits_for": []}, **changes,
    }  # fmt: skip


LEADERLESS = {
    "leader": None, "isr": [], "elr": [3], "offline_replicas": [1, 3],
    "states": ["leaderless", "under_min_isr"], "headroom": {"writes": -2, "online": -1, "lossy": 0},
    "next_leader": {"leader": None, "reason": None, "waits_for": [3]},
}  # fmt: skip


def cluster(*, is_whole: bool = True, role: str = "controller") -> dict[str, Any]:
    """Three brokers, seen by controller 101."""
    brokers = [
        {
            "id": number, "rack": None, "state": "online", "registered": "clean", "epoch": number,
            "offline_replicas": 0,
        }
        for number in (1, 2, 3)
    ]  # fmt: skip
    return {
        "is_whole": is_whole, "cluster_id": "c", "metadata_offset": 7, "brokers": brokers,
        "node": {"id": 101, "role": role, "state": "active"}, "quorum": {"leader_id": 101, "epoch": 2},
    }  # fmt: skip


def state_of(*rows: dict[str, Any]) -> BoardState:
    state = BoardState()
    state.take("cluster", cluster())
    state.take("partitions", {"rows": list(rows)})
    state.take("offset", {})
    return state


def drawn(state: BoardState, lines_max: int = 60, groups: Groups | None = None) -> str:
    console = Console(width=140, highlight=False)
    with console.capture() as captured:
        console.print(frame(state, "h:1", lines_max, groups=groups))
    return captured.get()


def test_a_stream_is_cut_into_events_and_what_only_says_that_it_lives_is_none() -> None:
    lines = [
        "retry: 500",
        "",
        ": alive",
        "",
        "event: offset",
        'data: {"a":',
        "data: 1}",
        "id: 7",
        "",
        "data: x",
    ]
    assert list(events_of(lines)) == [ServerSentEvent("offset", '{"a":\n1}', "7")]


@pytest.mark.parametrize(
    ("rows", "mood", "sentence"),
    [
        ([], "good", "3 brokers, no topics yet"),
        ([partition()], "good", "t-0 survives 1 more power loss"),
        ([partition(0), partition(1)], "good", "All 2 partitions survive 1 more power loss"),
        (
            [partition(0, headroom={"writes": 0, "online": 1, "lossy": 1}), partition(1)],
            "warn",
            "All 2 partitions survive 1 more power loss; 1 takes no writes after the next stop",
        ),
        (
            [partition(headroom={"writes": 0, "online": 0, "lossy": 0})],
            "warn",
            "t-0: one more power loss may take acknowledged records",
        ),
        (
            [partition(headroom={"writes": -1, "online": 0, "lossy": 1}), partition(1)],
            "bad",
            "1 partition is below min ISR: writes with acks=all wait",
        ),
        (
            [partition(0), partition(1, **LEADERLESS)],
            "bad",
            "t-1 has no leader: it waits for broker 3",
        ),
        (
            [
                partition(0, **LEADERLESS),
                partition(1, **{**LEADERLESS, "elr": [], "states": ["needs_recovery"]}),
            ],
            "bad",
            "t-1 has no leader: no replica may lead without loss; 1 more have none",
        ),
    ],
)
def test_the_sentence_is_the_worst_that_is_true(rows: list[dict[str, Any]], mood: str, sentence: str) -> None:
    assert state_of(*rows).sentence() == (mood, sentence)


def test_a_node_that_begins_anew_is_believed_and_deleted_partitions_are_gone() -> None:
    state = state_of(partition(0), partition(1))
    state.take("deleted", {"partitions": ["t-1"]})
    assert list(state.partitions) == ["t-0"]
    state.take("cluster", cluster())
    assert (list(state.partitions), state.is_whole) == ([], False)


def test_replicas_are_drawn_with_a_letter_for_their_set_worst_partition_first() -> None:
    text = drawn(state_of(partition(0), partition(1, **LEADERLESS)))
    rows = [line.split() for line in text.split("PARTITION")[1].splitlines()]
    worst, well = [row for row in rows if row and row[0].startswith("t-")]
    assert worst[:9] == ["t-1", "o/", "o", "E/", "waits", "for", "3", "2", "short"]
    assert well[:5] == ["t-0", "L", "I", "I", "2"]


def test_a_small_terminal_shows_the_worst_and_says_how_many_there_are() -> None:
    text = drawn(state_of(*map(partition, range(50))), lines_max=24)
    assert "worst 9 of 50 partitions" in text


def test_the_active_controllers_decisions_are_shown_with_their_reasons() -> None:
    state = state_of(partition())
    state.decisions = [
        {
            "topic": "t", "partition": 0, "cause": "broker 2 is gone", "elected_by": "isr", "leader": [2, 1],
            "isr": [[1, 2, 3], [1, 3]], "elr": [[], []],
        }
    ]  # fmt: skip
    assert "t-0: leader 2 → 1; ISR 1, 2, 3 → 1, 3, because broker 2 is gone (elected: isr)" in drawn(state)
    state.take("cluster", cluster(role="broker", is_whole=False))
    assert "broker 2 is gone" not in drawn(state)


def group(name: str, lag: int, **changes: Any) -> dict[str, Any]:
    """A group without members, as `/v1/groups` answers it; with `changes`."""
    worst = [{"topic": "t", "partition": 0, "lag": lag}] if lag else []
    return {
        "group": name, "state": "Empty", "members": 0, "partitions": 1, "lag": lag, "unknown": 0,
        "worst": worst, **changes,
    }  # fmt: skip


def test_groups_of_all_brokers_are_drawn_together_most_lag_first() -> None:
    groups = Groups()
    groups.take({"groups": [group("far", 70), group("read", 0)], "count": 4})
    groups.take({"groups": [], "count": 0})
    groups.take(
        {"groups": [group("near", 7, partitions=2, unknown=1, members=2, state="Stable")], "count": 1}
    )
    text = drawn(state_of(partition()), groups=groups)
    rows = [line.split() for line in text.split("MOST OF IT IN")[1].splitlines()[1:4]]
    assert rows == [
        ["far", "Empty", "0", "70", "t-0:", "70"],
        ["near", "Stable", "2", "7", "or", "more", "t-0:", "7"],
        ["read", "Empty", "0", "0", "none"],
    ]
    assert "most lag: 3 of 5 groups" in text


def test_a_name_is_drawn_as_it_is_on_one_line_and_tells_the_terminal_nothing() -> None:
    """Clients choose names of groups, operators racks: neither is rich's markup nor a terminal's order."""
    groups = Groups()
    groups.take({"groups": [group("a[/x]\x1b[2J\nb", 7, state="[/x]")], "count": 1})
    state = state_of(partition())
    assert state.cluster is not None
    state.take(
        "cluster",
        {**cluster(is_whole=False), "brokers": [{**state.cluster["brokers"][0], "rack": "[/r]\x1b"}]},
    )
    state.cluster = {**state.cluster, "cluster_id": "c\x1bd"}
    text = drawn(state, groups=groups)
    assert "cluster c\ufffdd" in text
    assert "a[/x]\ufffd[2J\ufffdb " in text
    assert " [/r]\ufffd " in text


@pytest.mark.parametrize(
    ("lag", "partitions", "drawn_as"),
    [(0, 1, ["unknown", "unknown"]), (0, 2, ["0", "or", "more", "unknown"])],
)
def test_lag_that_a_coordinator_does_not_know_is_not_drawn_as_none(
    lag: int, partitions: int, drawn_as: list[str]
) -> None:
    groups = Groups()
    groups.take({"groups": [group("g", lag, unknown=1, partitions=partitions)], "count": 1})
    text = drawn(state_of(partition()), groups=groups)
    assert text.split("MOST OF IT IN")[1].splitlines()[1].split() == ["g", "Empty", "0", *drawn_as]


def follow_groups(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> list[list[str]]:
    """Groups shown when each node is asked, and at the end; node `n` answers with the nth."""
    addresses = [Address("h", number) for number in range(len(answers))]
    following, shown = Following(addresses), []

    def asked(address: Address, path: str, timeout_s: float) -> Any:
        shown.append([row["group"] for row in following.groups.rows])
        if address == addresses[-1]:
            following.end()
        return answers[address.port]

    monkeypatch.setattr(stream, "_asked", asked)
    following._ask_for_groups()
    assert following.knows_groups.is_set()
    return [*shown, [row["group"] for row in following.groups.rows]]


def test_groups_of_a_node_are_shown_before_the_next_one_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"groups": [group(name, 1)], "count": 1} for name in "ab"]
    assert follow_groups(monkeypatch, *answers) == [[], ["a"], ["a", "b"]]


@pytest.mark.parametrize(
    "other",
    [
        {},
        [],
        7,
        {"groups": None, "count": 0},
        {"groups": [{}], "count": 1},
        {"groups": [group("x", 1, worst=[{}])], "count": 1},
        {"groups": [group("x", 1)], "count": None},
    ],
)
def test_a_node_that_answers_something_else_hides_no_groups_of_others(
    other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert follow_groups(monkeypatch, other, {"groups": [group("a", 1)], "count": 1})[-1] == ["a"]


def test_without_groups_there_is_no_table_of_them() -> None:
    assert "MOST OF IT IN" not in drawn(state_of(partition()), groups=Groups())


def test_without_a_terminal_only_one_frame_can_be_had() -> None:
    done = CliRunner().invoke(main, ["watch", "--http", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert "--once prints one frame" in done.output
    done = CliRunner().invoke(main, ["watch", "--http", "127.0.0.1:1", "--once", "--timeout-ms", "50"])
    assert done.exit_code == 1
    assert "127.0.0.1:1" in done.output
