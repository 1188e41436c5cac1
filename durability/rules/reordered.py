"""Rule 7: of one producer's acknowledged sends to one partition, a later one got a smaller offset."""

from holdfast.durability.rules.rule import Looks, Rule

RULE = Rule(
    name="reordered",
    meaning="later send, smaller offset",
    false_alarm="a producer without idempotence reorders by its retries",
    looks=Looks.ORDER,
    sql="""
        SELECT topic, partition, offset, run, producer, pseq,
               concat('an earlier send got offset ', highest_acked) AS detail
        FROM disordered WHERE acked AND offset <= highest_acked""",
)
