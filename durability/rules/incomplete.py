"""Rule 23: a replica that the metadata has in the ISR lacks what was acknowledged and is served.

The ISR is asked for after the ledger was read, then files are read, then it is asked for again: who is not in
both has perhaps moved away.
"""

from holdfast.durability.rules.rule import END_OF_ROW, NO_SEND, Looks, Rule

RULE = Rule(
    name="incomplete",
    meaning="in-sync replica without acknowledged records",
    false_alarm="the broker lost power while its files were read, and was in the ISR again; files that were "
    "copied before the ledger was",
    looks=Looks.MEMBERS,
    sql=f"""
        SELECT topic, partition, coalesce(log_end, 0) AS offset, {NO_SEND},
               concat('replica ', broker, ' is in sync, offset ', needed - 1, ' is acknowledged, it ',
                      CASE WHEN log_end IS NULL THEN 'has no log'
                           ELSE concat('ends at ', log_end) END) AS detail,
               broker, segment, CAST(NULL AS long) AS position
        FROM members
        JOIN (SELECT topic, partition, least(max(offset) + 1, any_value(served_end)) AS needed
              FROM sends JOIN ends USING (topic, partition) WHERE acked GROUP BY topic, partition)
          USING (topic, partition)
        LEFT JOIN (SELECT broker, topic, partition, max(segment) AS segment,
                          max({END_OF_ROW}) AS log_end
                   FROM replica GROUP BY broker, topic, partition)
          USING (broker, topic, partition)
        WHERE is_in_sync AND needed > coalesce(log_end, 0)""",
)
