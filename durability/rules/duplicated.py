"""Rule 5: a copy of a send in its partition beyond the first; the acknowledged place counts as first."""

from holdfast.durability.rules.rule import SAME_SEND, SENT, Looks, Rule

RULE = Rule(
    name="duplicated",
    meaning="more than once in its partition",
    false_alarm="a producer without idempotence sends again what was appended but not answered",
    looks=Looks.PAIRS,
    # of two records with one name one at most is where it belongs
    needs="known AND log_topic IS NOT NULL",
    sql=f"""
        SELECT topic, partition, offset, run, producer, pseq,
               concat('also at offset ', first_offset) AS detail
        FROM (SELECT n.topic, n.partition, n.offset, o.run, o.producer, o.pseq,
                     row_number() OVER copies AS nth, first_value(n.offset) OVER copies AS first_offset
              FROM ({SENT} FROM odd WHERE known) o
              JOIN near n ON {SAME_SEND} AND n.topic = o.topic
                         AND n.partition = coalesce(o.partition, n.partition)
              WINDOW copies AS (PARTITION BY n.topic, n.partition, o.producer, o.pseq
                                ORDER BY n.offset <=> o.offset DESC, n.offset))
        WHERE nth > 1""",
)
