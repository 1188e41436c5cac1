"""The rules on the history of a run: one that breaks each, and the one beside it that does not."""

from dataclasses import replace

import pytest

from holdfast.client.core.batch import Batch, Compression
from holdfast.client.core.history import make_value
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.client.delivery import Delivery
from holdfast.sim.checks.history_rules import History, SentRecord, Stored, broken_rules, read_deliveries
from holdfast.sim.load.clients import Polled
from holdfast.sim.load.seeking_reader import ReadSpan

VALUES = [make_value("p0", number, 40) for number in range(5)]


def stored(*numbers: int, start: int = 0) -> list[Stored]:
    """A log of these records of p0, from `start` on."""
    return [Stored(start + at, 5, VALUES[number]) for at, number in enumerate(numbers)]


def sent(number: int, offset: int, **given: object) -> dict[tuple[str, int], SentRecord]:
    """An acknowledged send of p0 to partition 0; one takes 10 ns, and the next begins 10 ns later."""
    t0 = 20 * number
    send = SentRecord("p0", number, 0, -1, "ok", offset, t0, t0 + 10)
    for name, value in given.items():
        setattr(send, name, value)
    return {("p0", number): send}


def given_up(t1: int, number: int = 3, t0: int = 0, **given: object) -> dict[tuple[str, int], SentRecord]:
    """A send that was refused before the append, each time."""
    usual: dict[str, object] = {"outcome": "fail", "error": "NOT_ENOUGH_REPLICAS"}
    return sent(number, -1, t0=t0, t1=t1, **{**usual, **given})


def got(*offsets: int, log: list[Stored]) -> list[Polled]:
    """What a consumer of that log gets at these offsets."""
    at = {record.offset: record for record in log}
    return [Polled(0, offset, 5, at[offset].value if offset in at else b"gone") for offset in offsets]


LOG = stored(0, 1, 2)
SENDS = sent(0, 0) | sent(1, 1) | sent(2, 2)
WHOLE = History(SENDS, {0: LOG}, [got(0, 1, 2, log=LOG)], got(0, 1, 2, log=LOG), frozenset({"p0"}))


def rules_broken_by(history: History) -> list[str]:
    return [line.split(":")[0] for line in broken_rules(history)]


def with_log(history: History, *numbers: int, start: int = 0) -> History:
    """Another log; consumers have not read it."""
    log = stored(*numbers, start=start)
    final = got(*range(start, start + len(numbers)), log=log)
    return replace(history, log={0: log}, polls=[], final_polls=final)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (WHOLE, []),
        (with_log(WHOLE, 0, 1), ["lost"]),
        (replace(WHOLE, sends=SENDS | sent(2, 1)), ["lost", "reordered", "overtaken"]),
        (with_log(WHOLE, 0, 1, 2, 2), ["doubled"]),
        (replace(with_log(WHOLE, 0, 1, 2, 2), idempotent=frozenset()), []),
        (with_log(WHOLE, 0, 1, 2, 3), ["unexpected"]),
        (replace(WHOLE, sends=SENDS | sent(2, -1, outcome="fail")), ["unexpected"]),
        (replace(WHOLE, sends=SENDS | sent(2, 2, partition=1)), ["lost", "unexpected"]),
        (replace(WHOLE, sends=SENDS | sent(2, -1, outcome="unknown")), []),
        (replace(WHOLE, sends=sent(1, 0) | sent(0, 1) | sent(2, 2)), ["lost", "reordered", "overtaken"]),
        (replace(WHOLE, polls=[got(0, 1, 2, 3, log=LOG)]), ["consumed_and_gone"]),
        (replace(WHOLE, polls=[got(0, 2, log=LOG)]), ["skipped"]),
        (replace(WHOLE, polls=[got(0, 0, 1, log=LOG)]), ["skipped"]),
        (replace(WHOLE, polls=[got(0, 1, log=LOG), got(0, log=LOG)]), []),
        (replace(WHOLE, final_polls=got(0, 1, log=LOG)), ["unseen"]),
        (replace(WHOLE, sends=SENDS | sent(2, 2, t1=10_400_000_000)), []),
        (replace(WHOLE, sends=SENDS | sent(2, 2, t1=10_600_000_000)), ["late"]),
        (replace(WHOLE, sends=SENDS | given_up(9_000_000_000)), ["impatient"]),
        (replace(WHOLE, sends=SENDS | given_up(10_100_000_000)), []),
        (replace(WHOLE, sends=SENDS | given_up(9_000_000_000, error="MESSAGE_TOO_LARGE")), []),
        (replace(WHOLE, sends=SENDS | given_up(9_000_000_000, error="INVALID_RECORD")), ["misjudged"]),
        (replace(WHOLE, sends=SENDS | given_up(10_100_000_000, error="CORRUPT_MESSAGE")), ["misjudged"]),
        (replace(WHOLE, sends=SENDS | given_up(9_000_000_000, outcome="info")), []),
        (replace(WHOLE, sends=SENDS | given_up(10_100_000_000) | given_up(10_100_000_000, 4, 9 * 10**9)), []),
        (replace(WHOLE, troubles=["", "UNKNOWN_LEADER_EPOCH"]), ["troubled"]),
        (replace(WHOLE, troubles=["", "OFFSET_OUT_OF_RANGE"]), []),
    ],
    ids=[
        "whole",
        "an acknowledged record is gone",
        "acknowledged where another one is",
        "twice",
        "twice, and that may be",
        "never sent",
        "refused, and there",
        "sent elsewhere",
        "of unknown fate",
        "in another order",
        "consumed beyond the end",
        "a gap",
        "once more",
        "another session",
        "not seen at the end",
        "told just in time",
        "told too late",
        "given up too early",
        "given up in time",
        "given up at once, and rightly so",
        "taken for no records",
        "taken for no batch until its time was over",
        "of unknown fate, told early",
        "given up with an older one of its batch",
        "a consumer is told of what it can mend",
        "a consumer is told what it must know",
    ],
)
def test_a_rule_speaks_up_for_what_breaks_it_and_for_nothing_else(
    history: History, expected: list[str]
) -> None:
    assert rules_broken_by(history) == expected


@pytest.mark.parametrize(
    ("outcome", "offset", "told", "is_right"),
    [
        ("ok", 2, 2, True),
        ("ok", 2, 1, False),
        ("ok1", 2, 1, False),
        ("ok", 2, None, False),
        ("info", -1, None, True),
        ("info", -1, 2, False),
    ],
    ids=[
        "where it is",
        "where another one is",
        "so with acks=1",
        "nothing, though it was acknowledged",
        "a place that is not known",
        "a place, though none is known",
    ],
)
def test_who_waits_for_a_record_is_told_what_the_ledger_has(
    outcome: str, offset: int, told: int | None, is_right: bool
) -> None:
    sends = SENDS | sent(2, offset, outcome=outcome)
    history = replace(WHOLE, sends=sends, told={("p0", 0): 0, ("p0", 2): told})
    assert ("misled" in rules_broken_by(history)) is not is_right


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(DeliveryOutcome.OK, 8), (DeliveryOutcome.INFO, None), (None, "nothing")],
    ids=str,
)
def test_what_a_sender_was_told_is_read_of_its_delivery(
    outcome: DeliveryOutcome | None, expected: int | str | None
) -> None:
    """The second record of its batch."""
    batch = Batch("t", 0, 1, 1_000, Compression.NONE, 0, 0)
    if outcome is not None:
        batch.finish(outcome, base_offset=7)
    told = read_deliveries({("p0", 3): Delivery(batch, 1, 0)})
    assert told.get(("p0", 3), "nothing") == expected


SHORT = replace(with_log(WHOLE, 2, start=2), starts={0: 2})


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (SHORT, []),
        (replace(SHORT, starts={}), ["lost", "consumed_and_gone", "skipped"]),
        (replace(SHORT, polls=[got(0, 1, 2, log=LOG)]), []),
        (replace(SHORT, polls=[got(0, 2, log=LOG)]), []),
        (replace(SHORT, polls=[got(0, log=LOG), got(2, 2, log=LOG)]), ["skipped"]),
        (replace(SHORT, final_polls=got(1, log=LOG)), ["unseen"]),
        (with_log(SHORT, start=2), ["lost"]),
    ],
    ids=[
        "what is deleted is not asked for",
        "no client has deleted it",
        "read before it was deleted",
        "on at the log start",
        "from the log start, twice",
        "only what is deleted was seen",
        "what is kept is asked for",
    ],
)
def test_what_was_committed_and_deleted_is_not_missed(history: History, expected: list[str]) -> None:
    assert rules_broken_by(history) == expected


@pytest.mark.parametrize(
    ("sought", "lowest", "goes_to_end", "start", "offsets", "is_right"),
    [
        (1, 0, False, 0, (1, 2), True),
        (1, 0, False, 0, (2,), False),
        (1, 0, False, 0, (0, 1), False),
        (1, 0, False, 0, (1, 1), False),
        (0, 0, False, 2, (2,), True),
        (0, 0, False, 1, (2,), False),
        (0, 0, True, 1, (2,), True),
        (1, 0, True, 1, (2,), False),
        (0, 0, True, 2, (0, 2), True),
        (None, 0, False, 0, (2,), True),
        (None, 2, False, 0, (2,), True),
        (None, 2, False, 0, (1, 2), False),
        (None, 0, False, 0, (0, 2), False),
    ],
    ids=[
        "there and on",
        "beyond",
        "before",
        "twice",
        "at the log start, what it sought is deleted",
        "beyond the log start",
        "at the end, what it sought is deleted",
        "at the end, though what it sought is there",
        "on behind what was deleted meanwhile",
        "at the end",
        "at the end, where it was",
        "led back",
        "a gap behind the end",
    ],
)
def test_a_reader_that_seeks_is_where_it_asked_to_be(
    sought: int | None,
    lowest: int,
    goes_to_end: bool,
    start: int,
    offsets: tuple[int, ...],
    is_right: bool,
) -> None:
    span = ReadSpan(0, sought, lowest, goes_to_end, got(*offsets, log=LOG))
    history = replace(WHOLE, starts={0: start}, log={0: LOG[start:]}, read_spans=[span])
    assert ("astray" in rules_broken_by(history)) is not is_right


@pytest.mark.parametrize(
    ("epochs", "polled", "start", "is_right"),
    [
        ((5, 5, 5), (0, 1, 2), 0, True),
        ((5, 6, 6), (0, 1, 2), 0, False),
        ((5, 6, 6), (0, 1), 0, True),
        ((5, 6, 6), (0, 1, 2), 2, True),
        ((5, 6, 6), (1,), 0, True),
    ],
    ids=[
        "all of it is there",
        "what was read before the last is not, and no client was told",
        "the last is not",
        "it is not known: it is deleted",
        "nothing was read before",
    ],
)
def test_who_reads_on_behind_what_is_gone_is_told_so_r81_r88(
    epochs: tuple[int, ...], polled: tuple[int, ...], start: int, is_right: bool
) -> None:
    """What was read is of epoch 5, but for the last; losses are allowed."""
    log = [Stored(at, epoch, VALUES[at]) for at, epoch in enumerate(epochs)]
    read = [Polled(0, at, 5 if at < 2 else epochs[at], VALUES[at]) for at in polled]
    history = replace(WHOLE, starts={0: start}, log={0: log[start:]}, polls=[read], final_polls=[])
    said = [line.split(":")[0] for line in broken_rules(history, lossy=(0,))]
    assert ("mended" in said) is not is_right
