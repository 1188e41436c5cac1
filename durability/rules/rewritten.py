"""Rule 19: in one leader epoch one offset has two values, above the high watermark too.

A leader gives each offset of its epoch once. Followers that hold something else got it from nowhere, and no
comparison of epochs will ever show it. What lies below all high watermarks is `diverged`.
"""

from holdfast.durability.rules.rule import NO_SEND, Looks, Rule

RULE = Rule(
    name="rewritten",
    meaning="one epoch and offset, two values",
    false_alarm="none is known",
    looks=Looks.REPLICAS,
    needs="uneven",
    sql=f"""
        SELECT topic, partition, base_offset AS offset, {NO_SEND},
               concat('replicas ', array_join(array_sort(collect_set(broker)), ', '),
                      ' hold different batches of epoch ', leader_epoch) AS detail,
               max(broker) AS broker, max_by(segment, broker) AS segment, max_by(position, broker) AS position
        FROM replica LEFT JOIN marks USING (broker, topic, partition)
        WHERE problem IS NULL AND last_offset IS NOT NULL
        GROUP BY topic, partition, base_offset, leader_epoch
        HAVING min(struct(last_offset, crc)) <> max(struct(last_offset, crc))
           AND bool_or(last_offset >= coalesce(high_watermark, 0))""",
)
