"""Rule 17: in a segment file a batch begins before the end of one that stands before it."""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

RULE = Rule(
    name="file_order",
    meaning="batches of a replica overlap or stand out of order",
    false_alarm="a file that was truncated and written again while it was read",
    looks=Looks.REPLICAS,
    needs="uneven",
    sql=f"""
        SELECT topic, partition, base_offset AS offset, {NO_SEND},
               concat('replica ', broker, ', ', segment, ' at byte ', position,
                      ': a batch before it ends at ', highest) AS detail, broker, segment, position
        FROM (SELECT *, max(last_offset) OVER (PARTITION BY broker, topic, partition
                                               ORDER BY segment, position
                                               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
              FROM replica WHERE problem IS NULL)
        WHERE base_offset <= highest AND last_offset IS NOT NULL""",
)
