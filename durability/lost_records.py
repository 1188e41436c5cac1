"""The lost records of a verdict, with what the ledger's acknowledgements tell of how each came to be lost.

Records of one partition may be lost by different elections. After one that lost an offset, the new leader
gives it again, so the first acknowledged offset of each leader epoch divides them: those of one epoch whose
offsets were given again in the same later one are one loss. Asked only when something is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.durability.loss_story import LostRecord
from holdfast.durability.rules import SHOWN
from holdfast.durability.verdict import SAMPLES_MAX

#: (topic, partition) of what is lost -> the first offset that each leader epoch acknowledged, by epoch.
_FIRSTS_SQL = """
SELECT topic, partition, array_sort(collect_list(struct(leader_epoch, first))) AS firsts
FROM (SELECT topic, partition, leader_epoch, min(offset) AS first
      FROM sends LEFT SEMI JOIN (SELECT DISTINCT topic, partition FROM violations WHERE class = 'lost')
           USING (topic, partition)
      WHERE offset IS NOT NULL AND leader_epoch >= 0
      GROUP BY topic, partition, leader_epoch)
GROUP BY topic, partition
"""
_LATER = "f.leader_epoch > s.leader_epoch"
#: `given_in`: the first later epoch that acknowledged its offset, or one below it. `outlived`: the last one
#: before that which acknowledged only what is behind it, so that its leader had gone on there.
LOST_SQL = f"""
SELECT *, try_element_at(filter(later, f -> f.first > offset
                                            AND f.leader_epoch < coalesce(given_in, {2**31 - 1})),
                         -1).leader_epoch AS outlived
FROM (SELECT *, get(filter(later, f -> f.first <= offset), 0).leader_epoch AS given_in
      FROM (SELECT {", ".join(f"v.{name}" for name in SHOWN)}, s.t1, s.leader_epoch,
                   filter(firsts, f -> {_LATER}) AS later
            FROM (SELECT * FROM violations WHERE class = 'lost') v
            LEFT JOIN sends s ON v.topic = s.topic AND v.producer = s.producer AND v.pseq = s.pseq
                              AND v.run <=> s.run
            LEFT JOIN ({_FIRSTS_SQL}) f ON v.topic = f.topic AND v.partition = f.partition))
"""
#: Records of one loss have all of these in common.
_LOSS = ("topic", "partition", "leader_epoch", "given_in", "outlived")
_LOSS_SHOWN = ("topic", "partition", "leader_epoch", "first_offset", "last_offset", "records")
_BY_LOSS = ", ".join(_LOSS)
#: Each loss with its first record.
_LOSSES_SQL = f"""
SELECT {_BY_LOSS}, count(*) AS records, min(offset) AS first_offset, max(offset) AS last_offset
FROM lost GROUP BY {_BY_LOSS} ORDER BY topic, partition, first_offset, leader_epoch
"""
#: A record of each loss, then another one of each, and so on.
_SAMPLES_SQL = f"""
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {_BY_LOSS} ORDER BY offset, producer, pseq) AS nth
               FROM lost)
ORDER BY nth, topic, partition, offset LIMIT {SAMPLES_MAX}
"""


@dataclass(frozen=True, slots=True)
class LostSample:
    """One lost record."""

    #: what a verdict shows of it
    row: dict[str, Any]
    record: LostRecord


@dataclass(slots=True)
class Loss:
    """Records that were lost together, as far as the ledger tells."""

    #: what a verdict shows of them
    row: dict[str, Any]
    #: the first of them; None of what is not shown
    first: LostSample | None = None


def find_lost(spark: Any) -> tuple[list[Loss], list[LostSample]]:
    """(each loss; samples of lost records, a first one of each loss before others). Of view `violations`."""
    lost = spark.sql(LOST_SQL).cache()
    try:
        lost.createOrReplaceTempView("lost")
        losses = {_key(row): Loss(_shown(row, _LOSS_SHOWN)) for row in spark.sql(_LOSSES_SQL).collect()}
        samples = []
        for row in spark.sql(_SAMPLES_SQL).collect():
            samples.append(LostSample(_shown(row, SHOWN), record_of(row)))
            if row.nth == 1:
                losses[_key(row)].first = samples[-1]
    finally:
        lost.unpersist()
    return list(losses.values()), samples


def all_lost(spark: Any) -> list[LostRecord]:
    """Every lost record, by topic, partition and offset. Of view `violations`."""
    rows = spark.sql(f"{LOST_SQL} ORDER BY topic, partition, offset").collect()
    return [record_of(row) for row in rows]


def _key(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in _LOSS)


def _shown(row: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def record_of(row: Any) -> LostRecord:
    """Of a row of LOST_SQL."""
    return LostRecord(
        *(row.topic, row.partition, row.offset, row.producer, row.pseq),
        leader_epoch=-1 if row.leader_epoch is None else row.leader_epoch,
        acked_ns=row.t1,
        given_in=row.given_in,
        outlived=row.outlived,
    )
