"""Verdicts on topics that were compacted and are not any more: what is missing was removed on purpose.

A topic that is compacted now is not judged at all (`durability.cluster_look`). What of one that was shows
only in what is missing, so the past is asked when something is.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.durability.rules import RULES
from holdfast.durability.segments import replica_folders, was_compacted
from holdfast.durability.verdict import Verdict

#: Whether a topic was compacted in its present life; None when that is not known.
WasCompacted = Callable[[str], bool | None]

#: What compaction looks like: records are gone, and replicas are not compacted at the same time.
_BY_COMPACTION = ("lost", "diverged", "unserved", "damaged", "polled_and_gone")

_FOUND_SQL = f"""
SELECT topic, count(*) AS found, count_if(class IN {_BY_COMPACTION}) AS suspect,
       count_if(is_hole) AS holes, count_if(is_hole AND class = 'lost') AS lost_holes
FROM (SELECT v.topic, v.class,
             v.class IN ('lost', 'polled_and_gone') AND l.offset IS NULL
               AND coalesce(v.offset < e.served_end, false) AS is_hole
      FROM violations v
      LEFT JOIN (SELECT DISTINCT topic, partition, offset FROM log) l USING (topic, partition, offset)
      LEFT JOIN ends e USING (topic, partition)
      WHERE v.class IN {tuple(name for name, rule in RULES.items() if rule.is_forbidden)})
GROUP BY topic ORDER BY topic
"""


def with_compaction(
    spark: Any, verdict: Verdict, log_dirs: Mapping[int, str], was_compacted_once: WasCompacted
) -> Verdict:
    """The verdict, inconclusive when compaction may have done all that is wrong, in doubt when some of it."""
    if not any(verdict.counts.get(name) for name in _BY_COMPACTION):
        return verdict
    rows = spark.sql(_FOUND_SQL).collect()
    reasons = [reason for row in rows if (reason := _reason(row, log_dirs, was_compacted_once))]
    if not reasons:
        return verdict
    if len(reasons) == len(rows):
        return replace(verdict, inconclusive=(*verdict.inconclusive, *reasons))
    return replace(verdict, doubts=(*verdict.doubts, *reasons))


def _reason(row: Any, log_dirs: Mapping[int, str], was_compacted_once: WasCompacted) -> str | None:
    """Why what was found of a topic says nothing; None when it does."""
    if not row.suspect:
        return None
    known = True if _has_compacted_replica(log_dirs, row.topic) else was_compacted_once(row.topic)
    if known:
        return f"{row.topic} was compacted before: records were removed on purpose, and it is not judged"
    if known is None and row.holes == row.found:
        what = "lost records" if row.lost_holes == row.holes else "lost and polled records"
        return (
            f"{row.topic}: {row.holes} {what} are holes in the log, as compaction leaves them, and the "
            "metadata log does not tell whether the topic was compacted before"
        )
    return None


def _has_compacted_replica(log_dirs: Mapping[int, str], topic: str) -> bool:
    """As far as it can be seen: a loss is one, too, when a disk is gone."""
    dirs = {path: broker for broker, text in log_dirs.items() for path in text.split(",")}
    for path, broker in dirs.items():
        with suppress(OSError):
            if any(
                was_compacted(folder.path) for folder in replica_folders({path: broker}, frozenset((topic,)))
            ):
                return True
    return False
