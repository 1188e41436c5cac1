"""Rule 1: an acknowledged record is nowhere in its partition."""

from holdfast.durability.rules.rule import SAME_PARTITION, SAME_SEND, SENT, Looks, Rule

#: Answered sends whose value is nowhere in its partition. After an unclean election an offset is given again:
#: a damaged record in that place can be the latest of them only.
_MISSING = f"""
        SELECT *, row_number() OVER (PARTITION BY topic, partition, offset
                                     ORDER BY leader_epoch DESC, pseq DESC, producer) AS nth
        FROM ({SENT}, leader_epoch, acked FROM odd o
              WHERE (acked OR weakly_acked)
                AND NOT EXISTS (SELECT 1 FROM near n WHERE {SAME_SEND} AND {SAME_PARTITION}))"""

RULE = Rule(
    name="lost",
    meaning="acknowledged, nowhere in its partition",
    false_alarm="the topic was created anew and the ledger is of a producer that writes no topic ids",
    looks=Looks.PAIRS,
    needs="acked",
    # A damaged row in its very place is `corrupt` instead.
    sql=f"""
        {SENT}, 'no record of its partition bears its name' AS detail FROM ({_MISSING}) o
        WHERE acked
          AND (nth > 1 OR NOT EXISTS (
                SELECT 1 FROM odd n WHERE n.state = 'damaged' AND n.log_topic = o.topic
                  AND n.log_partition = o.partition AND n.log_offset = o.offset))""",
)
