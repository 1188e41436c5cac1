"""Rule 1 for acks=1 and acks=0, which promise less: such records may be lost with their leader."""

from holdfast.durability.rules.rule import SAME_PARTITION, SAME_SEND, SENT, Looks, Rule

RULE = Rule(
    name="lost_weakly_acked",
    meaning="acks=1 or acks=0, gone",
    false_alarm="it is allowed",
    looks=Looks.PAIRS,
    needs="weakly_acked",
    is_forbidden=False,
    sql=f"""
        {SENT}, 'acks=1 or acks=0: may be lost with its leader' AS detail FROM odd o
        WHERE weakly_acked
          AND NOT EXISTS (SELECT 1 FROM near n WHERE {SAME_SEND} AND {SAME_PARTITION})""",
)
