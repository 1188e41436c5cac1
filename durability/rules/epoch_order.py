"""Rule 18: in a replica's log a later offset has a smaller leader epoch."""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

RULE = Rule(
    name="epoch_order",
    meaning="leader epochs fall with the offset",
    false_alarm="a file that was truncated and written again while it was read",
    looks=Looks.REPLICAS,
    needs="uneven",
    sql=f"""
        SELECT topic, partition, base_offset AS offset, {NO_SEND},
               concat('replica ', broker, ', ', segment, ' at byte ', position, ': epoch ', leader_epoch,
                      ' behind epoch ', highest) AS detail, broker, segment, position
        FROM (SELECT *, max(leader_epoch) OVER (PARTITION BY broker, topic, partition
                                                ORDER BY base_offset, position
                                                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
              FROM replica WHERE problem IS NULL)
        WHERE leader_epoch < highest""",
)
