"""The rules of the verdict as SQL: one named query for each class, which returns the rows that break it.

Source: docs/validate.md, and docs/rules.md by number. Owns what is an anomaly; knows nothing of how
rows were read nor of exit codes. Every query gives (topic, partition, offset, run, producer, pseq, detail).

Views that the queries read:
- `sends`: one row a send (durability.ledger). A send is *acked* when acks=all was promised and answered.
- `log`: topic, partition, offset, state, producer, pseq, value_crc32c: one row a record that the cluster
  serves. `state` is `good`; `damaged` (its own checksum does not hold, so its name cannot be trusted);
  `foreign` (no value of a ledger's producer). A value names (producer, pseq), unique in a topic.
- `odd`: every send with each log row that bears its name, without the perfect pairs (`PAIRS_SQL`): of a good
  cluster nothing is left. `near`: all log rows of the sends in `odd`, the perfect ones too.
- `replica`, `marks`: batches of replica segment files, and each replica's high watermark. A row with a
  `problem` cannot be read; an empty segment is a row with nothing but its first offset.
"""

#: Sends with the log rows that bear their name. Rows of `damaged` and `foreign` state have no name.
PAIRS_SQL = """
SELECT s.run, coalesce(s.producer, l.producer) AS producer, coalesce(s.pseq, l.pseq) AS pseq,
       s.topic, s.partition, s.offset, s.leader_epoch, s.acked, s.weakly_acked, s.refused,
       s.pseq IS NOT NULL AS known,
       l.topic AS log_topic, l.partition AS log_partition, l.offset AS log_offset, l.state,
       l.topic IS NOT NULL AND s.value_crc32c IS NOT NULL AND l.value_crc32c <> s.value_crc32c AS differs,
       coalesce((s.acked OR s.weakly_acked) AND l.partition = s.partition AND l.offset = s.offset
                AND l.value_crc32c = s.value_crc32c, false) AS perfect
FROM (SELECT * FROM sends WHERE pseq IS NOT NULL) s
FULL OUTER JOIN log l ON s.producer = l.producer AND s.pseq = l.pseq AND s.topic = l.topic
"""

NEAR_SQL = """
SELECT l.* FROM log l
LEFT SEMI JOIN (SELECT DISTINCT producer, pseq FROM odd) o ON l.producer = o.producer AND l.pseq = o.pseq
"""

_SENT = "SELECT DISTINCT topic, partition, offset, run, producer, pseq"
_SAME_SEND = "n.producer = o.producer AND n.pseq = o.pseq"
_SAME_PARTITION = "n.topic = o.topic AND n.partition = o.partition"

#: Answered sends whose value is nowhere in its partition. After an unclean election an offset is given again:
#: a damaged record in that place can be the latest of them only.
_MISSING = f"""
        SELECT *, row_number() OVER (PARTITION BY topic, partition, offset
                                     ORDER BY leader_epoch DESC, pseq DESC, producer) AS nth
        FROM ({_SENT}, leader_epoch, acked FROM odd o
              WHERE (acked OR weakly_acked)
                AND NOT EXISTS (SELECT 1 FROM near n WHERE {_SAME_SEND} AND {_SAME_PARTITION}))"""

#: Allowed, but counted apart: acks=1 and acks=0 promise less, and an unanswered send may have worked.
ALLOWED = ("lost_weakly_acked", "recovered")

#: Class -> query, in the order of a report.
RULES: dict[str, str] = {
    # Rule 1. Its value is nowhere in its partition. A damaged row in its very place is `corrupt` instead.
    "lost": f"""
        {_SENT}, 'no record of its partition bears its name' AS detail FROM ({_MISSING}) o
        WHERE acked
          AND (nth > 1 OR NOT EXISTS (
                SELECT 1 FROM odd n WHERE n.state = 'damaged' AND n.log_topic = o.topic
                  AND n.log_partition = o.partition AND n.log_offset = o.offset))""",
    # Rule 2. It is in its partition, but not where the acknowledgement said.
    "moved": f"""
        SELECT o.topic, o.partition, o.offset, o.run, o.producer, o.pseq,
               concat('found at offset ', min(n.offset)) AS detail
        FROM ({_SENT} FROM odd WHERE acked) o JOIN near n ON {_SAME_SEND} AND {_SAME_PARTITION}
        GROUP BY o.topic, o.partition, o.offset, o.run, o.producer, o.pseq
        HAVING NOT bool_or(n.offset = o.offset)""",
    # Rule 5. Each copy of a send in its partition beyond the first; the acknowledged place counts as first.
    "duplicated": f"""
        SELECT topic, partition, offset, run, producer, pseq,
               concat('also at offset ', first_offset) AS detail
        FROM (SELECT n.topic, n.partition, n.offset, o.run, o.producer, o.pseq,
                     row_number() OVER copies AS nth, first_value(n.offset) OVER copies AS first_offset
              FROM ({_SENT} FROM odd WHERE known) o
              JOIN near n ON {_SAME_SEND} AND n.topic = o.topic
                         AND n.partition = coalesce(o.partition, n.partition)
              WINDOW copies AS (PARTITION BY n.topic, n.partition, o.producer, o.pseq
                                ORDER BY n.offset <=> o.offset DESC, n.offset))
        WHERE nth > 1""",
    # Rules 3, 4 and 21. Never sent, refused before the append, or in a partition that it was not sent to.
    "unexpected": """
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               CASE WHEN state = 'foreign' THEN 'not the value of a ledger'
                    WHEN NOT known THEN 'never sent'
                    WHEN refused THEN 'was refused before the append'
                    ELSE concat('was sent to ', topic, '-', partition) END AS detail
        FROM odd
        WHERE log_topic IS NOT NULL AND state <> 'damaged'
          AND (NOT known OR refused OR log_partition <> partition)""",
    # Rule 20. A value's own checksum does not hold, or is not the ledger's; also damaged batches of replicas.
    "corrupt": """
        SELECT log_topic AS topic, log_partition AS partition, log_offset AS offset, run, producer, pseq,
               CASE WHEN differs THEN 'checksum is not the ledger''s'
                    ELSE 'checksum does not hold' END AS detail
        FROM odd WHERE state = 'damaged' OR differs
        UNION ALL
        SELECT r.topic, r.partition, r.base_offset, NULL, NULL, NULL,
               concat('batch on replica ', r.broker, ', ', r.segment, ' at byte ', r.position)
        FROM replica r JOIN marks m USING (broker, topic, partition)
        WHERE r.damaged AND r.base_offset < m.high_watermark""",
    # Rule 7. Of one producer's acknowledged sends to one partition, a later one got a smaller offset.
    "reordered": """
        SELECT topic, partition, offset, run, producer, pseq,
               concat('an earlier send got offset ', highest) AS detail
        FROM (SELECT topic, partition, offset, run, producer, pseq,
                     max(offset) OVER (PARTITION BY producer, topic, partition ORDER BY pseq
                                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
              FROM sends WHERE acked)
        WHERE offset <= highest""",
    # Rules 16 and 17. Below their high watermarks two replicas hold different batches, or one has a hole.
    "diverged": """
        SELECT topic, partition, base_offset AS offset, NULL AS run, NULL AS producer, NULL AS pseq,
               concat('replicas ', array_join(array_sort(collect_set(broker)), ', '),
                      ' hold different batches') AS detail
        FROM replica JOIN marks USING (broker, topic, partition)
        WHERE last_offset < high_watermark AND problem IS NULL
        GROUP BY topic, partition, base_offset
        HAVING min(struct(leader_epoch, crc, last_offset)) <> max(struct(leader_epoch, crc, last_offset))
        UNION ALL
        SELECT topic, partition, next_offset, NULL, NULL, NULL,
               concat('replica ', broker, ' goes on at offset ', base_offset)
        FROM (SELECT *, lag(last_offset) OVER (PARTITION BY broker, topic, partition
                                               ORDER BY base_offset, position) + 1 AS next_offset
              FROM replica JOIN marks USING (broker, topic, partition))
        WHERE next_offset <> base_offset AND base_offset < high_watermark AND problem IS NULL""",
    # Allowed by acks=1 and acks=0, which promise less.
    "lost_weakly_acked": f"""
        {_SENT}, 'acks=1 or acks=0: may be lost with its leader' AS detail FROM odd o
        WHERE weakly_acked
          AND NOT EXISTS (SELECT 1 FROM near n WHERE {_SAME_SEND} AND {_SAME_PARTITION})""",
    # Sent, not acknowledged, there: allowed, for the answer may have been lost and not the record.
    "recovered": """
        SELECT log_topic AS topic, log_partition AS partition, min(log_offset) AS offset, run, producer, pseq,
               'sent, not acknowledged, there' AS detail
        FROM odd
        WHERE known AND NOT acked AND NOT weakly_acked AND NOT refused AND NOT differs
          AND log_partition = coalesce(partition, log_partition)
        GROUP BY ALL""",
}

#: How much of the replicas the comparison could see.
COMPARED_SQL = """
SELECT count(*) FROM replica JOIN marks USING (broker, topic, partition) WHERE last_offset < high_watermark
"""

#: Replicas that end below their own high watermark; `log_end` is NULL without a log. No violation: a power
#: cut may take what was not flushed, and the others still have it.
SHORT_SQL = """
SELECT broker, topic, partition, high_watermark,
       max(coalesce(CASE WHEN problem IS NULL THEN last_offset + 1 END, base_offset)) AS log_end
FROM marks LEFT JOIN replica USING (broker, topic, partition)
GROUP BY broker, topic, partition, high_watermark
HAVING log_end IS NULL AND high_watermark > 0 OR log_end < high_watermark
ORDER BY topic, partition, broker
"""

_COLUMNS = "topic, partition, offset, run, producer, pseq, detail"


def violations_sql(names: tuple[str, ...]) -> str:
    """All rows that break one of the named rules, with their class."""
    return "\nUNION ALL\n".join(
        f"SELECT '{name}' AS class, {_COLUMNS} FROM ({RULES[name]})" for name in names
    )


def findings_sql(samples_max: int) -> str:
    """Of view `violations`: exact counts by class and at most `samples_max` rows of each, in log order."""
    return f"""
        SELECT * FROM (
            SELECT *, count(*) OVER (PARTITION BY class) AS total,
                   row_number() OVER (PARTITION BY class
                                      ORDER BY topic, partition, offset, producer, pseq) AS nth
            FROM violations)
        WHERE nth <= {samples_max}
        ORDER BY class, nth"""
