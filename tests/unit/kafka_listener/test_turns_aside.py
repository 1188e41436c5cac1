"""Large requests have one thread: connections take turns."""

from holdfast.kafka_listener.core.turns_aside import TurnsAside


def test_one_has_its_turn_at_a_time_and_connections_take_turns() -> None:
    turns: TurnsAside[str] = TurnsAside()
    assert turns.enter(1, "a1")
    assert not any(turns.enter(1, name) for name in ("a2", "a3", "a4"))
    assert not turns.enter(2, "b1")
    assert not turns.enter(3, "c1")
    assert [turns.leave() for _ in range(6)] == ["a2", "b1", "c1", "a3", "a4", None]
    assert turns.enter(2, "b2")


def test_what_waits_of_a_connection_that_has_ended_gets_no_turn() -> None:
    turns: TurnsAside[str] = TurnsAside()
    assert turns.enter(1, "a1")
    assert not turns.enter(1, "a2")
    assert not turns.enter(2, "b1")
    assert list(turns.forget(1)) == ["a2"]
    assert list(turns.forget(3)) == []
    assert turns.leave() == "b1"
    assert turns.leave() is None
