"""Requests that wait for an offset or a deadline."""

from weakref import ref

from holdfast.broker.core.requests.purgatory import (
    Deadlines,
    DelayedFetch,
    DelayedProduce,
    FetchPurgatory,
    ProducePurgatory,
    WaitingRow,
)


def produce(
    purgatory: ProducePurgatory[str], *rows: tuple[str, int], deadline_ms: int = 1000
) -> DelayedProduce[str]:
    """A delayed request with one row for each (partition, required offset)."""
    delayed: DelayedProduce[str] = DelayedProduce("client", [None] * len(rows))
    for index, (key, offset) in enumerate(rows):
        delayed.wait_for(WaitingRow(delayed, index, key, offset - 1, offset, 0, 0))
    purgatory.add(delayed, deadline_ms)
    return delayed


def required(rows: list[WaitingRow[str]]) -> list[int]:
    return [row.required_offset for row in rows]


def test_rows_leave_when_the_high_watermark_reaches_their_end() -> None:
    purgatory: ProducePurgatory[str] = ProducePurgatory(10)
    produce(purgatory, ("a", 5))
    produce(purgatory, ("a", 9))
    assert required(purgatory.release("a", 4)) == []
    assert required(purgatory.release("a", 8)) == [5]
    assert required(purgatory.release("a", 9)) == [9]


def test_a_duplicate_leaves_in_order_of_its_old_offset() -> None:
    """R91: a retry needs an offset below those that already wait."""
    purgatory: ProducePurgatory[str] = ProducePurgatory(10)
    for offset in (5, 9, 3, 7):
        produce(purgatory, ("a", offset))
    assert required(purgatory.release("a", 7)) == [3, 5, 7]


def test_a_request_is_over_when_its_last_row_is_decided() -> None:
    purgatory: ProducePurgatory[str] = ProducePurgatory(10)
    delayed = produce(purgatory, ("a", 5), ("b", 2))
    (first,) = purgatory.release("b", 2)
    assert not first.decide()
    (second,) = purgatory.release("a", 5)
    assert second.decide()
    purgatory.finish(delayed)
    assert purgatory.size == 0
    assert purgatory.next_deadline_ms() is None


class Client:
    """A client that waits for the answer, with all the bytes that it sent."""


def test_expired_requests_are_let_go_while_the_high_watermark_stands_still() -> None:
    """Else every repetition of a write that waits in vain would stay in memory."""
    purgatory: ProducePurgatory[str] = ProducePurgatory(10)
    client = Client()
    gone = ref(client)
    delayed: DelayedProduce[str] = DelayedProduce(client, [None])
    row = WaitingRow(delayed, 0, "a", 4, 5, 0, 0)
    delayed.wait_for(row)
    purgatory.add(delayed, 100)
    assert purgatory.expire(100) == [row]
    assert row.decide()
    purgatory.finish(delayed)
    produce(purgatory, ("a", 5))
    del client, delayed, row
    assert gone() is None
    assert required(purgatory.release("a", 5)) == [5]


def test_expired_rows_are_not_released_later() -> None:
    purgatory: ProducePurgatory[str] = ProducePurgatory(10)
    delayed = produce(purgatory, ("a", 5), ("b", 2), deadline_ms=100)
    (row,) = purgatory.release("b", 2)
    row.decide()
    assert purgatory.expire(99) == []
    (expired,) = purgatory.expire(100)
    assert expired.key == "a"
    assert expired.decide()
    purgatory.finish(delayed)
    assert purgatory.release("a", 5) == []


def test_all_rows_of_a_partition_can_be_taken_out() -> None:
    purgatory: ProducePurgatory[str] = ProducePurgatory(10)
    produce(purgatory, ("a", 5))
    produce(purgatory, ("b", 5))
    assert required(purgatory.release_all("a")) == [5]
    assert purgatory.release_all("a") == []
    assert required(purgatory.release_all("b")) == [5]


def test_what_waits_is_bounded() -> None:
    purgatory: ProducePurgatory[str] = ProducePurgatory(2)
    produce(purgatory, ("a", 5))
    assert not purgatory.is_full
    produce(purgatory, ("a", 6))
    assert purgatory.is_full


def test_a_fetch_waits_for_any_of_its_partitions_and_leaves_all() -> None:
    purgatory: FetchPurgatory[str] = FetchPurgatory(10)
    delayed: DelayedFetch[str] = DelayedFetch("client", None, ("a", "b"))
    purgatory.add(delayed, 500)
    assert purgatory.waiting_for("a") == purgatory.waiting_for("b") == (delayed,)
    purgatory.remove(delayed)
    assert purgatory.waiting_for("b") == ()
    assert purgatory.expire(1000) == []
    assert purgatory.size == 0


def test_an_expired_fetch_has_left() -> None:
    purgatory: FetchPurgatory[str] = FetchPurgatory(10)
    delayed: DelayedFetch[str] = DelayedFetch("client", None, ("a",))
    purgatory.add(delayed, 500)
    assert purgatory.next_deadline_ms() == 500
    assert purgatory.expire(500) == [delayed]
    assert purgatory.waiting_for("a") == ()


def test_deadlines_come_in_order_and_never_early() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add("late", 205)
    due_ms = deadlines.add("gone", 101)
    deadlines.add("early", 101)
    deadlines.remove("gone", due_ms)
    assert list(deadlines.expire(109)) == []
    assert list(deadlines.expire(110)) == ["early"]
    assert deadlines.next_deadline_ms() == 210
    assert list(deadlines.expire(500)) == ["late"]
    assert deadlines.next_deadline_ms() is None
