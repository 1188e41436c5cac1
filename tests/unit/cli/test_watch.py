"""`holdfast watch`: what the events of a node become, and how it is drawn."""

from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast.cli.__main__ import main
from holdfast.cli.watch.frame import frame
from holdfast.cli.watch.state import BoardState, ServerSentEvent, events_of


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


def drawn(state: BoardState, lines_max: int = 60) -> str:
    console = Console(width=140, highlight=False)
    with console.capture() as captured:
        console.print(frame(state, "h:1", lines_max))
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


def test_without_a_terminal_only_one_frame_can_be_had() -> None:
    done = CliRunner().invoke(main, ["watch", "--http", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert "--once prints one frame" in done.output
    done = CliRunner().invoke(main, ["watch", "--http", "127.0.0.1:1", "--once", "--timeout-ms", "50"])
    assert done.exit_code == 1
    assert "127.0.0.1:1" in done.output
