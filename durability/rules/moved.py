"""Rule 2: an acknowledged record is in its partition, but not where the acknowledgement said."""

from holdfast.durability.rules.rule import SAME_PARTITION, SAME_SEND, SENT, Looks, Rule

RULE = Rule(
    name="moved",
    meaning="acknowledged, only at another offset",
    false_alarm="none is known",
    looks=Looks.PAIRS,
    needs="acked",
    sql=f"""
        SELECT o.topic, o.partition, o.offset, o.run, o.producer, o.pseq,
               concat('found at offset ', min(n.offset)) AS detail
        FROM ({SENT} FROM odd WHERE acked) o JOIN near n ON {SAME_SEND} AND {SAME_PARTITION}
        GROUP BY o.topic, o.partition, o.offset, o.run, o.producer, o.pseq
        HAVING NOT bool_or(n.offset = o.offset)""",
)
