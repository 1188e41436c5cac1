"""Ledgers in which there is nothing to look at, and logs that add up to the same: most of what is judged.

`durability.digests` has the sums. What they cannot say is left to `durability.ledger` and the rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.durability.digest_jobs import ledger_sums, log_sums
from holdfast.durability.digests import LedgerSums
from holdfast.durability.ledger import Totals
from holdfast.durability.ledger_files import ledger_files
from holdfast.durability.ledger_lines import ORDER, PROBLEM, TOPIC_ID, TORN, surely_in_order
from holdfast.durability.ledger_source import sizes_of
from holdfast.durability.read_options import OffsetRange, ReadOptions


@dataclass(frozen=True, slots=True)
class SettledLedger:
    """A ledger whose sends were all acknowledged (acks=all), in order, with nothing odd in its lines."""

    #: {file: bytes that were read}; a closer look must see no more
    sizes: Mapping[str, int]
    sums: LedgerSums
    totals: Totals

    def is_served(self, spark: Any, options: ReadOptions, ranges: Sequence[OffsetRange]) -> bool:
        """True when these ranges of the log hold exactly the ledger's records, each in its place and as it
        was sent. Raises: what Spark raises."""
        with_fields = self.totals.with_fields > 0
        return self.sums.is_as(log_sums(spark, options, ranges, with_fields=with_fields))


def settled_ledger(spark: Any, path: str) -> SettledLedger | None:
    """The ledger, read to its end. None: `ledger.read_sends` has to look closer, or to say what is wrong.

    Raises: UnreadableLedger when there is none.
    """
    sizes = sizes_of(ledger_files(path))
    sums, remarks = ledger_sums(spark, sizes)
    if not sums.is_settled or any(remark.kind == PROBLEM for remark in remarks):
        return None
    if not surely_in_order(remark.text for remark in remarks if remark.kind == ORDER):
        return None
    topic_ids: dict[str, tuple[str, ...]] = {}
    for remark in remarks:
        if remark.kind == TOPIC_ID:
            topic_ids[remark.topic] = (*topic_ids.get(remark.topic, ()), remark.text)
    last_partitions: dict[str, int] = {}
    for writer, extent in sums.extents.items():
        last_partitions[writer.topic] = max(extent.last_partition, last_partitions.get(writer.topic, 0))
    count = sum(one.sends for one in sums.sums.values())
    totals = Totals(
        sent=count,
        acked=count,
        weakly_acked=0,
        refused=0,
        unanswered=0,
        unknown=0,
        with_fields=sum(one.with_fields for one in sums.sums.values()),
        topics=tuple(sorted({writer.topic for writer in sums.sums})),
        runs=tuple(sorted({writer.run for writer in sums.sums})),
        producers=len({(writer.run, writer.producer) for writer in sums.sums}),
        torn_lines=sum(remark.kind == TORN for remark in remarks),
        topic_ids=topic_ids,
        last_partitions=last_partitions,
        in_order=True,
    )
    return SettledLedger(sizes, sums, totals)
