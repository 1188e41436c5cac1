"""Verdicts on topics that were compacted and are not any more: what is missing was removed on purpose.

A topic that is compacted now is not judged at all (`durability.cluster_look`). What of one that was shows
only in what is missing, so the past is asked when something is.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from holdfast.durability.judge import sample_of
from holdfast.durability.log_dir_files import topic_id_of, was_compacted
from holdfast.durability.rules import findings_sql
from holdfast.durability.segments import replica_folders
from holdfast.durability.verdict import FORBIDDEN, SAMPLES_MAX, Verdict

#: Whether a topic was compacted in its present life; None when that is not known.
WasCompacted = Callable[[str], bool | None]

#: What compaction looks like: records are gone, and replicas are not compacted at the same time.
_BY_COMPACTION = ("lost", "diverged", "unserved", "damaged", "polled_and_gone")

#: Those of them that are one record each, whose place may be a hole.
_OF_RECORDS = ("lost", "polled_and_gone")

_FOUND_SQL = f"""
SELECT topic, name, count(*) AS found, count_if(is_hole) AS holes
FROM (SELECT v.topic, v.class AS name,
             v.class IN {_OF_RECORDS} AND l.offset IS NULL
               AND coalesce(v.offset < e.served_end, false) AS is_hole
      FROM violations v
      LEFT JOIN (SELECT DISTINCT topic, partition, offset FROM log) l USING (topic, partition, offset)
      LEFT JOIN ends e USING (topic, partition)
      WHERE v.class IN {_BY_COMPACTION})
GROUP BY topic, name ORDER BY topic, name
"""


@dataclass(frozen=True, slots=True)
class _Excuse:
    """Why what was found of a topic in these classes says nothing."""

    reason: str
    names: frozenset[str]


def with_compaction(
    spark: Any,
    verdict: Verdict,
    log_dirs: Mapping[int, str],
    topic_ids: Mapping[str, str],
    was_compacted_once: WasCompacted,
) -> Verdict:
    """The verdict, inconclusive when compaction may have done all that is wrong; when some of it, in doubt
    and without that. `topic_ids`: as the cluster has them."""
    if not any(verdict.counts.get(name) for name in _BY_COMPACTION):
        return verdict
    found: dict[str, dict[str, Any]] = {}
    for row in spark.sql(_FOUND_SQL).collect():
        found.setdefault(row.topic, {})[row.name] = row
    excuses = {
        topic: excuse
        for topic, rows in found.items()
        if (excuse := _excuse(topic, rows, log_dirs, topic_ids.get(topic), was_compacted_once)) is not None
    }
    reasons = [excuse.reason for excuse in excuses.values()]
    if not reasons:
        return verdict
    counts = dict(verdict.counts)
    for topic, excuse in excuses.items():
        for name in excuse.names:
            counts[name] -= found[topic][name].found
    if not any(counts.get(name) for name in FORBIDDEN):
        return replace(verdict, inconclusive=(*verdict.inconclusive, *reasons))
    return replace(
        verdict, counts=counts, samples=_samples(spark, excuses), doubts=(*verdict.doubts, *reasons)
    )


def _samples(spark: Any, excuses: Mapping[str, _Excuse]) -> dict[str, list[dict[str, Any]]]:
    """Taken again of what is not excused: those of the verdict may all be. View `violations` is without what
    is, for stories and reports."""
    # names that a cluster has need no quoting
    excused = " OR ".join(
        f"topic = '{topic}' AND class = '{name}'"
        for topic, excuse in excuses.items()
        for name in sorted(excuse.names)
    )
    left = spark.table("violations").where(f"NOT ({excused})").localCheckpoint()
    left.createOrReplaceTempView("violations")
    samples: dict[str, list[dict[str, Any]]] = {}
    for row in spark.sql(findings_sql(SAMPLES_MAX)).collect():
        samples.setdefault(row["class"], []).append(sample_of(row))
    return samples


def _excuse(
    topic: str,
    rows: Mapping[str, Any],
    log_dirs: Mapping[int, str],
    topic_id: str | None,
    was_compacted_once: WasCompacted,
) -> _Excuse | None:
    """None when what was found says something."""
    known = True if _has_compacted_replica(log_dirs, topic, topic_id) else was_compacted_once(topic)
    if known:
        reason = f"{topic} was compacted before: records were removed on purpose, and it is not judged"
        return _Excuse(reason, frozenset(rows))
    missing = {name: row for name, row in rows.items() if name in _OF_RECORDS}
    if known is None and missing and all(row.holes == row.found for row in missing.values()):
        what = "lost records" if missing.keys() == {"lost"} else "lost and polled records"
        holes = sum(row.holes for row in missing.values())
        reason = (
            f"{topic}: {holes} {what} are holes in the log, as compaction leaves them, and the metadata log "
            "does not tell whether the topic was compacted before"
        )
        return _Excuse(reason, frozenset(missing))
    return None


def _has_compacted_replica(log_dirs: Mapping[int, str], topic: str, topic_id: str | None) -> bool:
    """As far as it can be seen: a loss is one, too, when a disk is gone. Folders of an earlier topic of the
    name say nothing of this one."""
    dirs = {path: broker for broker, text in log_dirs.items() for path in text.split(",")}
    for path, broker in dirs.items():
        with suppress(OSError):
            if any(
                was_compacted(folder.path) and topic_id_of(folder.path) in (None, topic_id)
                for folder in replica_folders({path: broker}, frozenset((topic,)))
            ):
                return True
    return False
