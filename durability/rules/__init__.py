"""The rules of the verdict, one module each: what a row means, its query, and how it can be a false alarm.

Source: docs/validate.md, and docs/rules.md by number. Owns what is an anomaly and how all queries are asked
together; knows nothing of how rows were read nor of exit codes. `durability.rules.rule` describes the views.
"""

from collections.abc import Sequence

from holdfast.durability.rules import (
    corrupt,
    damaged,
    diverged,
    duplicated,
    epoch_checkpoint,
    epoch_order,
    file_order,
    headers_changed,
    incomplete,
    key_changed,
    lost,
    lost_weakly_acked,
    misplaced,
    moved,
    overtaken,
    poll_skipped,
    polled_again,
    polled_and_gone,
    polled_uncommitted,
    polled_unsent,
    recovered,
    reordered,
    reordered_unacked,
    rewritten,
    timestamp_changed,
    unexpected,
    unsent,
    unserved,
    watermark_back,
)
from holdfast.durability.rules.rule import END_OF_ROW, Rule

_MODULES = (
    lost, moved, duplicated, unexpected, misplaced, corrupt, key_changed, headers_changed, timestamp_changed,
    reordered, overtaken, diverged, unserved, unsent, damaged, incomplete, rewritten, epoch_order,
    epoch_checkpoint, file_order, polled_and_gone, polled_unsent, polled_again, poll_skipped,
    polled_uncommitted, watermark_back, recovered, lost_weakly_acked, reordered_unacked,
)  # fmt: skip
#: Name -> rule, in the order of a report.
RULES: dict[str, Rule] = {module.RULE.name: module.RULE for module in _MODULES}

#: Sends with the log rows that bear their name. Rows of `damaged` and `foreign` state have no name.
PAIRS_SQL = """
SELECT *, coalesce(placed AND NOT (key_differ OR headers_differ OR timestamp_differs), false) AS perfect
FROM (
SELECT s.run, coalesce(s.producer, l.producer) AS producer, coalesce(s.pseq, l.pseq) AS pseq,
       s.topic, s.partition, s.offset, s.leader_epoch, s.acked, s.weakly_acked, s.refused,
       s.pseq IS NOT NULL AS known,
       l.topic AS log_topic, l.partition AS log_partition, l.offset AS log_offset, l.state,
       l.topic IS NOT NULL AND s.value_crc32c IS NOT NULL AND l.value_crc32c <> s.value_crc32c AS differs,
       s.timestamp_ms, s.key_crc32c, s.headers_crc32c, l.timestamp_ms AS log_timestamp_ms,
       l.key_crc32c AS log_key_crc32c, l.headers_crc32c AS log_headers_crc32c,
       s.timestamp_ms IS NOT NULL AND l.topic IS NOT NULL AND NOT s.key_crc32c <=> l.key_crc32c AS key_differ,
       s.timestamp_ms IS NOT NULL AND l.topic IS NOT NULL AND NOT s.headers_crc32c <=> l.headers_crc32c
           AS headers_differ,
       coalesce(s.timestamp_ms <> l.timestamp_ms, false) AS timestamp_differs,
       (s.acked OR s.weakly_acked) AND l.partition = s.partition AND l.offset = s.offset
           AND l.value_crc32c = s.value_crc32c AS placed
FROM sends s
FULL OUTER JOIN log l ON s.producer = l.producer AND s.pseq = l.pseq AND s.topic = l.topic)
"""

NEAR_SQL = """
SELECT l.* FROM log l
LEFT SEMI JOIN (SELECT DISTINCT producer, pseq FROM odd) o ON l.producer = o.producer AND l.pseq = o.pseq
"""

#: Of view `odd`: sends without an offset of their own that the log has in their partition.
SEEN_UNPLACED_SQL = "known AND offset IS NULL AND log_partition = partition AND NOT refused"
#: Sends at an offset not above those of earlier sends of their producer to the partition. A send without an
#: offset of its own has that of its first record in the log.
ORDER_SQL = f"""
SELECT topic, partition, offset, run, producer, pseq, acked, highest, highest_acked
FROM (SELECT *, max(offset) OVER earlier AS highest,
             max(CASE WHEN acked THEN offset END) OVER earlier AS highest_acked
      FROM (SELECT topic, partition, offset, run, producer, pseq, acked
            FROM sends WHERE offset IS NOT NULL
            UNION ALL
            SELECT topic, partition, min(log_offset), run, producer, pseq, false
            FROM odd WHERE {SEEN_UNPLACED_SQL}
            GROUP BY topic, partition, run, producer, pseq)
      WINDOW earlier AS (PARTITION BY producer, topic, partition ORDER BY pseq
                         ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
WHERE offset <= highest
"""

_SERVED_SQL = """
SELECT l.topic, l.partition, l.offset AS last_offset, true AS is_served, l.batch_crc32c, l.batch_epoch
FROM log l LEFT SEMI JOIN replica b
  ON l.topic = b.topic AND l.partition = b.partition AND l.offset = b.last_offset
"""

#: Each batch of the replicas. Uneven: it cannot be read, or does not follow on the one before it in its file,
#: in offset or epoch, or copies of it differ. Unserved: or what is served at its last offset is another.
BATCHES_SQL = f"""
SELECT topic, uneven,
       uneven OR (last_offset IS NOT NULL
                  AND NOT coalesce(crc = batch_crc32c AND leader_epoch = batch_epoch, false)) AS unserved
FROM (SELECT topic, partition, max(last_offset) AS last_offset, max(crc) AS crc,
             max(leader_epoch) AS leader_epoch,
             bool_or(odd) OR min(struct(leader_epoch, crc, last_offset))
                          <> max(struct(leader_epoch, crc, last_offset)) AS uneven
      FROM (SELECT *, problem IS NOT NULL OR damaged OR last_offset < base_offset
                      OR coalesce(base_offset <> max(last_offset) OVER before + 1, false)
                      OR coalesce(leader_epoch < max(leader_epoch) OVER before, false) AS odd
            FROM replica
            WINDOW before AS (PARTITION BY broker, topic, partition ORDER BY segment, position
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
      GROUP BY topic, partition, base_offset)
LEFT JOIN ({_SERVED_SQL}) USING (topic, partition, last_offset)
"""

#: How much of the replicas there is, and how much of it the comparison could see: not what cannot be read.
#: A replica is compared that has a high watermark, and no batch when that is 0. `short`: replicas that end
#: below their own high watermark; `log_end` is NULL without a log. No violation: a power cut may take what
#: was not flushed, and the others still have it. `open`: not in sync, and where nothing says that it was
#: flushed something cannot be read that a power cut may have left so.
_COMPARED = """
       coalesce(sum(batches), 0) AS batches, coalesce(sum(compared), 0) AS compared,
       count_if(is_there AND (high_watermark > 0 OR (high_watermark = 0 AND batches = 0))) AS replicas,
       array_sort(collect_list(
           CASE WHEN log_end IS NULL AND high_watermark > 0 OR log_end < high_watermark
                THEN struct(topic, partition, broker, high_watermark, log_end, lacks_served) END)) AS short,
       array_sort(collect_list(CASE WHEN has_open AND NOT coalesce(is_in_sync, false)
                               THEN struct(topic, partition, broker) END)) AS open"""
_OF_REPLICAS = f"""
FROM (SELECT *, coalesce(is_in_sync AND coalesce(log_end, 0) < high_watermark
                         AND coalesce(log_end, 0) < served_end, false) AS lacks_served
FROM (SELECT broker, topic, partition, high_watermark, count(last_offset) AS batches,
             count_if(last_offset < high_watermark AND problem IS NULL) AS compared,
             bool_or(is_there) AS is_there, max({END_OF_ROW}) AS log_end,
             bool_or(is_there AND damaged IS NULL AND problem IS NOT NULL
                     AND base_offset < greatest(high_watermark, flushed_offset)) AS has_open
      FROM (SELECT *, true AS is_there FROM replica)
      FULL JOIN marks USING (broker, topic, partition)
      LEFT JOIN flushed USING (broker, topic, partition)
      GROUP BY broker, topic, partition, high_watermark)
LEFT JOIN members USING (broker, topic, partition)
LEFT JOIN (SELECT topic, partition, served_end FROM ends) USING (topic, partition))
"""
COMPARED_SQL = f"SELECT {_COMPARED} {_OF_REPLICAS}"
#: The same of each topic.
COMPARED_BY_TOPIC_SQL = f"SELECT topic, {_COMPARED} {_OF_REPLICAS} GROUP BY topic"

#: Batches of replicas of which no other rule says whether that is what was sent: nothing is served in their
#: place, or something else is and they lie above their high watermark. What lies below the log's beginning is
#: deleted.
STRAYS_SQL = f"""
SELECT broker, topic, partition, base_offset, crc, segment, position, served_end,
       last_offset - base_offset + 1 AS records
FROM replica r
LEFT JOIN marks USING (broker, topic, partition)
LEFT JOIN (SELECT topic, partition, log_start, served_end FROM ends) USING (topic, partition)
LEFT JOIN ({_SERVED_SQL}) USING (topic, partition, last_offset)
WHERE problem IS NULL AND last_offset >= coalesce(log_start, 0)
  AND (is_served IS NULL
       OR (last_offset >= coalesce(high_watermark, 0) AND NOT batch_crc32c <=> crc))
"""

#: Of view `violations`.
VIOLATIONS_SCHEMA = (
    "class string, topic string, partition int, offset long, run string, producer string, pseq long, "
    "detail string, broker int, segment string, position long"
)
#: Its columns that a verdict shows of a row.
SHOWN = ("topic", "partition", "offset", "run", "producer", "pseq", "detail", "broker", "segment", "position")
_COLUMNS = "topic, partition, offset, run, producer, pseq, detail"
_FILE_COLUMNS = "broker, segment, position"
_NO_FILE = "CAST(NULL AS int) AS broker, CAST(NULL AS string) AS segment, CAST(NULL AS long) AS position"


def violations_sql(rules: Sequence[Rule]) -> str:
    """All rows that break one of these rules, with their class."""
    return "\nUNION ALL\n".join(
        f"SELECT '{rule.name}' AS class, {_COLUMNS}, {_FILE_COLUMNS if rule.is_of_replicas else _NO_FILE} "
        f"FROM ({rule.sql})"
        for rule in rules
    )


def needs_sql(rules: Sequence[Rule], table: str, *more: str) -> str:
    """One row: of each of these rules, and of more conditions, whether a row of `table` is as it needs."""
    conditions = [*(rule.needs for rule in rules), *more]
    asked = ", ".join(f"coalesce(bool_or({condition}), false)" for condition in conditions)
    return f"SELECT {asked} FROM {table}"


def findings_sql(samples_max: int, by: str = "class") -> str:
    """Of view `violations`: exact counts by class, or by columns of which that is one, and at most
    `samples_max` rows of each, in log order."""
    return f"""
        SELECT * FROM (
            SELECT *, count(*) OVER (PARTITION BY {by}) AS total,
                   row_number() OVER (PARTITION BY {by}
                                      ORDER BY topic, partition, offset, producer, pseq) AS nth
            FROM violations)
        WHERE nth <= {samples_max}
        ORDER BY {by}, nth"""
