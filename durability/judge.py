"""Runs the rules over the tables of a ledger, the log and the replicas: the counts of a verdict.

Rules are SQL in `durability.rules`; where the tables come from is `durability.validate`'s.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from holdfast.durability.ledger import Totals
from holdfast.durability.poll_files import POLL_SCHEMA
from holdfast.durability.polls import Polls
from holdfast.durability.rules import (
    BATCHES_SQL,
    COMPARED_SQL,
    NEAR_SQL,
    ORDER_SQL,
    PAIRS_SQL,
    RULES,
    SEEN_UNPLACED_SQL,
    SHOWN,
    STRAYS_SQL,
    VIOLATIONS_SCHEMA,
    findings_sql,
    needs_sql,
    violations_sql,
)
from holdfast.durability.rules.rule import Looks, Rule
from holdfast.durability.scale import MUCH, Scale
from holdfast.durability.segment_source import BATCH_SCHEMA
from holdfast.durability.verdict import SAMPLES_MAX, Verdict

#: Columns of view `marks`.
MARKS_SCHEMA = "broker int, topic string, partition int, high_watermark long"
#: Columns of view `flushed`.
FLUSHED_SCHEMA = "broker int, topic string, partition int, flushed_offset long"
#: Columns of view `epochs`.
EPOCHS_SCHEMA = (
    "broker int, topic string, partition int, epoch int, start_offset long, end_offset long, "
    "flushed_offset long"
)
#: Columns of view `ends`.
ENDS_SCHEMA = "topic string, partition int, settled_end long, served_end long, log_start long"
#: Columns of view `members`.
MEMBERS_SCHEMA = "broker int, topic string, partition int, is_in_sync boolean"
#: What rules look at that is only there where more is given than ledgers and a cluster.
_NEEDS_TABLES = (
    Looks.TIMES, Looks.REPLICAS, Looks.EPOCHS, Looks.MEMBERS, Looks.STRAYS, Looks.POLLS,
)  # fmt: skip
#: What rules look at that is there only where something is odd.
_PAIRED = (Looks.PAIRS, Looks.FIELDS)
#: A doubt about replicas.
NOTHING_COMPARED = "no batch of a replica lies below a checkpointed high watermark: nothing was compared"
#: Replicas that a doubt names.
SHORT_MAX = 5


def rules_of(totals: Totals, *, without: Collection[Looks] = _NEEDS_TABLES) -> list[Rule]:
    """The rules that have something to look at."""
    missing = {*without, *(() if totals.with_fields else (Looks.FIELDS,))}
    return [rule for rule in RULES.values() if rule.looks not in missing]


def judge(
    spark: Any,
    sends: Any,
    log: Any,
    totals: Totals,
    *,
    replica: Any | None = None,
    marks: Any | None = None,
    flushed: Any | None = None,
    members: Any | None = None,
    ends: Any | None = None,
    epochs: Any | None = None,
    strays: Callable[[Any], Any] | None = None,
    polls: Polls | None = None,
    replicas_assigned: int = 0,
    partitions: int = 0,
    one_clock: bool = False,
    has_order: bool = True,
    doubts: tuple[str, ...] = (),
    scale: Scale = MUCH,
    notes: tuple[str, ...] = (),
) -> Verdict:
    """Run the rules over these tables (durability.rules.rule); `doubts` and `notes` say what of them is
    missing. `strays` makes view `stray` of the rows of STRAYS_SQL; with it, and with `polls`, the session has
    view `all_sends`."""
    sends.createOrReplaceTempView("sends")
    for name in ("timestamp_ms", "key_crc32c", "headers_crc32c", "batch_crc32c", "batch_epoch"):
        if name not in log.columns:
            log = log.withColumn(name, F.lit(None).cast("long"))
    scale.kept(log).createOrReplaceTempView("log")
    for name, table, schema in (
        ("replica", replica, BATCH_SCHEMA),
        ("marks", marks, MARKS_SCHEMA),
        ("flushed", flushed, FLUSHED_SCHEMA),
        ("members", members, MEMBERS_SCHEMA),
        ("ends", ends, ENDS_SCHEMA),
        ("epochs", epochs, EPOCHS_SCHEMA),
        ("polls", None if polls is None else polls.table, POLL_SCHEMA),
    ):
        (scale.rows(spark, [], schema) if table is None else table).createOrReplaceTempView(name)
    seen, is_odd = _pair(spark, scale)
    given = {
        Looks.ORDER: has_order,
        Looks.TIMES: one_clock,
        Looks.REPLICAS: replica is not None,
        Looks.EPOCHS: replica is not None and epochs is not None,
        Looks.MEMBERS: replica is not None and members is not None,
        Looks.STRAYS: replica is not None and strays is not None,
        Looks.POLLS: polls is not None,
    }
    wanted = rules_of(totals, without=[looks for looks, is_there in given.items() if not is_there])
    asked = _asked(spark, scale, wanted, strays, is_odd=is_odd, in_order=totals.in_order)
    counts, samples = _found(spark, scale, wanted, asked)
    facts = facts_of(totals, seen, partitions)
    notes = (*notes, *notes_of(totals))
    if polls is not None:
        facts |= {"polled": polls.records, "consumers": polls.consumers}
        notes += polls.notes
    if replica is not None:
        compared = spark.sql(COMPARED_SQL).first()
        facts |= _facts_of_replicas(compared, replicas_assigned)
        notes = short_notes(compared.short) + notes
        doubts += replicas_in_doubt(compared)
        if compared.compared == 0:
            doubts += (NOTHING_COMPARED,)
    return Verdict(counts=counts, samples=samples, facts=facts, notes=notes, doubts=doubts)


def _found(
    spark: Any, scale: Scale, wanted: Sequence[Rule], asked: Sequence[Rule]
) -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    """Make view `violations` of the rules that are asked; (counts of all wanted ones, samples)."""
    counts = {rule.name: 0 for rule in wanted}
    samples: dict[str, list[dict[str, Any]]] = {}
    violations = spark.sql(violations_sql(asked)) if asked else scale.rows(spark, [], VIOLATIONS_SCHEMA)
    scale.together(violations).createOrReplaceTempView("violations")
    for row in spark.sql(findings_sql(SAMPLES_MAX)).collect() if asked else ():
        counts[row["class"]] = row.total
        samples.setdefault(row["class"], []).append(sample_of(row))
    return counts, samples


def sample_of(row: Any) -> dict[str, Any]:
    """What a verdict shows of a row of `findings_sql`."""
    return {name: row[name] for name in SHOWN}


def _pair(spark: Any, scale: Scale) -> tuple[Mapping[str, int], bool]:
    """Make views `odd` and `near`; (counts of what was paired, whether anything is odd)."""
    seen = Observation("pairs")
    odd, count = scale.counted(
        spark.sql(PAIRS_SQL)
        .observe(
            seen,
            F.count("log_topic").alias("served"),
            F.count_if(F.col("perfect") & F.col("acked")).alias("ok"),
        )
        .where("NOT perfect")
        .drop("perfect")
    )
    odd.createOrReplaceTempView("odd")
    if count:
        scale.kept(spark.sql(NEAR_SQL)).createOrReplaceTempView("near")
    return seen.get, count > 0


def _asked(
    spark: Any,
    scale: Scale,
    wanted: Sequence[Rule],
    strays: Callable[[Any], Any] | None,
    *,
    is_odd: bool,
    in_order: bool,
) -> list[Rule]:
    """Those of the rules that something could break. Makes the views that only they look at."""
    spared, is_unplaced = _without_odd(spark, wanted) if is_odd else (_of(wanted, _PAIRED), False)
    if _of(wanted, {Looks.REPLICAS}):
        spared |= _without_odd_batches(spark, wanted)
    about_strays, about_order = _of(wanted, {Looks.STRAYS}), _of(wanted, {Looks.ORDER})
    if strays is None or not (about_strays - spared) or not _find_strays(spark, strays, scale):
        spared |= about_strays
    # of sends that are in order only those without an offset of their own can be out of it
    if not about_order or (in_order and not is_unplaced) or not _find_disordered(spark, scale):
        spared |= about_order
    return [rule for rule in wanted if rule.name not in spared]


def _of(rules: Iterable[Rule], looks: Collection[Looks]) -> set[str]:
    """The names of rules that look at one of these."""
    return {rule.name for rule in rules if rule.looks in looks}


def _without_odd(spark: Any, rules: Sequence[Rule]) -> tuple[set[str], bool]:
    """(names of the rules that nothing in view `odd` breaks, whether a send without its own offset is in
    the log)."""
    asked = [rule for rule in rules if rule.looks in _PAIRED]
    *needed, is_unplaced = spark.sql(needs_sql(asked, "odd", SEEN_UNPLACED_SQL)).first()
    return {rule.name for rule, is_needed in zip(asked, needed, strict=True) if not is_needed}, is_unplaced


def _without_odd_batches(spark: Any, rules: Sequence[Rule]) -> set[str]:
    """Names of the rules that no batch of the replicas breaks."""
    asked = [rule for rule in rules if rule.looks in (Looks.REPLICAS, Looks.STRAYS)]
    needed = spark.sql(needs_sql(asked, f"({BATCHES_SQL})")).first()
    return {rule.name for rule, is_needed in zip(asked, needed, strict=True) if not is_needed}


def _find_strays(spark: Any, strays: Callable[[Any], Any], scale: Scale) -> bool:
    """Make view `stray`, when there is something that is not served; whether there is."""
    batches, count = scale.counted(spark.sql(STRAYS_SQL))
    if not count:
        return False
    strays(batches).createOrReplaceTempView("stray")
    return True


def _find_disordered(spark: Any, scale: Scale) -> bool:
    """Make view `disordered`; whether there is anything in it."""
    disordered, count = scale.counted(spark.sql(ORDER_SQL))
    disordered.createOrReplaceTempView("disordered")
    return bool(count)


def facts_of(totals: Totals, seen: Mapping[str, int], partitions: int) -> dict[str, Any]:
    return {
        "runs": list(totals.runs),
        "topics": list(totals.topics),
        "partitions": partitions,
        "producers": totals.producers,
        "sent": totals.sent,
        "acked": totals.acked,
        "ok": seen["ok"],
        "weakly_acked": totals.weakly_acked,
        "refused": totals.refused,
        "unknown": totals.unknown,
        "unanswered": totals.unanswered,
        "served": seen["served"],
    }


def _facts_of_replicas(compared: Any, assigned: int) -> dict[str, int]:
    facts = {"replica_batches": compared.compared, "replica_batches_seen": compared.batches}
    if assigned:
        facts |= {"replicas_seen": compared.replicas, "replicas": assigned}
    return facts


def notes_of(totals: Totals) -> tuple[str, ...]:
    notes = []
    if 0 < totals.with_fields < totals.sent:
        notes.append(
            f"{totals.sent - totals.with_fields} sends of an older ledger tell no key, headers and "
            "timestamp: of these only the value was judged"
        )
    if totals.torn_lines:
        notes.append(
            f"{totals.torn_lines} ledger files end in a cut line or batch: what it said counts as unanswered"
        )
    if totals.unanswered or totals.unknown:
        notes.append(
            f"{totals.unknown + totals.unanswered} sends without a definite answer: allowed either way"
        )
    return tuple(notes)


def replicas_in_doubt(compared: Any) -> tuple[str, ...]:
    """What a broker may leave for some seconds after a power cut, and later none."""
    found = (
        ([row for row in compared.short if row.lacks_served], "in sync lack what was below their marks"),
        (
            compared.open,
            "hold bytes that cannot be read, or end too early: a power cut, or damage; nothing says that "
            "they were flushed",
        ),
    )
    return tuple(
        f"{len(rows)} replicas {what}: "
        + ", ".join(f"broker {row.broker} of {row.topic}-{row.partition}" for row in rows[:SHORT_MAX])
        for rows, what in found
        if rows
    )


def short_notes(short: Sequence[Any]) -> tuple[str, ...]:
    if not short:
        return ()
    shown = [
        f"broker {row.broker} of {row.topic}-{row.partition} "
        + ("has no log" if row.log_end is None else f"ends at {row.log_end}")
        + f", its mark is {row.high_watermark}"
        for row in short[:SHORT_MAX]
    ]
    more = f"; and {len(short) - SHORT_MAX} more" if len(short) > SHORT_MAX else ""
    return (f"replicas below their own high watermarks: {'; '.join(shown)}{more}",)
