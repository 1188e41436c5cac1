"""Rule 11: a consumer was given a record that is not in the log any more, or another one is in its place.

What lies below the log's beginning was deleted on purpose. A record that is served damaged is `corrupt`. One
with the name that was polled and another checksum is not as it was sent: `corrupt`, or `polled_unsent`.
"""

from holdfast.durability.rules.rule import Looks, Rule, told_of_poll

RULE = Rule(
    name="polled_and_gone",
    meaning="polled, and gone or replaced since",
    false_alarm="records were deleted up to an offset while the log was read; the topic was compacted before",
    looks=Looks.POLLS,
    # several consumers may have been given the same record
    sql=f"""
        SELECT topic, partition, offset, run, producer, pseq, min(detail) AS detail
        FROM (SELECT p.topic, p.partition, p.offset, p.run, p.producer, p.pseq,
                     {
        told_of_poll('''CASE WHEN l.offset IS NULL THEN 'nothing is served in its place'
                         WHEN l.producer IS NULL THEN 'no value of a ledger is served in its place'
                         ELSE concat(l.producer, ' record ', l.pseq, ' is served in its place') END''')
    } AS detail
              FROM polls p
              LEFT JOIN log l ON l.topic = p.topic AND l.partition = p.partition AND l.offset = p.offset
              LEFT JOIN ends e ON e.topic = p.topic AND e.partition = p.partition
              WHERE p.offset >= coalesce(e.log_start, 0)
                AND (l.offset IS NULL
                     OR (l.state <> 'damaged'
                         AND (NOT (l.producer <=> p.producer AND l.pseq <=> p.pseq)
                              OR (p.producer IS NULL
                                  AND coalesce(l.value_crc32c <> p.value_crc32c, false))))))
        GROUP BY topic, partition, offset, run, producer, pseq""",
)
