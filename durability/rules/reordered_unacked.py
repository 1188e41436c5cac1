"""Rule 7 for sends that were promised less: acks=1 and acks=0, and sends without an answer, by the offsets
at which they are seen."""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="reordered_unacked",
    meaning="as reordered, where one of the two was not acknowledged by all",
    false_alarm="it is one only of idempotent producers, and not after an unclean election",
    looks=Looks.ORDER,
    is_forbidden=False,
    sql="""
        SELECT topic, partition, offset, run, producer, pseq,
               concat('an earlier send got offset ', highest) AS detail
        FROM disordered WHERE NOT (acked AND offset <= coalesce(highest_acked, -1))""",
)
