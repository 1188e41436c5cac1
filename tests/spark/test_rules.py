"""Each anomaly of the verdict is planted, found, and found alone; what is allowed is counted and excused.

Every case is a topic with producers of its own, so one run of the rules judges all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.core.history import RowWriter, SentFields
from holdfast.client.core.outcomes import DeliveryOutcome
from holdfast.durability.judge import ENDS_SCHEMA, EPOCHS_SCHEMA, MARKS_SCHEMA, MEMBERS_SCHEMA, judge
from holdfast.durability.ledger import forget_sends, read_sends
from holdfast.durability.rules import BATCHES_SQL, RULES
from holdfast.durability.rules.rule import Looks
from holdfast.durability.segment_source import BATCH_SCHEMA
from holdfast.durability.verdict import SAMPLES_MAX, Verdict
from holdfast.protocol.id_text import encode_id
from tests.spark.builders import (
    LOG_SCHEMA,
    TIMESTAMP_MS,
    RunHistory,
    Send,
    clean_history,
    damaged_value,
    write_ledger,
)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark session"), pytest.mark.timeout(600)]


# --- what is planted -----------------------------------------------------------------------------------


def nothing(history: RunHistory) -> None:
    pass


def last_record_cut_off(history: RunHistory) -> None:
    history.log[0].pop()


def replaced_by_a_stranger(history: RunHistory) -> None:
    history.log[1][5] = b"another record"


def acknowledged_at_another_offset(history: RunHistory) -> None:
    # the last record of partition 1: no other acknowledgement comes after it
    history.change(39, offset=history.sends[39].offset + 5)


def copied_twice(history: RunHistory) -> None:
    history.log[0] += [history.sends[0].value] * 2


def unanswered_and_copied(history: RunHistory) -> None:
    history.change(39, outcome=None)
    history.log[1].append(history.sends[39].value)


def never_sent(history: RunHistory) -> None:
    history.log[1].append(RunHistory(history.topic).send("stranger", 7, 0).value)


def of_no_ledger(history: RunHistory) -> None:
    history.log[1].append(b"another producer's record")


def refused_but_there(history: RunHistory) -> None:
    history.change(39, outcome=DeliveryOutcome.FAIL, offset=-1)


def copied_into_the_other_partition(history: RunHistory) -> None:
    assert history.sends[0].partition == 0
    history.log[1].append(history.sends[0].value)


def byte_flipped_in_the_log(history: RunHistory) -> None:
    history.log[0][3] = damaged_value(history.log[0][3])


def lost_and_its_offset_given_again_and_damaged(history: RunHistory) -> None:
    # an unclean election: the leader of epoch 4 gave offset 3 to another record, and that one is damaged
    late = history.send("a_late_one", 0, 0, leader_epoch=4)
    history.change(-1, offset=3)
    history.log[0].pop()
    history.log[0][3] = damaged_value(late.value)


def other_checksum_in_the_ledger(history: RunHistory) -> None:
    history.change(4, value_crc32c=12345)


def later_send_at_smaller_offset(history: RunHistory) -> None:
    of_p0 = [i for i, send in enumerate(history.sends) if send.partition == 0 and send.pseq % 2 == 0]
    first, second = [i for i in of_p0 if history.sends[i].producer.startswith("p0")][:2]
    low, high = history.sends[first].offset, history.sends[second].offset
    assert low < high
    history.change(first, offset=high)
    history.change(second, offset=low)
    log = history.log[0]
    log[low], log[high] = log[high], log[low]


def no_definite_answer_but_there(history: RunHistory) -> None:
    history.change(38, outcome=DeliveryOutcome.INFO, offset=-1)
    history.change(39, outcome=None)


def no_acknowledgement_and_not_there(history: RunHistory) -> None:
    for pseq, outcome in ((500, DeliveryOutcome.INFO), (501, None), (502, DeliveryOutcome.FAIL)):
        history.send("p0", pseq, 0, outcome=outcome)
        history.change(-1, offset=-1)
        history.log[0].pop()


def weakly_acknowledged_and_gone(history: RunHistory) -> None:
    for pseq, acks in enumerate((1, 1, 0)):
        history.send("weak", pseq, 1, acks=acks, outcome=DeliveryOutcome.OK1)
    del history.log[1][-2:]


def unacknowledged_behind_a_later_one(history: RunHistory) -> None:
    # without an answer, and its record stands behind that of the next send
    of_p0 = [i for i, s in enumerate(history.sends) if s.partition == 0 and s.producer.startswith("p0")]
    first, last = of_p0[-2:]
    low, high = history.sends[first].offset, history.sends[last].offset
    history.change(first, outcome=DeliveryOutcome.INFO, offset=-1)
    history.change(last, offset=low)
    log = history.log[0]
    log[low], log[high] = log[high], log[low]


def the_ledger_tells_the_whole_record(history: RunHistory) -> None:
    history.change(3, fields=SentFields(TIMESTAMP_MS))


def key_is_gone(history: RunHistory) -> None:
    history.change(3, fields=SentFields(TIMESTAMP_MS, key_crc32c=7))


def headers_are_gone(history: RunHistory) -> None:
    history.change(3, fields=SentFields(TIMESTAMP_MS, headers_crc32c=7))


def timestamp_is_another(history: RunHistory) -> None:
    history.change(3, fields=SentFields(TIMESTAMP_MS - 1))


def sent_after_an_acknowledgement_and_below_it(history: RunHistory) -> None:
    history.send("late", 0, 0, t0=50, t1=60)
    history.send("early", 0, 0, t0=1, t1=40)


CASES: dict[Callable[[RunHistory], None], dict[str, int]] = {
    nothing: {},
    last_record_cut_off: {"lost": 1},
    replaced_by_a_stranger: {"lost": 1, "unexpected": 1},
    acknowledged_at_another_offset: {"moved": 1},
    copied_twice: {"duplicated": 2},
    unanswered_and_copied: {"duplicated": 1, "recovered": 1},
    never_sent: {"unexpected": 1},
    of_no_ledger: {"unexpected": 1},
    refused_but_there: {"unexpected": 1},
    copied_into_the_other_partition: {"misplaced": 1},
    byte_flipped_in_the_log: {"corrupt": 1},
    lost_and_its_offset_given_again_and_damaged: {"lost": 1, "corrupt": 1},
    other_checksum_in_the_ledger: {"corrupt": 1},
    later_send_at_smaller_offset: {"reordered": 1},
    no_definite_answer_but_there: {"recovered": 2},
    no_acknowledgement_and_not_there: {},
    weakly_acknowledged_and_gone: {"lost_weakly_acked": 2},
    unacknowledged_behind_a_later_one: {"recovered": 1, "reordered_unacked": 1},
    sent_after_an_acknowledgement_and_below_it: {"overtaken": 1},
    the_ledger_tells_the_whole_record: {},
    key_is_gone: {"key_changed": 1},
    headers_are_gone: {"headers_changed": 1},
    timestamp_is_another: {"timestamp_changed": 1},
}


# --- replicas ------------------------------------------------------------------------------------------


def same_everywhere(batches: list[dict[str, Any]]) -> None:
    pass


def different_above_the_high_watermark(batches: list[dict[str, Any]]) -> None:
    batches[4] |= {"crc": 7, "leader_epoch": 4}
    batches[9]["damaged"] = True


def one_replica_behind(batches: list[dict[str, Any]]) -> None:
    del batches[7:10]


def older_segments_deleted_in_one(batches: list[dict[str, Any]]) -> None:
    del batches[5:7]


def other_bytes_below_it(batches: list[dict[str, Any]]) -> None:
    batches[6]["crc"] = 7


def other_epoch_below_it(batches: list[dict[str, Any]]) -> None:
    batches[5]["leader_epoch"] = 2


def hole_in_one_replica(batches: list[dict[str, Any]]) -> None:
    del batches[7]


def damaged_batch_in_one_replica(batches: list[dict[str, Any]]) -> None:
    batches[7] |= {"crc_ok": False, "damaged": True, "problem": "crc does not hold"}


def two_values_of_one_epoch_above_it(batches: list[dict[str, Any]]) -> None:
    batches[4]["crc"] = 7


def epoch_falls_above_it(batches: list[dict[str, Any]]) -> None:
    for batch in batches:
        batch["leader_epoch"] = 2 if batch["base_offset"] >= HIGH_WATERMARK else 3


def batches_swapped_in_a_file(batches: list[dict[str, Any]]) -> None:
    batches[6]["position"], batches[7]["position"] = batches[7]["position"], batches[6]["position"]


def checkpoint_of_one_replica_says_another_epoch(batches: list[dict[str, Any]]) -> None:
    # see CHECKPOINTS
    pass


def tail_of_one_replica_torn(batches: list[dict[str, Any]]) -> None:
    batches[8] |= {"crc": 7, "crc_ok": False, "problem": "crc does not hold"}
    del batches[9]


REPLICA_CASES: dict[Callable[[list[dict[str, Any]]], None], dict[str, int]] = {
    same_everywhere: {},
    different_above_the_high_watermark: {},
    one_replica_behind: {},
    older_segments_deleted_in_one: {},
    other_bytes_below_it: {"diverged": 1},
    other_epoch_below_it: {"diverged": 1},
    hole_in_one_replica: {"diverged": 1},
    damaged_batch_in_one_replica: {"damaged": 1},
    two_values_of_one_epoch_above_it: {"rewritten": 1},
    epoch_falls_above_it: {"epoch_order": 3},
    batches_swapped_in_a_file: {"file_order": 1},
    checkpoint_of_one_replica_says_another_epoch: {"epoch_checkpoint": 2},
    tail_of_one_replica_torn: {},
}
#: (topic, broker) -> rows of its checkpoint of leader epochs, (epoch, first offset, end)
CHECKPOINTS: dict[tuple[str, int], list[tuple[int, int, int | None]]] = {
    ("same_everywhere", 1): [(3, 0, None)],
    ("checkpoint_of_one_replica_says_another_epoch", 1): [(3, 0, None)],
    ("checkpoint_of_one_replica_says_another_epoch", 2): [(2, 0, 20), (3, 20, 40), (4, 40, None)],
}


def replica_batches(topic: str) -> list[dict[str, Any]]:
    """Three replicas of partition 0 with five batches of ten; the high watermark leaves the last one out."""
    return [
        {
            "broker": broker,
            "topic": topic,
            "partition": 0,
            "base_offset": 10 * number,
            "last_offset": 10 * number + 9,
            "leader_epoch": 3,
            "crc": 1000 + number,
            "crc_ok": True,
            "damaged": False,
            "records": 10,
            "segment": "00000000000000000000.log",
            "position": 700 * number,
            "problem": None,
        }
        for broker in (1, 2, 3)
        for number in range(5)
    ]


HIGH_WATERMARK = 40


# --- who should have what ---------------------------------------------------------------------------------


def all_in_sync_and_complete(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    pass


def one_in_sync_truncated_and_filled_while_it_is_read(
    history: RunHistory, batches: list[dict[str, Any]]
) -> None:
    batches.append(batches[-1] | {"base_offset": 60, "last_offset": 69, "position": 4200})


def one_in_sync_and_short(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    del batches[6:10]


def one_in_sync_and_gone(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    del batches[10:]


def one_in_sync_whose_end_is_damaged(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    # the record at offset 19 was in it; what it says of its offsets is as damaged as the rest
    batches[6] |= {"last_offset": 7_019, "crc": 7, "crc_ok": False, "problem": "crc does not hold"}
    del batches[7:10]


MEMBER_CASES: dict[Callable[[RunHistory, list[dict[str, Any]]], None], dict[str, int]] = {
    all_in_sync_and_complete: {},
    one_in_sync_truncated_and_filled_while_it_is_read: {},
    one_in_sync_and_short: {"incomplete": 1},
    one_in_sync_and_gone: {"incomplete": 1},
    one_in_sync_whose_end_is_damaged: {"incomplete": 1},
}


# --- what is served, and replicas hold -------------------------------------------------------------------


def served_as_all_hold_it(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    pass


def served_otherwise_than_all_hold_it(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    history.batch_crcs[0][1] = 7


def served_otherwise_than_the_one_replica_holds_it(
    history: RunHistory, batches: list[dict[str, Any]]
) -> None:
    del batches[5:]
    history.batch_crcs[0][1] = 7


def served_in_larger_batches_than_all_hold(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    history.batch_crcs[0][1:3] = [7, 7]


def served_otherwise_above_the_high_watermark(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    history.batch_crcs[0][4] = 7


def served_otherwise_than_one_of_them_holds_it(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    batches[6]["crc"] = 7


def served_otherwise_than_what_cannot_be_read(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    for number in (1, 6, 11):
        batches[number] |= {"crc": 7, "crc_ok": False, "problem": "crc does not hold"}


def served_while_one_catches_up(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    del batches[7:10]


def served_behind_records_that_were_deleted(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    history.begins[0] = 25
    history.batch_crcs[0][0] = 7
    history.sends = [send for send in history.sends if send.partition or send.offset >= 25]
    del batches[:2]


def served_before_more_came_in(history: RunHistory, batches: list[dict[str, Any]]) -> None:
    history.sends = [send for send in history.sends if send.partition or send.offset < 25]
    del history.log[0][25:]


SERVED_CASES: dict[Callable[[RunHistory, list[dict[str, Any]]], None], dict[str, int]] = {
    served_as_all_hold_it: {},
    served_otherwise_than_all_hold_it: {"unserved": 1},
    served_otherwise_than_the_one_replica_holds_it: {"unserved": 1},
    served_in_larger_batches_than_all_hold: {"unserved": 2},
    served_otherwise_above_the_high_watermark: {},
    served_otherwise_than_one_of_them_holds_it: {"diverged": 1},
    served_otherwise_than_what_cannot_be_read: {},
    served_while_one_catches_up: {},
    served_behind_records_that_were_deleted: {},
    served_before_more_came_in: {},
}


ALL_CASES: dict[Callable[..., None], dict[str, int]] = {
    **CASES, **REPLICA_CASES, **MEMBER_CASES, **SERVED_CASES,
}  # fmt: skip


# --- one run for all -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, and its rows by topic."""

    verdict: Verdict
    #: topic -> class -> rows
    found: dict[str, dict[str, int]]
    #: batches of replicas below the high watermark that can be read
    readable: int


def judged(
    spark: Any, histories: list[RunHistory], folder: Path, file_format: str = "json", **tables: Any
) -> Judged:
    sends, totals = read_sends(spark, str(write_ledger(folder / "ledger", histories, file_format)))
    rows = [row for history in histories for row in history.log_rows()]
    verdict = judge(spark, sends, spark.createDataFrame(rows, LOG_SCHEMA), totals, **tables)
    found: dict[str, dict[str, int]] = {}
    for row in spark.table("violations").groupBy("topic", "class").count().collect():
        found.setdefault(row.topic, {})[row["class"]] = row["count"]
    replica = spark.table("replica").where(f"last_offset < {HIGH_WATERMARK} AND problem IS NULL")
    return Judged(verdict, found, replica.count())


@pytest.fixture(scope="module")
def planted(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    histories = []
    for plant in CASES:
        history = clean_history(plant.__name__)
        plant(history)
        histories.append(history)
    batches = []
    for change in REPLICA_CASES:
        made = replica_batches(change.__name__)
        change(made)
        batches += made
    members, ends = [], []
    for stage in MEMBER_CASES:
        history, made = clean_history(stage.__name__), replica_batches(stage.__name__)
        stage(history, made)
        histories.append(history)
        batches += made
        members += [(broker, history.topic, 0, True) for broker in (1, 2, 3)]
        ends.append((history.topic, 0, 20, 20, 0))
    for stage in SERVED_CASES:
        history, made = clean_history(stage.__name__, 100), replica_batches(stage.__name__)
        history.batch_crcs[0] = [batch["crc"] for batch in made[:5]]
        stage(history, made)
        histories.append(history)
        batches += made
    names = [item.split()[0] for item in BATCH_SCHEMA.split(", ")]
    replica = spark_session.createDataFrame([tuple(b[name] for name in names) for b in batches], BATCH_SCHEMA)
    marks = sorted({(batch["broker"], batch["topic"], 0, HIGH_WATERMARK) for batch in batches})
    tables = {
        "replica": replica,
        "marks": spark_session.createDataFrame(marks, MARKS_SCHEMA),
        "members": spark_session.createDataFrame(members, MEMBERS_SCHEMA),
        "ends": spark_session.createDataFrame(ends, ENDS_SCHEMA),
        "epochs": spark_session.createDataFrame(
            [
                (broker, topic, 0, *row, HIGH_WATERMARK)
                for (topic, broker), rows in CHECKPOINTS.items()
                for row in rows
            ],
            EPOCHS_SCHEMA,
        ),
        "one_clock": True,
    }
    yield judged(spark_session, histories, tmp_path_factory.mktemp("planted"), "mixed", **tables)
    spark_session.catalog.clearCache()


@pytest.mark.parametrize(
    ("name", "expected"), [(case.__name__, classes) for case, classes in ALL_CASES.items()]
)
def test_what_was_planted_is_found_and_found_alone(
    planted: Judged, name: str, expected: dict[str, int]
) -> None:
    assert planted.found.get(name, {}) == expected


def test_every_rule_has_been_broken_once_and_counts_agree(planted: Judged) -> None:
    totals: dict[str, int] = {}
    for classes in ALL_CASES.values():
        for name, count in classes.items():
            totals[name] = totals.get(name, 0) + count
    # those of polls and of what is not served are broken in test_planted_polls and test_planted_replicas
    elsewhere = (Looks.POLLS, Looks.STRAYS)
    assert set(totals) == {name for name, rule in RULES.items() if rule.looks not in elsewhere}
    assert dict(planted.verdict.counts) == totals
    assert {name: len(rows) for name, rows in planted.verdict.samples.items()} == totals
    facts = planted.verdict.facts
    # lost 3, moved 1, 3 that are in their places but damaged, and 3 with another key, headers or timestamp
    assert facts["acked"] - facts["ok"] == 10
    assert planted.verdict.exit_code == 4


def test_a_rule_is_asked_about_all_that_breaks_it(planted: Judged, spark_session: Any) -> None:
    for table, topic in (("odd", "coalesce(topic, log_topic)"), (f"({BATCHES_SQL})", "topic")):
        rules = [
            rule
            for rule in RULES.values()
            if rule.needs != "true" and rule.is_of_replicas == (topic == "topic")
        ]
        needs = ", ".join(f"bool_or({rule.needs}) AS {rule.name}" for rule in rules)
        for row in spark_session.sql(f"SELECT {topic} AS topic, {needs} FROM {table} GROUP BY 1").collect():
            broken = {rule.name for rule in rules}.intersection(planted.found.get(row.topic, {}))
            assert all(row[name] for name in broken), (row, broken)


def test_replicas_below_their_own_high_watermarks_are_a_note(planted: Judged) -> None:
    assert planted.verdict.notes[0] == (
        "replicas below their own high watermarks: "
        "broker 2 of one_in_sync_and_short-0 ends at 10, its mark is 40; "
        "broker 2 of one_in_sync_whose_end_is_damaged-0 ends at 10, its mark is 40; "
        "broker 2 of one_replica_behind-0 ends at 20, its mark is 40; "
        "broker 2 of served_while_one_catches_up-0 ends at 20, its mark is 40; "
        "broker 2 of tail_of_one_replica_torn-0 ends at 30, its mark is 40"
    )


def test_a_batch_that_cannot_be_read_is_not_counted_as_compared(planted: Judged) -> None:
    assert planted.verdict.facts["replica_batches"] == planted.readable


def test_samples_say_where_to_look(planted: Judged) -> None:
    (moved,) = planted.verdict.samples["moved"]
    assert (moved["topic"], moved["partition"], moved["offset"]) == ("acknowledged_at_another_offset", 1, 24)
    assert (moved["run"], moved["producer"], moved["pseq"]) == (
        "demo",
        "p1.acknowledged_at_another_offset",
        19,
    )
    assert moved["detail"] == "found at offset 19"
    details = {row["topic"]: row["detail"] for row in planted.verdict.samples["unexpected"]}
    assert details["never_sent"] == "never sent"
    (misplaced,) = planted.verdict.samples["misplaced"]
    assert misplaced["detail"] == "was sent to copied_into_the_other_partition-0"
    details = {row["topic"]: row["detail"] for row in planted.verdict.samples["diverged"]}
    assert details["other_bytes_below_it"] == (
        "replicas 1, 2, 3 hold different batches: the odd one is replica 2, epoch 3 crc 7 up to offset 19, "
        "00000000000000000000.log at byte 700"
    )
    details = {row["topic"]: row["detail"] for row in planted.verdict.samples["unserved"]}
    assert details["served_otherwise_than_the_one_replica_holds_it"] == (
        "replica 1 holds another batch than is served: epoch 3 crc 1001 up to offset 19, "
        "00000000000000000000.log at byte 700, served is crc 7"
    )
    details = {row["topic"]: row["detail"] for row in planted.verdict.samples["incomplete"]}
    assert details == {
        "one_in_sync_and_short": "replica 2 is in sync, offset 19 is acknowledged, it ends at 10",
        "one_in_sync_and_gone": "replica 3 is in sync, offset 19 is acknowledged, it has no log",
        "one_in_sync_whose_end_is_damaged": (
            "replica 2 is in sync, offset 19 is acknowledged, it ends at 10"
        ),
    }


def test_of_two_records_of_a_damaged_offset_the_earlier_is_lost(planted: Judged) -> None:
    topic = "lost_and_its_offset_given_again_and_damaged"
    (lost,) = [row for row in planted.verdict.samples["lost"] if row["topic"] == topic]
    assert (lost["producer"], lost["offset"]) == (f"p1.{topic}", 3)


def test_a_clean_history_breaks_no_rule_and_was_really_looked_at(spark: Any, tmp_path: Path) -> None:
    verdict = judged(spark, [clean_history("t")], tmp_path).verdict
    shown = {name for name, rule in RULES.items() if rule.looks in (Looks.PAIRS, Looks.ORDER)}
    assert set(verdict.counts) == shown, "nothing is said of replicas, nor of keys that no ledger tells"
    assert not any(verdict.counts.values())
    assert verdict.exit_code == 0
    assert (verdict.facts["acked"], verdict.facts["ok"], verdict.facts["served"]) == (40, 40, 40)


def test_sends_that_are_read_again_are_not_kept_in_memory_twice(spark: Any, tmp_path: Path) -> None:
    read_sends(spark, str(write_ledger(tmp_path / "ledger", [clean_history("t")])))
    kept = spark.table("all_sends")
    assert kept.storageLevel.useMemory
    forget_sends(spark)
    assert not kept.storageLevel.useMemory


def test_each_topic_id_of_a_ledger_of_many_topics_is_known(spark: Any, tmp_path: Path) -> None:
    rows, lines = RowWriter("demo", "p"), []
    topics = {f"t{number}": number.to_bytes(16, "big") for number in range(1, 131)}
    for topic, topic_id in topics.items():
        lines.append(rows.invoke(0, topic, 0, 7, -1, 1))
        lines.append(rows.complete([0], topic, 0, DeliveryOutcome.OK, 0, 3, None, 2, topic_id))
    (tmp_path / "demo.p.jsonl").write_text("".join(lines))
    _, totals = read_sends(spark, str(tmp_path))
    assert totals.topic_ids == {topic: (encode_id(topic_id),) for topic, topic_id in topics.items()}


@pytest.mark.parametrize("runs", [("demo", "demo"), ("demo", "again")], ids=["one run", "two runs"])
def test_a_name_belongs_to_its_topic(spark: Any, tmp_path: Path, runs: tuple[str, str]) -> None:
    histories = [RunHistory("good", runs[0]), RunHistory("bad", runs[1])]
    for history in histories:
        for number in range(10):
            send = Send("p", number, 0, offset=number)
            history.sends.append(send)
            history.log[0].append(send.value)
    histories[1].log[0].pop()
    assert judged(spark, histories, tmp_path).found == {"bad": {"lost": 1}}, "what `good` has is not in `bad`"


def test_counts_are_exact_and_samples_bounded(spark: Any, tmp_path: Path) -> None:
    history = clean_history("t", 200)
    del history.log[0][-SAMPLES_MAX - 8 :]
    verdict = judged(spark, [history], tmp_path).verdict
    assert verdict.counts["lost"] == SAMPLES_MAX + 8
    assert [row["offset"] for row in verdict.samples["lost"]] == list(range(60, 60 + SAMPLES_MAX))
